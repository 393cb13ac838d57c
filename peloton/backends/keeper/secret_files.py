"""Secrets of runs as files: outside of the sandboxes, in memory where the machine has that.

Turns values that came with a launch into files that only the run's account can read, linked to
where the run expects them, and removes them once the run has ended. A value must not be noted
anywhere else, nor appear in an error. Files in a sandbox outlive their run and are shown to
clients, so a sandbox only ever has links; links are neither listed nor followed for them.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import NamedTuple

from .accounts import Account
from .disk import write_all
from .kinds import KeeperRun

MEMORY, MOUNTS = "/dev/shm", "/proc/self/mounts"  # noqa: S108 - a folder of ours in it
IN_MEMORY = ("tmpfs", "ramfs")
FOLDER = "secrets"
"""Within the keeper's folder: where the machine has no file system in memory, or no room there."""
PATH_CHARS_MAX = 1024
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
_LEFT_MAX = 4096


class RunSecret(NamedTuple):
    """A value and the path of its file; never shown."""

    path: str
    data: bytes

    def __repr__(self) -> str:
        return f"RunSecret({self.path!r})"


def path_problem(path: str) -> str:
    """Return why a file cannot have this path below a sandbox; empty if it can."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if not parts or path.endswith("/"):
        return "names no file"
    if ".." in parts:
        return "leaves the sandbox"
    if "\0" in path or "\n" in path:
        return "has a character that no path should have"
    if len(path) > PATH_CHARS_MAX:
        return f"has {len(path)} characters, the limit is {PATH_CHARS_MAX}"
    return "" if parts not in (["stdout"], ["stderr"]) else "is the log of the run"


def below(path: str) -> str:
    """Return the path within a sandbox: an absolute one begins there as well."""
    return "/".join(part for part in path.split("/") if part not in ("", "."))


class SecretFiles:
    """The secret files of one keeper. Nothing is made before a run has a secret.

    `mark`: a name that no other keeper of this machine has. `places`: other folders than by that
    name, the best first; raises OSError if there are none.
    """

    def __init__(
        self,
        folder: str,
        mark: Callable[[], str],
        *,
        memory: str = MEMORY,
        places: Callable[[], Iterable[str]] | None = None,
    ) -> None:
        self._folder = folder
        self._mark = mark
        self._memory = memory
        self._places = places or self._by_mark
        self._held: set[str] = set()

    def put(self, run: KeeperRun, sandbox: str) -> None:
        """Write the secrets of a run that is about to start; `sandbox` is within the folder.

        Raises OSError, with paths of ours alone.
        """
        if not run.secrets:
            return
        account: Account | None = run.command.get("account")
        self._held.add(run.run_id)
        files = self._written(run, account)
        if run.container:
            run.command["mounts"] = [*zip(files, (one.path for one in run.secrets), strict=True)]
            return
        for file, secret in zip(files, run.secrets, strict=True):
            link = f"{self._folder}/{sandbox}/{below(secret.path)}"
            os.makedirs(os.path.dirname(link), mode=0o755, exist_ok=True)
            os.symlink(file, link)

    def drop(self, run_id: str) -> None:
        """Remove the secrets of a run that is over, or was not started."""
        if run_id not in self._held:
            return
        self._held.discard(run_id)
        try:
            roots = [*self._places()]
        except OSError:  # there were none: nothing lies anywhere
            return
        for root in roots:
            _remove(f"{root}/{run_id}")
            _remove_empty(root)

    def sweep(self, keep: Collection[str]) -> None:
        """Remove the files of runs that are over; called at the start of a keeper."""
        for root in self._places():
            if not is_ours(root):
                continue
            for name in os.listdir(root):
                if name in keep:
                    self._held.add(name)
                else:
                    _remove(f"{root}/{name}")
            _remove_empty(root)

    def _written(self, run: KeeperRun, account: Account | None) -> list[str]:
        """Write a run's files and return them. If memory has no room, they go to the disk."""
        trouble: OSError | None = None
        for root in self._places():
            if root.startswith(self._memory) and not _is_in_memory(self._memory):
                continue
            place = f"{root}/{run.run_id}"
            try:
                _open_root(root, passed=account is not None)
                _remove(place)
                return _write(place, run.secrets, account=account)
            except OSError as error:
                trouble = error
                _remove(place)
        raise trouble or FileNotFoundError("there is no place for files of secrets")

    def _by_mark(self) -> Iterator[str]:
        """Yield the folders by the keeper's mark, the best first."""
        yield f"{self._memory}/peloton-{self._mark()}"
        yield f"{self._folder}/{FOLDER}"


def remove_place(root: str) -> None:
    """Remove a folder of ours whose keeper is gone, with its content."""
    if is_ours(root):
        for name in os.listdir(root):
            _remove(f"{root}/{name}")
        _remove_empty(root)


def _is_in_memory(folder: str) -> bool:
    try:
        with open(MOUNTS, encoding="utf-8", errors="replace") as file:
            # The last mount of a place is the one that is seen.
            kinds = [line.split()[2] for line in file if line.split()[1:2] == [folder]]
    except OSError:
        return False
    return bool(kinds) and kinds[-1] in IN_MEMORY


def is_ours(root: str) -> bool:
    """Return whether the folder is ours: everybody can make a folder of this name in memory."""
    try:
        found = os.lstat(root)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()


def _open_root(root: str, *, passed: bool) -> None:
    """Make the folder if it is missing; other accounts may pass it to their own files."""
    try:
        os.mkdir(root, 0o700)
    except FileExistsError:
        if not is_ours(root):
            raise PermissionError(f"{root} belongs to another user") from None
    os.chmod(root, 0o711 if passed or os.stat(root).st_mode & stat.S_IXOTH else 0o700)


def _write(place: str, secrets: tuple[RunSecret, ...], *, account: Account | None) -> list[str]:
    """Write secrets as files named by numbers, as paths may have folders.

    The folder stays ours: the account reads its files, and can put nothing beside them.
    """
    os.mkdir(place, 0o700)
    found = []
    for number, secret in enumerate(secrets):
        file = f"{place}/{number}"
        descriptor = os.open(file, _NEW, 0o400)
        try:
            write_all(descriptor, secret.data)
            os.fchmod(descriptor, 0o400)
            if account is not None:
                os.fchown(descriptor, account.uid, account.gid)
        finally:
            os.close(descriptor)
        found.append(file)
    if account is not None:
        os.chmod(place, 0o711)
    return found


def _remove(place: str) -> None:
    """Remove a folder. What cannot be removed stays for the next keeper."""
    try:
        for name in os.listdir(place)[:_LEFT_MAX]:
            os.unlink(f"{place}/{name}")
        os.rmdir(place)
    except OSError:
        return


def _remove_empty(root: str) -> None:
    try:
        os.rmdir(root)
    except OSError:
        return  # other runs have files there
