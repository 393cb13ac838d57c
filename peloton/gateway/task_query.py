"""TaskManager.Query: which instances of a job, in which order, which page of them.

Turns a QuerySpec into a choice among what the slices list. It must not translate what is not on
the page: a job has up to a hundred thousand instances.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from peloton.actors.job.slice.messages import InstanceView
from peloton.api.v0.query import query_pb2 as query
from peloton.api.v0.task import task_pb2 as task
from peloton.gateway.job_query import LIMIT_DEFAULT, BadQuery
from peloton.gateway.texts import client_name
from peloton.runtime.vocabulary import Key


def _message(view: InstanceView) -> str:
    return view.because or (view.outcome.message if view.outcome is not None else "")


def _reason(view: InstanceView) -> str:
    return view.code or (view.outcome.reason if view.outcome is not None else "")


TASK_SORT_FIELDS: dict[str, Callable[[InstanceView], Any]] = {
    "creation_time": lambda view: view.started_at or 0.0,
    "host": lambda view: view.host,
    "instanceId": lambda view: view.instance,
    "instance_id": lambda view: view.instance,  # the command line has always offered this one
    "message": _message,
    "name": lambda view: view.config.name,
    "reason": _reason,
    "state": lambda view: task.TaskState.Value(view.state),
}


def chosen(views: Iterable[InstanceView], spec: task.QuerySpec) -> list[InstanceView]:
    """The instances that match all of the query, in its order."""
    states = {task.TaskState.Name(state) for state in spec.taskStates if _is_known(state)}
    names, hosts = set(spec.names), set(spec.hosts)
    orders = [(_order(by), by.order == query.OrderBy.DESC) for by in spec.pagination.orderBy]
    found = [
        view
        for view in views
        if (not spec.taskStates or view.state in states)
        and (not names or view.config.name in names)
        and (not hosts or client_name(Key(view.host)) in hosts)
    ]
    for key, reverse in reversed(orders):
        found.sort(key=key, reverse=reverse)
    return found


def page_of_tasks(
    views: list[InstanceView], pages: query.PaginationSpec
) -> tuple[list[InstanceView], query.Pagination]:
    """The page wanted; `total` counts all that match."""
    limit = pages.limit or LIMIT_DEFAULT
    pagination = query.Pagination(offset=pages.offset, limit=limit, total=len(views))
    return views[pages.offset : pages.offset + limit], pagination


def _is_known(state: int) -> bool:
    return state in task.TaskState.DESCRIPTOR.values_by_number


def _order(by: query.OrderBy) -> Callable[[InstanceView], Any]:
    key = TASK_SORT_FIELDS.get(by.property.value)
    if key is None:
        there = ", ".join(TASK_SORT_FIELDS)
        raise BadQuery(f"no such property to order by: {by.property.value!r}; there is {there}")
    return key
