"""Jobs that have ended and left memory, in answers to queries: read from the archives' periods.

Matching jobs of the archive are added to what the shards list from memory. Only periods that may
match are read, the newest first, and no more than are wanted. Only what the answer needs is kept,
so memory does not grow with the archive. A query that would read more than `EXAMINED_MAX` is
refused, as a partial result would look complete.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
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
from peloton.gateway.cluster.cluster_client import ClusterClient, Context
from peloton.gateway.v0.job_query import ENDED_STATES, BadQuery
from peloton.runtime.core.reading.filters import AMONG, BETWEEN, TEXT, Where, texts_pass
from peloton.runtime.core.reading.listing import Best, Listed, ListViews, matching
from peloton.runtime.vocabulary import Key

EXAMINED_MAX = 200_000
"""Archived jobs read for one query, one after the other: it would take many seconds."""
CHECKED_AT_ONCE = 5_000
"""Matches that wait until it is asked which of them are in memory, too."""
HELD_MAX = 50_000
"""Of these, those that one answer may need at a time: about as many kilobytes of memory."""
TEXTS_MAX = 2_000
"""Archived jobs whose configs are read for the keywords of one query."""
PERIODS_PER_READ, JOBS_PER_READ = 16, 1000
"""Periods read at a time: so many, or fewer that have so many jobs."""
PERIODS_PAGE = 1000


def includes_archived(query: ListViews) -> bool:
    """Return whether the query is meant for archived jobs, too: it names their states, or times."""
    states = [test.numbers for test in query.tests if test.field == "state"]
    if states:
        return any(state in ENDED_STATES for numbers in states for state in numbers)
    return any(test.field in ("created_at", "completed_at") for test in query.tests)


def with_archived(
    cluster_client: ClusterClient, query: ListViews, *, found: Listed, context: Context
) -> Listed:
    """Return what was listed from memory, and what the archives have beside it."""
    wanted = _Wanted(cluster_client, query, found=found, context=context)
    reading = _Reading(cluster_client, query, context=context)
    periods = _periods(cluster_client, query, context=context)
    while some := _some(periods):
        if wanted.has_enough((-some[0][0] + 1) * PERIOD_S):
            break
        wanted.add(reading.matches(some))
    return wanted.listed()


class _Wanted:
    """The first matches in order, and how many there are; no others are kept."""

    def __init__(
        self, cluster_client: ClusterClient, query: ListViews, *, found: Listed, context: Context
    ) -> None:
        self._cluster_client, self._context, self._query = cluster_client, context, query
        self._best = Best(query)
        self._best.add(found)
        self._matched, self._archived = found.matched, 0
        # One of these may leave memory before the others are looked for there.
        self._seen = frozenset(job.job for job in found.items)
        self._waiting: list[JobSummary] = []
        first = query.order[0]
        self._by_creation = first.field == "created_at" and first.down

    def add(self, passed: Iterable[JobSummary]) -> None:
        self._waiting += passed
        if len(self._waiting) >= CHECKED_AT_ONCE:
            self._check()

    def has_enough(self, newest: float) -> bool:
        """Return whether nothing that ended before that moment can be wanted any more."""
        query = self._query
        if not self._by_creation or self._matched + len(self._waiting) < query.enough:
            return False
        self._check()
        if self._matched < query.enough:
            return False
        # No job that is still to come was created after that.
        items = self._best.listed().items
        return bool(sum(job.created_at >= newest for job in items) >= query.limit)

    def listed(self) -> Listed:
        self._check()
        return self._best.listed()

    def _check(self) -> None:
        """Count the jobs that are not in memory: these are among what was listed there."""
        waiting, self._waiting = self._waiting, []
        if not waiting:
            return
        known = _in_memory(self._cluster_client, waiting, context=self._context) | self._seen
        items = tuple(job for job in waiting if job.job not in known)
        self._matched += len(items)
        self._archived += len(items)
        if min(self._archived, self._query.limit) > HELD_MAX:
            raise BadQuery(
                f"more than {HELD_MAX} archived jobs up to the end of the page: give narrower times"
            )
        self._best.add(Listed(self._query.kind, items, len(items)))


class _Reading:
    """Reads periods for one query, up to a limit for all of them."""

    def __init__(
        self, cluster_client: ClusterClient, query: ListViews, *, context: Context
    ) -> None:
        self._cluster_client, self._context = cluster_client, context
        self._words = tuple(test for test in query.tests if test.rule == TEXT)
        tests = tuple(test for test in query.tests if test.rule != TEXT)
        self._plain = ListViews(query.kind, tests)
        self._examined = self._texts = 0

    def matches(self, some: Iterable[tuple[int, int, Key]]) -> list[JobSummary]:
        """Return the jobs of these periods that match.

        Raises BadQuery beyond a limit.
        """
        self._examined += sum(jobs for _, jobs, _ in some)
        if self._examined > EXAMINED_MAX:
            raise BadQuery(
                f"more than {EXAMINED_MAX} archived jobs would have to be read, and the oldest "
                "would not be counted: give narrower times"
            )
        periods = [period for _, _, period in some]
        passed = matching(self._plain, _lines(self._cluster_client, periods, context=self._context))
        if not self._words:
            return passed
        self._texts += len(passed)
        if self._texts > TEXTS_MAX:
            raise BadQuery(
                f"keywords: more than {TEXTS_MAX} archived jobs to search: give narrower times"
            )
        return _with_words(self._cluster_client, passed, words=self._words, context=self._context)


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
    """Yield periods that may match: minus their number, so that the newest are first; jobs; key."""
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
    """Return which of these are in memory, too: not left yet, come back, or running again."""
    keys = tuple(line.job for line in lines)
    query = ListViews("job", (Where("job", AMONG, words=keys),))
    return frozenset(line.job for line in cluster_client.listing(query, context).items)
