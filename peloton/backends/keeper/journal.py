"""The keeper's journal: one file of JSON lines, appended, now and then rewritten.

Turns records into bytes that survive a `kill -9` (once written) or a power cut (once synced).

One file instead of one per run: a whole batch of launches or ends then costs one sync.

After a failed write or sync nothing is appended any more: the content of the file is unknown, and
a second fsync after a failed one reports success for bytes that are gone. Only `rewrite`, which
makes a new file from memory, repairs it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from typing import Any

from .disk import DISK, Disk, read_file, sync_folder, write_all

JournalRecord = dict[str, Any]

# `json.dumps` with separators builds an encoder at every call.
_ENCODE = json.JSONEncoder(separators=(",", ":")).encode


class KeeperJournalFailed(Exception):
    """A write that may not have happened: nothing that depends on these records may be reported."""


class KeeperJournal:
    """The journal of the working folder. `disk`: in tests one that loses what was not synced."""

    def __init__(self, path: str, disk: Disk = DISK) -> None:
        self._path = path
        self._disk = disk
        self._fd = -1
        self.size_bytes = 0
        self.rewritten_bytes = 0
        self.broken = False

    def read(self) -> list[JournalRecord]:
        """Return everything up to the first line that is not whole.

        A keeper killed in the middle of a write leaves such a tail, and nothing was reported
        because of it.
        """
        try:
            data = read_file(self._path, self._disk)
        except FileNotFoundError:
            return []
        records: list[JournalRecord] = []
        for line in data.split(b"\n")[:-1]:
            try:
                records.append(json.loads(line))
            except ValueError:
                break
        return records

    def rewrite(self, records: Iterable[JournalRecord]) -> None:
        """Replace the file; the old one stays whole until the new one is safe."""
        data = _lines(records)
        fresh = self._path + ".new"
        try:
            fd = self._disk.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
            try:
                write_all(fd, data, disk=self._disk)
                self._disk.fsync(fd)
                self._disk.rename(fresh, self._path)
                sync_folder(os.path.dirname(self._path) or ".", self._disk)
            except BaseException:
                self._disk.close(fd)
                raise
        except OSError as trouble:
            self.broken = True
            raise KeeperJournalFailed(str(trouble)) from trouble
        old, self._fd = self._fd, fd
        if old >= 0:
            try:
                self._disk.close(old)
            except OSError:
                pass  # nobody reads that file again
        self.size_bytes = self.rewritten_bytes = len(data)
        self.broken = False

    def append(self, records: Iterable[JournalRecord], *, sync: bool) -> None:
        if self.broken:
            raise KeeperJournalFailed("a write failed earlier")
        data = _lines(records)
        try:
            write_all(self._fd, data, disk=self._disk)
            if sync:
                self._disk.fdatasync(self._fd)
        except OSError as trouble:
            self.broken = True
            raise KeeperJournalFailed(str(trouble)) from trouble
        self.size_bytes += len(data)

    def close(self) -> None:
        if self._fd >= 0:
            self._disk.close(self._fd)
            self._fd = -1


def _lines(records: Iterable[JournalRecord]) -> bytes:
    return "".join(f"{_ENCODE(record)}\n" for record in records).encode()
