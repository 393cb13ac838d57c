"""What a caller may do, by the operator's file of permissions (`permissions_file.py`).

Rules and a principal determine rights: which pools and jobs the caller may see, stop or submit to.
A name that was not proved matches nothing but `*`. `gates.py` finds out what a call is about.

A job is under the rules of the path that its pool had when it was created. Neither this path nor
its creator ever changes, so nothing can come between a check of a job and the act; a pool that is
renamed takes only its new jobs along.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import structlog

from peloton.runtime.core.health import NotReadyReason
from peloton.runtime.core.principal import PART_LENGTH_MAX, VERIFIED_BY, Principal, creator_in
from peloton.runtime.core.reading.filters import BELOW, CREATOR, Where, nearest
from peloton.settings.config import BadSetting
from peloton.settings.permissions_file import (
    EVERYBODY,
    OF_KIND,
    ROLE,
    ROOT_PATH,
    Permission,
    PoolRules,
    read_access,
)

SETTLED_S = 1.0
"""How long a file stays as it is before it is taken: one that is still being written may be valid
YAML without its last rules."""
RIGHTS_KEPT_MAX = 1024
"""Callers whose rights are kept; at the limit all are dropped."""
PREFIXES = (ROLE, *(f"{how}:" for how in VERIFIED_BY))
INCLUDED_IN = {
    Permission.SEE: (Permission.SEE, Permission.STOP, Permission.ADMINISTER),
    Permission.STOP: (Permission.STOP, Permission.ADMINISTER),
    Permission.SUBMIT: (Permission.SUBMIT, Permission.ADMINISTER),
    Permission.ADMINISTER: (Permission.ADMINISTER,),
}
ACCESS = "access"

log = structlog.get_logger("gateway")


class Rights:
    """What one caller may do; the value never changes."""

    def __init__(self, rules: PoolRules, principal: Principal) -> None:
        self._rules = rules
        self._who = _names_of(principal)
        # A longer name is journaled in part, so it cannot be told from others.
        known = principal.authenticated and len(principal.name) < PART_LENGTH_MAX
        self._name = principal.owner if known else ""
        self.everything = self._named(Permission.ADMINISTER, ROOT_PATH)
        """Whether they administer the root: then nothing is refused to them or hidden."""
        own = (Where("created_by", CREATOR, (self._name,)),) if self._name else ()
        self.listing = (Where("pool_path", BELOW, self._signs(), others=own),)
        """What a query for summaries of jobs tests for in addition."""

    def may(self, permission: Permission, path: str) -> bool:
        """Return whether the caller may do this in the pool at a path."""
        return self.everything or any(self._named(one, path) for one in INCLUDED_IN[permission])

    def may_below(self, permission: Permission, path: str) -> bool:
        """Return whether the caller may do this at every path below this one that a rule names."""
        inside = path.rstrip("/") + "/"
        return self.everything or all(
            self.may(permission, ruled) for ruled in self._rules if ruled.startswith(inside)
        )

    def sees_pool(self, path: str) -> bool:
        """Return whether the caller may see the pool: every permission there shows it."""
        return any(self.may(one, path) for one in (Permission.SEE, Permission.SUBMIT))

    def may_with_job(self, permission: Permission, path: str, *, created_by: str) -> bool:
        """Return whether the caller may do this with a job in the pool; its creator may see and
        stop it."""
        created = bool(self._name) and creator_in(created_by) == self._name
        return created or self.may(permission, path)

    def may_with_kind(self, permission: Permission, kind: str) -> bool:
        """Return whether the caller may do this with the actors of an extension's kind."""
        rule = self._rules.get(OF_KIND + kind, {})
        shown_by = (Permission.SUBMIT,) if permission == Permission.SEE else ()
        named = (rule.get(one, frozenset()) for one in (*INCLUDED_IN[permission], *shown_by))
        return self.everything or any(not names.isdisjoint(self._who) for names in named)

    def _signs(self) -> tuple[str, ...]:
        """Return the paths below which other things are visible than above, with + if more are."""
        signs: dict[str, str] = {}
        paths = (path for path in self._rules if not path.startswith(OF_KIND))
        for path in sorted({ROOT_PATH, *paths}):  # parents before children
            sign = "+" if self.may(Permission.SEE, path) else "-"
            if nearest(path, signs.get) != sign:
                signs[path] = sign
        return tuple(sign + path for path, sign in signs.items())

    def _named(self, permission: Permission, path: str) -> bool:
        """Return whether the nearest pool that names this permission names the caller."""

        def names_at(at: str) -> frozenset[str] | None:
            return self._rules.get(at, {}).get(permission)

        found: frozenset[str] | None = nearest(path, names_at)
        return found is not None and not found.isdisjoint(self._who)


