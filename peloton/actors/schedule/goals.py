"""Goal table of a schedule: to wait for its next moment, or to rest while it is paused.

The table is total. The clock and its jobs take the steps (`decide.py`): pursuing must take none but
to repeat a question whose answer was lost.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

from peloton.actors.schedule.messages import RIGHTS, AskRights
from peloton.actors.schedule.state import RightsPending, Schedule
from peloton.runtime.vocabulary import SETTLED, WAITING, At, Decision, Rest, Send

ASK_AGAIN_S = 5.0
"""After which an answer counts as lost; it comes within the same round."""


class ScheduleGoals(enum.StrEnum):
    """What should be."""

    TIMED = "timed"
    PAUSED = "paused"


class ScheduleStates(enum.StrEnum):
    """What is."""

    IDLE = "idle"
    MAKING = "making"  # a job


TABLE: Mapping[ScheduleStates, Mapping[ScheduleGoals, Rest]] = {
    ScheduleStates.IDLE: {ScheduleGoals.TIMED: WAITING, ScheduleGoals.PAUSED: SETTLED},
    ScheduleStates.MAKING: {ScheduleGoals.TIMED: WAITING, ScheduleGoals.PAUSED: WAITING},
}


def pursue(schedule: Schedule, at: At) -> Decision | Rest:
    """The next step towards the goal."""
    notes = at.notes
    if notes is not None and notes.again_at is not None and notes.again_at <= at.now:
        waits = not schedule.paused and 0 < schedule.next_at <= at.wall
        return ask(schedule, at) if waits else Decision(notes=RightsPending())
    state = ScheduleStates.MAKING if schedule.making else ScheduleStates.IDLE
    goal = ScheduleGoals.PAUSED if schedule.paused else ScheduleGoals.TIMED
    return TABLE[state][goal]


def ask(schedule: Schedule, at: At) -> Decision:
    """The moment waits for what its daemon says of its owner."""
    again = RightsPending(at.now + ASK_AGAIN_S)
    return Decision(sends=(Send(RIGHTS, question(schedule)),), notes=again)


def question(schedule: Schedule) -> AskRights:
    """Of the moment that is next."""
    path, by = schedule.spec.pool_path, schedule.created_by
    return AskRights(schedule.key, schedule.created_at, schedule.next_at, by, path)


def recall_s(notes: RightsPending) -> float | None:
    """When to ask again."""
    return notes.again_at
