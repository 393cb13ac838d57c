"""How periods take in and give up jobs, and how an archive applies the policy for deleting jobs.

Periods that are old enough are ordered to delete jobs, a limited number at a time. A job stays in
its period until it reports that it goes, so every order may be lost. A job that does not go delays
no other: each is ordered once in a lap through all that are old enough, and again in the next lap.
The job itself decides whether it has ended, and deletes itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from heapq import nlargest
from itertools import islice
from typing import Any

from peloton.actors.archive import facts as f
from peloton.actors.archive import messages as m
from peloton.actors.archive.state import Archive
from peloton.actors.job.messages import Archived, ForgetJob
from peloton.runtime.vocabulary import At, Decision, Due, Key, Send

PERIODS_PER_CHECK, JOBS_PER_PERIOD = 8, 32
"""What one check orders to go, at most, of each shard."""
CHECK_S = 1.0
"""Between two checks while periods are too old."""
LAP_S = 60.0
"""Between two laps, where jobs did not go although all were ordered to."""


def take_first(message: m.ArchiveJob, at: At) -> Decision:
    """Take the first job into a new period."""
    return take(Archive(), message, at)


def take(period: Archive, message: m.ArchiveJob, at: At) -> Decision:
    """Take in a job that has ended, from now on found here; again, if it has run again
    meanwhile."""
    job = message.summary.job
    told = (Send(job, Archived(message.summary.completed_at)),)
    known = period.jobs.get(job)
    if known == message.summary:
        return Decision(sends=told)
    jobs = len(period.jobs) + (known is None)
    sends = told if known is not None else (*told, _counted(at.key, jobs))
    return Decision(facts=(f.JobArchived(message.summary),), sends=sends)


def drop(period: Archive, message: m.DropJob, at: At) -> Decision:
    """Remove a job that is deleted, or has run again."""
    return _drop(period, at, forgotten=False)


def forgotten(period: Archive, message: m.JobGoing, at: At) -> Decision:
    """Remove a job that is deleted by the policy."""
    return _drop(period, at, forgotten=True)


def _drop(period: Archive, at: At, *, forgotten: bool) -> Decision:
    job = at.sender
    if job is None or job not in period.jobs:
        return Decision()
    counted = _counted(at.key, len(period.jobs) - 1, forgotten=forgotten)
    return Decision(facts=(f.JobDropped(job),), sends=(counted,))


def delete_ended(period: Archive, message: m.DeleteEnded, at: At) -> Decision:
    """Order the first jobs that are old enough to go, behind those that were tried already."""
    jobs = period.jobs
    old = (job for job in sorted(jobs) if jobs[job].completed_at <= message.before)
    some = islice(old, message.tried, message.tried + JOBS_PER_PERIOD)
    return Decision(sends=tuple(Send(job, ForgetJob(message.before)) for job in some))


def no_period(message: m.DeleteEnded, at: At) -> Decision:
    """Answer the archive that the period no longer exists."""
    number = m.period_number(at.key)
    return Decision() if number is None else Decision(sends=(_counted(at.key, 0),))


def note_first(message: m.PeriodCounted, at: At) -> Decision:
    """Record the first period of a new archive."""
    return note(Archive(), message, at)


def note(archive: Archive, message: m.PeriodCounted, at: At) -> Decision:
    """Record how many jobs a period has."""
    if archive.periods.get(message.number, 0) == message.jobs:
        return Decision()
    fact = f.PeriodNoted(message.number, message.jobs, at.now, message.forgotten)
    return Decision(facts=(fact,))


def due(archive: Archive, at: At, *, forget_after_s: float) -> Decision:
    """Order the oldest periods that are old enough, and not wholly tried, to delete their jobs."""
    before = at.now - forget_after_s
    found = islice(_untried(archive, int(before // m.PERIOD_S)), PERIODS_PER_CHECK)
    tried = [(number, archive.tried.get(number, 0)) for number in found]
    sends = tuple(
        Send(Key(f"{at.key}/{number}"), m.DeleteEnded(before, count)) for number, count in tried
    )
    ordered = tuple((number, count + JOBS_PER_PERIOD) for number, count in tried)
    text = f"{len(sends)} periods are older than {forget_after_s:g} s" if sends else ""
    return Decision(facts=(f.PolicyApplied(at.now, ordered, not sends),), sends=sends, because=text)


def _untried(archive: Archive, end: int) -> Iterator[int]:
    """Yield the periods before `end` with jobs that were not ordered to go in this lap.

    The oldest come first, and none is looked at before it is wanted.
    """
    periods, tried = archive.periods, archive.tried
    # Whichever is less: all there are, or each minute from the oldest on.
    span = range(archive.oldest, end)
    numbers = span if len(span) < len(periods) else sorted(periods)
    return (
        number
        for number in numbers
        if number < end and tried.get(number, 0) < periods.get(number, 0)
    )


def deadline(archive: Archive, forget_after_s: float) -> tuple[str, float] | None:
    """Return when the oldest period is old enough; soon, if it is already."""
    if not archive.periods or forget_after_s == math.inf:
        return None
    due_at = (archive.oldest + 1) * m.PERIOD_S + forget_after_s
    pause_s = LAP_S if archive.over else CHECK_S
    return f"check {archive.checks}", max(due_at - archive.checked_at, pause_s)


def get_periods(
    archive: Archive, query: m.GetPeriods, at: At, *, forget_after_s: float
) -> m.PeriodsListed:
    """Return the newest periods, and the counts of the archive."""
    due_at = (archive.oldest + 1) * m.PERIOD_S + forget_after_s
    below = sorted(filter(query.below.__gt__, archive.periods)) if query.limit else []
    numbers = nlargest(query.limit, below)
    return m.PeriodsListed(
        tuple((number, archive.periods[number]) for number in numbers),
        archive.archived,
        archive.forgotten,
        max(at.now - due_at, 0.0) if archive.periods else 0.0,
        due_at if archive.periods else 0.0,
    )


def get_period(period: Archive, query: m.GetPeriod, at: At) -> m.PeriodListed:
    """Return jobs of a period."""
    keys = sorted(job for job in period.jobs if job > query.after)
    jobs = tuple(period.jobs[job] for job in keys[: query.limit])
    return m.PeriodListed(jobs, len(keys) > len(jobs))


def _counted(period: Key, jobs: int, *, forgotten: bool = False) -> Send:
    number = m.period_number(period)
    assert number is not None
    return Send(m.archive_of(period), m.PeriodCounted(number, jobs, forgotten))


def decide_of(forget_after_s: float) -> Mapping[type, Callable[[Any, Any, At], Decision]]:
    """Return the decision table for a policy."""
    return {
        m.ArchiveJob: take,
        m.DropJob: drop,
        m.DeleteEnded: delete_ended,
        m.PeriodCounted: note,
        m.JobGoing: forgotten,
        Due: lambda archive, message, at: due(archive, at, forget_after_s=forget_after_s),
    }


ABSENT: Mapping[type, Callable[[Any, At], Decision]] = {
    m.ArchiveJob: take_first,
    m.DeleteEnded: no_period,
    m.PeriodCounted: note_first,
}
