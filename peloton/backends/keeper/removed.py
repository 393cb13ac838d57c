"""The sandboxes that were removed last, each with the rule that removed it: for whoever asks.

One line for each in a file beside them: run, rule, the rule's number, time. It has a bounded
length: it begins anew when it is long, and the one before is kept. It is no record that anything
depends on, so it is not made safe on disk.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from .disk import DISK, Disk, write_all

REMOVED, REMOVED_BEFORE = "removed", "removed.before"
LENGTH_MAX = 1024 * 1024


def note_removed(
    runs: Iterable[tuple[str, str]], *, limits: dict[str, float], now: float, disk: Disk = DISK
) -> None:
    """Raises OSError."""
    lines = [f"{run_id}\t{rule}\t{limits[rule]:g}\t{now:.0f}\n" for run_id, rule in runs]
    if not lines:
        return
    fd = disk.open(REMOVED, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if os.fstat(fd).st_size > LENGTH_MAX:
            disk.rename(REMOVED, REMOVED_BEFORE)
            disk.close(fd)
            fd = disk.open(REMOVED, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        write_all(fd, "".join(lines).encode(), disk=disk)
    finally:
        disk.close(fd)
