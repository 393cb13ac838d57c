"""The file of the audit log, and the older ones beside it.

Lines are written as a whole or not at all. At `FILE_BYTES_MAX` the file becomes `audit.log.1`, and
so on up to `audit.log.8`; older ones are deleted.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from peloton.runtime.adapters.private_folder import user_name

FILE_BYTES_MAX = 64 * 1024 * 1024
FILES_KEPT_MAX = 8
_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW


class AuditFile:
    """The current file and the older ones. Lines are written as a whole or not at all."""

    def __init__(self, path: Path, *, file_bytes_max: int) -> None:
        self.path = path
        self._bytes_max = file_bytes_max
        self._descriptor, self._size = self._open()

    def write(self, data: bytes) -> None:
        """Append lines. Raises OSError; then none of them is written."""
        self._reopen_if_gone()
        if self._size and self._size + len(data) > self._bytes_max:
            self._rotate()
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
        except OSError:
            os.ftruncate(self._descriptor, self._size)
            raise
        self._size += len(data)

    def sync(self) -> None:
        """Sync what was written, so that it survives a power cut."""
        os.fdatasync(self._descriptor)

    def close(self) -> None:
        os.close(self._descriptor)

    def _open(self) -> tuple[int, int]:
        try:
            descriptor = os.open(self.path, _FLAGS, 0o600)
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            raise self._refusal("it is a symbolic link") from error
        try:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                raise self._refusal("it is not a regular file")
            if found.st_uid != os.geteuid():
                raise self._refusal(f"it belongs to user {user_name(found.st_uid)}")
            os.fchmod(descriptor, 0o600)
            size = found.st_size
            if size and _last_byte(self.path) != b"\n":  # a power cut came between
                size += os.write(descriptor, b"\n")
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor, size

    def _refusal(self, why: str) -> OSError:
        return OSError(errno.EPERM, why, str(self.path))

    def _reopen_if_gone(self) -> None:
        """Reopen the file if it was moved or removed: lines in a file without a name are lost."""
        ours = os.fstat(self._descriptor)
        try:
            found = os.stat(self.path, follow_symlinks=False)
        except FileNotFoundError:
            found = None
        if found is None or (found.st_ino, found.st_dev) != (ours.st_ino, ours.st_dev):
            self._replace()

    def _rotate(self) -> None:
        os.fdatasync(self._descriptor)
        for number in range(FILES_KEPT_MAX - 1, 0, -1):
            older = self._numbered(number)
            if older.exists():
                older.replace(self._numbered(number + 1))
        self.path.replace(self._numbered(1))
        self._replace()

    def _replace(self) -> None:
        before = self._descriptor
        self._descriptor, self._size = self._open()
        os.close(before)

    def _numbered(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}")


def _last_byte(path: Path) -> bytes:
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1)
