"""Rows kept in the order of a strategy, so that a few members find their hosts without a scan.

A sorted list in blocks: putting a row elsewhere moves a few hundred entries, however many hosts
there are. The order is a cache of the index: it may lag, and says how much work would mend that.
It must not decide whether a host may be used; it is told, and finds the first that have room.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from peloton.actors.resources import COUNT_MAX, EPSILON
from peloton.runtime.vocabulary import Value

OrderKey = tuple[int, int, int, int, int, int]
"""Class, then gpu, cpu, memory and disk, times the sign of the strategy; then the row."""

BLOCK_MAX = 512
SCAN_MAX = 64
"""Places looked at in one class beyond those taken; more than that, and a vector is quicker."""

GIVEN_UP = -1

FEW_MAX = 16
"""Members up to which a kept order is asked; for more a vector is quicker."""


class Search(Value, frozen=True):
    """What is looked for: the room of one member, and the least that is enough; millionths."""

    amounts: tuple[int, int, int, int]
    least: tuple[int, int, int, int]

    def fits(self, room: tuple[int, int, int, int]) -> int:
        """How many members that room holds, known that it holds one."""
        pairs = zip(self.amounts, room, strict=True)
        return min(
            [(have + EPSILON - 1) // need for need, have in pairs if need], default=COUNT_MAX
        )


class KeptOrder:
    """Places of all rows that are allowed, ascending; `touch` says which are out of date."""

    def __init__(
        self, sign: int, place_of: Callable[[int, int], OrderKey], *, mend_rows: int | None = None
    ) -> None:
        self.sign = sign
        self._mend_rows = mend_rows
        self._place_of = place_of
        self._blocks: list[list[OrderKey]] = []
        self._lasts: list[OrderKey] = []
        self._placed: list[OrderKey | None] = []
        self._touched: list[int] = []
        self.built = False
        self._skipped = 0

    def touch(self, rows: Sequence[int]) -> None:
        """These rows have changed."""
        if self.built:
            self._touched.extend(rows)
            if len(self._touched) > len(self._placed) // 3 + 64:
                self.built = False  # sorting anew is cheaper than mending so much
                self._touched.clear()

    def ready(self, allowed: npt.NDArray[np.bool_]) -> bool:
        """Whether the order is up to date, mending it if that pays.

        Mending a row costs about as much as a vector over 256; so work is only done once as many
        members have gone the other way as would have paid for it. A burst of large batches then
        costs a later single member no more than twice what was needed.
        """
        size = len(allowed)
        work = len(self._touched) if self.built else size // 3
        each = 8 + size // 256 if self._mend_rows is None else self._mend_rows
        if work > each * (1 + self._skipped):
            self._skipped += 1
            return False
        self._skipped = 0
        if not self.built:
            self._build(allowed)
        elif work == 1:
            self._mend(self._touched.pop(), allowed)
        elif work:
            for row in dict.fromkeys(self._touched):
                self._mend(row, allowed)
            self._touched.clear()
        return True

    def _build(self, allowed: npt.NDArray[np.bool_]) -> None:
        self._placed = [None] * len(allowed)
        for row in np.flatnonzero(allowed).tolist():
            self._placed[row] = self._place_of(row, self.sign)
        places = sorted(place for place in self._placed if place is not None)
        self._blocks = [places[at : at + BLOCK_MAX] for at in range(0, len(places), BLOCK_MAX)]
        self._lasts = [block[-1] for block in self._blocks]
        self.built = True

    def _mend(self, row: int, allowed: npt.NDArray[np.bool_]) -> None:
        if row >= len(self._placed):
            self._placed.extend([None] * (row + 1 - len(self._placed)))
        old = self._placed[row]
        new = self._place_of(row, self.sign) if allowed[row] else None
        if old == new:
            return
        if old is not None:
            self._remove(old)
        if new is not None:
            self._insert(new)
        self._placed[row] = new

    def _remove(self, place: OrderKey) -> None:
        at = bisect_left(self._lasts, place)
        block = self._blocks[at]
        del block[bisect_left(block, place)]
        if block:
            self._lasts[at] = block[-1]
        else:
            del self._blocks[at], self._lasts[at]

    def _insert(self, place: OrderKey) -> None:
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

    def take(
        self, search: Search, count: int, *, groups: int, each_max: int
    ) -> list[tuple[int, int]] | None:
        """Rows and how many members go to each, `count` in all; None where a vector must look."""
        taken: list[tuple[int, int]] = []
        for group in range(groups):
            count = self._take(search, count, taken=taken, group=group, each_max=each_max)
            if count <= 0:
                return taken if count == 0 else None
        return None

    def _take(
        self,
        search: Search,
        count: int,
        *,
        taken: list[tuple[int, int]],
        group: int,
        each_max: int,
    ) -> int:
        """Take rows of one group; what is left of `count`, or GIVEN_UP."""
        sign = self.sign
        cpu_min, memory_min, disk_min, gpu_min = search.least
        start = (group, max(gpu_min, 0), cpu_min) if sign > 0 else (group,)
        at = bisect_left(self._lasts, start)
        if at == len(self._blocks):
            return count
        begin = bisect_left(self._blocks[at], start)
        left = SCAN_MAX + count
        while at < len(self._blocks):
            block = self._blocks[at]
            for place in block[begin : begin + left]:
                number, gpu, cpu, memory, disk, row = place
                if number != group:
                    return count
                room = (cpu * sign, memory * sign, disk * sign, gpu * sign)
                if (
                    room[0] >= cpu_min
                    and room[1] >= memory_min
                    and room[2] >= disk_min
                    and room[3] >= gpu_min
                ):
                    here = 1 if count == 1 else min(search.fits(room), each_max, count)
                    taken.append((row, here))
                    count -= here
                    if not count:
                        return 0
            left -= len(block) - begin
            if left <= 0:
                return GIVEN_UP
            at, begin = at + 1, 0
        return count
