"""The entities of a kind by a rank that never changes, such as the time of creation, highest first.

Turns a query into pages of them, and ranks that come and go into blocks of a few hundred, so that
neither a change nor the beginning of a page costs more with more entities. If the query is ordered
by rank, few entities are examined; else all, by columns (`core/reading/blocks.py`).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import compress
from operator import attrgetter
from typing import Any, NamedTuple

from peloton.runtime.core.reading.blocks import Block, RankKey, Texts
from peloton.runtime.core.reading.filters import BETWEEN, FieldReader, filter_of
from peloton.runtime.core.reading.listing import (
    SCAN_MAX,
    Listed,
    ListViews,
    SortOrder,
    best,
    foremost,
    page_fits,
    tallies,
)
from peloton.runtime.vocabulary import Key

BLOCK_SIZE, BLOCK_MAX, BLOCK_MIN = 512, 1024, 64
CHARS_MAX = 4 * 1024 * 1024
"""Characters searched for one page, and those of one more block: some milliseconds."""
_LAST_KEY = Key(chr(0x10FFFF))


_Row = tuple[RankKey, Any, Texts]


class RankChange(NamedTuple):
    """An entity before and after a change, as summaries; None: there is none."""

    key: Key
    before: Any
    after: Any
    texts: Texts = ()


class _Span(NamedTuple):
    """Some entities of a block. `beyond`: others follow behind them."""

    block: Block
    start: int
    end: int
    beyond: bool


class RankedViews:
    """The entities of one kind. `fields`: the summary's field with the rank, and that with the key.

    Entities of equal rank come in the order of their keys.
    """

    def __init__(self, fields: tuple[str, str]) -> None:
        self._field = fields[0]
        self._read = attrgetter(self._field)
        self._order = (SortOrder(fields[0], down=True), SortOrder(fields[1]))
        self._blocks: list[Block] = []  # ranks are negative and ascend; none is empty

    def __len__(self) -> int:
        return sum(map(len, self._blocks))

    # ---- changes ----

    def change(self, changes: Iterable[RankChange]) -> None:
        """Apply changes of entities."""
        new: list[_Row] = []
        for key, before, after, texts in changes:
            old = None if before is None else (-self._read(before), key)
            now = None if after is None else (-self._read(after), key)
            if old is not None and old != now:
                self._remove(old)
            if now is not None and old == now:
                self._blocks[self._block_of(now)].put(now, after, texts=texts)
            elif now is not None:
                new.append((now, after, texts))
        if len(new) > BLOCK_SIZE and len(new) > len(self) // 4:
            self._rebuild(new)
        else:
            for each in new:
                self._add(each)

    def _block_of(self, rank: RankKey) -> int:
        at = bisect_left(self._blocks, rank, key=_last_rank)
        return min(at, len(self._blocks) - 1)

    def _add(self, new: _Row) -> None:
        rank, summary, texts = new
        if not self._blocks:
            self._blocks.append(Block([rank], [summary], texts=[texts]))
            return
        at = self._block_of(rank)
        block = self._blocks[at]
        block.put(rank, summary, texts=texts)
        if len(block) > BLOCK_MAX:
            self._blocks[at : at + 1] = block.parts(-(-len(block) // 2))

    def _remove(self, rank: RankKey) -> None:
        at = self._block_of(rank)
        block = self._blocks[at]
        block.remove(rank)
        if not block:
            del self._blocks[at]
        elif len(block) < BLOCK_MIN and at + 1 < len(self._blocks):
            self._blocks[at : at + 2] = _rows_of(self._blocks[at : at + 2]).parts(BLOCK_MAX)

    def _rebuild(self, new: list[_Row]) -> None:
        rows = [*new]
        for block in self._blocks:
            rows += zip(block.ranks, block.summaries, block.texts, strict=True)
        rows.sort(key=lambda row: row[0])
        ranks, summaries, texts = ([*column] for column in zip(*rows, strict=True))
        self._blocks = [*Block(ranks, summaries, texts=texts).parts(BLOCK_SIZE)]

    # ---- pages ----

    def page(self, query: ListViews, *, here: bool) -> Listed:
        """Return the page that answers a query; `here`: the page stays in this process."""
        most = SCAN_MAX
        while True:
            page = self._page(query, most)
            if here or most == 1 or page_fits(page.items):
                return page
            most = max(most // 8, 1)

    def _page(self, query: ListViews, most: int) -> Listed:
        in_order, wanted = query.order == self._order, filter_of(query.tests)
        # Where the ranks are the order, mostly the first few are enough.
        step = min(most, 2 * query.enough) if in_order else most
        found = _Found(query, in_order)
        examined = chars = 0
        for block, start, end, beyond in self._spans(query, step):
            stop = min(end, start + most - examined)
            found.add(block, wanted.positions(block, range(start, stop)))
            if not (beyond or stop < end) or (in_order and found.matched >= query.enough):
                break
            examined += stop - start
            chars += block.chars if wanted.words else 0
            if examined >= most or chars > CHARS_MAX:
                return found.listed(block.ranks[stop - 1])
        return found.listed()

    def _spans(self, query: ListViews, step: int) -> Iterator[_Span]:
        begin, end = self._bounds(query)
        for at in range(bisect_right(self._blocks, begin, key=_last_rank), len(self._blocks)):
            block = self._blocks[at]
            start, end_here = bisect_right(block.ranks, begin), bisect_left(block.ranks, end)
            beyond = at + 1 < len(self._blocks) and self._blocks[at + 1].ranks[0] < end
            while start < end_here:
                stop = min(start + step, end_here)
                yield _Span(block, start, stop, beyond or stop < end_here)
                start = stop
            if not beyond:
                return

    def _bounds(self, query: ListViews) -> tuple[RankKey, RankKey]:
        low, high = float("-inf"), float("inf")
        for test in query.tests:
            if test.rule == BETWEEN and test.field == self._field and not test.others:
                low, high = max(low, test.numbers[0]), min(high, test.numbers[1])
        begin = (-high, Key(""))
        if query.after:
            begin = max(begin, (-query.after_rank, query.after))
        return begin, (-low, _LAST_KEY)


class _Found:
    """The matches of one page: counted, and as many as may be among the first."""

    def __init__(self, query: ListViews, in_order: bool) -> None:
        self.matched = 0
        self._query, self._in_order = query, in_order
        self._items: list[Any] = []
        self._sums: list[Counter[str]] = [Counter() for _ in query.tally]

    def add(self, block: Block, positions: Sequence[int]) -> None:
        """Add matches."""
        query = self._query
        self.matched += len(positions)
        if query.tally:
            counts = tallies(query, _columns_at(block, positions))
            for total, tally in zip(self._sums, counts, strict=True):
                total.update(dict(tally))
        if self._in_order:
            positions = positions[: query.limit - len(self._items)]
        elif query.limit and query.order and len(positions) > 2 * query.limit:
            values = [*_columns_at(block, positions)(query.order[0].field)]
            positions = [*compress(positions, map(foremost(query, values), values))]
        self._items += map(block.summaries.__getitem__, positions)

    def listed(self, last: RankKey | None = None) -> Listed:
        """Return the page; `last` is the entity after which there may be more."""
        query = self._query
        items = self._items if self._in_order else best(query, self._items)
        sums = tuple(tuple(sorted(total.items())) for total in self._sums)
        page = Listed(query.kind, tuple(items), self.matched, sums)
        return page if last is None else page._replace(after=last[1], after_rank=-last[0])


def _columns_at(block: Block, positions: Sequence[int]) -> FieldReader:
    return lambda field: map(block.column(field).__getitem__, positions)


def _last_rank(block: Block) -> RankKey:
    return block.ranks[-1]


def _rows_of(blocks: Iterable[Block]) -> Block:
    found = Block([], [], texts=[])
    for block in blocks:
        found.ranks += block.ranks
        found.summaries += block.summaries
        found.texts += block.texts
    return found
