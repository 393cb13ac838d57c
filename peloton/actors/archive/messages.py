"""Messages and queries of an archive and its periods, and the answers.

An archive (`archive/SHARD`) belongs to one shard of jobs; a period (`archive/SHARD/NUMBER`) has the
jobs of that shard that ended within one minute. All messages stay within the shard, so a job and
its period commit together.
"""

from __future__ import annotations

from peloton.actors.job.messages import JobSummary
from peloton.runtime.vocabulary import Key, Message, Query, Value, key

PERIOD_S = 60.0
"""Stored: it can never change. At 50 jobs a second and shard a period takes about a megabyte."""


class ArchiveJob(Message, frozen=True, gc=False, array_like=True):
    """Job to the period in which it ended: the job is about to leave memory."""

    summary: JobSummary


class DropJob(Message, frozen=True, gc=False, array_like=True):
    """Job to a period that has it: the job is being deleted, or has run again."""


class JobGoing(Message, frozen=True, gc=False, array_like=True):
    """Job to a period that ordered it to go: the job is being deleted."""


class DeleteEnded(Message, frozen=True, gc=False, array_like=True):
    """Archive to period: delete the jobs that ended up to this moment, a limited number.

    `tried`: how many jobs, in the order of their keys, were ordered to go before, and have not gone
    yet.
    """

    before: float
    tried: int = 0


class PeriodCounted(Message, frozen=True, gc=False, array_like=True):
    """Period to archive: how many jobs it has now, and whether the policy deleted one."""

    number: int
    jobs: int
    forgotten: bool = False


class GetPeriods(Query, frozen=True, gc=False, array_like=True):
    """Asks an archive for its newest periods below `below`; answered `PeriodsListed`."""

    below: int = 2**62
    limit: int = 1000


class GetPeriod(Query, frozen=True, gc=False, array_like=True):
    """Asks a period for its jobs after `after`, by key; answered `PeriodListed`."""

    after: Key = Key("")
    limit: int = 500


class PeriodsListed(Value, frozen=True, gc=False, array_like=True):
    """Numbers of periods, the newest first, with their jobs; and the counts of the archive.

    `late_s`: for how long the oldest should have been gone by now; `due_at`: since when, or from
    when on, in seconds since the epoch. Both are 0 without a period.
    """

    periods: tuple[tuple[int, int], ...]
    archived: int
    forgotten: int
    late_s: float = 0.0
    due_at: float = 0.0


class PeriodListed(Value, frozen=True, gc=False, array_like=True):
    """Jobs as they were when they left memory; `more`: there are more after the last."""

    jobs: tuple[JobSummary, ...]
    more: bool = False


MESSAGES: dict[int, type] = {
    1: ArchiveJob,
    2: DropJob,
    3: DeleteEnded,
    4: PeriodCounted,
    5: JobGoing,
}
QUERIES: dict[int, type] = {501: GetPeriods, 502: GetPeriod}
ANSWERS: dict[int, type] = {501: PeriodsListed, 502: PeriodListed}


def archive_key(shard: int) -> Key:
    """Return the key of the archive of a shard of jobs."""
    return key("archive", shard)


def period_key(archive: Key, ended_at: float) -> Key:
    """Return the key of the period of an archive that contains this moment."""
    return Key(f"{archive}/{int(ended_at // PERIOD_S)}")


def period_number(period: Key) -> int | None:
    """Return the number of a period, or None for the key of an archive."""
    number = period.split("/")[2:]
    return int(number[0]) if number else None


def archive_of(period: Key) -> Key:
    return Key("/".join(period.split("/")[:2]))
