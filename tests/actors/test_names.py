"""Names of jobs: whose one is, and who gives it up."""

from __future__ import annotations

from peloton.actors.job.name import facts as f
from peloton.actors.job.name import messages as m
from peloton.actors.job.name.decide import cancel, free
from peloton.actors.job.name.state import Name
from peloton.runtime.vocabulary import SENDER, At, Key, Send

NAME, HOLDER, OTHER = Key("name/p/train"), Key("job/holder"), Key("job/other")


def of(sender: Key) -> At:
    return At(now=1.0, key=NAME, sender=sender, level=m.LEVEL_ARRAYS)


def test_only_the_job_that_has_a_name_frees_it_and_others_are_answered_alike() -> None:
    for name in (Name(HOLDER, True), Name(HOLDER, kept_at=1.0)):
        for job, facts in ((OTHER, ()), (HOLDER, (f.NameForgotten(),))):
            found = free(name, m.FreeName(job), of(job))
            assert found.facts == facts
            assert found.sends == (Send(SENDER, m.NameFreed()),)


def test_only_its_job_cancels_a_reservation_and_a_claimed_name_is_none() -> None:
    for name, job, facts in (
        (Name(HOLDER, kept_at=1.0), HOLDER, (f.NameForgotten(),)),
        (Name(HOLDER, kept_at=1.0), OTHER, ()),
        (Name(HOLDER, True), HOLDER, ()),
    ):
        assert cancel(name, m.CancelReservation(job), of(job)).facts == facts
