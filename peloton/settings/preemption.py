"""Preemption, by which pools take back what they lent: `preemption` of a daemon's file.

Turns texts with units into seconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

from peloton.settings.archive import seconds

TASKS_MAX = 10_000_000
WITHIN = "always", "reserved", "never"


class PreemptionSetting(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The preemption of every daemon that may own the pools; all are to have the same.

    `enabled`: preemptible tasks are ended for a pool that is entitled to what they hold. `after`:
    how long that pool has to wait before, a text such as `90s` or `5m`. `at_once`: tasks of one
    pool that are being ended at a time. `most`: tasks of one pool that are ended within `within`.
    `within_reservation`: whether tasks that may not be preempted are admitted only within the
    reservation of their pool: `always`, of the kinds that are `reserved`, or `never`; true and
    false are the first and the last. A pool may set otherwise. `inside`: pools, by path, whose own
    tasks of a lower priority are ended for the first that waits there, and for how long a run is
    left alone.
    """

    enabled: bool = True
    after: str = "5m"
    at_once: int = 10_000
    most: int = 100_000
    within: str = "1h"
    within_reservation: bool | Literal["always", "reserved", "never"] = "reserved"
    inside: dict[str, str] = {}

    @property
    def inside_s(self) -> tuple[tuple[str, float], ...]:
        """Paths of pools, and seconds."""
        return tuple((path, seconds(text)) for path, text in sorted(self.inside.items()))

    @property
    def within_rule(self) -> str:
        """One of `WITHIN`."""
        found = self.within_reservation
        return found if isinstance(found, str) else WITHIN[0] if found else WITHIN[2]

    @property
    def after_s(self) -> float:
        return seconds(self.after)

    @property
    def within_s(self) -> float:
        return seconds(self.within)


def preemption_problems(found: PreemptionSetting) -> Iterator[str]:
    """Yield what is wrong."""
    for field, text in (("after", found.after), ("within", found.within)):
        try:
            seconds(text)
        except ValueError as error:
            yield f"preemption.{field}: {error}"
    for path, text in sorted(found.inside.items()):
        if not path.startswith("/") or path.endswith("/") or "//" in path:
            yield f"preemption.inside: {path!r} is not the path of a pool, such as /batch/etl"
        try:
            seconds(text)
        except ValueError as error:
            yield f"preemption.inside.{path}: {error}"
    for field, count in (("at_once", found.at_once), ("most", found.most)):
        if not 1 <= count <= TASKS_MAX:
            yield f"preemption.{field}: {count} is not between 1 and {TASKS_MAX}"
