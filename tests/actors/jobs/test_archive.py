"""An archive and its periods: what they take in, give up, and order to be deleted."""

from __future__ import annotations

import math

import immutables
import msgspec
import pytest

from peloton.actors.archive import facts as f
from peloton.actors.archive import messages as m
from peloton.actors.archive.decide import (
    CHECK_S,
    JOBS_PER_PERIOD,
    LAP_S,
    PERIODS_PER_CHECK,
    deadline,
    delete_ended,
    drop,
    due,
    forgotten,
    note,
    take_first,
)
from peloton.actors.archive.state import EVOLVE, Archive
from peloton.actors.job.archiving import archived, forget, leave
from peloton.actors.job.facts import ArchivedIn, DeletionOrdered
from peloton.actors.job.messages import Archived, ForgetJob, JobSummary, LeaveMemory, job_key
from peloton.actors.job.slice.task_config import Command, TaskConfig
from peloton.actors.job.spec import JobSpec
from peloton.actors.job.stages import JobGoals, JobStates
from peloton.actors.job.state import Job
from peloton.actors.job.view import summary
from peloton.actors.respool.messages import pool_key
from peloton.runtime.vocabulary import At, Decision, Fact, Key

ARCHIVE = m.archive_key(0)
ENDED_S, DAY_S = 600_030.0, 86_400.0
PERIOD = m.period_key(ARCHIVE, ENDED_S)
JOB = job_key("a")


def job(**more: object) -> Job:
    spec = JobSpec("n", "o", pool_key("p"), 1, TaskConfig(command=Command("true")))
    state = Job(key=JOB, spec=spec, state=JobStates.SUCCEEDED, completed_at=ENDED_S)
    return msgspec.structs.replace(state, **more)


def line(number: int, ended_s: float = ENDED_S) -> JobSummary:
    found = summary(job_key(f"{number:03d}"), job(completed_at=ended_s))
    assert found is not None
    return found


def period_of(*lines: JobSummary) -> Archive:
    return Archive(jobs=immutables.Map({each.job: each for each in lines}))


def folded(archive: Archive | None, decision: Decision) -> Archive | None:
    for fact in decision.facts:
        archive = EVOLVE[type(fact)](archive, fact)
    return archive


def noted(*numbers: int) -> Archive:
    archive: Archive | None = Archive()
    for number in numbers:
        assert archive is not None
        archive = folded(archive, note(archive, m.PeriodCounted(number, 1), At(5.0, ARCHIVE)))
    assert archive is not None
    return archive


def test_a_period_takes_a_job_tells_it_and_counts() -> None:
    first = line(1)
    taken = take_first(m.ArchiveJob(first), At(1.0, PERIOD, first.job))
    assert taken.facts == (f.JobArchived(first),)
    assert [(send.to, send.message) for send in taken.sends] == [
        (first.job, Archived(ENDED_S)),
        (ARCHIVE, m.PeriodCounted(10_000, 1)),
    ]


def test_a_job_stays_in_its_period_until_it_says_that_it_goes() -> None:
    period = period_of(line(1), line(2, ENDED_S + 20))
    ordered = delete_ended(period, m.DeleteEnded(ENDED_S + 10), At(9.0, PERIOD, ARCHIVE))
    assert [send.to for send in ordered.sends] == [line(1).job]
    assert ordered.facts == ()
    gone = forgotten(period, m.JobGoing(), At(9.0, PERIOD, line(1).job))
    assert gone.facts == (f.JobDropped(line(1).job),)
    assert gone.sends[0].message == m.PeriodCounted(10_000, 1, forgotten=True)
    again = folded(period, gone)
    assert again is not None
    assert drop(again, m.DropJob(), At(9.0, PERIOD, line(1).job)) == Decision()
    assert folded(again, drop(again, m.DropJob(), At(9.0, PERIOD, line(2).job))) is None


def test_a_check_orders_a_bounded_number_and_is_followed_by_another() -> None:
    archive = noted(*range(1, 30))
    at = At(DAY_S * 2, ARCHIVE)
    checked = due(archive, at, forget_after_s=DAY_S)
    assert [send.to for send in checked.sends] == [
        f"{ARCHIVE}/{number}" for number in range(1, PERIODS_PER_CHECK + 1)
    ]
    before, after = deadline(archive, DAY_S), deadline(folded(archive, checked), DAY_S)
    assert before is not None
    assert after is not None
    assert after[0] != before[0]
    assert after[1] == CHECK_S
    many = period_of(*(line(number) for number in range(JOBS_PER_PERIOD + 5)))
    orders = delete_ended(many, m.DeleteEnded(ENDED_S), At(9.0, PERIOD)).sends
    assert len(orders) == JOBS_PER_PERIOD


def test_the_deadline_is_when_the_oldest_period_is_over_by_so_much() -> None:
    archive = noted(20)
    found = deadline(archive, DAY_S)
    assert found is not None
    assert found[1] == pytest.approx(21 * m.PERIOD_S + DAY_S - 5.0)
    older = deadline(noted(20, 3), DAY_S)
    assert older is not None
    assert older[1] == pytest.approx(4 * m.PERIOD_S + DAY_S - 5.0)
    assert deadline(archive, math.inf) is None
    assert deadline(Archive(), DAY_S) is None


