"""Job queries: each part of a query against a naive filter over random jobs, and its errors."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from peloton.actors.job.messages import job_key
from peloton.actors.job.slice.task_config import Command, TaskConfig
from peloton.actors.job.spec import JobSpec
from peloton.actors.job.stages import JobStates
from peloton.actors.job.state import Job
from peloton.actors.job.view import summary, texts
from peloton.actors.respool.messages import pool_key
from peloton.api.v0.job import job_pb2 as job
from peloton.assembly.kinds import kinds
from peloton.gateway.v0.job_query import (
    FINISHED_SHOWN_S,
    KEYWORD_LENGTH_MAX,
    KEYWORDS_MAX,
    LABELS_MAX,
    BadQuery,
    list_query,
    page_of_jobs,
)
from peloton.runtime.core.reading.listing import Best, Listed, onwards
from peloton.runtime.core.reading.views import Views
from peloton.runtime.vocabulary import Key

KINDS = kinds({"jobmgr": 2, "resmgr": 1, "hostmgr": 1})
NOW_S = 1_700_000_000.0
DAY_S = 24 * 3600.0
STATES = (JobStates.PENDING, JobStates.RUNNING, JobStates.SUCCEEDED, JobStates.FAILED)


def made(number: int, chance: random.Random) -> Job:
    state = chance.choice(STATES)
    created = NOW_S - chance.randrange(20) * DAY_S
    ended = state in (JobStates.SUCCEEDED, JobStates.FAILED)
    model = chance.choice(["resnet-50", "bert", "Llama"])
    spec = JobSpec(
        name=f"{chance.choice(['nightly', 'hourly'])}-{number % 7}",
        owner=chance.choice(["ann", "bob"]),
        pool=pool_key(chance.choice(["p1", "p2"])),
        instances=chance.randrange(1, 50),
        default=TaskConfig(command=Command(f"train --model {model}")),
        labels=tuple((chance.choice("ab"), chance.choice("xyz")) for _ in range(2)),
    )
    return Job(
        key=job_key(f"{number:04d}"), spec=spec, pool_path=f"/{spec.pool[-2:]}", state=state,
        created_at=created, started_at=created + 1, completed_at=(created + 60) if ended else 0.0,
        updated_at=created + 60,
    )  # fmt: skip


class Jobs:
    """Random jobs in two shards."""

    def __init__(self, count: int, seed: int) -> None:
        chance = random.Random(seed)
        self.all = [made(number, chance) for number in range(count)]
        self._shards = [Views(KINDS), Views(KINDS)]
        for one in self.all:
            views = chance.choice(self._shards)
            views._next[one.key] = summary(one.key, one)
            views._next_texts[one.key] = texts(one)
        for views in self._shards:
            views.commit()

    def query(self, request: job.QueryRequest) -> tuple[list[Key], int]:
        """The ids of the page, and the total."""
        query = list_query(request, now_s=NOW_S)
        best = Best(query)
        for views in self._shards:
            rest = query
            while True:
                page: Listed = views.page(rest)
                best.add(page)
                if not page.after:
                    break
                rest = onwards(query, page)
        found = best.listed()
        pages = request.spec.pagination
        lines, pagination = page_of_jobs(found.items, pages, matched=found.matched)
        return [line.job for line in lines], pagination.total


def seconds(low_s: float | None = None, high_s: float | None = None) -> dict[str, Any]:
    found = {}
    if low_s is not None:
        found["min"] = {"seconds": int(low_s)}
    if high_s is not None:
        found["max"] = {"seconds": int(high_s)}
    return found


def labels(*pairs: tuple[str, str]) -> list[dict[str, str]]:
    return [{"key": key, "value": value} for key, value in pairs]


def spec(one: Job) -> JobSpec:
    assert one.spec is not None
    return one.spec


def model(one: Job) -> str:
    command = spec(one).default.command
    assert command is not None
    return command.value.rpartition(" ")[2].lower()


WEEK = NOW_S - FINISHED_SHOWN_S
ROWS: dict[str, tuple[dict[str, Any], Callable[[Job], bool]]] = {
    "nothing": ({}, lambda one: True),
    "a label": (
        {"labels": labels(("a", "x"))},
        lambda one: ("a", "x") in spec(one).labels,
    ),
    "a label by its value only": (
        {"labels": labels(("", "y"))},
        lambda one: "y" in dict(map(reversed, spec(one).labels)),  # type: ignore[arg-type]
    ),
    "all of several labels": (
        {"labels": labels(("a", "x"), ("b", "y"))},
        lambda one: {("a", "x"), ("b", "y")} <= {*spec(one).labels},
    ),
    "any of several states": (
        {"jobStates": [job.PENDING, job.RUNNING]},
        lambda one: one.state in (JobStates.PENDING, JobStates.RUNNING),
    ),
    "an ended state, of the last week": (
        {"jobStates": [job.SUCCEEDED, job.RUNNING]},
        lambda one: (
            one.state in (JobStates.SUCCEEDED, JobStates.RUNNING) and one.created_at >= WEEK
        ),
    ),
    "an ended state and a range": (
        {"jobStates": [job.FAILED], "completionTimeRange": seconds(low_s=NOW_S - 15 * DAY_S)},
        lambda one: one.state == JobStates.FAILED and one.completed_at >= NOW_S - 15 * DAY_S,
    ),
    "a part of the name": ({"name": "ghtly-3"}, lambda one: "ghtly-3" in spec(one).name),
    "the whole owner": ({"owner": "ann"}, lambda one: spec(one).owner == "ann"),
    "a part of the owner": ({"owner": "an"}, lambda one: False),
    "created, both ends included": (
        {"creationTimeRange": seconds(NOW_S - 9 * DAY_S, NOW_S - 3 * DAY_S)},
        lambda one: NOW_S - 9 * DAY_S <= one.created_at <= NOW_S - 3 * DAY_S,
    ),
    "created until": (
        {"creationTimeRange": seconds(high_s=NOW_S - 3 * DAY_S)},
        lambda one: one.created_at <= NOW_S - 3 * DAY_S,
    ),
    "completed until: not those that have not ended": (
        {"completionTimeRange": seconds(high_s=NOW_S - 3 * DAY_S)},
        lambda one: 0 < one.completed_at <= NOW_S - 3 * DAY_S,
    ),
    "a keyword in capitals": ({"keywords": ["RESNET"]}, lambda one: model(one) == "resnet-50"),
    "a keyword with capitals in the config": (
        {"keywords": ["llama"]},
        lambda one: model(one) == "llama",
    ),
    "all of several keywords": (
        {"keywords": ["bert", "ann", "nightly"]},
        lambda one: (
            model(one) == "bert" and spec(one).owner == "ann" and "nightly" in spec(one).name
        ),
    ),
    "a keyword with wildcards": ({"keywords": ["res*-5?"]}, lambda one: model(one) == "resnet-50"),
    "wildcards match whole words": ({"keywords": ["res?"]}, lambda one: False),
    "a label as a keyword": (
        {"keywords": ["a=z"]},
        lambda one: ("a", "z") in spec(one).labels,
    ),
    "the path of a pool": (
        {"respool": {"value": "/p2"}},
        lambda one: spec(one).pool == pool_key("p2"),
    ),
    "all at once": (
        {"labels": labels(("a", "x")), "owner": "bob", "name": "hourly", "keywords": ["train"]},
        lambda one: (
            ("a", "x") in spec(one).labels
            and spec(one).owner == "bob"
            and "hourly" in spec(one).name
        ),
    ),
}


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("seed", range(3))
def test_each_part_of_a_query_is_what_a_filter_of_all_jobs_finds(row: str, seed: int) -> None:
    jobs = Jobs(400, seed)
    parts, matches = ROWS[row]
    wanted = [one for one in jobs.all if matches(one)]
    wanted.sort(key=lambda one: (-one.created_at, one.key))
    request = job.QueryRequest(spec=job.QuerySpec(**parts))
    found, total = jobs.query(request)
    assert found == [one.key for one in wanted[:10]], "ten of the newest, by default"
    assert total == min(len(wanted), 100), "and no more than a hundred are fetched"
    request.spec.pagination.limit = request.spec.pagination.maxLimit = 1000
    assert jobs.query(request) == ([one.key for one in wanted], len(wanted))


def test_the_pool_of_a_request_is_an_id() -> None:
    jobs = Jobs(50, 1)
    wanted = {one.key for one in jobs.all if spec(one).pool == pool_key("p1")}
    request = job.QueryRequest(spec=job.QuerySpec(), respoolID={"value": "p1"})
    request.spec.pagination.limit = 100
    found, total = jobs.query(request)
    assert {*found} == wanted and total == len(wanted)


FIELDS: dict[str, Callable[[Job], Any]] = {
    "creation_time": lambda one: one.created_at,
    "completion_time": lambda one: one.completed_at,
    "start_time": lambda one: one.started_at,
    "update_time": lambda one: one.updated_at,
    "name": lambda one: spec(one).name,
    "owner": lambda one: spec(one).owner,
    "job_type": lambda one: spec(one).job_type,
    "respool_id": lambda one: spec(one).pool,
    "state": lambda one: one.state,
    "instance_count": lambda one: spec(one).instances,
}


@pytest.mark.parametrize("seed", range(20))
def test_orders_and_pages_leave_nothing_out_and_do_not_overlap(seed: int) -> None:
    chance = random.Random(seed)
    jobs = Jobs(300, seed)
    orders = [(field, chance.random() < 0.5) for field in chance.sample([*FIELDS], 2)]
    wanted = sorted(jobs.all, key=lambda one: one.key)
    for field, down in reversed(orders):
        wanted.sort(key=FIELDS[field], reverse=down)
    keys = [one.key for one in wanted]
    limit, fetch = chance.choice([1, 7, 100]), chance.choice([0, 5, 150, 1000])
    seen: list[Key] = []
    request = job.QueryRequest(spec=job.QuerySpec())
    pages = request.spec.pagination
    pages.limit, pages.maxLimit = limit, fetch
    for field, down in orders:
        pages.orderBy.add(order=int(down) + 1, property={"value": field})
    while True:
        pages.offset = len(seen)
        found, total = jobs.query(request)
        assert total == min(len(keys), fetch or 100)
        if not found:
            break
        assert len(found) <= limit
        seen += found
    assert seen == keys[: fetch or 100]


def test_every_property_that_can_be_ordered_by_is_tested() -> None:
    with pytest.raises(BadQuery) as caught:
        pages = {"orderBy": [{"property": {"value": "labels"}}]}
        list_query(job.QueryRequest(spec={"pagination": pages}), now_s=NOW_S)
    assert str(caught.value).partition("there is ")[2].split(", ") == [*FIELDS]


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ({"creationTimeRange": seconds(9, 1)}, "creationTimeRange: max is before min"),
        ({"completionTimeRange": seconds(9, 1)}, "completionTimeRange: max is before min"),
        ({"keywords": [str(n) for n in range(KEYWORDS_MAX + 1)]}, "keywords: at most"),
        ({"keywords": ["x" * (KEYWORD_LENGTH_MAX + 1)]}, "keywords: at most"),
        ({"labels": labels(*[("a", "b")] * (LABELS_MAX + 1))}, "labels: at most"),
    ],
)
def test_a_query_that_cannot_be_meant_is_refused(parts: dict[str, Any], text: str) -> None:
    with pytest.raises(BadQuery, match=text):
        list_query(job.QueryRequest(spec=job.QuerySpec(**parts)), now_s=NOW_S)
