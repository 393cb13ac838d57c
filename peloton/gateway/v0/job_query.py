"""JobManager.Query: which jobs, in which order, which page of them.

A QuerySpec becomes a query to the shards of jobs, each of which answers with its first matches, and
their answers become a page. A bad query raises BadQuery; a result that is incomplete is refused, as
it would look complete.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from peloton.actors.job.stages import TERMINAL_JOB_STATES, JobStates
from peloton.actors.respool.messages import pool_key
from peloton.api.v0.job import job_pb2 as job
from peloton.api.v0.query import query_pb2 as query
from peloton.gateway.access.permissions import Rights
from peloton.runtime.core.reading.filters import AMONG, BETWEEN, PAIR, PART, TEXT, Where
from peloton.runtime.core.reading.listing import ListViews, SortOrder

LIMIT_DEFAULT, FETCH_DEFAULT = 10, 100
EARLIEST_S = 1e-9
FINISHED_SHOWN_S = 7 * 24 * 3600 + 30
"""Ended jobs are listed so long after their creation, where the query names no times."""
KEYWORDS_MAX, KEYWORD_LENGTH_MAX = 32, 256
LABELS_MAX = 64
"""In one query: each is one more look at every job."""

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
ACTIVE = Where(
    "state", AMONG, numbers=tuple(float(s) for s in JobStates if s not in TERMINAL_JOB_STATES)
)
"""Of jobs that have not ended."""
ENDED_STATES = tuple(float(state) for state in sorted(TERMINAL_JOB_STATES))


class BadQuery(ValueError):
    """The query is invalid."""


def list_query(
    request: job.QueryRequest, *, now_s: float, rights: Rights | None = None
) -> ListViews:
    """Return the query for as many lines as its page needs.

    What the caller must not see is no match, so it is not counted either.
    """
    pages = request.spec.pagination
    fetch = pages.maxLimit or FETCH_DEFAULT
    limit = min(fetch, pages.offset + (pages.limit or LIMIT_DEFAULT))
    tests = (*_tests(request, now_s), *(rights.listing if rights is not None else ()))
    # `total` counts no more than may be fetched.
    return ListViews("job", tests, _orders(pages), limit, ranked=True, enough=fetch)


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
        # A job that has not ended has no time of completion, which is 0.0.
        low, high = completed
        yield Where("completed_at", BETWEEN, numbers=(max(low, EARLIEST_S), high))
    if request.respoolID.value:
        yield Where("pool", AMONG, words=(pool_key(request.respoolID.value),))
    if spec.respool.value:
        yield Where("pool_path", AMONG, words=(spec.respool.value,))
    if spec.owner:
        yield Where("owner", AMONG, words=(spec.owner,))
    if spec.name:
        yield Where("name", PART, words=(spec.name,))
    if len(spec.labels) > LABELS_MAX:
        raise BadQuery(f"labels: at most {LABELS_MAX}")
    for label in spec.labels:
        # Older clients leave keys out, because the original ignored them.
        yield Where("labels", PAIR, words=(label.key, label.value))
    if spec.keywords:
        yield Where("", TEXT, words=_words(spec.keywords))


def _words(keywords: Iterable[str]) -> tuple[str, ...]:
    """Return the keywords.

    Each is found as a part of the config's text, or in a word of it as a pattern (`*`, `?`).
    """
    found = tuple(dict.fromkeys(word.lower() for word in keywords))
    if len(found) > KEYWORDS_MAX or any(len(word) > KEYWORD_LENGTH_MAX for word in found):
        raise BadQuery(
            f"keywords: at most {KEYWORDS_MAX} of at most {KEYWORD_LENGTH_MAX} characters each"
        )
    return found


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
    """Return the wanted page of what may be fetched at most; `total` is how many would be
    fetched."""
    fetch, limit = pages.maxLimit or FETCH_DEFAULT, pages.limit or LIMIT_DEFAULT
    pagination = query.Pagination(offset=pages.offset, limit=limit, total=min(matched, fetch))
    return lines[:fetch][pages.offset : pages.offset + limit], pagination
