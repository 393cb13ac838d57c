"""How long ended jobs are kept: `archive` of a daemon's file, options of a minicluster.

Turns texts with units into seconds. It must not know what is done with them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

import msgspec

ARCHIVE_AFTER, FORGET_AFTER = "1d", "30d"
NEVER = "never"
AFTER_S_MAX = 100 * 365 * 86400.0
UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
PIECE = re.compile(r"([0-9]+(?:\.[0-9]+)?)([smhd])", re.ASCII)


class ArchiveSetting(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`after`: an ended job leaves memory at the latest; `forget_after`: it is deleted.

    Texts such as `90s`, `12h` or `1d12h`, counted from the end; `forget_after` may be `never`.
    """

    after: str = ARCHIVE_AFTER
    forget_after: str = FORGET_AFTER

    @property
    def after_s(self) -> float:
        """Seconds; a job leaves memory before it is deleted."""
        return min(seconds(self.after), self.forget_after_s)

    @property
    def forget_after_s(self) -> float:
        """Seconds; infinite if jobs are never deleted."""
        return math.inf if self.forget_after == NEVER else seconds(self.forget_after)


def seconds(text: str) -> float:
    """Of a length of time with units. Raises ValueError."""
    pieces = PIECE.findall(text)
    if not pieces or "".join(number + unit for number, unit in pieces) != text:
        raise ValueError(f"{text!r} is no length of time with units, such as 90s, 12h or 30d")
    found = sum(float(number) * UNITS_S[unit] for number, unit in pieces)
    if found > AFTER_S_MAX:
        raise ValueError(f"{text!r} is longer than {AFTER_S_MAX / 86400:g}d")
    return found


def archive_problems(found: ArchiveSetting, *, after: str, forget_after: str) -> Iterator[str]:
    """What is wrong; the two fields by the names that a person typed."""
    for name, text in ((after, found.after), (forget_after, found.forget_after)):
        if name == forget_after and text == NEVER:
            continue
        try:
            seconds(text)
        except ValueError as error:
            yield f"{name}: {error}"
