"""A job that others wait for is not forgotten before they know; and the owner of its name."""

from __future__ import annotations

from typing import Any

import msgspec

from peloton.actors.job import messages as m
from peloton.actors.job.kind import KIND
from peloton.actors.job.name import facts as f
from peloton.actors.job.name import messages as names
from peloton.actors.job.name.decide import RESERVATION_S, cancel, free
from peloton.actors.job.name.kind import KIND as NAME
from peloton.actors.job.name.messages import ReserveName
from peloton.actors.job.name.state import Name
from peloton.actors.job.slice.messages import SliceGone
from peloton.runtime.core.turning.turn import take_turn
from peloton.runtime.vocabulary import SENDER, Key, Message, Send
from tests.actors.jobs.test_job import AT, made

WAITER = Key("job/w")
HOLDER, OTHER = Key("job/holder"), Key("job/other")


def turn(job: Any, message: Message, **at: Any) -> Any:
    """One turn of a job."""
    moment = msgspec.structs.replace(AT, **at)
    return take_turn(KIND, job, message=message, at=moment)


def test_a_deleted_job_stays_until_its_waiters_know() -> None:
    job = turn(made(1), m.AwaitEnd(), sender=WAITER).state
    job = turn(job, m.DeleteJob(force=True)).state
    job = turn(job, SliceGone(0)).state
    assert job is not None
    assert [send.to for send in KIND.owed(job)] == [WAITER]
    assert turn(job, m.EndHeard(WAITER)).state is None


def test_a_reservation_that_follows_another_has_its_own_time() -> None:
    """The runtime counts on while a deadline keeps its name."""
    first = take_turn(NAME, None, message=ReserveName(WAITER), at=AT).state
    late = msgspec.structs.replace(AT, now=AT.now + RESERVATION_S)
    second = take_turn(NAME, first, message=ReserveName(Key("job/x")), at=late).state
    assert second.job == "job/x" and NAME.deadline(second)[1] == RESERVATION_S
    assert NAME.deadline(second)[0] != NAME.deadline(first)[0]


def test_only_the_job_that_has_a_name_frees_it_and_others_are_answered_alike() -> None:
    for name in (Name(HOLDER, True), Name(HOLDER, kept_at=1.0)):
        for job, facts in ((OTHER, ()), (HOLDER, (f.NameForgotten(),))):
            found = free(name, names.FreeName(job), AT)
            assert found.facts == facts
            assert found.sends == (Send(SENDER, names.NameFreed()),)


def test_only_its_job_cancels_a_reservation_and_a_claimed_name_is_none() -> None:
    for name, job, facts in (
        (Name(HOLDER, kept_at=1.0), HOLDER, (f.NameForgotten(),)),
        (Name(HOLDER, kept_at=1.0), OTHER, ()),
        (Name(HOLDER, True), HOLDER, ()),
    ):
        assert cancel(name, names.CancelReservation(job), AT).facts == facts
