"""Ranks in order, each with a weight: the first, the next, and the weight before one.

They are sorted blocks with the weight of each: a change and a position cost the size of a block,
however many ranks there are.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from typing import Any, Generic, TypeVar

Rank = TypeVar("Rank", bound=int | tuple[Any, ...])
"""Comparable values, no two of them equal."""

BLOCK_MAX = 512


class Ranking(Generic[Rank]):
    """Ranks with weights."""

    def __init__(self, block_max: int = BLOCK_MAX) -> None:
        self._block_max = block_max
        self._blocks: list[list[Rank]] = []
        self._lasts: list[Rank] = []  # of each block
        self._sums: list[int] = []  # of the weights of each block
        self._weights: dict[Rank, int] = {}

    def put(self, rank: Rank, weight: int) -> None:
        """Set the weight of a rank, which is added if it is not held yet."""
        known = self._weights.get(rank)
        self._weights[rank] = weight
        if not self._blocks:
            self._blocks, self._lasts, self._sums = [[rank]], [rank], [weight]
            return
        at = min(bisect_left(self._lasts, rank), len(self._blocks) - 1)
        self._sums[at] += weight - (known or 0)
        if known is None:
            block = self._blocks[at]
            insort(block, rank)
            self._lasts[at] = block[-1]
            if len(block) > self._block_max:
                self._split(at)

    def drop(self, rank: Rank) -> None:
        """Remove a rank, which must be held."""
        at = bisect_left(self._lasts, rank)
        block = self._blocks[at]
        del block[bisect_left(block, rank)]
        self._sums[at] -= self._weights.pop(rank)
        if block:
            self._lasts[at] = block[-1]
        else:
            del self._blocks[at], self._lasts[at], self._sums[at]

    def weight(self, rank: Rank) -> int:
        """Return the weight of a rank, which must be held."""
        return self._weights[rank]

    def first(self) -> Rank | None:
        """Return the lowest rank."""
        return self._blocks[0][0] if self._blocks else None

    def after(self, rank: Rank) -> Rank | None:
        """Return the next higher rank; `rank` itself may have been removed."""
        at = bisect_right(self._lasts, rank)
        if at == len(self._blocks):
            return None
        block = self._blocks[at]
        return block[bisect_right(block, rank)]

    def before(self, rank: Rank) -> int:
        """Return the weight of all lower ranks."""
        at = bisect_left(self._lasts, rank)
        if at == len(self._blocks):
            return sum(self._sums)
        block = self._blocks[at]
        lower = block[: bisect_left(block, rank)]
        return sum(self._sums[:at]) + sum(map(self._weights.__getitem__, lower))

    def _split(self, at: int) -> None:
        block = self._blocks[at]
        half = len(block) // 2
        lower, upper = block[:half], block[half:]
        upper_sum = sum(map(self._weights.__getitem__, upper))
        self._blocks[at : at + 1] = [lower, upper]
        self._lasts[at : at + 1] = [lower[-1], upper[-1]]
        self._sums[at : at + 1] = [self._sums[at] - upper_sum, upper_sum]

    def __len__(self) -> int:
        return len(self._weights)
