"""The time zones that this machine knows, by their names.

A zone is read from the machine's present tables. A kind gets this function as an argument, and
journals the moments, which later tables must not change.
"""

from __future__ import annotations

import re
from datetime import UTC, tzinfo
from zoneinfo import ZoneInfo

OF_A_MACHINE = frozenset(("Factory", "localtime", "posixrules"))
"""Files beside the zones that mean another one on each machine."""
_ZONE = re.compile(r"[A-Za-z][A-Za-z0-9_+-]*(?:/[A-Za-z0-9_+-]+)*")


def zone_of(name: str) -> tzinfo:
    """Return the time zone of a name such as Europe/Berlin. Raises ValueError."""
    if name in ("", "UTC"):
        return UTC
    try:
        if _ZONE.fullmatch(name) is None or name in OF_A_MACHINE:
            raise ValueError
        return ZoneInfo(name)
    except (ValueError, LookupError, OSError):
        raise ValueError(f"{name!r} is not a time zone, such as UTC or Europe/Berlin") from None
