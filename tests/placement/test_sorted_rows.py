"""A kept order finds the first rows that fit, or none at all."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from peloton.placement.labels import Ints
from peloton.placement.sorted_rows import BLOCK_MAX, Search, SortedRows, SortKey


class Keys:
    """Rows that differ in CPU, which rises with the row, in memory and in disk."""

    def __init__(self, size: int) -> None:
        self.free = np.zeros((4, size), np.int64)  # cpu, memory, disk, gpu
        self.free[0] = np.arange(1, size + 1) * 1_000
        self.free[1, ::2] = self.free[2, 1::2] = 1_000  # enough of one of both

    def of_row(self, row: int, sign: int) -> SortKey:
        cpu, memory, disk, gpu = (sign * self.free[:, row]).tolist()
        return 0, gpu, cpu, memory, disk, row

    def columns(self, rows: Ints, sign: int) -> tuple[Ints, ...]:
        cpu, memory, disk, gpu = sign * self.free[:, rows]
        return np.zeros(len(rows), np.int64), gpu, cpu, memory, disk


class Allowed:
    """Rows that are allowed, by a list of flags."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.rows = np.ones(size, np.bool_)

    def flags(self) -> npt.NDArray[np.bool_]:
        return self.rows

    def allows(self, row: int) -> bool:
        return bool(self.rows[row])


def search(cpu: int) -> Search:
    least = (cpu, 1_000, 1_000, 0)
    return Search(least, least, each_max=1)


def test_a_search_that_reads_too_much_skips_no_row() -> None:
    """Two blocks use up nearly all that may be read; the third, which lost rows, is cut short."""
    keys, third = Keys(4 * BLOCK_MAX), 2 * BLOCK_MAX
    stay, fits, later = range(third, third + 17), third + 14, 3 * BLOCK_MAX + 1
    keys.free[1:3, [fits, later]] = 1_000
    order = SortedRows(1, keys, mend_rows=10_000)
    allowed = Allowed(4 * BLOCK_MAX)
    assert order.ready(allowed)
    # Sorts the third block.
    assert order.take(search(1_000 * third), 1, groups=1) == [(fits, 1)]
    gone = range(stay.stop, third + BLOCK_MAX)
    for start in range(gone.start, gone.stop, 40):  # more at once would build the order anew
        some = [*range(start, min(start + 40, gone.stop))]
        allowed.rows[some] = False
        order.touch(some)
        assert order.ready(allowed)
    assert order.take(search(1), 1, groups=1) in ([(fits, 1)], None)
