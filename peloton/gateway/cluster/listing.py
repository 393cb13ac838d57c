"""Gathers a listing from all shards that have a kind, page by page, wherever they live.

A few shards are queried at once, and their answers merged into the best of all. It runs on the
thread of the call, so that no sort holds up a shard. One shard that cannot answer fails the call: a
partial listing would look complete.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from peloton.runtime.core.reading.listing import Best, Listed, ListViews, onwards
from peloton.runtime.shells.region import Region
from peloton.runtime.vocabulary import Key

SHARDS_IN_FLIGHT_MAX = 16
"""Shards queried at once: their pages together must fit into one link between daemons."""


def gather(cluster: Region, query: ListViews, *, wait: Callable[[Future[Any]], Listed]) -> Listed:
    """Return what all shards together list; `wait` returns the answer of one, or raises.

    A shard of this process is read on this thread, so that it is not held up; what cannot be read
    because it changes too often, or is elsewhere, is asked for.
    """
    best = Best(query)
    shards = iter(cluster.shards_of(query.kind))
    waiting: deque[tuple[Key, ListViews, Future[Any]]] = deque()

    def ask(shard: Key, rest: ListViews) -> None:
        waiting.append((shard, rest, cluster.ask(shard, rest)))

    def fill() -> None:
        while len(waiting) < SHARDS_IN_FLIGHT_MAX:
            shard = next(shards, None)
            if shard is None:
                return
            rest = _read(cluster, shard, query=best.narrowed(), best=best)
            if rest is not None:
                ask(shard, rest)

    fill()
    while waiting:
        shard, asked, future = waiting.popleft()
        page = wait(future)
        # The next page is requested before this one is sorted, so the shard does not wait.
        if page.after:
            ask(shard, onwards(asked, page))
        best.add(page)
        fill()
    return best.listed()


def _read(cluster: Region, shard: Key, *, query: ListViews, best: Best) -> ListViews | None:
    """Add the pages that need no asking; return what is left to ask, or None."""
    rest = query
    while True:
        page = cluster.read(shard, rest)
        if not isinstance(page, Listed):
            return rest
        best.add(page)
        if not page.after:
            return None
        rest = onwards(query, page)
