"""A listing of many shards: the pages of each, a few at a time, and never a part.

The shards are real views behind a cluster that answers in whatever order; threads and streams are
tested elsewhere.
"""

from __future__ import annotations

import random
from collections import deque
from concurrent.futures import Future
from typing import Any

import pytest

from peloton.gateway.listing import SHARDS_IN_FLIGHT_MAX, gather
from peloton.runtime.core.listing import Listed, ListViews
from peloton.runtime.core.views import Views
from peloton.runtime.vocabulary import Key, Unavailable, key
from tests.core.test_listing import BY_NOTE, drawn, line, naive, put


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

    def shards_of(self, kind: str) -> list[Key]:
        return [*self.shards]

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
    found = gather(cluster, query, wait=cluster.wait)  # type: ignore[arg-type]
    items, matched = naive(query, lines)
    assert ([*found.items], found.matched) == (items, matched)
    assert cluster.most <= SHARDS_IN_FLIGHT_MAX
    assert cluster.asked >= count and not cluster.open


def test_one_shard_that_cannot_answer_ends_the_whole() -> None:
    chance = random.Random(1)
    cluster = Shards(2 * SHARDS_IN_FLIGHT_MAX, chance)
    for views in cluster.shards.values():
        put(views, *(line(number, chance) for number in range(3)))
    cluster.bad = [*cluster.shards][-1]
    with pytest.raises(Moving):
        gather(cluster, ListViews("note", order=(BY_NOTE,)), wait=cluster.wait)  # type: ignore[arg-type]
