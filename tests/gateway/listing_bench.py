"""What a listing of many jobs costs, as it was (every line to the asker) and as it is (pages).

    python -m tests.gateway.listing_bench 100000 8

Both ways are measured in one run, on the same lines and with all that travels packed and unpacked,
as between two daemons. No threads and no shells: what is measured is the work itself, in time of
the processor.
"""

from __future__ import annotations

import gc
import random
import sys
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

from peloton.actors.job.messages import JobStates, JobSummary, job_key
from peloton.actors.respool.messages import pool_key
from peloton.api.v0.job import job_pb2
from peloton.gateway.job_query import list_query
from peloton.kinds import kinds
from peloton.runtime.core.listing import Best, Listed, ListViews, best, matching, onwards
from peloton.runtime.core.packing import Packing
from peloton.runtime.core.views import Views
from peloton.runtime.vocabulary import key

PACKING = Packing(kinds({"jobmgr": 8, "resmgr": 1, "hostmgr": 8}))
SHARD = key("shard", "jobmgr", 0)


def summary(number: int, chance: random.Random) -> JobSummary:
    state = chance.choice([JobStates.PENDING, JobStates.RUNNING, JobStates.SUCCEEDED])
    at = 1_700_000_000.0 + chance.randrange(10**6)
    return JobSummary(
        job_key(f"{chance.getrandbits(128):032x}"), f"nightly-{number}", "research", state, 1000,
        pool_key("p"), "/research/nightly", at, at, at, at, (("team", "a"), ("tier", "2")),
        "BATCH", (("RUNNING", 400), ("SUCCEEDED", 600)),
    )  # fmt: skip


class Meter:
    """Costs of one way."""

    def __init__(self) -> None:
        self.turn_s = self.batch_bytes = self.letters = 0

    def ask(self, answer: Callable[[], Any]) -> Any:
        """One list_query: what it takes of the shard's thread, and what travels."""
        began = time.thread_time()
        found = answer()
        self.turn_s = max(self.turn_s, time.thread_time() - began)
        body = PACKING.pack_answer(SHARD, found)
        self.letters += 1
        self.batch_bytes = max(self.batch_bytes, len(body))
        return PACKING.unpack_answer(SHARD, body)


def before(shards: list[Views], query: ListViews, meter: Meter) -> int:
    """Every line of every shard; the asker chooses and sorts."""
    lines: list[Any] = []
    for views in shards:
        lines += meter.ask(lambda views=views: Listed("job", tuple(views._safe.values()))).items
    return len(best(query, matching(query, lines)))


def after(shards: list[Views], query: ListViews, meter: Meter) -> int:
    """Pages."""
    found = Best(query)
    for views in shards:
        asked = query
        while True:
            page = meter.ask(lambda views=views, asked=asked: views.page(asked))
            found.add(page)
            if not page.after:
                break
            asked = onwards(query, page.after)
    return len(found.listed().items)


def main(jobs: int, shard_count: int) -> None:
    chance = random.Random(1)
    shards = [Views() for _ in range(shard_count)]
    for number in range(jobs):
        line = summary(number, chance)
        shards[number % shard_count]._next[line.job] = line
    for views in shards:
        views.commit()
    gc.collect()
    gc.freeze()  # as a daemon does after its recovery
    newest = job_pb2.QueryRequest(spec=job_pb2.QuerySpec())
    few = job_pb2.QueryRequest(spec=job_pb2.QuerySpec(name="nightly-7", jobStates=[3]))
    deep = job_pb2.QueryRequest(spec=job_pb2.QuerySpec())
    deep.spec.pagination.offset, deep.spec.pagination.limit = jobs * 9 // 10, 100
    deep.spec.pagination.maxLimit = jobs
    print(f"{jobs} jobs in {shard_count} shards")
    print(f"{'query':8}{'way':8}{'total ms':>9}{'turn ms':>9}{'letter KB':>11}{'peak MB':>9}")
    for name, request in (("newest", newest), ("filter", few), ("deep", deep)):
        query = list_query(request, now_s=time.time())
        for way in (before, after):
            meter = Meter()
            began = time.thread_time()
            found = way(shards, query, meter)
            total_s, turn_s = time.thread_time() - began, meter.turn_s
            tracemalloc.start()
            assert way(shards, query, Meter()) == found
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            print(
                f"{name:8}{way.__name__:8}{1e3 * total_s:9.0f}{1e3 * turn_s:9.2f}"
                f"{meter.batch_bytes / 1e3:11.0f}{peak / 1e6:9.1f}   {found} lines"
            )


if __name__ == "__main__":
    main(*(int(word) for word in sys.argv[1:3]))
