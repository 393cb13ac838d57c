"""How much the tasks of each pool released lately, for estimates of waits.

Ends of admitted members become a smoothed rate of each pool and of those above it. What was
released counts less the longer ago it was, so a pool holds a few numbers, however many end. None of
it is journaled: a new owner of the tree begins anew.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from peloton.actors.resources import Resources
from peloton.runtime.vocabulary import Key

MEMORY_S = 300.0
"""After so long a release counts for about a third of what it did."""
NOTE_S_MIN = 1.0
"""Releases of so long are noted together: most turns only add to them."""
ELAPSED_S_MIN = 1.0
"""A rate over less time than that would say little, and be very high."""

Up = Callable[[Key], list[Key]]
"""A pool and those above it."""


class ReleaseSum(NamedTuple):
    """What a pool and those below it released until a time, reduced by age."""

    amounts: tuple[float, ...] = (0.0,) * len(Resources.KINDS)
    tasks: float = 0.0
    at: float = 0.0

    def until(self, now: float) -> ReleaseSum:
        """Return the sum as of a later time."""
        left = math.exp(-max(now - self.at, 0.0) / MEMORY_S)
        return ReleaseSum(tuple(each * left for each in self.amounts), self.tasks * left, now)

    def plus(self, more: Resources, tasks: int) -> ReleaseSum:
        """Return the sum with more that was released at its time."""
        pairs = zip(self.amounts, more.amounts(), strict=True)
        return ReleaseSum(tuple(one + other for one, other in pairs), self.tasks + tasks, self.at)


class ReleaseRate(NamedTuple):
    """Millionths of one kind a second, from about so many tasks."""

    per_s: float
    tasks: float


class NotedReleases(NamedTuple):
    """All that is recorded: since when, and for which pools."""

    since: float | None
    sums: dict[Key, ReleaseSum]


class Releases:
    """The rates of one tree."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._noted = 0.0
        self._new: dict[Key, tuple[Resources, int]] = {}  # by the tasks' own pool; not noted yet
        self._sums: dict[Key, ReleaseSum] = {}  # by pool, those above included

    def add(self, pool: Key, amount: Resources, *, tasks: int) -> None:
        """Add what tasks of a pool released since the last `note`."""
        known, count = self._new.get(pool, (Resources(), 0))
        self._new[pool] = known + amount, count + tasks

    def note(self, now: float, *, up: Up) -> None:
        """Date what was released; it costs the pools that released something."""
        if self._since is None:
            self._since = now
        if not self._new or abs(now - self._noted) < NOTE_S_MIN:
            return
        self._noted = now
        for pool, (amount, tasks) in self._new.items():
            for above in up(pool):
                known = self._sums.get(above, ReleaseSum())
                self._sums[above] = known.until(now).plus(amount, tasks)
        self._new = {}

    @property
    def noted(self) -> NotedReleases:
        """Return what is recorded, for a copy."""
        return NotedReleases(self._since, self._sums)

    def restore(self, since: float | None, sums: dict[Key, ReleaseSum]) -> None:
        """Continue with what another instance recorded."""
        self._since, self._sums, self._new = since, sums, {}

    def drop(self, pool: Key) -> None:
        """Forget a pool that does not exist any more."""
        self._new.pop(pool, None)
        self._sums.pop(pool, None)

    def rate(self, pool: Key, kind: int, *, now: float, up: Up) -> ReleaseRate | None:
        """Return how much of a kind a pool, and those below it, release; None: nothing of it
        lately."""
        found = self._sums.get(pool, ReleaseSum()).until(now)
        for own, (amount, tasks) in self._new.items():
            if pool in up(own):
                found = found.plus(amount, tasks)
        if self._since is None or found.amounts[kind] < 1.0:
            return None
        elapsed_s = max(now - self._since, ELAPSED_S_MIN)
        counted_s = MEMORY_S * (1.0 - math.exp(-elapsed_s / MEMORY_S))
        return ReleaseRate(found.amounts[kind] / counted_s, found.tasks)