def test_an_archive_counts_what_is_there_and_what_has_gone() -> None:
    archive = noted(1, 2)
    gone = note(archive, m.PeriodCounted(1, 0, forgotten=True), At(5.0, ARCHIVE))
    left = folded(archive, gone)
    assert left is not None
    assert (left.archived, left.forgotten, left.oldest) == (1, 1, 2)


def lapped(archive: Archive, now: float) -> tuple[Archive, list[tuple[int, int]]]:
    """One check; the periods that it asked, and how many of each it took as tried."""
    checked = due(archive, At(now, ARCHIVE), forget_after_s=DAY_S)
    after = folded(archive, checked)
    assert after is not None
    numbers = [(m.period_number(send.to), send.message) for send in checked.sends]
    asked = [(at or 0, one.tried) for at, one in numbers if isinstance(one, m.DeleteEnded)]
    return after, asked


def test_periods_that_do_not_go_hold_up_no_younger_one() -> None:
    archive, now = noted(*range(1, 30)), 2 * DAY_S
    seen: list[int] = []
    for _ in range(4):
        archive, asked = lapped(archive, now)
        seen += [number for number, _ in asked]
    assert seen == [*range(1, 30)], "each once, though none went"
    archive, asked = lapped(archive, now)
    assert asked == [] and archive.over
    found = deadline(archive, DAY_S)
    assert found is not None and found[1] == LAP_S
    archive, asked = lapped(archive, now + LAP_S)
    assert [number for number, _ in asked] == [*range(1, PERIODS_PER_CHECK + 1)]
    assert not archive.over


def test_jobs_that_do_not_go_hold_up_no_other_of_their_period() -> None:
    """Ten of a period never answer; the archive goes on behind them, and comes back."""
    count, stuck = 3 * JOBS_PER_PERIOD, 10
    period = period_of(*(line(number) for number in range(count)))
    archive = folded(None, note(Archive(), m.PeriodCounted(10_000, count), At(5.0, ARCHIVE)))
    never = frozenset(sorted(period.jobs)[:stuck])
    now, orders = ENDED_S + 2 * DAY_S, 0
    while len(period.jobs) > stuck:
        assert archive is not None and orders < 8
        orders += 1
        archive, ((_, tried),) = lapped(archive, now)
        order = m.DeleteEnded(now - DAY_S, tried)
        for send in delete_ended(period, order, At(now, PERIOD)).sends:
            if send.to in never:
                continue
            gone = forgotten(period, m.JobGoing(), At(now, PERIOD, send.to))
            left = folded(period, gone)
            counted = gone.sends[0].message
            assert left is not None and isinstance(counted, m.PeriodCounted)
            period, archive = left, folded(archive, note(archive, counted, At(now, ARCHIVE)))
            assert archive is not None
    assert orders == 3, "as many as without those that are stuck"
    assert archive is not None and archive.tried[10_000] == stuck
    archive, asked = lapped(archive, now)
    assert asked == [] and archive.over


def test_the_next_oldest_is_found_near_and_far() -> None:
    for numbers, wanted in (((1, 2, 9), 2), ((1, 500), 500), ((1,), 0)):
        archive = noted(*numbers)
        left = folded(archive, note(archive, m.PeriodCounted(1, 0), At(5.0, ARCHIVE)))
        assert left is not None and left.oldest == wanted


def at(sender: Key = PERIOD) -> At:
    return At(2 * DAY_S, JOB, sender)


def test_a_job_leaves_once_its_period_has_it() -> None:
    (asked,) = leave(job(), LeaveMemory(ARCHIVE), at()).sends
    assert asked.to == PERIOD
    facts: tuple[Fact, ...] = archived(job(), Archived(ENDED_S), at()).facts
    assert facts == (ArchivedIn(PERIOD, ENDED_S),)


def test_a_job_that_runs_again_is_dropped_and_not_deleted() -> None:
    again = job(state=JobStates.RUNNING, completed_at=0.0)
    assert leave(again, LeaveMemory(ARCHIVE), at()).sends == ()
    for found in (
        archived(again, Archived(ENDED_S), at()),
        forget(again, ForgetJob(ENDED_S), at()),
    ):
        assert found.facts == ()
        assert [(send.to, send.message) for send in found.sends] == [(PERIOD, m.DropJob())]


def test_a_job_that_ended_later_is_not_deleted() -> None:
    later = job(completed_at=ENDED_S + 500)
    found = forget(later, ForgetJob(ENDED_S), at())
    assert found.facts == ()
    assert [send.message for send in found.sends] == [m.DropJob()]


def test_a_job_is_deleted_by_the_policy_and_says_so() -> None:
    found = forget(job(), ForgetJob(ENDED_S), at())
    assert found.facts == (DeletionOrdered(2 * DAY_S),)
    assert found.sends[-1].message == m.JobGoing()
    going = job(goal=JobGoals.DELETED)
    assert forget(going, ForgetJob(ENDED_S), at()).facts == ()


def test_the_newer_of_two_periods_has_a_job() -> None:
    older = Key(f"{ARCHIVE}/1")
    found = archived(job(period=older, archived_end=70.0), Archived(ENDED_S), at())
    assert [(send.to, send.message) for send in found.sends] == [(older, m.DropJob())]
