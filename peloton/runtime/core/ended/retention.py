"""Ended entities of one kind that stay in memory for a while (`Kind.retention`), oldest first.

Turns the bounds of a kind (count, bytes as encoded, seconds) into the entities that have to leave,
and counts what is retained until it has left. An entity is as old as its kind says
(`Retention.ended_at`), or else begins anew with the process. `endings` writes the row before it
removes an entity.
"""

from __future__ import annotations

import heapq
import math
from collections import OrderedDict
from typing import NamedTuple

from peloton.runtime.kinds import Retention
from peloton.runtime.vocabulary import Key

BY_AGE, BY_COUNT, BY_BYTES = "age", "count", "bytes"
"""The bounds by which entities leave."""
STALE_MIN = 64
"""So many entries of the order may be of entities that are gone, or as many as are not."""


class RetainedEnded(NamedTuple):
    """The ended entities of a kind that one shard has in memory.

    `left`: how many had to leave, by bound, since the shard was opened here. `due_s`: since when,
    or from when on, the first of them is to leave by its age, or has to leave already.
    """

    entities: int = 0
    size: int = 0
    left: tuple[tuple[str, int], ...] = ()
    due_s: float | None = None


class _Entry(NamedTuple):
    """An ended entity; `number` tells its entry in the order from older ones of the same key."""

    since: float
    size: int
    number: int
    noted: float


class Retained:
    """The ended entities of one kind. Each call costs no more than a logarithm of their number."""

    def __init__(self, bounds: Retention) -> None:
        self._bounds = bounds
        self._of: dict[Key, _Entry] = {}
        self._order: list[tuple[float, int, Key]] = []  # a heap: since when, number, key
        self._bytes = 0
        self._added = 0
        # To leave since when, and bytes. Ordered, as they go from the front: a plain dict would
        # walk over all that were ever there.
        self._going: OrderedDict[Key, tuple[float, int]] = OrderedDict()
        self._going_bytes = 0
        self._left = dict.fromkeys((BY_AGE, BY_COUNT, BY_BYTES), 0)

    def __contains__(self, key: Key) -> bool:
        return key in self._of

    def add(self, key: Key, *, now: float, size: int, ended_at: float = 0.0) -> None:
        """Add an entity that ended at `ended_at`, as far as its kind knows that."""
        self.discard(key)
        self._added += 1
        entry = _Entry(min(ended_at or now, now), size, self._added, now)
        self._of[key] = entry
        self._bytes += size
        heapq.heappush(self._order, (entry.since, entry.number, key))

    def discard(self, key: Key) -> None:
        """Remove an entity that is gone, or has not ended any more."""
        self._take(key)
        going = self._going.pop(key, None)
        if going is not None:
            self._going_bytes -= going[1]

    def let_go(self, key: Key, *, now: float) -> None:
        """Mark the entity as leaving; until then it counts as retained, but for no bound."""
        entry = self._take(key)
        if entry is not None:
            # Not since before we knew of it: nothing was late while no process ran.
            due = min(now, max(entry.noted, entry.since + self._bounds.seconds))
            self._going[key] = due, entry.size
            self._going_bytes += entry.size

    def leaving(self, now: float, at_most: int) -> list[Key]:
        """Return the oldest entities that are beyond a bound; from now on they are leaving."""
        found: list[Key] = []
        while len(found) < at_most and (key := self._oldest()) is not None:
            bound = self._beyond(self._of[key].since, now)
            if not bound:
                break
            self._left[bound] += 1
            self.let_go(key, now=now)
            found.append(key)
        return found

    @property
    def next_s(self) -> float | None:
        """When the oldest one is too old; None if none ever is."""
        oldest = self._oldest() if self._bounds.seconds != math.inf else None
        return self._of[oldest].since + self._bounds.seconds if oldest is not None else None

    @property
    def figures(self) -> RetainedEnded:
        """What is retained now."""
        going = next((since for since, _ in self._going.values()), None)
        due = [at for at in (going, self._next_due_s()) if at is not None]
        return RetainedEnded(
            len(self._of) + len(self._going),
            self._bytes + self._going_bytes,
            tuple(self._left.items()),
            min(due, default=None),
        )

    def _next_due_s(self) -> float | None:
        next_s, oldest = self.next_s, self._oldest()
        return max(next_s, self._of[oldest].noted) if next_s is not None and oldest else None

    def _take(self, key: Key) -> _Entry | None:
        entry = self._of.pop(key, None)
        if entry is not None:
            self._bytes -= entry.size
            if len(self._order) > 2 * len(self._of) + STALE_MIN:
                self._order = [(one.since, one.number, name) for name, one in self._of.items()]
                heapq.heapify(self._order)  # as rare as it is long
        return entry

    def _oldest(self) -> Key | None:
        """Return the entity that ended first; entries of those that are gone are dropped here."""
        while self._order:
            _, number, key = self._order[0]
            entry = self._of.get(key)
            if entry is not None and entry.number == number:
                return key
            heapq.heappop(self._order)
        return None

    def _beyond(self, since: float, now: float) -> str:
        """Return the bound that the oldest one is beyond; empty if none."""
        bounds = self._bounds
        if since + bounds.seconds <= now:
            return BY_AGE
        if len(self._of) > bounds.count:
            return BY_COUNT
        return BY_BYTES if self._bytes > bounds.size else ""
