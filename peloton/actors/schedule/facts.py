"""The facts of a schedule. Numbers and meanings are permanent, because journals hold them.

Moments are journaled as they were computed, because the data of time zones change.
"""

from __future__ import annotations

from peloton.actors.schedule.messages import ScheduleSpec
from peloton.runtime.vocabulary import Fact, Key


class ScheduleMade(Fact, frozen=True, gc=False, array_like=True):
    """A client created the schedule."""

    schedule: Key
    spec: ScheduleSpec
    paused: bool
    at: float
    who: str
    next_at: float


class SchedulePaused(Fact, frozen=True, gc=False, array_like=True):
    """The schedule makes no jobs from now on, or does so again."""

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
    """The job that was to be made exists, or was refused, and why."""

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
    """A client deleted the schedule."""


FACTS: dict[int, type] = {
    1: ScheduleMade,
    2: SchedulePaused,
    3: MomentCome,
    4: JobSettled,
    5: EndAwaited,
    6: EndKnown,
    7: ScheduleDeleted,
}
