"""Task queries over the slices of a job: pages against a naive filter, and which slices are asked.

The slices are lists of views behind a client that notes what it is asked; some are not there yet.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
import pytest

from peloton.actors.job.messages import JobSummary, JobView, job_key
from peloton.actors.job.slice.finding import first_of, passes
from peloton.actors.job.slice.messages import FindInstances, InstancesFound, InstanceView
from peloton.actors.job.slice.task_config import TaskConfig
from peloton.actors.job.spec import JobSpec
from peloton.actors.job.stages import JobGoals, JobStates
from peloton.actors.task.messages import SLICE_SIZE
from peloton.api.v0.query import query_pb2 as query
from peloton.api.v0.task import task_pb2 as task
from peloton.gateway.cluster.cluster_client import unopened
from peloton.gateway.v0.job_query import BadQuery
from peloton.gateway.v0.task_query import TASK_SORT_FIELDS, TaskListing
from peloton.runtime.vocabulary import Absent, Key, Query, key

STATES = ("PENDING", "RUNNING", "SUCCEEDED", "FAILED")


def job_of(instances: int) -> JobView:
    spec = JobSpec("name", "", Key("respool/p"), instances, TaskConfig(name="most"))
    summary = JobSummary(
        job_key("j"), "name", "", JobStates.RUNNING, instances, spec.pool, "/p", 1.0, 1.0, 0.0, 1.0,
        (), "BATCH", (),
    )  # fmt: skip
    slices = -(-instances // SLICE_SIZE)
    return JobView(summary, spec, JobGoals.SUCCEEDED, 1, slices, "")


class Slices:
    """The part of a cluster client that a task query uses."""

    def __init__(self, job: JobView, chance: random.Random, *, unopened_slices: int = 0) -> None:
        self.views = [unopened(job, number) for number in range(job.spec.instances)]
        self.asked: list[tuple[int, int]] = []  # slices, and how many views each was to send
        self._opened = job.slices - unopened_slices
        for number in range(min(self._opened * SLICE_SIZE, job.spec.instances)):
            self.views[number] = msgspec.structs.replace(
                self.views[number],
                state=chance.choice(STATES),
                started_at=float(chance.randrange(50)),
                host=key("host", chance.choice("abc")),
                config=TaskConfig(name=chance.choice(["one", "two"])),
            )

    def each(self, asks: Iterable[tuple[Key, Query]], context: Any) -> Iterator[Any]:
        """As of the client."""
        for to, wanted in asks:
            assert isinstance(wanted, FindInstances)
            number = int(to.rpartition("/")[2])
            self.asked.append((number, wanted.limit))
            if number >= self._opened:
                yield Absent(to)
                continue
            views = self.views[number * SLICE_SIZE : (number + 1) * SLICE_SIZE]
            found = [view for view in views if passes(wanted, view)]
            yield InstancesFound(len(found), tuple(first_of(wanted, found)))

    def instances(
        self, job: JobView, start: int = 0, *, context: Any, stop: int
    ) -> Iterator[InstanceView]:
        """As of the client."""
        self.asked += [(number, 0) for number in range(start // SLICE_SIZE, stop // SLICE_SIZE + 1)]
        return iter(self.views[start:stop])


def page(slices: Slices, job: JobView, spec: task.QuerySpec) -> tuple[list[int], int]:
    listing = TaskListing(slices, job, context=None)  # type: ignore[arg-type]
    found = listing.page(spec)
    assert found.pagination.offset == spec.pagination.offset
    return [view.instance for view in found.views], found.pagination.total


def spec_of(chance: random.Random) -> task.QuerySpec:
    states = [task.TaskState.Value(one) for one in chance.sample([*STATES, "INITIALIZED"], 2)]
    pages = query.PaginationSpec(
        offset=chance.choice([0, 0, 3, 1990, 5000]), limit=chance.choice([0, 1, 7, 1500])
    )
    for field in chance.sample([*TASK_SORT_FIELDS], chance.randrange(3)):
        pages.orderBy.add(order=chance.choice([1, 2]), property={"value": field})
    return task.QuerySpec(
        pagination=pages,
        taskStates=chance.choice([[], states]),
        names=chance.choice([[], ["one"], ["most", "two"]]),
        hosts=chance.choice([[], [], ["a", "b"], ["nobody"]]),
    )


FIELDS: dict[str, Any] = {
    "creation_time": lambda view: view.started_at or 0.0,
    "host": lambda view: view.host,
    "instanceId": lambda view: view.instance,
    "instance_id": lambda view: view.instance,
    "message": lambda view: view.because,
    "name": lambda view: view.config.name,
    "reason": lambda view: view.code,
    "state": lambda view: task.TaskState.Value(view.state),
}


@pytest.mark.parametrize("seed", range(60))
def test_a_page_is_what_a_filter_and_a_sort_of_all_would_be(seed: int) -> None:
    chance = random.Random(seed)
    job = job_of(chance.choice([1, 999, 2500]))
    slices = Slices(job, chance, unopened_slices=chance.choice([0, 0, 1]))
    spec = spec_of(chance)
    wanted = [
        view
        for view in slices.views
        if (not spec.taskStates or task.TaskState.Value(view.state) in spec.taskStates)
        and (not spec.names or view.config.name in spec.names)
        and (not spec.hosts or view.host.partition("/")[2] in spec.hosts)
    ]
    for by in reversed(spec.pagination.orderBy):
        wanted.sort(key=FIELDS[by.property.value], reverse=by.order == query.OrderBy.DESC)
    start, limit = spec.pagination.offset, spec.pagination.limit or 10
    numbers = [view.instance for view in wanted]
    assert page(slices, job, spec) == (numbers[start : start + limit], len(numbers)), spec


@pytest.mark.parametrize("down", [False, True])
def test_without_a_filter_only_slices_of_the_page_are_read(down: bool) -> None:
    job = job_of(20_000)
    slices = Slices(job, random.Random(1))
    order = [query.OrderBy(order=2 if down else 1, property={"value": "instanceId"})]
    spec = task.QuerySpec(pagination={"offset": 10_000, "limit": 20, "orderBy": order})
    found, total = page(slices, job, spec)
    assert total == 20_000 and len(found) == 20
    assert found[0] == (9_999 if down else 10_000)
    assert len(slices.asked) <= 2


def test_with_a_filter_slices_behind_the_page_only_count() -> None:
    job = job_of(20_000)
    slices = Slices(job, random.Random(1))
    found, total = page(slices, job, task.QuerySpec(taskStates=[task.RUNNING]))
    assert len(found) == 10 and total > 4_000
    assert [number for number, limit in slices.asked if limit] == [0]
    assert len(slices.asked) == 20


def test_a_state_that_there_is_not_is_matched_by_none() -> None:
    job = job_of(10)
    slices = Slices(job, random.Random(1))
    assert page(slices, job, task.QuerySpec(taskStates=[99])) == ([], 0)


def test_a_property_that_cannot_be_ordered_by_is_named() -> None:
    job = job_of(10)
    spec = task.QuerySpec()
    spec.pagination.orderBy.add().property.value = "shoes"
    with pytest.raises(BadQuery, match="shoes"):
        page(Slices(job, random.Random(1)), job, spec)
