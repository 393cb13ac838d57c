"""JobManager.Query: which jobs, in which order, which page of them.

Turns a QuerySpec into a query to the shards of jobs, each of which answers with its first matches,
and their answers into a page. A bad query raises BadQuery; it must never present a partial result
as a complete one.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Sequence
from typing import Any

from peloton.actors.job.totals import TERMINAL_JOB_STATES
from peloton.actors.respool.messages import pool_key
from peloton.api.v0.job import job_pb2 as job
from peloton.api.v0.query import query_pb2 as query
from peloton.gateway.permissions import Rights
from peloton.runtime.core.listing import AMONG, BETWEEN, PAIR, PART, ListViews, SortOrder, Where

LIMIT_DEFAULT, FETCH_DEFAULT = 10, 100
FINISHED_SHOWN_S = 7 * 24 * 3600 + 30
"""Ended jobs are listed so long after their creation, where the query names no times."""
KEYWORD_JOBS_MAX = 10_000
"""Jobs whose configs are searched in one query; a query for more has to be narrower."""

JOB_SORT_FIELDS = {
    "creation_time": "created_at",
    "completion_time": "completed_at",
    "start_time": "started_at",
    "update_time": "updated_at",
    "name": "name",
    "owner": "owner",
    "job_type": "job_type",
    "respool_id": "pool",
    "state": "state",
    "instance_count": "instances",
}
"""What a client calls the fields of a line."""
BY_ID = SortOrder("job")
"""Last in every order: pages of one query then neither overlap nor leave anything out."""
ENDED_STATES = tuple(float(state) for state in sorted(TERMINAL_JOB_STATES))


class BadQuery(ValueError):
    """The query cannot be meant."""


def list_query(
    request: job.QueryRequest, *, now_s: float, rights: Rights | None = None
) -> ListViews:
    """All of the query but its keywords, for as many lines as its page needs.

    What the caller must not see is no match, so it is not counted either.
    """
    pages = request.spec.pagination
    limit = min(pages.maxLimit or FETCH_DEFAULT, pages.offset + (pages.limit or LIMIT_DEFAULT))
    if request.spec.keywords:
        limit = KEYWORD_JOBS_MAX  # the keywords still choose among them
    tests = (*_tests(request, now_s), *(rights.listing if rights is not None else ()))
    return ListViews("job", tests, _orders(pages), limit)


def _tests(request: job.QueryRequest, now_s: float) -> Iterable[Where]:
    spec = request.spec
    created = _between(spec, "creationTimeRange")
    completed = _between(spec, "completionTimeRange")
    states = tuple(float(state) for state in spec.jobStates)
    if states:
        yield Where("state", AMONG, numbers=states)
    if any(state in ENDED_STATES for state in states) and not (created or completed):
        created = now_s - FINISHED_SHOWN_S, float("inf")
    if created:
        yield Where("created_at", BETWEEN, numbers=created)
    if completed:
        yield Where("completed_at", BETWEEN, numbers=completed)
    if request.respoolID.value:
        yield Where("pool", AMONG, words=(pool_key(request.respoolID.value),))
    if spec.respool.value:
        yield Where("pool_path", AMONG, words=(spec.respool.value,))
    if spec.owner:
        yield Where("owner", AMONG, words=(spec.owner,))
    if spec.name:
        yield Where("name", PART, words=(spec.name,))
    for label in spec.labels:
        # Older clients leave keys out, because the original ignored them.
        yield Where("labels", PAIR, words=(label.key, label.value))


def _between(spec: job.QuerySpec, field: str) -> tuple[float, float] | None:
    if not spec.HasField(field):
        return None
    sent = getattr(spec, field)
    low_s = sent.min.seconds + sent.min.nanos / 1e9 if sent.HasField("min") else 0.0
    high_s = sent.max.seconds + sent.max.nanos / 1e9 if sent.HasField("max") else float("inf")
    if high_s < low_s:
        raise BadQuery(f"{field}: max is before min")
    return low_s, high_s


def _orders(pages: query.PaginationSpec) -> tuple[SortOrder, ...]:
    orders = []
    for by in pages.orderBy:
        field = JOB_SORT_FIELDS.get(by.property.value)
        if field is None:
            raise BadQuery(
                f"no such property to order by: {by.property.value!r};"
                f" there is {', '.join(JOB_SORT_FIELDS)}"
            )
        orders.append(SortOrder(field, by.order == query.OrderBy.DESC))
    return (*(orders or [SortOrder("created_at", down=True)]), BY_ID)


def page_of_jobs(
    lines: Sequence[Any], pages: query.PaginationSpec, *, matched: int
) -> tuple[Sequence[Any], query.Pagination]:
    """The page wanted of what may be fetched at most; `total` is how many would be fetched."""
    fetch, limit = pages.maxLimit or FETCH_DEFAULT, pages.limit or LIMIT_DEFAULT
    pagination = query.Pagination(offset=pages.offset, limit=limit, total=min(matched, fetch))
    return lines[:fetch][pages.offset : pages.offset + limit], pagination


def has_keywords(text: str, keywords: Iterable[str]) -> bool:
    """Whether a config has every keyword: as a word, or as a pattern with `*` and `?`."""
    low = text.lower()
    words = low.replace('"', " ").replace(":", " ").split()
    return all(_matches(word.lower(), low, words=words) for word in keywords)


def _matches(keyword: str, text: str, *, words: list[str]) -> bool:
    if "*" in keyword or "?" in keyword:
        return any(fnmatch.fnmatchcase(word, keyword) for word in words)
    return keyword in text
