"""JobManager.Query: which jobs, in which order, which page of them.

Turns a QuerySpec into a choice among the lines of a listing. A bad query raises BadQuery; it must
never answer a part of what was asked for as if it were the whole.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable
from typing import Any

from peloton.actors.job.messages import JobSummary
from peloton.actors.job.totals import TERMINAL
from peloton.api.v0 import peloton_pb2
from peloton.api.v0.job import job_pb2 as job
from peloton.api.v0.query import query_pb2 as query
from peloton.gateway.texts import name_of

LIMIT_DEFAULT, FETCH_DEFAULT = 10, 100
FINISHED_SHOWN_S = 7 * 24 * 3600 + 30
"""Ended jobs are listed so long after their creation, where the query names no times."""
KEYWORD_JOBS_MAX = 10_000
"""Jobs whose configs are searched in one query; a query for more has to be narrower."""

ORDERS: dict[str, Callable[[JobSummary], Any]] = {
    "creation_time": lambda line: line.created_at,
    "completion_time": lambda line: line.completed_at,
    "start_time": lambda line: line.started_at,
    "update_time": lambda line: line.updated_at,
    "name": lambda line: line.name,
    "owner": lambda line: line.owner,
    "job_type": lambda line: line.job_type,
    "respool_id": lambda line: line.pool,
    "state": lambda line: int(line.state),
    "instance_count": lambda line: line.instances,
}


class BadQuery(ValueError):
    """The query cannot be meant."""


def chosen(
    lines: Iterable[JobSummary], request: job.QueryRequest, *, now_s: float
) -> list[JobSummary]:
    """The jobs that match all of the query but its keywords, in its order."""
    spec = request.spec
    created = _between(spec, "creationTimeRange")
    completed = _between(spec, "completionTimeRange")
    states = set(spec.jobStates)
    oldest_s = 0.0
    if states & {int(state) for state in TERMINAL} and not (created or completed):
        oldest_s = now_s - FINISHED_SHOWN_S
    found = [
        line
        for line in lines
        if (not states or int(line.state) in states)
        and line.created_at >= oldest_s
        and (created is None or created[0] <= line.created_at <= created[1])
        and (completed is None or completed[0] <= line.completed_at <= completed[1])
        and _is_meant(line, request)
    ]
    return _ordered(found, spec.pagination)


def _is_meant(line: JobSummary, request: job.QueryRequest) -> bool:
    spec = request.spec
    return (
        (not request.respoolID.value or name_of(line.pool) == request.respoolID.value)
        and (not spec.respool.value or line.pool_path == spec.respool.value)
        and (not spec.owner or line.owner == spec.owner)
        and spec.name in line.name
        and all(_has(line, label) for label in spec.labels)
    )


def _has(line: JobSummary, label: peloton_pb2.Label) -> bool:
    if not label.key:
        # Older clients know that keys were not looked at, and leave them out.
        return any(value == label.value for _, value in line.labels)
    return (label.key, label.value) in line.labels


def _between(spec: job.QuerySpec, field: str) -> tuple[float, float] | None:
    if not spec.HasField(field):
        return None
    sent = getattr(spec, field)
    low_s = sent.min.seconds + sent.min.nanos / 1e9 if sent.HasField("min") else 0.0
    high_s = sent.max.seconds + sent.max.nanos / 1e9 if sent.HasField("max") else float("inf")
    if high_s < low_s:
        raise BadQuery(f"{field}: max is before min")
    return low_s, high_s


def _ordered(lines: list[JobSummary], pages: query.PaginationSpec) -> list[JobSummary]:
    by = list(pages.orderBy) or [
        query.OrderBy(order=query.OrderBy.DESC, property=query.PropertyPath(value="creation_time"))
    ]
    lines.sort(key=lambda line: line.job)
    for order in reversed(by):
        key = ORDERS.get(order.property.value)
        if key is None:
            raise BadQuery(
                f"no such property to order by: {order.property.value!r}; "
                f"there is {', '.join(ORDERS)}"
            )
        lines.sort(key=key, reverse=order.order == query.OrderBy.DESC)
    return lines


def page(lines: list[Any], pages: query.PaginationSpec) -> tuple[list[Any], query.Pagination]:
    """The page wanted of what may be fetched at most."""
    fetched = lines[: pages.maxLimit or FETCH_DEFAULT]
    limit = pages.limit or LIMIT_DEFAULT
    told = query.Pagination(offset=pages.offset, limit=limit, total=len(fetched))
    return fetched[pages.offset : pages.offset + limit], told


def speaks_of(text: str, keywords: Iterable[str]) -> bool:
    """Whether a config has every keyword: as a word, or as a pattern with `*` and `?`."""
    low = text.lower()
    words = low.replace('"', " ").replace(":", " ").split()
    return all(_matches(word.lower(), low, words=words) for word in keywords)


def _matches(keyword: str, text: str, *, words: list[str]) -> bool:
    if "*" in keyword or "?" in keyword:
        return any(fnmatch.fnmatchcase(word, keyword) for word in words)
    return keyword in text
