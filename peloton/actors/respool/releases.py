"""How much the tasks of each pool released lately: what an estimate of a wait is made of.

Turns the ends of admitted members into a smoothed rate of each pool and of those above it. What was
released counts less the longer ago it was, so a pool holds a few numbers, however many end. None of
it is journaled: a new owner of the tree begins anew. Must not decide anything: queries read it.
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
    """What a pool and those below it released until a time, less what it counts less by now."""

    amounts: tuple[float, ...] = (0.0,) * len(Resources.KINDS)
    tasks: float = 0.0
    at: float = 0.0

    def until(self, now: float) -> ReleaseSum:
        """What it counts for later."""
        left = math.exp(-max(now - self.at, 0.0) / MEMORY_S)
        return ReleaseSum(tuple(each * left for each in self.amounts), self.tasks * left, now)

    def plus(self, more: Resources, tasks: int) -> ReleaseSum:
        """With more that was released at its time."""
        pairs = zip(self.amounts, more.amounts(), strict=True)
        return ReleaseSum(tuple(one + other for one, other in pairs), self.tasks + tasks, self.at)


class ReleaseRate(NamedTuple):
    """Millionths of one kind a second, from about so many tasks."""

    per_s: float
    tasks: float


class NotedReleases(NamedTuple):
    """All that is noted: since when, and of which pools."""

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
        """Tasks of a pool released what they held, since the last note."""
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
        """What is noted, for a copy."""
        return NotedReleases(self._since, self._sums)

    def restore(self, since: float | None, sums: dict[Key, ReleaseSum]) -> None:
        """Go on from what another noted."""
        self._since, self._sums, self._new = since, sums, {}

    def drop(self, pool: Key) -> None:
        """There is no such pool any more."""
        self._new.pop(pool, None)
        self._sums.pop(pool, None)

    def rate(self, pool: Key, kind: int, *, now: float, up: Up) -> ReleaseRate | None:
        """How much of a kind a pool, and those below it, release; None: nothing of it lately."""
        found = self._sums.get(pool, ReleaseSum()).until(now)
        for own, (amount, tasks) in self._new.items():
            if pool in up(own):
                found = found.plus(amount, tasks)
        if self._since is None or found.amounts[kind] < 1.0:
            return None
        elapsed_s = max(now - self._since, ELAPSED_S_MIN)
        counted_s = MEMORY_S * (1.0 - math.exp(-elapsed_s / MEMORY_S))
        return ReleaseRate(found.amounts[kind] / counted_s, found.tasks)
