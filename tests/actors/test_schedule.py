"""What a schedule decides at a moment that comes late."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from peloton.actors.job.messages import MakeJob
from peloton.actors.schedule.decide import due, next_moment
from peloton.actors.schedule.facts import MomentCome
from peloton.actors.schedule.messages import ScheduleSpec, schedule_key
from peloton.actors.schedule.state import EVOLVE, Schedule
from peloton.chaos.cluster.cluster import job_spec
from peloton.runtime.vocabulary import At, Due

KEY = schedule_key("s")
HOUR = 3600.0
FIRST = 500_000 * HOUR


def schedule(**fields: float) -> Schedule:
    spec = replace(ScheduleSpec("0 * * * *", "UTC", "/p", job_spec(1)), **fields)
    return Schedule(KEY, spec, False, FIRST - 10, "me", FIRST, FIRST - 10)


def come(known: Schedule, now: float) -> MomentCome:
    (fact,) = due(known, Due("x"), At(now=0.0, key=KEY, wall=now)).facts
    assert isinstance(fact, MomentCome)
    return fact


@pytest.mark.parametrize("late", [0.0, 0.1, 59.0, HOUR - 1])
def test_a_moment_makes_its_job(late: float) -> None:
    fact = come(schedule(), FIRST + late)
    assert (fact.moment, fact.next_at, fact.why) == (FIRST, FIRST + HOUR, "")
    assert fact.job == come(schedule(), FIRST + late + 0.5).job, "however often it comes"
    assert fact.job != come(schedule(), FIRST + HOUR).job


def test_of_many_that_were_missed_the_last_one_counts() -> None:
    fact = come(schedule(), FIRST + 1000.5 * HOUR)
    assert (fact.moment, fact.next_at) == (FIRST + 1000 * HOUR, FIRST + 1001 * HOUR)
    assert fact.job


def test_a_moment_that_is_too_late_makes_none() -> None:
    fact = come(schedule(starting_deadline_s=60.0), FIRST + 61.0)
    assert not fact.job and fact.why == "it came 61 s late, the limit is 60 s"
    assert come(schedule(starting_deadline_s=60.0), FIRST + 59.0).job


def test_the_job_of_the_moment_before_is_not_made_yet() -> None:
    known = schedule()
    first = come(known, FIRST)
    decision = due(known, Due("x"), At(now=0.0, key=KEY, wall=FIRST))
    assert [type(send.message) for send in decision.sends] == [MakeJob]
    making = EVOLVE[MomentCome](known, first)
    assert making is not None and next_moment(making) == (f"moment {FIRST + HOUR}", FIRST + HOUR)
    assert "is not made yet" in come(making, FIRST + HOUR).why
