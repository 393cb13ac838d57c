"""The state of an archive and of a period, and how facts change it.

An archive has numbers only: one for each minute in which jobs of its shard ended, so many as fit
the time after which they are deleted. The jobs are in the periods, which leave memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import immutables
import msgspec

from peloton.actors.archive import facts as f
from peloton.actors.job.messages import JobSummary
from peloton.runtime.vocabulary import Key, Value


class Archive(Value, frozen=True, gc=False, array_like=True):
    """An archive, whose `jobs` stay empty; or a period, which has nothing else.

    `checked_at` is when the present deadline began, and `checks` numbers the deadlines. `tried`
    maps periods to how many of their jobs were ordered to go and are still there. Once these are
    all that are old enough, the lap is `over`, and the next begins after a while.
    """

    jobs: immutables.Map[Key, JobSummary] = immutables.Map()
    periods: immutables.Map[int, int] = immutables.Map()  # how many jobs, by the period's number
    oldest: int = 0  # of the periods; 0 if there is none
    archived: int = 0  # jobs in all periods
    forgotten: int = 0  # jobs that the policy deleted, ever
    checked_at: float = 0.0
    checks: int = 0
    tried: immutables.Map[int, int] = immutables.Map()
    over: bool = False


replace = msgspec.structs.replace


def _archived(period: Archive | None, fact: f.JobArchived) -> Archive:
    period = period if period is not None else Archive()
    return replace(period, jobs=period.jobs.set(fact.summary.job, fact.summary))


def _dropped(period: Archive, fact: f.JobDropped) -> Archive | None:
    jobs = period.jobs.delete(fact.job)
    return replace(period, jobs=jobs) if jobs else None


def _noted(archive: Archive | None, fact: f.PeriodNoted) -> Archive:
    archive = archive if archive is not None else Archive()
    before, number = archive.periods.get(fact.number, 0), fact.number
    if fact.jobs:
        periods = archive.periods.set(number, fact.jobs)
        oldest = min(number, archive.oldest or number)
    else:
        periods = archive.periods.delete(number) if before else archive.periods
        oldest = archive.oldest if number != archive.oldest else _first_after(periods, number)
    changed = replace(
        archive,
        periods=periods,
        oldest=oldest,
        archived=archive.archived + fact.jobs - before,
        forgotten=archive.forgotten + fact.forgotten,
        tried=_less_tried(archive.tried, number, gone=before - fact.jobs),
    )
    return changed if oldest == archive.oldest else _checked(changed, fact.at)


def _first_after(periods: immutables.Map[int, int], number: int) -> int:
    """Return the oldest period after one that is gone; nearly always that of one of the next
    minutes."""
    nearby = range(number + 1, number + 1 + len(periods))
    found = next((each for each in nearby if each in periods), None)
    return found if found is not None else min(periods, default=0)


def _less_tried(
    tried: immutables.Map[int, int], number: int, *, gone: int
) -> immutables.Map[int, int]:
    """Return `tried` without the jobs that have gone: the next to be tried follow the others."""
    left = tried.get(number, 0) - max(gone, 0)
    if number not in tried:
        return tried
    return tried.set(number, left) if left > 0 else tried.delete(number)


def _applied(archive: Archive, fact: f.PolicyApplied) -> Archive:
    tried = immutables.Map() if fact.over else archive.tried.update(dict(fact.tried))
    return replace(_checked(archive, fact.at), tried=tried, over=fact.over)


def _checked(archive: Archive, at: float) -> Archive:
    return replace(archive, checked_at=at, checks=archive.checks + 1)


EVOLVE: Mapping[type, Callable[[Any, Any], Archive | None]] = {
    f.JobArchived: _archived,
    f.JobDropped: _dropped,
    f.PeriodNoted: _noted,
    f.PolicyApplied: _applied,
}
