"""A listing of many shards: the pages of each, a few at a time, and never a part.

The shards are real views behind a cluster that answers in whatever order; threads and streams are
tested elsewhere.
"""

from __future__ import annotations

import random
from collections import deque
from concurrent.futures import Future
from typing import Any, ClassVar

import pytest

from peloton.gateway.cluster.listing import SHARDS_IN_FLIGHT_MAX, gather
from peloton.runtime.core.reading.filters import AMONG, Where
from peloton.runtime.core.reading.listing import Listed, ListViews
from peloton.runtime.core.reading.views import Views
from peloton.runtime.vocabulary import Key, Unavailable, key
from tests.core.reading import test_ranked_views as ranked
from tests.core.reading.test_listing import BY_NOTE, drawn, line, naive, put


class Moving(Exception):
    """A shard cannot answer."""


class Shards:
    """Some shards, asked one page at a time, and when who waits is told."""

    def __init__(self, count: int, chance: random.Random) -> None:
        self.shards = {key("shard", "house", number): Views() for number in range(count)}
        self.open: deque[tuple[Key, ListViews, Future[Any]]] = deque()
        self.most = self.asked = 0
        self.bad: Key | None = None
        self._chance = chance
        self.here = 0.0

    def shards_of(self, kind: str) -> list[Key]:
        return [*self.shards]

    def read(self, shard: Key, query: ListViews) -> Listed | None:
        """Now and then a shard changes while it is read, or is elsewhere."""
        return self.shards[shard].read(query) if self._chance.random() < self.here else None

    def ask(self, shard: Key, query: Any, **more: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.open.append((shard, query, future))
        self.asked += 1
        self.most = max(self.most, len(self.open))
        return future

    def wait(self, future: Future[Any]) -> Listed:
        """Shards answer in any order until this one has."""
        while not future.done():
            self.open.rotate(self._chance.randrange(len(self.open)))
            shard, query, asked = self.open.popleft()
            bad = shard == self.bad
            asked.set_result(Unavailable("moving") if bad else self.shards[shard].page(query))
        if not isinstance(future.result(), Listed):
            raise Moving
        return future.result()


@pytest.mark.parametrize("seed", range(12))
def test_many_shards_come_to_what_one_sort_of_all_would(seed: int) -> None:
    chance = random.Random(seed)
    count = chance.choice([0, 1, SHARDS_IN_FLIGHT_MAX, 3 * SHARDS_IN_FLIGHT_MAX + 1])
    lines = [line(number, chance) for number in range(3000 if count else 0)]
    cluster = Shards(count, chance)
    for each in lines:
        put(chance.choice([*cluster.shards.values()]), each)
    query = drawn(chance)
    cluster.here = chance.choice([0.0, 0.7, 1.0])
    found = gather(cluster, query, wait=cluster.wait)  # type: ignore[arg-type]
    items, matched = naive(query, lines)
    assert ([*found.items], found.matched) == (items, matched)
    assert cluster.most <= SHARDS_IN_FLIGHT_MAX
    assert not cluster.open and (cluster.asked >= count or cluster.here)


@pytest.mark.parametrize("seed", range(25))
def test_ranked_listings_of_many_shards_come_to_what_one_sort_of_all_would(seed: int) -> None:
    chance = random.Random(seed)
    cluster = Shards(chance.choice([1, 5, SHARDS_IN_FLIGHT_MAX + 3]), chance)
    cluster.shards = {shard: Views(ranked.KINDS) for shard in cluster.shards}
    lines = [ranked.line(number, chance) for number in range(4000)]
    parts: dict[Key, list[ranked.Line]] = {shard: [] for shard in cluster.shards}
    for each in lines:
        parts[chance.choice([*parts])].append(each)
    for shard, some in parts.items():
        ranked.put(cluster.shards[shard], some)
    for _ in range(5):
        query = ranked.drawn(chance)
        cluster.here = chance.choice([0.0, 0.7, 1.0])
        found = gather(cluster, query, wait=cluster.wait)  # type: ignore[arg-type]
        wanted = ranked.naive(query, lines)
        assert [*found.items] == wanted[: query.limit], query
        assert min(found.matched, query.enough) == min(len(wanted), query.enough), query


class ReadShards(Shards):
    """Shards of this process, which note for each page whether it was the last."""

    def read(self, shard: Key, query: ListViews) -> Listed | None:
        page = self.shards[shard].read(query)
        self.pages.append(page is not None and not page.after)
        return page

    pages: ClassVar[list[bool]] = []


def test_shards_look_at_nothing_behind_what_was_found_before() -> None:
    chance = random.Random(1)
    cluster = ReadShards(8, chance)
    cluster.shards = {shard: Views(ranked.KINDS) for shard in cluster.shards}
    for number, views in enumerate(cluster.shards.values()):
        # Most of what matches is in the first shard; the others would have to look at all.
        ranked.put(
            views,
            [
                ranked.Line(key("note", f"{n:05d}-{number}"), float(n), "bob" if number else "ann")
                for n in range(5000)
            ],
        )
    ann = Where("owner", AMONG, words=("ann",))
    query = ListViews("note", (ann,), ranked.NEWEST, 10, ranked=True, enough=100)
    found = gather(cluster, query, wait=cluster.wait)  # type: ignore[arg-type]
    assert len(found.items) == 10 and cluster.pages == [True] * 8


def test_one_shard_that_cannot_answer_ends_the_whole() -> None:
    chance = random.Random(1)
    cluster = Shards(2 * SHARDS_IN_FLIGHT_MAX, chance)
    for views in cluster.shards.values():
        put(views, *(line(number, chance) for number in range(3)))
    cluster.bad = [*cluster.shards][-1]
    with pytest.raises(Moving):
        gather(cluster, ListViews("note", order=(BY_NOTE,)), wait=cluster.wait)  # type: ignore[arg-type]
