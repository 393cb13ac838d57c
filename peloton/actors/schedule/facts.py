"""What a schedule journals. Numbers are permanent, because journals hold them.

Moments are journaled as they were computed: a fold must not know a time zone.
"""

from __future__ import annotations

from peloton.actors.schedule.messages import ScheduleSpec
from peloton.runtime.vocabulary import Fact, Key


class ScheduleMade(Fact, frozen=True, gc=False, array_like=True):
    """A client created it."""

    schedule: Key
    spec: ScheduleSpec
    paused: bool
    at: float
    who: str
    next_at: float


class SchedulePaused(Fact, frozen=True, gc=False, array_like=True):
    """From now on it makes no jobs, or does so again."""

    paused: bool
    at: float
    next_at: float


class MomentCome(Fact, frozen=True, gc=False, array_like=True):
    """A moment has come: this job is to be made, or none, and why not."""

    moment: float
    job: Key
    why: str
    at: float
    next_at: float


class JobSettled(Fact, frozen=True, gc=False, array_like=True):
    """The job that was to be made is there, or was refused, and why."""

    job: Key
    made: bool
    why: str
    at: float


class EndAwaited(Fact, frozen=True, gc=False, array_like=True):
    """The last job will tell its end."""

    job: Key


class EndKnown(Fact, frozen=True, gc=False, array_like=True):
    """The last job has ended."""

    job: Key


class ScheduleDeleted(Fact, frozen=True, gc=False, array_like=True):
    """A client deleted it."""


FACTS: dict[int, type] = {
    1: ScheduleMade,
    2: SchedulePaused,
    3: MomentCome,
    4: JobSettled,
    5: EndAwaited,
    6: EndKnown,
    7: ScheduleDeleted,
}
