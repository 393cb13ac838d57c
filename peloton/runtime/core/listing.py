"""Listings: filter, order and limit the summaries of a kind, in pages.

Turns summaries into pages, and pages into one listing. It must not know a kind: a query names
fields of its summaries. A shard answers between two turns, on the thread that all shards of a
daemon share, so one query examines at most `SCAN_MAX` summaries, sorts those that match, and
returns where it stopped. The caller continues from there, and keeps the best of all pages (`Best`)
on its own thread.

Summaries are examined in the order of their keys, because that never changes: an entity that exists
all the time is seen exactly once, whatever is created, deleted or changed between two pages, and
even if the shard gets another owner in between.

A listing needs all daemons at this version. One of an earlier version sends everything in one page
without counts, which is refused (`packing`), and would take our first page for everything. No
release had that version.
"""

from __future__ import annotations

import enum
import functools
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec

from peloton.runtime.core.codec import encode
from peloton.runtime.core.principal import creator_in
from peloton.runtime.vocabulary import Key, Query, Value

SCAN_MAX = 1000
"""Summaries examined for one query: about a millisecond."""
LISTING_PAGE_BYTES_MAX = 1024 * 1024
"""A larger page is made again of fewer summaries; a batch takes sixteen times as much."""
UNLIMITED = 2**62

AMONG, BETWEEN, PART, PAIR = "among", "between", "part", "pair"
BELOW, CREATOR = "below", "creator"


class Where(Value, frozen=True, gc=False, array_like=True):
    """What a field must be for a summary to match.

    among: one of `words` or `numbers`. between: from the first to the second of `numbers`, both
    included. part: it contains the first of `words`. pair: among its pairs is that of `words`;
    an empty first word stands for any. below: of the paths in `words`, each with + or - before it,
    the nearest at or above its own has a +. creator: it is the journaled principal of somebody who
    has proved to be the first of `words`.

    A summary matches as well if it passes one of `others`.
    """

    field: str
    rule: str
    words: tuple[str, ...] = ()
    numbers: tuple[float, ...] = ()
    others: tuple[Where, ...] = ()


class SortOrder(Value, frozen=True, gc=False, array_like=True):
    """Sort by this field; `down`: the greatest first."""

    field: str
    down: bool = False


class ListViews(Query, frozen=True, gc=False, array_like=True):
    """A page of the summaries of a kind, as of the last durable frame; answered by `Listed`.

    `limit`: at most so many, the first in order. `tally` names fields to count: how many have each
    value, or the sums of its pairs of name and number. `after`: where the last page ended.
    """

    kind: str
    tests: tuple[Where, ...] = ()
    order: tuple[SortOrder, ...] = ()
    limit: int = UNLIMITED
    tally: tuple[str, ...] = ()
    after: Key = Key("")


FieldCounts = tuple[tuple[str, int], ...]


class Listed(NamedTuple):
    """Summaries: values of the class that their kind registered among its answers.

    `items` are the first of `matched`, in order; `after` is where to continue, empty at the end.
    """

    kind: str
    items: tuple[Any, ...]
    matched: int = 0
    tallies: tuple[FieldCounts, ...] = ()
    after: Key = Key("")


def page_of(
    query: ListViews, keys: Sequence[Key], *, summary: Callable[[Key], Any], here: bool = False
) -> Listed:
    """The page that begins with the first of `keys`; `here`: it is not sent to another daemon."""
    most = SCAN_MAX
    while True:
        examined = keys[:most]
        found = matching(query, map(summary, examined))
        items = best(query, found)
        if here or most == 1 or len(encode(items)) <= LISTING_PAGE_BYTES_MAX:
            break
        most = max(most // 8, 1)
    tallies = tuple(_tally(found, field) for field in query.tally)
    after = examined[-1] if len(keys) > most else Key("")
    return Listed(query.kind, tuple(items), len(found), tallies, after)


def onwards(query: ListViews, after: Key) -> ListViews:
    """The same query, after that key."""
    return msgspec.structs.replace(query, after=after)


class Best:
    """The first in order of many pages, of one shard or of many; for the caller's own thread.

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

    def listed(self) -> Listed:
        """All pages as one."""
        tallies = tuple(tuple(sorted(total.items())) for total in self._sums)
        items = tuple(best(self._query, self._items))
        return Listed(self._query.kind, items, self._matched, tallies)


def matching(query: ListViews, summaries: Iterable[Any]) -> list[Any]:
    """The summaries that pass all tests of the query."""
    found = list(summaries)
    for test in query.tests:
        found = [*filter(_test(test), found)]
    return found


def best(query: ListViews, summaries: list[Any]) -> list[Any]:
    """The summaries in order, up to the limit. The last order of a query should leave no ties."""
    if not query.limit:
        return []
    for order in reversed(query.order):
        summaries.sort(key=attrgetter(order.field), reverse=order.down)
    return summaries[: query.limit]


def _tally(summaries: Iterable[Any], field: str) -> FieldCounts:
    counts: Counter[str] = Counter()
    read = attrgetter(field)
    for summary in summaries:
        value = read(summary)
        if isinstance(value, tuple):
            for name, number in value:
                counts[name] += number
        else:
            counts[value.name if isinstance(value, enum.Enum) else str(value)] += 1
    return tuple(sorted(counts.items()))


def nearest(path: str, found: Callable[[str], Any]) -> Any:
    """What `found` has for a path or else for the nearest one above it; None if for none."""
    path = path or "/"
    while True:
        value = found(path)
        if value is not None or path == "/":
            return value
        path = path.rpartition("/")[0] or "/"


def _test(test: Where) -> Callable[[Any], bool]:
    """Raises for a test that makes no sense: the query gets an error instead of a partial list."""
    if not test.others:
        return _one_test(test)
    tests = [_one_test(test), *map(_test, test.others)]
    return lambda summary: any(passes(summary) for passes in tests)


def _one_test(test: Where) -> Callable[[Any], bool]:
    read = attrgetter(test.field)
    if test.rule == AMONG:
        among = frozenset(test.words) | frozenset(test.numbers)
        return lambda summary: read(summary) in among
    if test.rule == BETWEEN:
        low, high = test.numbers
        return lambda summary: low <= read(summary) <= high
    if test.rule == PART:
        (part,) = test.words
        return lambda summary: part in read(summary)
    if test.rule == PAIR:
        name, value = test.words
        if name:
            return lambda summary: (name, value) in read(summary)
        return lambda summary: any(value == each for _, each in read(summary))
    if test.rule == BELOW:
        signs = {word[1:]: word[0] == "+" for word in test.words}
        below = functools.cache(lambda path: bool(nearest(path, signs.get)))
        return lambda summary: below(read(summary))
    if test.rule == CREATOR:
        (name,) = test.words
        created = functools.cache(lambda text: bool(name) and creator_in(text) == name)
        return lambda summary: created(read(summary))
    raise ValueError(f"no rule {test.rule} to choose summaries by")
