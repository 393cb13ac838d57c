"""TaskManager.Query: which instances of a job, in which order, which page of them.

A QuerySpec becomes queries to the slices, each of which counts what matches and answers with its
first matches, and their answers become a page. By instance, the default, only slices of the page
make views, and without a filter no other is asked. Only what is on the page is translated.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from peloton.actors.job.messages import JobView
from peloton.actors.job.slice.finding import by_instance, first_of, passes, up_to
from peloton.actors.job.slice.messages import (
    FindInstances,
    InstancesFound,
    InstanceSort,
    InstanceView,
    slice_key,
)
from peloton.actors.task.messages import SLICE_SIZE
from peloton.api.v0.query import query_pb2 as query
from peloton.api.v0.task import task_pb2 as task
from peloton.gateway.cluster.cluster_client import ClusterClient, Context, unopened
from peloton.gateway.translate.texts import client_name
from peloton.gateway.v0.job_query import LIMIT_DEFAULT, BadQuery
from peloton.runtime.vocabulary import key

TASK_SORT_FIELDS = {
    "creation_time": "started_at",
    "host": "host",
    "instanceId": "instance",
    "instance_id": "instance",  # the command line has always offered this one
    "message": "message",
    "name": "name",
    "reason": "reason",
    "state": "state",
}
"""What a client calls the fields of a view."""
STATES = tuple(
    value.name for value in sorted(task.TaskState.DESCRIPTOR.values, key=lambda one: one.number)
)


class TaskPage(NamedTuple):
    """The instances of a page, and which page it is; `total` counts all that match."""

    views: list[InstanceView]
    pagination: query.Pagination


def find_query(spec: task.QuerySpec, instances: int) -> FindInstances:
    """Return what the slices of a job of so many instances are asked."""
    pages = spec.pagination
    order = tuple(_order(by) for by in pages.orderBy)
    return FindInstances(
        0,
        instances,
        # A state that no instance can be in is matched by none.
        states=tuple(task.TaskState.Name(state) if _is_known(state) else "" for state in
                     dict.fromkeys(spec.taskStates)),
        names=tuple(dict.fromkeys(spec.names)),
        hosts=tuple(key("host", host) for host in dict.fromkeys(spec.hosts)),
        order=order,
        limit=pages.offset + (pages.limit or LIMIT_DEFAULT),
    )  # fmt: skip


class TaskListing:
    """One query of one job."""

    def __init__(self, client: ClusterClient, job: JobView, *, context: Context) -> None:
        self._client, self._job, self._context = client, job, context

    def page(self, spec: task.QuerySpec) -> TaskPage:
        """Return the page; raises BadQuery."""
        wanted = find_query(spec, self._job.reach)
        offset, limit = spec.pagination.offset, spec.pagination.limit or LIMIT_DEFAULT
        if not by_instance(wanted.order):
            matched, views = self._best(wanted)
            views = views[offset:]
        elif wanted.states or wanted.names or wanted.hosts or self._has_gaps:
            matched, views = self._counted(wanted)
            views = views[offset:]
        else:
            matched = self._job.spec.instances
            views = self._range(wanted, offset)
        return TaskPage(views, query.Pagination(offset=offset, limit=limit, total=matched))

    @property
    def _has_gaps(self) -> bool:
        """Return whether there are numbers without an instance below the last one."""
        beyond = self._job.reach > self._job.spec.instances
        return self._job.spec.is_daemon or self._job.adds or beyond

    def each(self, wanted: FindInstances) -> Iterator[InstancesFound]:
        """Yield the answers of all slices, in order."""
        return self._answers((number, wanted) for number in range(self._job.slices))

    def _range(self, wanted: FindInstances, offset: int) -> list[InstanceView]:
        """Return the page if all match, so that their numbers say where it is."""
        count = self._job.spec.instances
        start, stop = min(offset, count), min(wanted.limit, count)
        down = bool(wanted.order) and wanted.order[0].down
        if down:
            start, stop = count - stop, count - start
        views = self._client.instances(self._job, start, context=self._context, stop=stop)
        return [*views][:: -1 if down else 1]

    def _counted(self, wanted: FindInstances) -> tuple[int, list[InstanceView]]:
        """Return the page by instance: slices behind the page only count."""
        down = bool(wanted.order) and wanted.order[0].down
        found: list[InstanceView] = []
        matched = 0

        def queries(numbers: Iterable[int]) -> Iterator[tuple[int, FindInstances]]:
            for number in numbers:
                left = max(wanted.limit - len(found), 0)
                yield number, up_to(wanted, left)

        numbers = range(self._job.slices)
        for answer in self._answers(queries(reversed(numbers) if down else numbers)):
            matched += answer.matched
            found += answer.views[: wanted.limit - len(found)]
        return matched, found

    def _best(self, wanted: FindInstances) -> tuple[int, list[InstanceView]]:
        """Return the page by another field: the first of each slice, and of these the first."""
        found: list[InstanceView] = []
        matched = 0
        for answer in self.each(wanted):
            matched += answer.matched
            found += answer.views
            if len(found) > 2 * wanted.limit + SLICE_SIZE:
                found = first_of(wanted, found)
        return matched, first_of(wanted, found)

    def _answers(self, asks: Iterable[tuple[int, FindInstances]]) -> Iterator[InstancesFound]:
        job_id = client_name(self._job.summary.job)
        sent: list[tuple[int, FindInstances]] = []

        def keyed() -> Iterator[tuple[str, FindInstances]]:
            for number, wanted in asks:
                sent.append((number, wanted))
                yield slice_key(job_id, number), wanted

        for at, answer in enumerate(self._client.each(keyed(), self._context)):
            if isinstance(answer, InstancesFound):
                yield answer
            else:
                yield self._unopened(*sent[at])

    def _unopened(self, number: int, wanted: FindInstances) -> InstancesFound:
        """Return what a slice would answer that does not exist yet."""
        if self._job.spec.is_daemon or self._job.adds:
            return InstancesFound(0)
        start = number * SLICE_SIZE
        stop = min(start + SLICE_SIZE, self._job.spec.instances)
        views = [unopened(self._job, instance) for instance in range(start, stop)]
        found = [view for view in views if passes(wanted, view)]
        return InstancesFound(len(found), tuple(first_of(wanted, found)))


def _is_known(state: int) -> bool:
    return state in task.TaskState.DESCRIPTOR.values_by_number


def _order(by: query.OrderBy) -> InstanceSort:
    field = TASK_SORT_FIELDS.get(by.property.value)
    if field is None:
        there = ", ".join(TASK_SORT_FIELDS)
        raise BadQuery(f"no such property to order by: {by.property.value!r}; there is {there}")
    return InstanceSort(field, by.order == query.OrderBy.DESC, STATES if field == "state" else ())
