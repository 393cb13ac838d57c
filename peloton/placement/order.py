"""Rows kept in the order of a strategy, so that a few members find their hosts without a scan.

A sorted list in blocks: moving a row shifts a few hundred entries, however many hosts there are.
The order is a cache of the index: it may be out of date, and knows how many rows are to be
updated. Must not decide whether a host may be used: the caller does, and it finds the first hosts
with enough free resources.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from peloton.actors.resources import COUNT_MAX, EPSILON
from peloton.runtime.vocabulary import Value

OrderKey = tuple[int, int, int, int, int, int]
"""Group, then gpu, cpu, memory and disk, times the sign of the strategy; then the row."""

BLOCK_MAX = 512
SCAN_MAX = 64
"""Entries scanned in one group beyond those taken; beyond that, an array scan is faster."""

GIVEN_UP = -1

FEW_MAX = 16
"""Up to so many members a kept order is used; for more, an array scan is faster."""


class Search(Value, frozen=True):
    """What to search for: the need of one member, and the least that is enough; in millionths."""

    amounts: tuple[int, int, int, int]
    least: tuple[int, int, int, int]

    def fits(self, free: tuple[int, int, int, int]) -> int:
        """How many members fit into `free`, which must be enough for one."""
        pairs = zip(self.amounts, free, strict=True)
        return min(
            [(have + EPSILON - 1) // need for need, have in pairs if need], default=COUNT_MAX
        )


class KeptOrder:
    """The keys of all allowed rows, ascending; `touch` marks rows as out of date."""

    def __init__(
        self, sign: int, key_of: Callable[[int, int], OrderKey], *, mend_rows: int | None = None
    ) -> None:
        self.sign = sign
        self._mend_rows = mend_rows
        self._key_of = key_of
        self._blocks: list[list[OrderKey]] = []
        self._lasts: list[OrderKey] = []
        self._keys: list[OrderKey | None] = []
        self._touched: list[int] = []
        self.built = False
        self._skipped = 0

    def touch(self, rows: Sequence[int]) -> None:
        """These rows have changed."""
        if self.built:
            self._touched.extend(rows)
            if len(self._touched) > len(self._keys) // 3 + 64:
                self.built = False  # sorting again is cheaper than updating so many rows
                self._touched.clear()

    def ready(self, allowed: npt.NDArray[np.bool_]) -> bool:
        """Whether the order is up to date; it is updated if that pays.

        Updating a row costs about as much as an array scan of 256 rows; so it is only done once as
        many members were placed by scans as would have paid for it. After a burst of large
        batches, single members then cost at most twice the optimum.
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
            self._update(self._touched.pop(), allowed)
        elif work:
            for row in dict.fromkeys(self._touched):
                self._update(row, allowed)
            self._touched.clear()
        return True

    def _build(self, allowed: npt.NDArray[np.bool_]) -> None:
        self._keys = [None] * len(allowed)
        for row in np.flatnonzero(allowed).tolist():
            self._keys[row] = self._key_of(row, self.sign)
        keys = sorted(key for key in self._keys if key is not None)
        self._blocks = [keys[at : at + BLOCK_MAX] for at in range(0, len(keys), BLOCK_MAX)]
        self._lasts = [block[-1] for block in self._blocks]
        self.built = True

    def _update(self, row: int, allowed: npt.NDArray[np.bool_]) -> None:
        if row >= len(self._keys):
            self._keys.extend([None] * (row + 1 - len(self._keys)))
        old = self._keys[row]
        new = self._key_of(row, self.sign) if allowed[row] else None
        if old == new:
            return
        if old is not None:
            self._remove(old)
        if new is not None:
            self._insert(new)
        self._keys[row] = new

    def _remove(self, key: OrderKey) -> None:
        at = bisect_left(self._lasts, key)
        block = self._blocks[at]
        del block[bisect_left(block, key)]
        if block:
            self._lasts[at] = block[-1]
        else:
            del self._blocks[at], self._lasts[at]

    def _insert(self, key: OrderKey) -> None:
        if not self._blocks:
            self._blocks, self._lasts = [[key]], [key]
            return
        at = min(bisect_left(self._lasts, key), len(self._blocks) - 1)
        block = self._blocks[at]
        block.insert(bisect_left(block, key), key)
        self._lasts[at] = block[-1]
        if len(block) > 2 * BLOCK_MAX:
            self._blocks[at : at + 1] = [block[:BLOCK_MAX], block[BLOCK_MAX:]]
            self._lasts[at : at + 1] = [block[BLOCK_MAX - 1], block[-1]]

    def take(
        self, search: Search, count: int, *, groups: int, each_max: int
    ) -> list[tuple[int, int]] | None:
        """Rows and how many members go to each, `count` in all; None if a scan is needed."""
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
        """Take rows of one group; returns what is left of `count`, or GIVEN_UP."""
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
            for key in block[begin : begin + left]:
                number, gpu, cpu, memory, disk, row = key
                if number != group:
                    return count
                free = (cpu * sign, memory * sign, disk * sign, gpu * sign)
                if (
                    free[0] >= cpu_min
                    and free[1] >= memory_min
                    and free[2] >= disk_min
                    and free[3] >= gpu_min
                ):
                    here = 1 if count == 1 else min(search.fits(free), each_max, count)
                    taken.append((row, here))
                    count -= here
                    if not count:
                        return 0
            left -= len(block) - begin
            if left <= 0:
                return GIVEN_UP
            at, begin = at + 1, 0
        return count
