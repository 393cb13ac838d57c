"""The data folder of a process, held by a lock; it must not be relied on to fence writers.

The lock turns the commonest mistake, a second daemon on the same folder, into a clear error at
once. The register of the journal fences. The lock ends with the process, however that ends; its
descriptor is closed on exec, because a child process (the keeper outlives the daemon by design)
would otherwise hold the folder for ever.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from types import TracebackType


class FolderHeld(Exception):
    """Another process has the folder; `pid` is 0 if it did not get to write its own."""

    def __init__(self, path: Path, pid: int) -> None:
        super().__init__(f"{path} is held by pid {pid}" if pid else f"{path} is held")
        self.path = path
        self.pid = pid


class DataFolder:
    """Create the folder if missing and hold it until `close`. Raises FolderHeld."""

    def __init__(self, path: Path) -> None:
        path.mkdir(parents=True, exist_ok=True)
        self.path = path
        lock = path / "lock"
        self._descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            text = os.pread(self._descriptor, 32, 0).strip()
            os.close(self._descriptor)
            raise FolderHeld(path, int(text) if text.isdigit() else 0) from None
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)

    @property
    def journal_path(self) -> Path:
        return self.path / "journal.sqlite"

    def close(self) -> None:
        """Release the folder. The lock file stays: if it were removed, two processes could lock
        two files of one name."""
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
