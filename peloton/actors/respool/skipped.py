"""Lots that no admission can reach under the present limits, by the limit that is too low for them.

A higher limit yields the lots that may be admitted again, in the order of their queues.
"""

from __future__ import annotations

from peloton.actors.respool.first_rank import FirstRank
from peloton.actors.respool.queue import QueueEntry
from peloton.actors.respool.waiting import PoolResource
from peloton.runtime.vocabulary import Key


class SkippedLots:
    """The skipped lots of a tree."""

    def __init__(self) -> None:
        self._ranks: dict[PoolResource, FirstRank[QueueEntry]] = {}
        self._lots: dict[Key, tuple[PoolResource, QueueEntry]] = {}

    def __bool__(self) -> bool:
        return bool(self._lots)

    def put(self, position: QueueEntry, *, resource: PoolResource, amount: int) -> None:
        """Skip a lot until there is so much of a resource."""
        ranks = self._ranks.get(resource)
        if ranks is None:
            ranks = self._ranks[resource] = FirstRank()
        ranks.put(position, amount)
        self._lots[position.lot] = resource, position

    def drop(self, lot: Key) -> None:
        """End the skipping of a lot, if it was skipped."""
        known = self._lots.pop(lot, None)
        if known is None:
            return
        resource, position = known
        ranks = self._ranks[resource]
        ranks.drop(position)
        if not len(ranks):
            del self._ranks[resource]

    def needs(self, resource: PoolResource) -> bool:
        """Return whether a lot is skipped because of this resource."""
        return resource in self._ranks

    def first(self, resource: PoolResource, most: int) -> Key | None:
        """Return the first lot that needs at most `most` of the resource."""
        ranks = self._ranks.get(resource)
        position = ranks.first(most) if ranks is not None else None
        return position.lot if position is not None else None

    def amount(self, lot: Key) -> int:
        """Return how much a skipped lot needs of what it is skipped for."""
        resource, position = self._lots[lot]
        return self._ranks[resource].amount(position)

    def items(self) -> list[Key]:
        return [*self._lots]
