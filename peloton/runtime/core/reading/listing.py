"""Listings: filter, order and limit the summaries of a kind, in pages.

Turns summaries into pages, and pages into one listing. A query names fields of the summaries of a
kind. A shard answers between two turns, on the thread that all shards of a daemon share, so one
query examines at most `SCAN_MAX` summaries, sorts those that match, and returns where it stopped.
The caller continues from there, and keeps the best of all pages (`Best`) on its own thread.

Summaries are examined in an order that never changes: that of their keys, or of their ranks
(`core/reading/ranked_views.py`), so that the newest come first. An entity that exists all the time
is seen exactly once, whatever is created, deleted or changed between two pages, and even if the
shard gets another owner in between.
"""

from __future__ import annotations

import enum
import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import compress
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec

from peloton.runtime.core.entities.encoding import encode
from peloton.runtime.core.reading.filters import BETWEEN, FieldReader, Where, passing
from peloton.runtime.vocabulary import Key, Query, Value

SCAN_MAX = 1000
"""Summaries examined for one query: less than a millisecond."""
LISTING_PAGE_BYTES_MAX = 1024 * 1024
"""A larger page is made again of fewer summaries; a batch takes sixteen times as much."""
UNLIMITED = 2**62


class SortOrder(Value, frozen=True, gc=False, array_like=True):
    """Sort by this field; `down`: the greatest first."""

    field: str
    down: bool = False


class ListViews(Query, frozen=True, gc=False, array_like=True):
    """Asks for a page of a kind's summaries as of the last durable frame. Answered by `Listed`.

    `limit`: at most so many, the first in order. `tally` names fields to count: how many have each
    value, or the sums of its pairs of name and number. `after`: where the last page ended.

    `ranked`: of a kind with ranks, examine the highest first. Where that is the order, a shard ends
    its pages once it has found `enough` matches: the caller does not want to know of more.
    """

    kind: str
    tests: tuple[Where, ...] = ()
    order: tuple[SortOrder, ...] = ()
    limit: int = UNLIMITED
    tally: tuple[str, ...] = ()
    after: Key = Key("")
    ranked: bool = False
    enough: int = UNLIMITED
    after_rank: float = 0.0


FieldCounts = tuple[tuple[str, int], ...]


class Listed(NamedTuple):
    """A page of summaries: values of the class that their kind registered among its answers.

    `items` are the first of `matched`, in order; `after` is where to continue, empty at the end,
    and `after_rank` its rank, of a kind with ranks.
    """

    kind: str
    items: tuple[Any, ...]
    matched: int = 0
    tallies: tuple[FieldCounts, ...] = ()
    after: Key = Key("")
    after_rank: float = 0.0


def page_of(
    query: ListViews, keys: Sequence[Key], *, summary: Callable[[Key], Any], here: bool = False
) -> Listed:
    """Return the page that begins with the first of `keys`; `here`: it stays in this process."""
    most = SCAN_MAX
    while True:
        examined = keys[:most]
        found = matching(query, map(summary, examined))
        items = best(query, found)
        if here or most == 1 or page_fits(items):
            break
        most = max(most // 8, 1)
    after = examined[-1] if len(keys) > most else Key("")
    return Listed(query.kind, tuple(items), len(found), tallies(query, _fields(found)), after)


def page_fits(items: Sequence[Any]) -> bool:
    """Return whether a page of these items may be sent to another daemon."""
    return len(encode(items)) <= LISTING_PAGE_BYTES_MAX


def tallies(query: ListViews, columns: FieldReader) -> tuple[FieldCounts, ...]:
    """Return the counts of a page."""
    return tuple(_tally(columns(field)) for field in query.tally)


def onwards(query: ListViews, page: Listed) -> ListViews:
    """Return the same query, after that page."""
    return msgspec.structs.replace(query, after=page.after, after_rank=page.after_rank)


class Best:
    """The first entries in order of many pages, for the caller's own thread.

    It holds little more than the limit: pages are collected, and sorted and cut at twice the limit.
    """

    def __init__(self, query: ListViews) -> None:
        self._query = query
        self._items: list[Any] = []
        self._matched = 0
        self._sums: list[Counter[str]] = [Counter() for _ in query.tally]

    def add(self, page: Listed) -> None:
        """Add a page."""
        self._items += page.items
        self._matched += page.matched
        for total, tally in zip(self._sums, page.tallies, strict=True):
            total.update(dict(tally))
        if len(self._items) > 2 * self._query.limit + SCAN_MAX:
            self._items = best(self._query, self._items)

    def narrowed(self) -> ListViews:
        """Return the query for the next shard; a satisfied ranked query asks for less.

        The number of matches is then known as far as the caller wants to know it.
        """
        query = self._query
        is_ranked = query.ranked and not query.tally and query.order[:1] and query.order[0].down
        items = len(self._items)
        if not is_ranked or self._matched < query.enough or not 0 < query.limit <= items:
            return query
        self._items = best(query, self._items)
        field = query.order[0].field
        low = getattr(self._items[-1], field)
        if not isinstance(low, int | float):
            return query
        above = Where(field, BETWEEN, numbers=(float(low), float("inf")))
        return msgspec.structs.replace(query, tests=(*query.tests, above))

    def listed(self) -> Listed:
        """Return all pages as one."""
        tallies = tuple(tuple(sorted(total.items())) for total in self._sums)
        items = tuple(best(self._query, self._items))
        return Listed(self._query.kind, items, self._matched, tallies)


def matching(query: ListViews, summaries: Iterable[Any]) -> list[Any]:
    """Return the summaries that pass all tests of the query."""
    return passing(query.tests, [*summaries])


def best(query: ListViews, summaries: list[Any]) -> list[Any]:
    """Return the summaries in order, up to the limit. The last order should leave no ties."""
    if not query.limit:
        return []
    if query.order and len(summaries) > 2 * query.limit:
        # To sort few is less work.
        values = [*map(attrgetter(query.order[0].field), summaries)]
        summaries = [*compress(summaries, map(foremost(query, values), values))]
    for order in reversed(query.order):
        summaries.sort(key=attrgetter(order.field), reverse=order.down)
    return summaries[: query.limit]


def foremost(query: ListViews, values: Sequence[Any]) -> Callable[[Any], bool]:
    """Return a test of whether a value of the first order may be among the first of these."""
    first = query.order[0]
    if first.down:
        (last,) = heapq.nlargest(query.limit, values)[-1:]
        return lambda value: bool(value >= last)
    (last,) = heapq.nsmallest(query.limit, values)[-1:]
    return lambda value: bool(value <= last)


def _tally(values: Iterable[Any]) -> FieldCounts:
    counts: Counter[str] = Counter()
    for value in values:
        if isinstance(value, tuple):
            for name, number in value:
                counts[name] += number
        else:
            counts[value.name if isinstance(value, enum.Enum) else str(value)] += 1
    return tuple(sorted(counts.items()))


def _fields(summaries: Sequence[Any]) -> FieldReader:
    return lambda field: map(attrgetter(field), summaries)
