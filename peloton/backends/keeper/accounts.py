"""The account that a run is started as, and whether that account can reach its sandbox.

Turns the names in a request (the spec's user, the authenticated caller, the setting for all others)
into an account of this machine, or into AccountUnusable with the reason. A name that cannot be used
must never become the keeper's own account, which may be root.

A lookup asks the machine's directory of accounts, which may be a server: the answers are kept for
a while, so that a batch of launches asks once.
"""

from __future__ import annotations

import os
import pwd
import stat
import time
from collections.abc import Callable
from typing import Any, NamedTuple

KEPT_S = 30.0
_UID_MIN = 1000
_LOGIN_DEFS = "/etc/login.defs"
KEPT_MAX = 1024
# Services without an account of their own share it, so it is no person's.
_NOBODY, _NOBODY_UID = "nobody", 65534
WANTED = ("user", "caller", "task_user")
"""What a request may name: the user of its spec; the caller that was authenticated when the job was
created; and the account for runs that name neither."""


class Account(NamedTuple):
    """An account of the machine; `groups` are all of its groups."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    home: str

    @property
    def environment(self) -> dict[str, str]:
        """The variables that name the account."""
        return {"HOME": self.home, "USER": self.name, "LOGNAME": self.name}


class AccountUnusable(Exception):
    """The run must not be started under the account; the text says why."""


def look_up(name: str) -> Account | None:
    """Return the account of this name; a number is no name."""
    try:
        found = pwd.getpwnam(name)
    except (KeyError, ValueError):  # ValueError: a name that no account can have
        return None
    groups = tuple(os.getgrouplist(found.pw_name, found.pw_gid))
    return Account(found.pw_name, found.pw_uid, found.pw_gid, groups, found.pw_dir)


def least_uid(path: str = _LOGIN_DEFS) -> int:
    """The first user id of this machine that is a person's: UID_MIN, or 1000 if it says none."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            for line in file:
                name, *values = line.split("#")[0].split() or [""]
                if name == "UID_MIN" and len(values) == 1 and values[0].isdecimal():
                    return int(values[0])
    except OSError:
        pass  # not every machine has the file
    return _UID_MIN


class Accounts:
    """Chooses the account of each run. `own_uid` is the keeper's user."""

    def __init__(
        self,
        own_uid: int,
        *,
        find: Callable[[str], Account | None] = look_up,
        clock: Callable[[], float] = time.monotonic,
        uid_min: int | None = None,
    ) -> None:
        self._own_uid = own_uid
        self._uid_min = least_uid() if uid_min is None else uid_min
        self._find = find
        self._clock = clock
        self._kept: dict[str, tuple[float, Account | None]] = {}

    def of(self, wanted: dict[str, str]) -> Account | None:
        """Return the account of a run; None for the keeper's own. Raises AccountUnusable."""
        if self._own_uid != 0:
            self._check_own(wanted.get("user") or wanted.get("task_user", ""))
            return None
        user, caller = wanted.get("user", ""), wanted.get("caller", "")
        if caller:
            if user not in ("", caller):
                raise AccountUnusable(f"{caller} must not run tasks as {user}")
            return self._of_caller(caller)
        name = user or wanted.get("task_user", "")
        found = self._account(name) if name else None
        return found if found is not None and found.uid != self._own_uid else None

    def _check_own(self, name: str) -> None:
        """Refuse another user's name: only root can start a process as another user."""
        if name and self._account(name).uid != self._own_uid:
            text = f"the tasks of this daemon run as user {self._own_uid}, as it is not root"
            raise AccountUnusable(f"cannot run as {name}: {text}")

    def _of_caller(self, caller: str) -> Account:
        found = self._account(caller)
        if found.uid == 0:
            text = "tasks of callers never run as root (user 0)"
            raise AccountUnusable(f"cannot run as {caller}: {text}")
        if found.uid < self._uid_min:
            text = f"user {found.uid} is a system account (below UID_MIN, {self._uid_min})"
            raise AccountUnusable(f"cannot run as {caller}: {text}")
        if found.name == _NOBODY or found.uid == _NOBODY_UID:
            text = "tasks of callers never run as nobody"
            raise AccountUnusable(f"cannot run as {caller}: {text}")
        return found

    def _account(self, name: str) -> Account:
        now = self._clock()
        at, found = self._kept.get(name, (-KEPT_S, None))
        if name not in self._kept or now - at >= KEPT_S:
            found = self._find(name)
            if len(self._kept) >= KEPT_MAX:
                self._kept.clear()
            self._kept[name] = now, found
        if found is None:
            raise AccountUnusable(f"cannot run as {name}: this machine has no such account")
        return found


def closed_above(folder: str, account: Account) -> str:
    """Return the first folder on the way to this one that the account may not pass, or "".

    Access lists count as far as the mode shows them. Raises OSError.
    """
    parts = [part for part in folder.split("/") if part]
    for end in range(len(parts) + 1):
        path = "/" + "/".join(parts[:end])
        found = os.stat(path)
        if not _may_pass(found, account):
            return f"{path} (mode {stat.S_IMODE(found.st_mode):04o})"
    return ""


def _may_pass(folder: os.stat_result, account: Account) -> bool:
    if folder.st_uid == account.uid:
        return bool(folder.st_mode & stat.S_IXUSR)
    if folder.st_gid in account.groups:
        return bool(folder.st_mode & stat.S_IXGRP)
    return bool(folder.st_mode & stat.S_IXOTH)


def wanted_of(request: dict[str, Any]) -> dict[str, str]:
    """Return the names in a request, as text. Raises AttributeError for what is no mapping."""
    return {name: str(request[name]) for name in WANTED if request.get(name)}
