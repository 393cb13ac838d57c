"""What a schedule decides at a moment that comes late."""

from __future__ import annotations

from datetime import tzinfo
from functools import partial

import pytest
from msgspec.structs import replace

from peloton.actors.host.run_spec import Container
from peloton.actors.job.messages import MakeJob
from peloton.actors.job.slice.task_config import Override, TaskConfig
from peloton.actors.schedule import decide
from peloton.actors.schedule.decide import next_moment, owed
from peloton.actors.schedule.facts import MomentCome
from peloton.actors.schedule.messages import (
    RIGHTS,
    AskRights,
    PauseSchedule,
    RightsTold,
    ScheduleSpec,
    schedule_key,
)
from peloton.actors.schedule.rights import ASK_AGAIN_S, pursue
from peloton.actors.schedule.state import EVOLVE, NO_JOB_YET, RightsPending, Schedule
from peloton.chaos.cluster.world.cluster import job_spec
from peloton.runtime.adapters.time_zones import zone_of
from peloton.runtime.vocabulary import At, Decision, Due, Refused

KEY = schedule_key("s")
due, told_rights = (partial(each, zones=zone_of) for each in (decide.due, decide.told_rights))
HOUR = 3600.0
FIRST = 500_000 * HOUR


def schedule(**fields: float) -> Schedule:
    spec = replace(ScheduleSpec("0 * * * *", "UTC", "/p", job_spec(1)), **fields)
    return Schedule(KEY, spec, False, FIRST - 10, "me", FIRST, FIRST - 10)


def at(now: float, notes: RightsPending | None = None) -> At:
    return At(now=now, key=KEY, wall=now, notes=notes)


def asks(decision: Decision | object) -> AskRights:
    """The question, with nothing journaled before its answer."""
    assert isinstance(decision, Decision) and not decision.facts
    (send,) = decision.sends
    assert send.to == RIGHTS and isinstance(send.message, AskRights)
    return send.message


def come(known: Schedule, now: float) -> MomentCome:
    decision = due(known, Due("x"), at(now))
    if not decision.facts:
        decision = told_rights(known, RightsTold(asks(decision), ""), at(now))
    (fact,) = decision.facts
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
    asked = asks(due(known, Due("x"), at(FIRST)))
    decision = told_rights(known, RightsTold(asked, ""), at(FIRST))
    assert [type(send.message) for send in decision.sends] == [MakeJob]
    making = EVOLVE[MomentCome](known, first)
    assert making is not None and next_moment(making) == (f"moment {FIRST + HOUR}", FIRST + HOUR)
    assert "is not made yet" in come(making, FIRST + HOUR).why


def test_the_tasks_of_a_moment_know_it() -> None:
    """However late they are made; in the config of an instance and in containers, too, and not
    where they say another one themselves."""
    given = job_spec(1)
    command = given.default.command
    assert command is not None
    own = replace(command, environment=(("PELOTON_SCHEDULED_TIME", "mine"),))
    pod = TaskConfig(containers=(Container("a", "true"), Container("b", "true")))
    some = (Override(1, TaskConfig(command=command)), Override(2, pod))
    spec = replace(schedule().spec, overrides=((0, (*some, Override(3, TaskConfig(command=own)))),))
    known = replace(schedule(), spec=spec)
    making = EVOLVE[MomentCome](known, come(known, FIRST + 5 * HOUR + 7.5))
    assert making is not None
    (send,) = owed(making)
    assert isinstance(send.message, MakeJob)
    when = ("PELOTON_SCHEDULED_TIME", "2027-01-15T13:00:00Z")
    found = send.message.spec.default.command
    assert found is not None and found.environment == (*command.environment, when)
    ((_, (first, second, third)),) = send.message.overrides
    assert first.config.command == found and third.config.command == own
    assert [each.environment for each in second.config.containers] == [(when,), (when,)]


def test_a_moment_whose_owner_may_not_makes_no_job() -> None:
    known = schedule()
    asked = asks(due(known, Due("x"), at(FIRST)))
    assert (asked.owner, asked.pool_path, asked.moment) == ("me", "/p", FIRST)
    decision = told_rights(known, RightsTold(asked, "me may not"), at(FIRST))
    (fact,) = decision.facts
    assert isinstance(fact, MomentCome) and not decision.sends
    assert (fact.job, fact.why, fact.next_at) == ("", "me may not", FIRST + HOUR)
    assert decision.because == "me may not", "the story tells it"
    folded = EVOLVE[MomentCome](known, fact)
    assert folded is not None and folded.skip is not None and folded.skip.why == "me may not"
    assert asks(due(folded, Due("x"), at(FIRST + HOUR))).moment == FIRST + HOUR, "judged anew"


@pytest.mark.parametrize(
    "other",
    [
        replace(schedule(), created_at=FIRST - 5),
        replace(schedule(), created_by="you"),
        replace(schedule(), next_at=FIRST + HOUR),
        replace(schedule(), paused=True),
    ],
    ids=["another of the name", "of another owner", "another moment", "paused meanwhile"],
)
def test_an_answer_serves_no_other_question(other: Schedule) -> None:
    asked = asks(due(schedule(), Due("x"), at(FIRST)))
    assert told_rights(other, RightsTold(asked, ""), at(FIRST)) == Decision()


def test_a_moment_of_a_zone_that_is_not_known_any_more_makes_no_job_and_says_why() -> None:
    def unknown(name: str) -> tzinfo:
        raise ValueError(f"{name} is not a time zone")

    fact = decide.due(schedule(), Due("x"), at(FIRST + 1.5 * HOUR), zones=unknown).facts[0]
    assert fact == MomentCome(FIRST, NO_JOB_YET, "UTC is not a time zone", FIRST + 1.5 * HOUR, 0.0)
    folded = EVOLVE[MomentCome](schedule(), fact)
    assert folded is not None and next_moment(folded) is None, "nothing comes before it is resumed"
    paused = replace(folded, paused=True)
    resumed = decide.pause(paused, PauseSchedule(False), at(FIRST + 2 * HOUR), zones=unknown)
    assert isinstance(resumed.reply, Refused) and "is not a time zone" in resumed.reply.text
    assert decide.pause(folded, PauseSchedule(True), at(FIRST), zones=unknown).facts
    resumed = decide.pause(paused, PauseSchedule(False), at(FIRST + 2 * HOUR), zones=zone_of)
    assert [fact.next_at for fact in resumed.facts] == [FIRST + 3 * HOUR]


def test_what_need_not_be_asked_is_not() -> None:
    late = due(schedule(starting_deadline_s=60.0), Due("x"), at(FIRST + 61.0))
    assert late.facts and not late.sends


def test_a_question_without_an_answer_is_asked_again() -> None:
    known = schedule()
    notes = due(known, Due("x"), at(FIRST)).notes
    assert isinstance(pursue(known, at(FIRST + 0.1, notes)), type(pursue(known, at(FIRST))))
    again = pursue(known, at(FIRST + ASK_AGAIN_S, notes))
    assert asks(again).moment == FIRST
    answered = told_rights(known, RightsTold(asks(again), ""), at(FIRST + 6.0))
    assert answered.facts and answered.notes == RightsPending()


def test_a_question_is_not_asked_again_once_the_schedule_is_paused() -> None:
    known = schedule()
    notes = due(known, Due("x"), at(FIRST)).notes
    paused = replace(known, paused=True)
    assert pursue(paused, at(FIRST + ASK_AGAIN_S, notes)) == Decision(notes=RightsPending())
