"""The data folder of a process, kept by a lock that does not fence writers: the register does.

The lock turns the commonest mistake, a second daemon on the same folder, into a clear error at
once. The lock ends with the process, however that ends; its descriptor is closed on exec, because a
child process (the keeper outlives the daemon by design) would otherwise hold the folder for ever.

The folder is for one user alone. Where others could open the lock file before, one of them may hold
it still: such a lock is not obeyed, the file is replaced.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from types import TracebackType

from peloton.runtime.adapters import private_folder
from peloton.runtime.adapters.claimed_folder import JOURNAL, LOCK, NEW_LOCK, own_names
from peloton.runtime.adapters.folder_origin import FolderLease

_LOCKS = Path("/proc/locks")


class FolderTaken(Exception):
    """Another process uses the folder; `pid` is 0 if that process has not written its own."""

    def __init__(self, path: Path, pid: int) -> None:
        super().__init__(f"{path} is in use by pid {pid}" if pid else f"{path} is in use")
        self.path = path
        self.pid = pid


class DataFolder:
    """A data folder, created if missing and locked until `close`. Raises FolderTaken, OSError."""

    def __init__(self, path: Path) -> None:
        private_folder.make(path)
        self.path = path
        self.tightened = self.secure()
        """What other users could open until now, for people."""
        self.lease: FolderLease | None = None
        """The folder's id; released with the folder."""
        self.copied = ""
        """What it is a copy of, for people, while it is to be adopted."""
        self._descriptor = _locked(path)
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)

    def secure(self) -> list[str]:
        """Keep the folder and the files of Peloton in it from other users."""
        return private_folder.secure(self.path, [LOCK, *own_names(self.path)])

    @property
    def journal_path(self) -> Path:
        return self.path / JOURNAL

    def close(self) -> None:
        """Release the folder.

        The lock file stays: if it were removed, two processes could lock two files of one name.
        """
        if self.lease is not None:
            self.lease.close()
            self.lease = None
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> DataFolder:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _locked(path: Path) -> int:
    """Lock the file and return its descriptor."""
    descriptor = _open(path / LOCK)
    try:
        found = os.fstat(descriptor).st_ino
        free, pid = _lock(descriptor), _pid_in(descriptor)
        if (path / LOCK).stat().st_ino != found or not free and not locked_by_others_only(found):
            raise FolderTaken(path, pid)
    except BaseException:
        os.close(descriptor)
        raise
    if free:
        return descriptor
    os.close(descriptor)
    return _replaced(path, found)


def _replaced(path: Path, inode: int) -> int:
    """Replace a lock file that another user holds by one of our own; return its descriptor.

    Of several processes one locks the draft; the others are refused, and may be started again.
    """
    descriptor = _open(path / NEW_LOCK)
    if not _lock(descriptor) or (path / LOCK).stat().st_ino != inode:
        os.close(descriptor)
        raise FolderTaken(path, 0)
    (path / NEW_LOCK).replace(path / LOCK)
    return descriptor


def _open(file: Path) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    return os.open(file, flags, private_folder.FILE_MODE)


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _pid_in(descriptor: int) -> int:
    text = os.pread(descriptor, 32, 0).strip()
    return int(text) if text.isdigit() else 0


def locked_by_others_only(inode: int) -> bool:
    """Return whether only processes of other users, except root, hold the lock; if
    unsure, False."""
    holders = [
        int(words[4])
        for words in map(str.split, _LOCKS.read_text(encoding="ascii").splitlines())
        if len(words) > 5 and words[1] == "FLOCK" and words[5].endswith(f":{inode}")
    ]
    try:
        users = {os.stat(f"/proc/{pid}").st_uid for pid in holders}
    except OSError:  # it has exited, or is not to be seen from here
        return False
    return bool(users) and not users & {os.geteuid(), 0}
