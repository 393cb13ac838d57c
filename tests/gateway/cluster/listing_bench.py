"""What a listing of many jobs costs: of another daemon (asked), and of the same one (read).

    python -m tests.gateway.cluster.listing_bench 100000 8

Both ways are measured in one run, on the same lines; what is asked is packed and unpacked, as
between two daemons. No threads and no shells: what is measured is the work itself, in time of the
processor, at best of a few times.
"""

from __future__ import annotations

import gc
import random
import sys
import time
from collections.abc import Callable
from typing import Any

from peloton.actors.job.messages import JobSummary, job_key
from peloton.actors.job.stages import JobStates
from peloton.actors.respool.messages import pool_key
from peloton.api.v0.job import job_pb2
from peloton.assembly.kinds import kinds
from peloton.gateway.v0.job_query import list_query
from peloton.runtime.core.links.packing import Packing
from peloton.runtime.core.reading.listing import Best, ListViews, onwards
from peloton.runtime.core.reading.views import Views
from peloton.runtime.vocabulary import key

KINDS = kinds({"jobmgr": 8, "resmgr": 1, "hostmgr": 8})
PACKING = Packing(KINDS)
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


def read(shards: list[Views], query: ListViews, meter: Meter) -> int:
    """Pages of shards of this process."""
    found = Best(query)
    for views in shards:
        asked = query
        while True:
            page = views.read(asked)
            assert page is not None
            found.add(page)
            if not page.after:
                break
            asked = onwards(query, page)
    return len(found.listed().items)


def asked(shards: list[Views], query: ListViews, meter: Meter) -> int:
    """Pages of another daemon."""
    found = Best(query)
    for views in shards:
        rest = query
        while True:
            page = meter.ask(lambda views=views, rest=rest: views.page(rest))
            found.add(page)
            if not page.after:
                break
            rest = onwards(query, page)
    return len(found.listed().items)


def text(number: int) -> tuple[str, ...]:
    """What keywords are looked for in: a name, and a command of some lines that many share."""
    command = f"python train.py --model resnet-{number % 97} " + "--option value " * 40
    return f"nightly-{number}\nresearch\nteam=a\ntier=2", command


def cases(jobs: int) -> dict[str, job_pb2.QueryRequest]:
    """The queries, by a name."""
    deep = {"offset": jobs * 9 // 10, "limit": 100, "maxLimit": jobs}
    by_name = {"orderBy": [{"property": {"value": "name"}}]}
    specs: dict[str, dict[str, Any]] = {
        "newest": {},
        "few": {"name": f"nightly-{jobs - 7}", "jobStates": [3]},
        "none": {"owner": "nobody"},
        "label": {"labels": [{"key": "tier", "value": "3"}]},
        "keyword": {"keywords": [f"nightly-{jobs - 7}"]},
        "two words": {"keywords": ["Resnet-13", "nothing"]},
        "pattern": {"keywords": ["*resnet-1?3*"]},
        "by name": {"pagination": by_name},
        "deep": {"pagination": deep},
    }
    return {
        name: job_pb2.QueryRequest(spec=job_pb2.QuerySpec(**spec)) for name, spec in specs.items()
    }


def main(jobs: int, shard_count: int) -> None:
    chance = random.Random(1)
    shards = [Views(KINDS) for _ in range(shard_count)]
    for number in range(jobs):
        line = summary(number, chance)
        shards[number % shard_count]._next[line.job] = line
        shards[number % shard_count]._next_texts[line.job] = text(number)
    for views in shards:
        views.commit()
    gc.collect()
    gc.freeze()  # as a daemon does after its recovery
    print(f"{jobs} jobs in {shard_count} shards")
    print(f"{'query':10}{'way':6}{'total ms':>9}{'turn ms':>9}{'letter KB':>11}{'pages':>7}")
    for name, request in cases(jobs).items():
        query = list_query(request, now_s=time.time())
        for way in (asked, read):
            best_s = 1e9
            for _ in range(3):
                meter = Meter()
                began = time.thread_time()
                found = way(shards, query, meter)
                best_s = min(best_s, time.thread_time() - began)
            print(
                f"{name:10}{way.__name__:6}{1e3 * best_s:9.1f}{1e3 * meter.turn_s:9.2f}"
                f"{meter.batch_bytes / 1e3:11.0f}{meter.letters:7}   {found} lines"
            )


if __name__ == "__main__":
    main(*(int(word) for word in sys.argv[1:3]))