def _names_of(principal: Principal) -> frozenset[str]:
    """Return the entries of a rule that mean this caller."""
    who = [EVERYBODY]
    if principal.authenticated:
        # A name in the form of another entry must not pass for it.
        if principal.owner != EVERYBODY and not principal.owner.startswith(PREFIXES):
            who.append(principal.name)
        if principal.name not in ("", EVERYBODY):
            who.append(f"{principal.how}:{principal.name}")
        if principal.role:
            who.append(ROLE + principal.role)
    return frozenset(who)


class _Loaded(NamedTuple):
    rules: PoolRules
    rights: dict[tuple[str, str, str], Rights]


class Permissions:
    """The rules in force. Without a file all callers may do everything."""

    def __init__(
        self,
        file: Path | None = None,
        *,
        whose: Callable[[Any], Principal] = attrgetter("principal"),
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Load the file. Raises BadSetting for a file that cannot be used.

        `whose` returns who makes a call. `clock` gives seconds since 1970, as the times of files
        do.
        """
        self.whose = whose
        self._clock = clock
        self._file = file
        self._loaded: _Loaded | None = None
        self._seen: _FileState | None = None  # the state of the file that was taken, or refused
        self._bad = ""  # why the file as it is now is not in force
        self._reading = threading.Lock()
        if file is not None:
            self._seen = _state_of(file)
            self._loaded = _Loaded(read_access(file), {})

    @property
    def restricts(self) -> bool:
        """Return whether there are rules at all; that never changes."""
        return self._file is not None

    def rights(self, context: Any) -> Rights | None:
        """Return what the caller may do; None if that is everything."""
        return self.rights_of(self.whose(context)) if self.restricts else None

    def rights_of(self, principal: Principal) -> Rights | None:
        """Return what a principal may do that need not be calling; None if that is everything."""
        loaded = self._in_force()
        if loaded is None:
            return None
        key = principal.name, principal.role, principal.how
        found = loaded.rights.get(key)
        if found is None:
            found = Rights(loaded.rules, principal)
            if len(loaded.rights) >= RIGHTS_KEPT_MAX:
                loaded.rights.clear()
            loaded.rights[key] = found
        return None if found.everything else found

    def notes(self) -> tuple[NotReadyReason, ...]:
        """Return what health says; it is no reason against being ready."""
        self._in_force()
        return (NotReadyReason(ACCESS, self._bad),) if self._bad else ()

    def _in_force(self) -> _Loaded | None:
        """Return the rules of the file as it is now, read again if it has changed.

        So no call after a quiet time is served under rules that were revoked in it.
        """
        if self._file is not None and self._changed(_state_of(self._file)):
            with self._reading:
                state = _state_of(self._file)
                if self._changed(state):
                    self._read(self._file, state)
        return self._loaded

    def _changed(self, state: _FileState | None) -> bool:
        """Return whether the file is another than the one that was read, and complete."""
        if state == self._seen:
            return False
        # A clock that was set back must not keep a file from being read for long.
        return state is None or abs(self._clock() - state.changed_ns / 1e9) >= SETTLED_S

    def _read(self, file: Path, state: _FileState | None) -> None:
        try:
            rules = read_access(file)
            if _state_of(file) != state:
                return  # it was changed meanwhile: the next call looks again
            self._loaded, self._bad = _Loaded(rules, {}), ""
            log.info("permissions were read", file=str(file))
        except BadSetting as error:
            self._bad = f"{error.texts[0]}; the rules read before it are still in force"
            log.error("permissions could not be read", reasons=[*error.texts])
        self._seen = state


class _FileState(NamedTuple):
    """What changes with every change of a file. No user can set a file's time of change."""

    changed_ns: int
    written_ns: int
    size: int
    inode: tuple[int, int]
    owner_and_mode: tuple[int, int]


def _state_of(file: Path) -> _FileState | None:
    """Return the state of a file, or None if there is no file."""
    try:
        found = file.stat()
    except OSError:
        return None
    return _FileState(
        found.st_ctime_ns,
        found.st_mtime_ns,
        found.st_size,
        (found.st_dev, found.st_ino),
        (found.st_uid, found.st_mode),
    )
