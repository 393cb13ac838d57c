"""The queue of one pool: the lots in which somebody waits, by priority, then by arrival.

Turns "this lot waits" into whose turn it is. A lot that can never be admitted as things are is
stepped over: it keeps its place for the day when a limit grows, and blocks nobody meanwhile. The
queue must not judge who that is: whoever looks at the limits says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from peloton.actors.respool.ranking import Ranking
from peloton.runtime.vocabulary import Key


class QueuePosition(NamedTuple):
    """Where a lot stands: lower comes first."""

    falling_priority: int  # the negative of the priority
    arrived: float
    lot: Key


class Queue:
    """The lots of one pool that have somebody waiting."""

    def __init__(self) -> None:
        # Places of lots that stand in line, with how many wait in each.
        self._line: Ranking[QueuePosition] = Ranking()
        self._places: dict[Key, QueuePosition] = {}  # the same by lot
        self._aside: dict[
            Key, tuple[QueuePosition, int]
        ] = {}  # lots that were stepped over, likewise

    def put(self, key: Key, *, priority: int, arrived: float, waiting: int = 1) -> None:
        """Members of a lot wait; if some did before, it keeps its place."""
        place = QueuePosition(-priority, arrived, key)
        known = self._places.get(key)
        if known is None and key in self._aside and self._aside[key][0] == place:
            self._aside[key] = place, waiting
            return
        if known != place:
            self.drop(key)
            self._places[key] = place
        self._line.put(place, waiting)

    def drop(self, key: Key) -> None:
        """A lot waits no more."""
        place = self._places.pop(key, None)
        if place is not None:
            self._line.drop(place)
        self._aside.pop(key, None)

    def step_over(self, key: Key) -> None:
        """Let a lot of the line block nobody until `recall`."""
        place = self._places.pop(key)
        self._aside[key] = place, self._line.weight(place)
        self._line.drop(place)

    def is_aside(self, key: Key) -> bool:
        """Whether a lot was stepped over."""
        return key in self._aside

    def aside(self) -> list[Key]:
        """The lots that were stepped over."""
        return [*self._aside]

    def recall(self, key: Key) -> None:
        """A limit changed: one that was stepped over stands in line again, where it stood."""
        place, waiting = self._aside.pop(key)
        self._places[key] = place
        self._line.put(place, waiting)

    def line(self) -> Iterator[Key]:
        """The lots that stand in line, lazily: a reader that stops early pays for what it saw.

        The reader may step over the lot it has just been given.
        """
        place = self._line.first()
        while place is not None:
            yield place.lot
            place = self._line.after(place)

    def before(self, key: Key) -> int:
        """How many wait in the lots of the line that stand before this one."""
        place = self._places.get(key) or self._aside[key][0]
        return self._line.before(place)

    def in_order(self) -> Iterator[Key]:
        """All that wait, those that were stepped over at their places."""
        if not self._aside:
            yield from self.line()
            return
        aside = [place for place, _ in self._aside.values()]
        for place in sorted([*self._places.values(), *aside]):
            yield place.lot

    def first(self) -> Key | None:
        """The lot whose turn it is; where nobody stands in line, the first that never can."""
        place = self._line.first()
        if place is None and self._aside:
            place = min(place for place, _ in self._aside.values())
        return place.lot if place is not None else None

    def __len__(self) -> int:
        return len(self._places) + len(self._aside)
