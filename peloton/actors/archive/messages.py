"""Messages an archive and its periods receive, what may be asked of them, and their answers.

An archive (`archive/SHARD`) belongs to one shard of jobs; a period (`archive/SHARD/NUMBER`) has the
jobs of that shard that ended within one minute. No message may leave the shard.
"""

from __future__ import annotations

from peloton.actors.job.messages import JobSummary
from peloton.runtime.vocabulary import Key, Message, Query, Value, key

PERIOD_S = 60.0
"""Stored: it can never change. At 50 jobs a second and shard a period takes about a megabyte."""


class ArchiveJob(Message, frozen=True, gc=False, array_like=True):
    """A job to the period in which it ended: it is about to leave memory."""

    summary: JobSummary


class DropJob(Message, frozen=True, gc=False, array_like=True):
    """A job to a period that has it: it is being deleted, or has run again."""


class JobGoing(Message, frozen=True, gc=False, array_like=True):
    """A job to a period that ordered it to go: it goes."""


class DeleteEnded(Message, frozen=True, gc=False, array_like=True):
    """An archive to a period: delete the jobs that ended up to this moment, a bounded number.

    `tried`: so many of them, by their keys, were ordered to go before, and have not gone yet.
    """

    before: float
    tried: int = 0


class PeriodCounted(Message, frozen=True, gc=False, array_like=True):
    """A period to its archive: how many jobs it has now, and whether the policy deleted one."""

    number: int
    jobs: int
    forgotten: bool = False


class GetPeriods(Query, frozen=True, gc=False, array_like=True):
    """The newest periods below `below`, as `PeriodsListed`; answered by an archive."""

    below: int = 2**62
    limit: int = 1000


class GetPeriod(Query, frozen=True, gc=False, array_like=True):
    """The jobs of a period after `after`, by their keys, as `PeriodListed`."""

    after: Key = Key("")
    limit: int = 500


class PeriodsListed(Value, frozen=True, gc=False, array_like=True):
    """Numbers of periods, the newest first, with their jobs; and the counts of the archive.

    `late_s`: for how long the oldest should have been gone by now; `due_at`: since when, or from
    when on, by seconds since the epoch; 0 where there is none.
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
    """The archive of a shard of jobs."""
    return key("archive", shard)


def period_key(archive: Key, ended_at: float) -> Key:
    """The period of an archive in which this moment lies."""
    return Key(f"{archive}/{int(ended_at // PERIOD_S)}")


def period_number(period: Key) -> int | None:
    """The number of a period; None for the key of an archive."""
    number = period.split("/")[2:]
    return int(number[0]) if number else None


def archive_of(period: Key) -> Key:
    """The archive of a period."""
    return Key("/".join(period.split("/")[:2]))
