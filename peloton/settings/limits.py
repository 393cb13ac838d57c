"""The limits of a daemon: `limits` of its file.

Turns numbers and names into problems.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from peloton.settings.config import RECEIVE_MAX_BYTES

CHECKPOINT_BYTES_MIN = 1024 * 1024
WATCHES, WATCHES_MAX = 1000, 16_384
QUARANTINE_AFTER, QUARANTINE_AFTER_MAX = 10, 30
SCARCE_TYPES = ("GPU",)


class LimitSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The limits. `quarantine_after`: 0, hosts are never quarantined.

    Hosts that have one of `scarce_resource_types` are for tasks that ask for it. `watches`: streams
    of WatchService.
    """

    receive_max_bytes: int = RECEIVE_MAX_BYTES
    checkpoint_bytes_min: int = CHECKPOINT_BYTES_MIN
    quarantine_after: int = QUARANTINE_AFTER
    scarce_resource_types: list[str] = []
    watches: int = WATCHES


def limit_problems(found: LimitSettings) -> Iterator[str]:
    """Yield what is wrong."""
    ranges = {
        "receive_max_bytes": (1024, 2**31 - 1),
        "checkpoint_bytes_min": (1, 2**40),
        "quarantine_after": (0, QUARANTINE_AFTER_MAX),
        "watches": (0, WATCHES_MAX),
    }
    for name, (least, most) in ranges.items():
        number = getattr(found, name)
        if not least <= number <= most:
            yield f"limits.{name}: {number} is not between {least:g} and {most:g}"
    for at, kind in enumerate(found.scarce_resource_types):
        if kind not in SCARCE_TYPES:
            yield f"limits.scarce_resource_types[{at}]: {kind!r} must be one of GPU"
