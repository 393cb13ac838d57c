"""Ranked amounts, with a search for the first rank whose amount is at most a given one.

They are sorted blocks with the least amount of each: a change and a search cost the size of a block
and the number of blocks, however many ranks there are.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from itertools import islice
from typing import Generic

from peloton.actors.respool.ranking import Rank

BLOCK_MAX = 128


class FirstRank(Generic[Rank]):
    """Ranks with amounts."""

    def __init__(self, block_max: int = BLOCK_MAX) -> None:
        self._block_max = block_max
        self._blocks: list[list[Rank]] = []
        self._lasts: list[Rank] = []  # of each block
        self._leasts: list[int] = []  # the least amount in each block
        self._amounts: dict[Rank, int] = {}

    def put(self, rank: Rank, amount: int) -> None:
        """Add a rank, which must not be held yet."""
        self._amounts[rank] = amount
        if not self._blocks:
            self._blocks, self._lasts, self._leasts = [[rank]], [rank], [amount]
            return
        at = min(bisect_left(self._lasts, rank), len(self._blocks) - 1)
        block = self._blocks[at]
        insort(block, rank)
        self._lasts[at], self._leasts[at] = block[-1], min(amount, self._leasts[at])
        if len(block) > self._block_max:
            half = len(block) // 2
            parts = block[:half], block[half:]
            self._blocks[at : at + 1] = parts
            self._lasts[at : at + 1] = [part[-1] for part in parts]
            self._leasts[at : at + 1] = [self._least(part) for part in parts]

    def drop(self, rank: Rank) -> None:
        """Remove a rank, which must be held."""
        amount = self._amounts.pop(rank)
        at = bisect_left(self._lasts, rank)
        block = self._blocks[at]
        del block[bisect_left(block, rank)]
        if not block:
            del self._blocks[at], self._lasts[at], self._leasts[at]
            return
        self._lasts[at] = block[-1]
        if amount == self._leasts[at]:
            self._leasts[at] = self._least(block)

    def first(self, most: int, *, start: Rank | None = None) -> Rank | None:
        """Return the lowest rank, from `start` on, whose amount is at most `most`."""
        begin = 0 if start is None else bisect_left(self._lasts, start)
        for at in range(begin, len(self._blocks)):
            if self._leasts[at] > most:
                continue
            block = self._blocks[at]
            low = bisect_left(block, start) if start is not None and at == begin else 0
            for rank in islice(block, low, None):
                if self._amounts[rank] <= most:
                    return rank
        return None

    def __len__(self) -> int:
        return len(self._amounts)

    def _least(self, block: list[Rank]) -> int:
        return min(map(self._amounts.__getitem__, block))
