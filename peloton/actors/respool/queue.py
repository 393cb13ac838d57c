"""The queue of one pool: the lots in which somebody waits, by priority, then by arrival.

Turns "this lot waits" into whose turn it is. A lot that can never be admitted as things are is
stepped over: it keeps its place for the day when a limit grows, and blocks nobody meanwhile. The
queue must not judge who that is: whoever looks at the limits says so.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from peloton.runtime.vocabulary import Key

Place = tuple[int, float]
"""Priority and arrival."""


class Queue:
    """The lots of one pool that have somebody waiting."""

    def __init__(self) -> None:
        self._levels: dict[int, deque[tuple[float, Key]]] = {}
        self._places: dict[Key, Place] = {}  # lots that stand in line
        self._aside: dict[Key, Place] = {}  # lots that were stepped over
        self._unsorted: dict[int, None] = {}

    def put(self, key: Key, *, priority: int, arrived: float) -> None:
        """A lot waits; one that already did keeps its place."""
        place = (priority, arrived)
        if place in (self._places.get(key), self._aside.get(key)):
            return
        self._aside.pop(key, None)
        self._places[key] = place
        level = self._levels.setdefault(priority, deque())
        if level and level[-1] > (arrived, key):
            # Only recovery, late asks and recalls arrive out of order; one sort mends all of them.
            self._unsorted[priority] = None
        level.append((arrived, key))

    def drop(self, key: Key) -> None:
        """A lot waits no more; its slot is skipped when it comes to the head."""
        self._places.pop(key, None)
        self._aside.pop(key, None)

    def step_over(self, key: Key) -> None:
        """Let a lot of the line block nobody until `recall`."""
        self._aside[key] = self._places.pop(key)

    def is_aside(self, key: Key) -> bool:
        """Whether a lot was stepped over."""
        return key in self._aside

    def aside(self) -> list[Key]:
        """The lots that were stepped over."""
        return [*self._aside]

    def recall(self, key: Key) -> None:
        """A limit changed: one that was stepped over stands in line again, where it stood."""
        priority, arrived = self._aside.pop(key)
        self.put(key, priority=priority, arrived=arrived)

    def head(self) -> Key | None:
        """The lot whose turn it is."""
        for priority in sorted(self._levels, reverse=True):
            level = self._levels[priority]
            if priority in self._unsorted:
                self._levels[priority] = level = deque(sorted(level))
                del self._unsorted[priority]
            while level:
                arrived, key = level[0]
                if self._places.get(key) == (priority, arrived):
                    return key
                level.popleft()
            del self._levels[priority]
        return None

    def line(self) -> Iterator[Key]:
        """The lots that stand in line, lazily: a reader that stops early pays for what it saw.

        The reader may step over the lot it has just been given.
        """
        if self.head() is None:
            return
        seen: dict[Key, None] = {}  # a lot that came back at the same moment has two slots
        for priority in sorted(self._levels, reverse=True):
            level = self._levels[priority]
            if priority in self._unsorted:
                level = self._levels[priority] = deque(sorted(level))
                del self._unsorted[priority]
            for arrived, key in level:
                if self._places.get(key) == (priority, arrived) and key not in seen:
                    seen[key] = None
                    yield key

    def in_order(self) -> Iterator[Key]:
        """All that wait, those that were stepped over at their places."""
        if not self._aside:
            yield from self.line()
            return
        places = {**self._places, **self._aside}
        yield from sorted(places, key=lambda key: _rank(key, places[key]))

    def first(self) -> Key | None:
        """The lot whose turn it is; where nobody stands in line, the first that never can."""
        aside = self._aside
        return self.head() or min(aside, key=lambda key: _rank(key, aside[key]), default=None)

    def __len__(self) -> int:
        return len(self._places) + len(self._aside)


def _rank(key: Key, place: Place) -> tuple[int, float, Key]:
    return -place[0], place[1], key
