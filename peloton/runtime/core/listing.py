"""Listings: which summaries of a kind are wanted, in which order, and the best so many of them.

Turns summaries into pages, and pages into one. It must not know a kind: a query names fields of its
summaries. Nothing here grows with the number of entities but by pages: a shard is asked between
two turns, on the thread that all shards of a daemon share, so it looks at `LOOK_MAX` summaries for
one question, sorts those that match among them, and says where it stopped. Who wants more asks on
from there, and keeps the best of what it was told (`Best`), on a thread of its own.

Summaries are looked at in the order of their keys, which is nobody's wish but never changes: an
entity that is there all the time is seen once and only once, whatever comes, goes or changes
between two pages, and though the shard has another owner by then.

A listing needs all daemons at this version. One of an earlier version sends all it has in one page
that counts nothing, which is refused (`packing`); and it would take our first page for all. No
release had that version.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec

from peloton.runtime.core.codec import encode
from peloton.runtime.vocabulary import Key, Query, Value

LOOK_MAX = 1000
"""Summaries looked at for one question: about a millisecond."""
LISTING_PAGE_BYTES_MAX = 1024 * 1024
"""A page beyond this is made of fewer; a letter carries sixteen times as much."""
UNLIMITED = 2**62

AMONG, BETWEEN, PART, PAIR = "among", "between", "part", "pair"


class Where(Value, frozen=True, gc=False, array_like=True):
    """What a field must be for a summary to match.

    among: one of `words` or `numbers`. between: from the first to the second of `numbers`, both
    included. part: it contains the first of `words`. pair: among its pairs is that of `words`;
    an empty first word stands for any.
    """

    field: str
    rule: str
    words: tuple[str, ...] = ()
    numbers: tuple[float, ...] = ()


class SortOrder(Value, frozen=True, gc=False, array_like=True):
    """Sort by this field; `down`: the greatest first."""

    field: str
    down: bool = False


class ListViews(Query, frozen=True, gc=False, array_like=True):
    """A page of the summaries of a kind, as of the last safe frame; answered by `Listed`.

    `limit`: the best so many are enough. `tally` names fields to count: how many have each value,
    or the sums of its pairs of name and number. `after`: where the last page ended.
    """

    kind: str
    tests: tuple[Where, ...] = ()
    order: tuple[SortOrder, ...] = ()
    limit: int = UNLIMITED
    tally: tuple[str, ...] = ()
    after: Key = Key("")


FieldCounts = tuple[tuple[str, int], ...]


class Listed(NamedTuple):
    """Summaries: values that their kind registered among its answers.

    `items` are the best of `matched`, in order; `after` is where to go on, empty at the end.
    """

    kind: str
    items: tuple[Any, ...]
    matched: int = 0
    tallies: tuple[FieldCounts, ...] = ()
    after: Key = Key("")


def page_of(query: ListViews, keys: Sequence[Key], *, summary: Callable[[Key], Any]) -> Listed:
    """The page that begins with the first of `keys`."""
    look = LOOK_MAX
    while True:
        looked = keys[:look]
        found = matching(query, map(summary, looked))
        items = best(query, found)
        if look == 1 or len(encode(items)) <= LISTING_PAGE_BYTES_MAX:
            break
        look = max(look // 8, 1)
    tallies = tuple(_tally(found, field) for field in query.tally)
    after = looked[-1] if len(keys) > look else Key("")
    return Listed(query.kind, tuple(items), len(found), tallies, after)


def onwards(query: ListViews, after: Key) -> ListViews:
    """The same question, from there on."""
    return msgspec.structs.replace(query, after=after)


class Best:
    """The best of what many pages have, of one shard or of many; for the asker's own thread.

    It holds few more than are wanted: what comes is gathered, and sorted when it is as much again.
    """

    def __init__(self, query: ListViews) -> None:
        self._query = query
        self._items: list[Any] = []
        self._matched = 0
        self._sums: list[Counter[str]] = [Counter() for _ in query.tally]

    def add(self, page: Listed) -> None:
        """One more page."""
        self._items += page.items
        self._matched += page.matched
        for total, tally in zip(self._sums, page.tallies, strict=True):
            total.update(dict(tally))
        if len(self._items) > 2 * self._query.limit + LOOK_MAX:
            self._items = best(self._query, self._items)

    def listed(self) -> Listed:
        """All of them as one."""
        tallies = tuple(tuple(sorted(total.items())) for total in self._sums)
        items = tuple(best(self._query, self._items))
        return Listed(self._query.kind, items, self._matched, tallies)


def matching(query: ListViews, summaries: Iterable[Any]) -> list[Any]:
    """Those that pass all tests."""
    found = list(summaries)
    for test in query.tests:
        found = [*filter(_test(test), found)]
    return found


def best(query: ListViews, summaries: list[Any]) -> list[Any]:
    """Sorted, and no more than are wanted. The last order of a query should leave no ties."""
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


def _test(test: Where) -> Callable[[Any], bool]:
    """Raises where a test cannot be meant: the asker is told, and nobody a part."""
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
    raise ValueError(f"no rule {test.rule} to choose summaries by")
