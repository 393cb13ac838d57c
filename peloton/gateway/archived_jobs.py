"""Jobs that have ended and left memory, in answers to queries: read from the archives' periods.

Turns a query for jobs into those of the archive that match, added to what the shards list from
memory. Only periods that may match are read, the newest first, and no more than are wanted. It must
never return a part as the whole: a query that would read more than `EXAMINED_MAX` is refused.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from itertools import islice

from peloton.actors.archive.messages import (
    PERIOD_S,
    GetPeriod,
    GetPeriods,
    PeriodListed,
    PeriodsListed,
    archive_key,
)
from peloton.actors.job.messages import GetJob, JobSummary, JobView
from peloton.actors.job.view import texts_of
from peloton.gateway.cluster_client import ClusterClient, Context
from peloton.gateway.job_query import ENDED_STATES, BadQuery
from peloton.runtime.core.conditions import texts_pass
from peloton.runtime.core.listing import (
    AMONG,
    BETWEEN,
    TEXT,
    Best,
    Listed,
    ListViews,
    Where,
    matching,
)
from peloton.runtime.vocabulary import Key

EXAMINED_MAX = 200_000
"""Archived jobs read for one query."""
TEXTS_MAX = 2_000
"""Archived jobs whose configs are read for the keywords of one query."""
PERIODS_PER_READ, JOBS_PER_READ = 16, 1000
"""Periods read at a time: so many, or fewer that have so many jobs."""
PERIODS_PAGE = 1000


def includes_archived(query: ListViews) -> bool:
    """Whether the query is meant for archived jobs, too: it names their states, or times."""
    states = [test.numbers for test in query.tests if test.field == "state"]
    if states:
        return any(state in ENDED_STATES for numbers in states for state in numbers)
    return any(test.field in ("created_at", "completed_at") for test in query.tests)


def with_archived(
    cluster_client: ClusterClient, query: ListViews, *, found: Listed, context: Context
) -> Listed:
    """What was listed from memory, and what the archives have beside it."""
    wanted = Best(query)
    wanted.add(found)
    ended = _matching(cluster_client, query, known=found.matched, context=context)
    if ended:
        in_memory = _in_memory(cluster_client, ended, context=context)
        items = tuple(job for job in ended if job.job not in in_memory)
        wanted.add(Listed(query.kind, items, len(items)))
    return wanted.listed()


def _matching(
    cluster_client: ClusterClient, query: ListViews, *, known: int, context: Context
) -> list[JobSummary]:
    tests = tuple(test for test in query.tests if test.rule != TEXT)
    words = tuple(test for test in query.tests if test.rule == TEXT)
    plain = ListViews(query.kind, tests)
    by_creation = query.order[0].field == "created_at" and query.order[0].down
    found: list[JobSummary] = []
    examined = texts = 0
    periods = _periods(cluster_client, query, context=context)
    while some := _some(periods):
        newest = (-some[0][0] + 1) * PERIOD_S
        # No job that is still to come was created after that.
        sure = sum(job.created_at >= newest for job in found)
        if by_creation and sure >= query.limit and known + len(found) >= query.enough:
            break
        examined += sum(jobs for _, jobs, _ in some)
        if examined > EXAMINED_MAX:
            raise BadQuery(f"more than {EXAMINED_MAX} archived jobs: give narrower times")
        lines = _lines(cluster_client, [period for _, _, period in some], context=context)
        passed = matching(plain, lines)
        if words:
            texts += len(passed)
            if texts > TEXTS_MAX:
                raise BadQuery(
                    f"keywords: more than {TEXTS_MAX} archived jobs to search: give narrower times"
                )
            passed = _with_words(cluster_client, passed, words=words, context=context)
        found += passed
    return found


def _some(periods: Iterator[tuple[int, int, Key]]) -> list[tuple[int, int, Key]]:
    some: list[tuple[int, int, Key]] = []
    for one in islice(periods, PERIODS_PER_READ):
        some.append(one)
        if sum(jobs for _, jobs, _ in some) >= JOBS_PER_READ:
            break
    return some


def _periods(
    cluster_client: ClusterClient, query: ListViews, *, context: Context
) -> Iterator[tuple[int, int, Key]]:
    """Periods that may match: minus their number, so that the newest are first; jobs; key."""
    low, high = 0.0, float("inf")
    for test in query.tests:
        if test.rule == BETWEEN and test.field in ("created_at", "completed_at"):
            low = max(low, test.numbers[0])  # a job ends after its creation
            high = min(high, test.numbers[1]) if test.field == "completed_at" else high
    below = 2**62 if high == float("inf") else int(high // PERIOD_S) + 1
    shards = range(len(cluster_client.cluster.shards_of("archive")))
    each = [
        _of_archive(cluster_client, archive_key(at), below=below, context=context) for at in shards
    ]
    for number, jobs, period in heapq.merge(*each):
        if (-number + 1) * PERIOD_S < low:
            return
        yield number, jobs, period


def _of_archive(
    cluster_client: ClusterClient, archive: Key, *, below: int, context: Context
) -> Iterator[tuple[int, int, Key]]:
    while True:
        page = cluster_client.ask(archive, GetPeriods(below, PERIODS_PAGE), context=context)
        if not isinstance(page, PeriodsListed):
            return  # no job of this shard was archived yet
        for number, jobs in page.periods:
            yield -number, jobs, Key(f"{archive}/{number}")
        if len(page.periods) < PERIODS_PAGE:
            return
        below = page.periods[-1][0]


def _lines(
    cluster_client: ClusterClient, periods: list[Key], *, context: Context
) -> Iterator[JobSummary]:
    """The jobs of these periods."""
    asks = [(period, GetPeriod()) for period in periods]
    while asks:
        more = []
        for (period, _), page in zip(asks, cluster_client.each(asks, context), strict=True):
            if isinstance(page, PeriodListed):
                yield from page.jobs
                if page.more:
                    more.append((period, GetPeriod(page.jobs[-1].job)))
        asks = more


def _with_words(
    cluster_client: ClusterClient,
    lines: list[JobSummary],
    *,
    words: tuple[Where, ...],
    context: Context,
) -> list[JobSummary]:
    asks = ((line.job, GetJob()) for line in lines)
    return [
        line
        for line, view in zip(lines, cluster_client.each(asks, context), strict=True)
        if isinstance(view, JobView) and texts_pass(words, texts_of(view.spec, line.pool_path))
    ]


def _in_memory(
    cluster_client: ClusterClient, lines: list[JobSummary], *, context: Context
) -> frozenset[Key]:
    """Which of these are in memory, too: they have not left yet, or came back, or run again."""
    keys = tuple(line.job for line in lines)
    query = ListViews("job", (Where("job", AMONG, words=keys),))
    return frozenset(line.job for line in cluster_client.listing(query, context).items)
