"""The kind "schedule", as registered with the runtime."""

from __future__ import annotations

from functools import partial

from peloton.actors.schedule import messages as m
from peloton.actors.schedule.cron import Zones
from peloton.actors.schedule.decide import (
    ABSENT,
    DECIDE,
    create_first,
    due,
    get_schedule,
    next_moment,
    owed,
    pause,
    schedule_line,
    told_rights,
)
from peloton.actors.schedule.facts import FACTS
from peloton.actors.schedule.goals import pursue, recall_s
from peloton.actors.schedule.state import EVOLVE, Schedule
from peloton.runtime.kinds import Kind, Listing
from peloton.runtime.vocabulary import OWN_STATE, Due


def kind(zones: Zones) -> Kind:
    """The kind; its schedules are in the time zones that `zones` knows."""
    return Kind(
        name="schedule",
        group="jobmgr",
        state=Schedule,
        decide={
            **DECIDE,
            m.PauseSchedule: partial(pause, zones=zones),
            m.RightsTold: partial(told_rights, zones=zones),
            Due: partial(due, zones=zones),
        },
        absent={**ABSENT, m.CreateSchedule: partial(create_first, zones=zones)},
        pursue=pursue,
        evolve=EVOLVE,
        messages=m.MESSAGES,
        facts=FACTS,
        answers=m.ANSWERS,
        queries=m.QUERIES,
        partition=lambda key: key,
        owed=owed,
        moment=next_moment,
        recall_s=recall_s,
        inspect={m.GetSchedule: get_schedule},
        depends=lambda query: OWN_STATE,
        listing=Listing(summary=schedule_line),
    )
