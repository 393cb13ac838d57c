"""How much room the disks under a daemon's folders have: when that is too little, and its text.

Turns numbers that somebody has measured into what is wrong. It must not measure anything, nor
decide what becomes of a daemon: `condition` does.
"""

from __future__ import annotations

from typing import NamedTuple

FULL_PART, FULL_BYTES = 0.01, 4_000_000
"""A disk is full with less than both: a part of its size, and so many bytes."""
SCARCE_PART, SCARCE_BYTES = 0.05, 1_000_000_000
"""Almost full, likewise."""
MEGABYTE = 1e6


class DiskRoom(NamedTuple):
    """The disk under the folders of one or more purposes; bytes that we may still write."""

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
