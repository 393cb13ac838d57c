"""The room on the disks under a daemon's folders: when it is too little, and the text for that.

Judges numbers that an adapter has measured; `condition` decides what becomes of the daemon.
"""

from __future__ import annotations

from typing import NamedTuple

FULL_PART, FULL_BYTES = 0.01, 4_000_000
"""A disk is full with less than both: a part of its size, and so many bytes."""
SCARCE_PART, SCARCE_BYTES = 0.05, 1_000_000_000
"""Almost full, likewise."""
MEGABYTE = 1e6


class DiskRoom(NamedTuple):
    """A disk under the folders of some purposes; `free_bytes` are those that we may write."""

    of: tuple[str, ...]
    free_bytes: int
    size_bytes: int
    files_left: int | None = None
    """How many files more; None where the file system has no such limit."""

    @property
    def is_full(self) -> bool:
        """Whether next to nothing can be written."""
        least = min(FULL_BYTES, FULL_PART * self.size_bytes)
        return self.free_bytes < least or self.files_left == 0

    @property
    def is_scarce(self) -> bool:
        """Whether a person should make room soon."""
        least = min(SCARCE_BYTES, SCARCE_PART * self.size_bytes)
        return self.is_full or self.free_bytes < least

    def __str__(self) -> str:
        how = "full" if self.is_full else "almost full"
        under = " and ".join(self.of)
        if self.files_left == 0:
            return f"full under {under}: no file more can be made"
        free, size = self.free_bytes / MEGABYTE, self.size_bytes / MEGABYTE
        return f"{how} under {under}: {free:.1f} MB of {size:.0f} MB are free"
