"""Lots that no admission can reach under the present limits, by the limit that is too low for them.

Turns a higher limit into the lots that may be admitted again. Must not know queues.
"""

from __future__ import annotations

from collections.abc import Iterator

from peloton.actors.respool.waiting import PoolResource, Thresholds
from peloton.runtime.vocabulary import Key


class SkippedLots:
    """The skipped lots of a tree."""

    def __init__(self) -> None:
        self._thresholds = Thresholds()
        self._number = 0

    def __bool__(self) -> bool:
        """Whether there are any."""
        return len(self._thresholds) > 0

    def put(self, lot: Key, *, resource: PoolResource, amount: int) -> None:
        """A lot is skipped until there is so much of a resource."""
        self._number += 1
        self._thresholds.put(lot, self._number, resource=resource, amount=amount)

    def drop(self, lot: Key) -> None:
        """A lot is skipped no more, if it was."""
        self._thresholds.drop(lot)

    def needs(self, resource: PoolResource) -> bool:
        """Whether a lot is skipped because of this resource."""
        return self._thresholds.needs(resource)

    def fitting(self, resource: PoolResource, most: int) -> Iterator[Key]:
        """The lots that need at most so much of it; the reader drops each before the next."""
        while (number := self._thresholds.first(resource, start=0, most=most)) is not None:
            yield self._thresholds.item(number)

    def items(self) -> list[Key]:
        """All skipped lots."""
        return self._thresholds.items()
