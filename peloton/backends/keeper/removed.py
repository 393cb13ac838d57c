"""Lists of runs beside the sandboxes: those removed last, with the rule, and those that failed.

A list has one line for each run and a bounded length: it begins anew when it is long, and the one
before is kept. No record depends on it, so it is not made safe on disk.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from .disk import DISK, Disk, read_file, write_all

REMOVED, REMOVED_BEFORE = "removed", "removed.before"
"""For whoever asks for the files. Each line: run, rule, the rule's number, time."""
FAILED, FAILED_BEFORE = "failed", "failed.before"
"""For the next keeper: of which of the runs that it finds the files go last."""
LENGTH_MAX = 1024 * 1024


def note_removed(
    runs: Iterable[tuple[str, str]], *, limits: dict[str, float], now: float, disk: Disk = DISK
) -> None:
    """Note the removed sandboxes of runs, with the rule. Raises OSError."""
    lines = [f"{run_id}\t{rule}\t{limits[rule]:g}\t{now:.0f}\n" for run_id, rule in runs]
    _append(REMOVED, REMOVED_BEFORE, lines=lines, disk=disk)


def note_failed(runs: Iterable[str], *, disk: Disk = DISK) -> None:
    """Note runs that failed. Raises OSError."""
    _append(FAILED, FAILED_BEFORE, lines=[f"{run_id}\n" for run_id in runs], disk=disk)


def failed_runs(disk: Disk = DISK) -> set[str]:
    """Return the failed runs that were noted last. Raises OSError."""
    found: set[str] = set()
    for path in (FAILED_BEFORE, FAILED):
        try:
            found.update(read_file(path, disk).decode(errors="replace").splitlines())
        except FileNotFoundError:
            continue
    return found


def _append(path: str, before: str, *, lines: list[str], disk: Disk) -> None:
    if not lines:
        return
    fd = disk.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if os.fstat(fd).st_size > LENGTH_MAX:
            disk.rename(path, before)
            disk.close(fd)
            fd = disk.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        write_all(fd, "".join(lines).encode(), disk=disk)
    finally:
        disk.close(fd)
