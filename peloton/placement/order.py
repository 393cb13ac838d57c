"""Rows kept in the order of a strategy, so that one member finds its host without a scan.

A sorted list in blocks: putting a row elsewhere moves a few hundred entries, however many hosts
there are. The order is a cache of the index: it may lag, and says how much work would mend that.
It must not decide whether a host may be used; it only finds the first that has room.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from peloton.runtime.vocabulary import Value

Place = tuple[int, int, int, int, int, int]
"""Class, then gpu, cpu, memory and disk, times the sign of the strategy; then the row."""

BLOCK_MAX = 512
SCAN_MAX = 64
"""Places looked at for one member in one class; more than that, and a vector is quicker."""


class Search(Value, frozen=True):
    """What is looked for: a host with at least this room, in millionths."""

    cpu: int
    memory: int
    disk: int
    gpu: int
    gpu_wanted: bool


class KeptOrder:
    """Places of all rows that are up, ascending; `touch` says which are out of date."""

    def __init__(self, sign: int, place_of: Callable[[int, int], Place | None]) -> None:
        self.sign = sign
        self._place_of = place_of
        self._blocks: list[list[Place]] = []
        self._lasts: list[Place] = []
        self._placed: list[Place | None] = []
        self._touched: list[int] = []
        self._built = False
        self._skipped = 0

    def touch(self, rows: Sequence[int]) -> None:
        """These rows have changed."""
        if self._built:
            self._touched.extend(rows)
            if len(self._touched) > len(self._placed) // 3 + 64:
                self._built = False  # sorting anew is cheaper than mending so much
                self._touched.clear()

    def ready(self, size: int) -> bool:
        """Whether the order is up to date, mending it if that pays.

        Mending a row costs about as much as a vector over 256; so work is only done once as many
        members have gone the other way as would have paid for it. A burst of large batches then
        costs a later single member no more than twice what was needed.
        """
        work = len(self._touched) if self._built else size // 3
        if work > (8 + size // 256) * (1 + self._skipped):
            self._skipped += 1
            return False
        self._skipped = 0
        if not self._built:
            self._build(size)
        elif work == 1:
            self._mend(self._touched.pop())
        elif work:
            for row in dict.fromkeys(self._touched):
                self._mend(row)
            self._touched.clear()
        return True

    def _build(self, size: int) -> None:
        self._placed = [self._place_of(row, self.sign) for row in range(size)]
        places = sorted(place for place in self._placed if place is not None)
        self._blocks = [places[at : at + BLOCK_MAX] for at in range(0, len(places), BLOCK_MAX)]
        self._lasts = [block[-1] for block in self._blocks]
        self._built = True

    def _mend(self, row: int) -> None:
        if row >= len(self._placed):
            self._placed.extend([None] * (row + 1 - len(self._placed)))
        old, new = self._placed[row], self._place_of(row, self.sign)
        if old == new:
            return
        if old is not None:
            self._remove(old)
        if new is not None:
            self._insert(new)
        self._placed[row] = new

    def _remove(self, place: Place) -> None:
        at = bisect_left(self._lasts, place)
        block = self._blocks[at]
        del block[bisect_left(block, place)]
        if block:
            self._lasts[at] = block[-1]
        else:
            del self._blocks[at], self._lasts[at]

    def _insert(self, place: Place) -> None:
        if not self._blocks:
            self._blocks, self._lasts = [[place]], [place]
            return
        at = min(bisect_left(self._lasts, place), len(self._blocks) - 1)
        block = self._blocks[at]
        block.insert(bisect_left(block, place), place)
        self._lasts[at] = block[-1]
        if len(block) > 2 * BLOCK_MAX:
            self._blocks[at : at + 1] = [block[:BLOCK_MAX], block[BLOCK_MAX:]]
            self._lasts[at : at + 1] = [block[BLOCK_MAX - 1], block[-1]]

    def first(
        self,
        search: Search,
        *,
        classes: int,
        allowed: npt.NDArray[np.bool_],
        gpu: npt.NDArray[np.int64],
    ) -> int | None:
        """The first allowed row with that room, or None where a vector has to look."""
        for number in range(classes):
            row, ended = self._first_of(number, search, allowed, gpu=gpu)
            if row is not None or not ended:
                return row
        return None

    def _first_of(
        self,
        number: int,
        search: Search,
        allowed: npt.NDArray[np.bool_],
        *,
        gpu: npt.NDArray[np.int64],
    ) -> tuple[int | None, bool]:
        """The first row of class `number`, and whether the class was seen to its end."""
        sign, cpu_min, memory_min, disk_min = self.sign, search.cpu, search.memory, search.disk
        start = (number, max(search.gpu, 0), cpu_min) if sign > 0 else (number,)
        at = bisect_left(self._lasts, start)
        if at == len(self._blocks):
            return None, True
        begin = bisect_left(self._blocks[at], start)
        left = SCAN_MAX
        while at < len(self._blocks):
            block = self._blocks[at]
            for seen in range(begin, min(len(block), begin + left)):
                kind, _, cpu, memory, disk, row = block[seen]
                if kind != number:
                    return None, True
                if (
                    cpu * sign >= cpu_min
                    and memory * sign >= memory_min
                    and disk * sign >= disk_min
                    and allowed[row]
                    and (not search.gpu_wanted or gpu[row] >= search.gpu)
                ):
                    return row, True
            left -= len(block) - begin
            if left <= 0:
                return None, False
            at, begin = at + 1, 0
        return None, True
