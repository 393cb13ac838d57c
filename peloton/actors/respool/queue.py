"""The queue of one pool: the lots that have waiting members, by priority, then by arrival.

A lot that can never be admitted under the present limits is skipped: it keeps its position for when
a limit grows, and blocks no other meanwhile. The caller, which knows the limits, decides which lots
are skipped.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import merge
from itertools import islice
from typing import NamedTuple

from peloton.actors.resources import Resources
from peloton.actors.respool.ranking import Ranking
from peloton.runtime.vocabulary import Key

FIRST = float("-inf")
"""Before any time of arrival."""


class QueueEntry(NamedTuple):
    """The position of a lot: lower comes first."""

    falling_priority: int  # the negative of the priority
    arrived: float
    lot: Key
    need: Resources = Resources()  # of what is admitted at once; no two positions differ in it only


class Queue:
    """The lots of one pool that have waiting members."""

    def __init__(self) -> None:
        self.needs: dict[Resources, int] = {}
        """What eligible lots need, and how many of them."""
        # Positions of the eligible lots, weighted by how many members wait in each.
        self._ranking: Ranking[QueueEntry] = Ranking()
        self._positions: dict[Key, QueueEntry] = {}  # the same by lot
        # The same of the skipped ones.
        self._skipped_ranking: Ranking[QueueEntry] = Ranking()
        self._skipped: dict[Key, QueueEntry] = {}

    def put(
        self,
        key: Key,
        *,
        priority: int,
        arrived: float,
        waiting: int = 1,
        need: Resources = Resources(),  # noqa: B008
    ) -> None:
        """Add or change a lot whose members wait, each or all at once for `need`.

        A lot that is in the queue already keeps its position.
        """
        position = QueueEntry(-priority, arrived, key, need)
        known = self._positions.get(key)
        if known is None and self._skipped.get(key) == position:
            self._skipped_ranking.put(position, waiting)
            return
        if known != position:
            self.drop(key)
            self._positions[key] = position
            self._count(need, 1)
        self._ranking.put(position, waiting)

    def drop(self, key: Key) -> None:
        """Remove a lot, because no member of it waits any more."""
        position = self._positions.pop(key, None)
        if position is not None:
            self._ranking.drop(position)
            self._count(position.need, -1)
        position = self._skipped.pop(key, None)
        if position is not None:
            self._skipped_ranking.drop(position)

    def skip(self, key: Key) -> QueueEntry:
        """Let an eligible lot block no other until `restore`; return where it stays."""
        position = self._positions.pop(key)
        self._skipped[key] = position
        self._skipped_ranking.put(position, self._ranking.weight(position))
        self._ranking.drop(position)
        self._count(position.need, -1)
        return position

    def is_skipped(self, key: Key) -> bool:
        return key in self._skipped

    def skipped(self) -> list[Key]:
        return [*self._skipped]

    def restore(self, key: Key) -> None:
        """Make a skipped lot eligible again, at its old position, because a limit changed."""
        position = self._positions[key] = self._skipped.pop(key)
        self._ranking.put(position, self._skipped_ranking.weight(position))
        self._skipped_ranking.drop(position)
        self._count(position.need, 1)

    def _count(self, need: Resources, more: int) -> None:
        count = self.needs.get(need, 0) + more
        if count:
            self.needs[need] = count
        else:
            del self.needs[need]

    def positions(self) -> Iterator[QueueEntry]:
        """Yield the positions of lots that are not skipped, in order.

        The cost is what is read. The reader may skip the lot that was just returned.
        """
        return _walk(self._ranking)

    def eligible(self) -> Iterator[Key]:
        """Yield the lots that are not skipped, in order."""
        return (position.lot for position in self.positions())

    def before(self, key: Key) -> int:
        """Return how many members wait in eligible lots before this one."""
        position = self._positions.get(key) or self._skipped[key]
        return self._ranking.before(position)

    def higher(self, key: Key) -> int:
        """Return how many members wait in eligible lots of a higher priority."""
        position = self._positions.get(key) or self._skipped[key]
        return self._ranking.before(QueueEntry(position.falling_priority, FIRST, Key("")))

    def ahead(self, key: Key, most: int) -> Iterator[Key]:
        """Yield the first eligible lots before this one, `most` at most."""
        position = self._positions.get(key) or self._skipped[key]
        for each in islice(self.eligible(), most):
            if self._positions[each] >= position:
                return
            yield each

    def in_order(self) -> Iterator[Key]:
        """Yield all lots, skipped ones at their positions."""
        both = merge(_walk(self._ranking), _walk(self._skipped_ranking))
        return (position.lot for position in both)

    def first(self) -> Key | None:
        """Return the first eligible lot; if there is none, the first skipped one."""
        position = self._ranking.first()
        if position is None:
            position = self._skipped_ranking.first()
        return position.lot if position is not None else None

    def __len__(self) -> int:
        return len(self._positions) + len(self._skipped)


def _walk(ranking: Ranking[QueueEntry]) -> Iterator[QueueEntry]:
    """Yield positions in order; the reader may drop the one that was just returned."""
    position = ranking.first()
    while position is not None:
        yield position
        position = ranking.after(position)
