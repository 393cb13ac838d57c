"""Goal table of a schedule: to wait for its next moment, or to rest while it is paused.

The table is total. It must not take steps: the clock and its jobs do (`decide.py`).
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

from peloton.actors.schedule.state import Schedule
from peloton.runtime.vocabulary import SETTLED, WAITING, At, Decision, Rest


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
    state = ScheduleStates.MAKING if schedule.making else ScheduleStates.IDLE
    goal = ScheduleGoals.PAUSED if schedule.paused else ScheduleGoals.TIMED
    return TABLE[state][goal]
