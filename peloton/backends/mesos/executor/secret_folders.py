"""The folders of secret files of a machine's executors, and their removal after kills.

They are not in the sandboxes, which an agent shows: they are in memory if there is some, else in a
folder of the machine's disk. Each executor has a folder of its own, beside a lock that it holds
while it lives, so that others, and its guardian, know that a folder has no owner any more: a
process of this number may be another one, or in another container.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from collections.abc import Iterable
from typing import NamedTuple

from peloton.backends.keeper.secret_files import MEMORY, is_ours, remove_place

DISK = "/var/tmp"  # noqa: S108 - a folder of ours in it, that nobody else can enter
PARENTS = (MEMORY, DISK)
PREFIX, LOCK = "peloton-mesos-", ".lock"
_BYTES = 8
_TRIES = 5


class _Folder(NamedTuple):
    """A folder of ours, and the descriptor of its lock."""

    root: str
    lock: int


class SecretFolders:
    """The places of one executor. Nothing is made before they are asked for."""

    def __init__(self, parents: Iterable[str] = PARENTS) -> None:
        self._parents = tuple(parents)
        self._taken: dict[str, _Folder] = {}

    def roots(self) -> list[str]:
        """Return the folders, the best first; the caller makes them.

        Raises OSError if no folder can be held. One whose name others have taken, while nothing lay
        there, is given up.
        """
        trouble: OSError | None = None
        for parent in self._parents:
            folder = self._taken.get(parent)
            if folder is not None and os.path.lexists(folder.root) and not is_ours(folder.root):
                self._give_up(parent)
            try:
                if parent not in self._taken:
                    self._taken[parent] = _take(parent)
            except OSError as found:
                trouble = found
        if not self._taken:
            raise trouble or FileNotFoundError("no folder for files of secrets")
        return [self._taken[parent].root for parent in self._parents if parent in self._taken]

    def close(self) -> None:
        """Give up the places: no file of ours is needed any more."""
        for folder in self._taken.values():
            os.close(folder.lock)
        self._taken = {}
        sweep(self._parents)

    def _give_up(self, parent: str) -> None:
        folder = self._taken.pop(parent)
        with contextlib.suppress(OSError):
            os.unlink(folder.root + LOCK)
        os.close(folder.lock)


def _take(parent: str) -> _Folder:
    """Hold a folder.

    A process that sweeps just now may take the lock before us: then another name is tried. The
    folder comes first, as everybody can read the name of the lock, and make what should be ours.
    """
    for _ in range(_TRIES):
        root = f"{parent}/{PREFIX}{os.urandom(_BYTES).hex()}"
        os.mkdir(root, 0o700)
        try:
            lock = os.open(root + LOCK, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except OSError:
            os.rmdir(root)
            raise
        if _lock(root + LOCK, lock):
            return _Folder(root, lock)
        os.close(lock)
        remove_place(root)
    raise BlockingIOError(f"others take what we make in {parent}")


def sweep(parents: Iterable[str] = PARENTS) -> None:
    """Remove what dead executors of this account have left."""
    for parent in parents:
        try:
            names = os.listdir(parent)
        except OSError:
            continue
        for name in names:
            if name.startswith(PREFIX) and name.endswith(LOCK):
                _clear(f"{parent}/{name}")


def _clear(lock: str) -> None:
    """Clear a folder. What cannot be removed stays for the next executor."""
    try:
        found = os.lstat(lock)
        if found.st_uid != os.geteuid() or not stat.S_ISREG(found.st_mode):
            return
        descriptor = os.open(lock, os.O_WRONLY | os.O_NOFOLLOW)
    except OSError:
        return
    try:
        if _lock(lock, descriptor):
            root = lock.removesuffix(LOCK)
            remove_place(root)
            if not os.path.lexists(root):
                os.unlink(lock)
    except OSError:
        return
    finally:
        os.close(descriptor)


def _lock(path: str, descriptor: int) -> bool:
    """Return whether we hold the lock now, and it is still the file of this name."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        named, opened = os.lstat(path), os.fstat(descriptor)
    except (BlockingIOError, FileNotFoundError):
        return False
    return (named.st_dev, named.st_ino) == (opened.st_dev, opened.st_ino)
