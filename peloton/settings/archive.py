"""The retention of ended jobs: `archive` of a daemon's file.

Turns texts with units into seconds and bytes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

import msgspec

ARCHIVE_AFTER, FORGET_AFTER = "1d", "30d"
KEEP_BYTES = "64MB"
NEVER = "never"
AFTER_S_MAX = 100 * 365 * 86400.0
UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
PIECE = re.compile(r"([0-9]+(?:\.[0-9]+)?)([smhd])", re.ASCII)
BYTES_MAX = 10**12
UNITS_BYTES = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9}
AMOUNT = re.compile(r"([0-9]+(?:\.[0-9]+)?)(B|kB|MB|GB)", re.ASCII)


class ArchiveSetting(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """When an ended job leaves memory at the latest (`after`), and is deleted (`forget_after`).

    Values are texts such as `90s`, `12h` or `1d12h`, counted from the end; `forget_after` may be
    `never`. `keep_bytes`: the size of ended jobs in the memory of all shards together, such as
    `64MB`; beyond it the oldest leave sooner.
    """

    after: str = ARCHIVE_AFTER
    forget_after: str = FORGET_AFTER
    keep_bytes: str = KEEP_BYTES

    @property
    def after_s(self) -> float:
        """When a job leaves memory, in s; not after it is deleted."""
        return min(seconds(self.after), self.forget_after_s)

    @property
    def forget_after_s(self) -> float:
        """When a job is deleted, in s; infinite if never."""
        return math.inf if self.forget_after == NEVER else seconds(self.forget_after)


def byte_count(text: str) -> float:
    """Parse a number of bytes with a unit. Raises ValueError."""
    found = AMOUNT.fullmatch(text)
    if found is None:
        raise ValueError(
            f"{text!r} is not a number of bytes with a unit, such as 500kB, 64MB or 1GB"
        )
    number = float(found[1]) * UNITS_BYTES[found[2]]
    if number > BYTES_MAX:
        raise ValueError(f"{text!r} is more than {BYTES_MAX / 10**9:g}GB")
    return number


def seconds(text: str) -> float:
    """Parse a length of time with units; return seconds. Raises ValueError."""
    pieces = PIECE.findall(text)
    if not pieces or "".join(number + unit for number, unit in pieces) != text:
        raise ValueError(f"{text!r} is not a length of time with units, such as 90s, 12h or 30d")
    found = sum(float(number) * UNITS_S[unit] for number, unit in pieces)
    if found > AFTER_S_MAX:
        raise ValueError(f"{text!r} is longer than {AFTER_S_MAX / 86400:g}d")
    return found


def archive_problems(found: ArchiveSetting) -> Iterator[str]:
    """Yield what is wrong."""
    forgets = found.forget_after != NEVER
    for name, text, read in (
        ("after", found.after, seconds),
        *([("forget_after", found.forget_after, seconds)] if forgets else []),
        ("keep_bytes", found.keep_bytes, byte_count),
    ):
        try:
            read(text)
        except ValueError as error:
            yield f"archive.{name}: {error}"
