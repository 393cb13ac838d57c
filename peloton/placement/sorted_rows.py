"""Rows kept in the order of a strategy, so that a few members find their hosts without a scan.

The order is a list of blocks: adjacent rows, sorted by their keys when a block is first read, so
that building an order and moving a row cost little, however many hosts there are. The most that a
row of a block has free lets a search pass by whole blocks. The order is a cache of the index: it
may be out of date, and knows which rows are to be updated. The caller decides which of the hosts
with enough free resources may be used.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from peloton.actors.resources import COUNT_MAX, EPSILON
from peloton.placement.labels import Ints
from peloton.runtime.vocabulary import Value

SortKey = tuple[int, int, int, int, int, int]
"""Group, then gpu, cpu, memory and disk, times the sign of the strategy; then the row."""

BLOCK_MAX = 128
SCAN_MAX = 256
"""Entries read in one group beyond those taken, and one more per `ROWS_PER_ENTRY` hosts; beyond
that, an array scan is faster."""

ROWS_PER_ENTRY = 64

ROWS_PER_UPDATE = 256
"""Rows of an array scan that takes as long as the update of one row."""

FEW_MIN = 16

ROWS_PER_BUILD = 32
"""Rows of an order that is built in the time that the update of one row takes."""

REFUSED_MAX = 64
"""Rows of one group that have enough free and are refused for other reasons; beyond that, the rows
that are not are worth an order of their own."""

REFUSALS_PER_SCAN = 800
"""Refusals of rows that take as long as one array scan."""

GIVEN_UP = -1

NO_BLOCK = -1


def few_max(size: int) -> int:
    """Return up to how many members a kept order is used; for more, a scan of `size` rows is
    faster."""
    return FEW_MIN + size // ROWS_PER_UPDATE


class Search(Value, frozen=True):
    """The need of one member, and the least that is enough, in millionths."""

    amounts: tuple[int, ...]  # of the kinds in an `SortKey`: cpu, memory, disk, gpu
    least: tuple[int, ...]
    each_max: int = COUNT_MAX  # the most members that one row takes

    def fits(self, free: tuple[int, ...], most: int) -> int:
        """Return how many of `most` members fit into `free`, which must be enough for one."""
        pairs = zip(self.amounts, free, strict=True)
        fit = [(have + EPSILON - 1) // need for need, have in pairs if need]
        return min(*fit, self.each_max, most)


Room = Callable[[int, int], int]
"""How many members a row takes, of so many at most, as far as free resources do not decide."""


class AllowedRows(Protocol):
    """The rows that belong into an order, as they are now."""

    @property
    def size(self) -> int:
        """Return how many rows may belong into the order."""

    def flags(self) -> npt.NDArray[np.bool_]:
        """Return for each row whether it belongs into the order."""

    def allows(self, row: int) -> bool:
        """Return whether one row belongs into the order."""


class SortKeys(Protocol):
    """The keys of rows, as they are now."""

    def of_row(self, row: int, sign: int) -> SortKey:
        """Return the key of one row."""

    def columns(self, rows: Ints, sign: int) -> tuple[Ints, ...]:
        """Return the keys of many rows, as arrays.

        The row itself, which comes last in a key, is left out.
        """


class _Wanted(NamedTuple):
    """A search, and what was found so far."""

    search: Search
    room: Room | None
    taken: list[tuple[int, int]]


class _Block:
    """Rows of adjacent keys: `keys` sorted, or `rows` and `more` until it is read.

    A row of an unsorted block is in it as long as the order says so by the block's `number`.
    """

    __slots__ = ("cpu", "disk", "gpu", "keys", "memory", "more", "number", "rows", "stale")

    def __init__(self, number: int, keys: list[SortKey], *, rows: Ints | None = None) -> None:
        self.number = number
        self.keys = keys
        self.rows = rows  # None once the block is sorted
        self.more: dict[int, None] = {}
        self.cpu = self.memory = self.disk = self.gpu = 0  # the most that a row has, or more
        self.stale = False  # whether a row has left since that was determined

    def admit(self, key: SortKey, sign: int) -> None:
        """Add a row with this key to the block."""
        _, gpu, cpu, memory, disk, _ = key
        if cpu * sign > self.cpu:
            self.cpu = cpu * sign
        if memory * sign > self.memory:
            self.memory = memory * sign
        if disk * sign > self.disk:
            self.disk = disk * sign
        if gpu * sign > self.gpu:
            self.gpu = gpu * sign

    def lacks(self, least: tuple[int, ...]) -> bool:
        """Return whether no row has enough of some resource."""
        cpu, memory, disk, gpu = least
        return self.cpu < cpu or self.memory < memory or self.disk < disk or self.gpu < gpu

    def measure(self, sign: int) -> None:
        """Determine the most that a row has free, for a sorted block with rows."""
        _, gpu, cpu, memory, disk, _ = zip(*self.keys, strict=True)
        self.cpu, self.memory, self.disk, self.gpu = (
            max(column) if sign > 0 else -min(column) for column in (cpu, memory, disk, gpu)
        )
        self.stale = False


class SortedRows:
    """The keys of all allowed rows, ascending; `touch` marks rows as out of date."""

    def __init__(
        self, sign: int, keys: SortKeys, *, mend_rows: int | None = None, scoped: bool = False
    ) -> None:
        self.sign = sign
        self.built = False
        self._mend_rows = mend_rows
        self._source = keys
        self._blocks: list[_Block] = []
        self._lasts: list[SortKey] = []  # no key of a block is greater, none of the next is not
        self._keys: dict[int, SortKey] = {}  # of rows in sorted blocks
        self._where: list[int] | dict[int, int] = []  # by row: its unsorted block, or NO_BLOCK
        self._scoped = scoped  # whether only few of all rows may belong into it
        self._size = 0  # those that may
        self._numbers = 0
        self._touched: dict[int, None] = {}
        self._skipped = 0.0
        self.refused = 0  # rows that had enough free and took none, in the last search

    def touch(self, rows: Sequence[int]) -> None:
        """Mark rows as changed."""
        if self.built:
            touched = self._touched
            for row in rows:
                touched[row] = None
            if len(touched) > self._size // ROWS_PER_BUILD + 64:
                self.built = False  # building anew is cheaper than updating so many rows
                touched.clear()

    def ready(self, allowed: AllowedRows) -> bool:
        """Update the order if that pays, and return whether it is up to date.

        It is only updated once as many members were placed by scans as would have paid for it.
        After a burst of large batches, single members then cost at most twice the optimum.
        """
        size = allowed.size
        work = len(self._touched) if self.built else size // ROWS_PER_BUILD
        each = 8 + size // ROWS_PER_UPDATE if self._mend_rows is None else self._mend_rows
        if work > each * (1 + self._skipped):
            self._skipped += 1
            return False
        self._skipped = 0.0
        if not self.built:
            self._size = size
            self._build(allowed.flags())
        elif work:
            for row in self._touched:
                self._update(row, allowed)
            self._touched.clear()
        return True

    def missed(self, refused: int) -> None:
        """Count `refused` rows that a search in another order met and that are not in this one."""
        self._skipped += refused / REFUSALS_PER_SCAN

    def _build(self, allowed: npt.NDArray[np.bool_]) -> None:
        """Sort all rows by arrays, and leave the keys of each block until it is read."""
        rows = np.flatnonzero(allowed)
        columns = self._source.columns(rows, self.sign)
        telling = [values for values in reversed(columns) if len(rows) and np.ptp(values)]
        order = np.lexsort(telling) if telling else np.arange(len(rows))
        rows = rows[order]
        starts = np.arange(0, len(rows), BLOCK_MAX)
        numbers = np.arange(len(rows)) // BLOCK_MAX
        if self._scoped:
            self._where = dict(zip(rows.tolist(), numbers.tolist(), strict=True))
        else:
            where = np.full(len(allowed), NO_BLOCK, np.int64)
            where[rows] = numbers
            self._where = where.tolist()
        self._numbers = len(starts)
        self._keys = {}
        cuts = starts.tolist()
        self._blocks = [
            _Block(number, [], rows=rows[at : at + BLOCK_MAX]) for number, at in enumerate(cuts)
        ]
        lasts = rows[np.minimum(starts + BLOCK_MAX, len(rows)) - 1]
        self._lasts = self._keys_of(lasts)
        self.built = True
        if cuts:
            _, gpu, cpu, memory, disk = (
                np.maximum.reduceat(column[order] * self.sign, starts).tolist()
                for column in columns
            )
            for block, *most in zip(self._blocks, cpu, memory, disk, gpu, strict=True):
                block.cpu, block.memory, block.disk, block.gpu = most

    def _keys_of(self, rows: Ints) -> list[SortKey]:
        columns = self._source.columns(rows, self.sign)
        return list(zip(*(column.tolist() for column in columns), rows.tolist(), strict=True))

    def _update(self, row: int, allowed: AllowedRows) -> None:
        if isinstance(self._where, list) and row >= len(self._where):
            self._where.extend([NO_BLOCK] * (row + 1 - len(self._where)))
        new = self._source.of_row(row, self.sign) if allowed.allows(row) else None
        old = self._keys.pop(row, None)
        if old is None:
            self._where[row] = NO_BLOCK
        else:
            self._remove(old)
        if new is not None:
            self._insert(new)

    def _remove(self, old: SortKey) -> None:
        """Remove a key of a sorted block."""
        at = bisect_left(self._lasts, old)
        block = self._blocks[at]
        del block.keys[bisect_left(block.keys, old)]
        block.stale = True
        if not block.keys:
            del self._blocks[at], self._lasts[at]

    def _insert(self, key: SortKey) -> None:
        if not self._blocks:
            self._keys[key[-1]] = key
            self._add_block(0, [key], last=key)
            return
        at = bisect_left(self._lasts, key)
        if at == len(self._blocks):
            at -= 1
            self._lasts[at] = key
        block = self._blocks[at]
        block.admit(key, self.sign)
        row = key[-1]
        if block.rows is not None:
            self._where[row] = block.number
            block.more[row] = None
            return
        self._keys[row] = key
        block.keys.insert(bisect_left(block.keys, key), key)
        if len(block.keys) > 2 * BLOCK_MAX:
            self._divide(at, block.keys)

    def _sort(self, at: int) -> None:
        """Sort a block that is read for the first time. All rows must be up to date."""
        block = self._blocks[at]
        assert block.rows is not None
        where, number = self._where, block.number
        rows = [row for row in block.rows.tolist() if where[row] == number]
        if block.more:
            rows += [row for row in block.more if where[row] == number]
            rows = list(dict.fromkeys(rows))  # one may have left and come back
        keys = sorted(self._keys_of(np.array(rows, np.int64)))
        for key in keys:
            self._keys[key[-1]] = key
            where[key[-1]] = NO_BLOCK
        self._divide(at, keys)

    def _divide(self, at: int, keys: list[SortKey]) -> None:
        """Replace a block by sorted blocks of these keys, or by none if there are none."""
        last = self._lasts[at]
        del self._blocks[at], self._lasts[at]
        for start in range(0, len(keys), BLOCK_MAX):
            some = keys[start : start + BLOCK_MAX]
            rest = start + BLOCK_MAX < len(keys)
            self._add_block(at, some, last=some[-1] if rest else last)
            at += 1

    def _add_block(self, at: int, keys: list[SortKey], *, last: SortKey) -> None:
        block = _Block(self._numbers, keys)
        block.measure(self.sign)
        self._numbers += 1
        self._blocks.insert(at, block)
        self._lasts.insert(at, last)

    def take(
        self, search: Search, count: int, *, groups: int, room: Room | None = None
    ) -> list[tuple[int, int]] | None:
        """Return rows and how many of the `count` members go to each; None if a scan is needed."""
        taken: list[tuple[int, int]] = []
        wanted, self.refused = _Wanted(search, room, taken), 0
        for group in range(groups):
            count = self._take(wanted, count, group=group)
            if count <= 0:
                return taken if count == 0 else None
        return None

    def _take(self, wanted: _Wanted, count: int, *, group: int) -> int:
        """Take rows of one group; return what is left of `count`, or GIVEN_UP."""
        sign, (search, room, taken) = self.sign, wanted
        cpu_min, memory_min, disk_min, gpu_min = search.least
        start = (group, max(gpu_min, 0), cpu_min) if sign > 0 else (group,)
        at = bisect_left(self._lasts, start)
        left = SCAN_MAX + count + self._size // ROWS_PER_ENTRY
        while at < len(self._blocks):
            block = self._blocks[at]
            if block.lacks(search.least):
                if self._lasts[at][0] > group:
                    return count
                left -= 1
            elif block.rows is not None:
                self._sort(at)
                continue
            else:
                keys = block.keys
                begin = bisect_left(keys, start)
                end = min(len(keys), begin + left)
                before = count
                for place in range(begin, end):
                    number, gpu, cpu, memory, disk, row = keys[place]
                    if number != group:
                        return count
                    if cpu * sign < cpu_min or memory * sign < memory_min:
                        continue
                    if disk * sign < disk_min or gpu * sign < gpu_min:
                        continue
                    have = (cpu * sign, memory * sign, disk * sign, gpu * sign)
                    here = 1 if count == 1 else search.fits(have, count)
                    if room is not None:
                        here = room(row, here)
                        self.refused += not here
                    if here:
                        taken.append((row, here))
                        count -= here
                    elif self.refused > REFUSED_MAX:
                        return GIVEN_UP
                    if not count:
                        return 0
                whole = end == len(keys) and 2 * (end - begin) > len(keys)
                if block.stale and whole and count == before:
                    block.measure(sign)  # not counted: there is one for each row that left
                else:
                    left -= end - begin
            if left <= 0:
                return GIVEN_UP
            at += 1
        return count
