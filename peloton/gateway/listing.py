"""Gathers a listing from all shards that have a kind, page by page, wherever they live.

Turns a query into queries to shards, a few of which are under way at once, and their answers into
the best of all. It runs on the thread of the call, so that no sort holds up a shard. It must never
return a part: one shard that cannot answer fails the call.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from peloton.gateway.cluster_port import ClusterPort
from peloton.runtime.core.listing import Best, Listed, ListViews, onwards
from peloton.runtime.vocabulary import Key

SHARDS_IN_FLIGHT_MAX = 16
"""Shards queried at once: their pages together must fit into one link between daemons."""


def gather(
    cluster: ClusterPort, query: ListViews, *, wait: Callable[[Future[Any]], Listed]
) -> Listed:
    """What all shards together list; `wait` has the answer of one, or raises."""
    best = Best(query)
    shards = iter(cluster.shards_of(query.kind))
    waiting: deque[tuple[Key, Future[Any]]] = deque(
        (shard, cluster.ask(shard, query))
        for shard in itertools.islice(shards, SHARDS_IN_FLIGHT_MAX)
    )
    while waiting:
        shard, future = waiting.popleft()
        page = wait(future)
        # The next page is requested before this one is sorted, so the shard does not wait.
        if page.after:
            waiting.append((shard, cluster.ask(shard, onwards(query, page.after))))
        else:
            following = itertools.islice(shards, 1)
            waiting.extend((shard, cluster.ask(shard, query)) for shard in following)
        best.add(page)
    return best.listed()
