"""Measures the disks under folders, at most once a second.

A folder that cannot be measured is left out: other checks report what is wrong with it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path

from peloton.runtime.core.disk_room import DiskRoom

MEASURE_EVERY_S = 1.0


class DiskMeasure:
    """The disks under some folders, by the folders' purposes. Safe to call from any thread."""

    def __init__(self, folders: Mapping[str, Path]) -> None:
        self._folders = dict(folders)
        self._last: tuple[float, tuple[DiskRoom, ...]] | None = None

    def __call__(self) -> tuple[DiskRoom, ...]:
        """Return one `DiskRoom` per disk, with the purposes of all folders on it."""
        now = time.monotonic()
        last = self._last
        if last is None or now - last[0] >= MEASURE_EVERY_S:
            self._last = last = now, self._measured()
        return last[1]

    def _measured(self) -> tuple[DiskRoom, ...]:
        found: dict[int, DiskRoom] = {}
        for name, folder in self._folders.items():
            try:
                device, disk = os.stat(folder).st_dev, os.statvfs(folder)
            except OSError:
                continue
            before = found[device].of if device in found else ()
            found[device] = DiskRoom(
                (*before, name),
                disk.f_bavail * disk.f_frsize,
                disk.f_blocks * disk.f_frsize,
                disk.f_favail if disk.f_files else None,
            )
        return tuple(found.values())
