"""The metering of lending: what each pool used, borrowed and left to others, hour by hour.

Changes of use are integrated over time: nothing is sampled, so none is missed, and a pool that does
not change costs nothing. An hour of a pool is closed by the first change after its end, and then
kept by the pool itself (`PoolHour`); what is still open is lost with the owner of the tree, which
shows as a gap between two hours.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

from peloton.actors.resources import Resources
from peloton.actors.respool.messages import PoolHour
from peloton.actors.respool.releases import Up
from peloton.runtime.vocabulary import Key

HOUR_S = 3600
MS_PER_HOUR = HOUR_S * 1000
NOTED_MAX = 256
"""Pools that are dated by one note: after a recovery there may be many."""

UseOf = Callable[[Key], tuple[Resources, Resources]]
"""What a pool uses now, and what it reserves."""


class PoolMeter:
    """The open hour of one pool. Integrals are in millionths of a unit times milliseconds."""

    __slots__ = ("_at", "_began", "_borrowed", "_used", "_rates", "_unused", "given", "tasks")

    def __init__(self, now: int) -> None:
        self._at = now
        self._rates: list[tuple[int, int, int, int]] = []
        self.begin()

    @property
    def hour(self) -> int:
        """Return the number of the hour that is open."""
        return self._began // MS_PER_HOUR

    def advance(self, now: int) -> None:
        """Integrate until now, as nothing has changed. A clock that goes back counts for
        nothing."""
        lasted = now - self._at
        if lasted <= 0:
            return
        self._at = now
        for kind, use, borrowed, unused in self._rates:
            self._used[kind] += use * lasted
            self._borrowed[kind] += borrowed * lasted
            self._unused[kind] += unused * lasted

    def set(self, use: Resources, reserved: Resources) -> None:
        """Set the use from now on."""
        self._rates = [
            (kind, used, used - own if used > own else 0, own - used if own > used else 0)
            for kind, (used, own) in enumerate(zip(use.amounts(), reserved.amounts(), strict=True))
            if used or own
        ]

    def row(self) -> PoolHour:
        """Return what has accumulated until the last advance."""
        return PoolHour(
            self._began / 1000, self._at / 1000, _hours(self._used), _hours(self._borrowed),
            _hours(self._unused), self.given, self.tasks,
        )  # fmt: skip

    def begin(self) -> None:
        """Open the next hour."""
        kinds = len(Resources.KINDS)
        self._began = self._at
        self._used, self._borrowed, self._unused = [0] * kinds, [0] * kinds, [0] * kinds
        self.given, self.tasks = Resources(), 0


class LendingMeters:
    """The open hours of all pools of one tree that were in use under the present owner."""

    def __init__(self) -> None:
        self._meters: dict[Key, PoolMeter] = {}
        self._touched: dict[Key, None] = {}  # pools whose use or reservation may be another
        self._gave: dict[Key, tuple[Resources, int]] = {}  # to others, not noted yet
        self.closed: dict[Key, list[PoolHour]] = {}  # hours that are not kept by their pool yet

    def touch(self, pool: Key) -> None:
        """Mark a pool whose use, or that of its own tasks, may have changed."""
        self._touched[pool] = None

    def touch_known(self, pool: Key) -> None:
        """Mark a pool, unless it was never in use."""
        if pool in self._meters:
            self._touched[pool] = None

    @property
    def is_behind(self) -> bool:
        """Return whether changes are left for the next `note`."""
        return bool(self._touched)

    def gave(self, pool: Key, amount: Resources, *, tasks: int) -> None:
        """Count tasks of a pool that were chosen to give back."""
        known, count = self._gave.get(pool, (Resources(), 0))
        self._gave[pool] = known + amount, count + tasks
        self._touched[pool] = None

    def drop(self, pool: Key) -> None:
        """Forget a pool that does not exist any more."""
        for known in (self._meters, self._touched, self._gave):
            known.pop(pool, None)

    def note(self, now: float, *, look: UseOf, up: Up) -> None:
        """Date what has changed since the last call.

        It costs the pools that changed, and their paths to the root.
        """
        if not self._touched:
            return
        at = int(now * 1000)
        touched = [*islice(self._touched, NOTED_MAX)]
        for each in touched:
            del self._touched[each]
        for pool in dict.fromkeys(above for each in touched for above in up(each)):
            use, reserved = look(pool)
            meter = self._meters.get(pool)
            if meter is None:
                meter = self._meters[pool] = PoolMeter(at)
            meter.advance(at)
            if at // MS_PER_HOUR > meter.hour:
                self.closed.setdefault(pool, []).append(meter.row())
                meter.begin()
            meter.set(use, reserved)
        for pool in touched:
            amount, tasks = self._gave.pop(pool, (Resources(), 0))
            for above in up(pool) if tasks else ():
                meter = self._meters[above]
                meter.given, meter.tasks = meter.given + amount, meter.tasks + tasks

    def kept(self, pool: Key, until: float) -> None:
        """Forget the hours of a pool that began before a time until which it has kept them."""
        left = [hour for hour in self.closed.pop(pool, ()) if hour.began >= until]
        if left:
            self.closed[pool] = left

    def open_hour(self, pool: Key, now: float) -> PoolHour | None:
        """Return what has accumulated for a pool until now and is not kept yet."""
        meter = self._meters.get(pool)
        if meter is None:
            return None
        meter.advance(int(now * 1000))
        return meter.row()


def _hours(integrals: list[int]) -> Resources:
    """Return integrals in millionths of a unit times an hour, rounded down."""
    return Resources(*(each // MS_PER_HOUR for each in integrals))
