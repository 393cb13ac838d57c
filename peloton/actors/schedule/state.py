"""The state of a schedule, and how facts change it.

Of its jobs it has the one that is being made, the last one while its end matters, and a short list,
so that it does not grow with the moments that have come.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from peloton.actors.schedule import facts as f
from peloton.actors.schedule.messages import (
    RUNS_KEPT,
    MadeJob,
    Overlaps,
    ScheduleSpec,
    SkippedMoment,
)
from peloton.runtime.vocabulary import Key, Value

replace = msgspec.structs.replace
NO_JOB_YET = Key("")


class RightsPending(Value, frozen=True, gc=False, array_like=True):
    """Notes of a schedule whose moment waits for an answer about the rights of its owner.

    The question is asked again at `again_at`, by the clock of the runtime; None: nothing waits.
    """

    again_at: float | None = None


class Schedule(Value, frozen=True, gc=False, array_like=True):
    """One schedule.

    `next_at` is by the wall clock; `timed_from`, by that of the runtime, is when it was computed.
    `making` is the job of the moment `moment`, until it exists. `active` is the last job that was
    made, until it has ended; `awaited`: it will tell that. If jobs may overlap it stays empty.
    """

    key: Key
    spec: ScheduleSpec
    paused: bool
    created_at: float
    created_by: str
    next_at: float
    timed_from: float
    making: Key = NO_JOB_YET
    moment: float = 0.0
    active: Key = NO_JOB_YET
    awaited: bool = False
    runs: tuple[MadeJob, ...] = ()
    made: int = 0
    skipped: int = 0
    skip: SkippedMoment | None = None

    @property
    def stops(self) -> bool:
        """Return whether the last job has to end before the next one is made."""
        return bool(self.active and self.making) and self.spec.overlap == Overlaps.REPLACE


def _made(schedule: Schedule | None, fact: f.ScheduleMade) -> Schedule:
    return Schedule(
        key=fact.schedule,
        spec=fact.spec,
        paused=fact.paused,
        created_at=fact.at,
        created_by=fact.who,
        next_at=fact.next_at,
        timed_from=fact.at,
    )


def _timed(schedule: Schedule, *, at: float, next_at: float) -> Schedule:
    return replace(schedule, next_at=next_at, timed_from=at)


def _paused(schedule: Schedule, fact: f.SchedulePaused) -> Schedule:
    timed = _timed(schedule, at=fact.at, next_at=fact.next_at)
    return replace(timed, paused=fact.paused)


def _come(schedule: Schedule, fact: f.MomentCome) -> Schedule:
    timed = _timed(schedule, at=fact.at, next_at=fact.next_at)
    if not fact.job:
        return _skipped(timed, SkippedMoment(fact.moment, fact.why))
    return replace(timed, making=fact.job, moment=fact.moment)


def _skipped(schedule: Schedule, skip: SkippedMoment) -> Schedule:
    return replace(schedule, skipped=schedule.skipped + 1, skip=skip)


def _settled(schedule: Schedule, fact: f.JobSettled) -> Schedule:
    moment = schedule.moment
    rest = replace(schedule, making=NO_JOB_YET, moment=0.0)
    if not fact.made:
        return _skipped(rest, SkippedMoment(moment, fact.why))
    runs = (*schedule.runs, MadeJob(fact.job, moment, fact.at))[-RUNS_KEPT:]
    if schedule.spec.overlap != Overlaps.ALLOW:
        rest = replace(rest, active=fact.job, awaited=False)
    return replace(rest, runs=runs, made=schedule.made + 1)


EVOLVE: Mapping[type, Callable[[Any, Any], Schedule | None]] = {
    f.ScheduleMade: _made,
    f.SchedulePaused: _paused,
    f.MomentCome: _come,
    f.JobSettled: _settled,
    f.EndAwaited: lambda schedule, fact: replace(schedule, awaited=True),
    f.EndKnown: lambda schedule, fact: replace(schedule, active=NO_JOB_YET, awaited=False),
    f.ScheduleDeleted: lambda schedule, fact: None,
}
