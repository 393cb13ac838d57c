"""The kind "schedule", as registered with the runtime."""

from __future__ import annotations

from peloton.actors.schedule import messages as m
from peloton.actors.schedule.cron import Zones
from peloton.actors.schedule.decide import (
    absent_with,
    decide_with,
    get_schedule,
    next_moment,
    owed,
    schedule_line,
)
from peloton.actors.schedule.facts import FACTS
from peloton.actors.schedule.rights import pursue, recall_s
from peloton.actors.schedule.state import EVOLVE, Schedule
from peloton.runtime.kinds import Kind, Listing
from peloton.runtime.vocabulary import OWN_STATE


def kind(zones: Zones) -> Kind:
    """The kind; its schedules are in the time zones that `zones` knows."""
    return Kind(
        name="schedule",
        group="jobmgr",
        state=Schedule,
        decide=decide_with(zones),
        absent=absent_with(zones),
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
