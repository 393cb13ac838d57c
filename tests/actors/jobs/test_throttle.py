"""Throttles: no period has more starts than allowed, and all instances begin in the end.

A slice is the numbers that it folds and reports.
"""

from __future__ import annotations

import bisect
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peloton.actors.job import facts as f
from peloton.actors.job import messages as m
from peloton.actors.job.kind import KIND
from peloton.actors.job.slice.facts import MembersBegun, SliceGoalSet, SliceOpened
from peloton.actors.job.slice.kind import kind as slice_kind
from peloton.actors.job.slice.messages import (
    SetSliceGoal,
    SliceOpening,
    SliceTally,
    StartsUsed,
    Tally,
)
from peloton.actors.job.slice.task_config import TaskConfig
from peloton.actors.job.spec import After, Deadline, Throttle, updated
from peloton.actors.job.stages import JobGoals, JobStates
from peloton.actors.job.state import Job
from peloton.actors.job.throttle import (
    RECENT_MAX,
    first_starts,
    next_release,
    released,
    to_release,
    told,
    without_old,
)
from peloton.actors.task.messages import TaskGoals
from peloton.runtime.core.turning.turn import take_turn
from peloton.runtime.vocabulary import Bits, Due, Key
from tests.actors.jobs.test_grants import spec
from tests.actors.jobs.test_job import AT, DEFAULT

SLICE = slice_kind()

RATE = Throttle("10/s", 10, 1.0)


def throttled(instances: int, rule: Throttle = RATE, most: int = 0) -> Any:
    given = spec(instances, most)
    return msgspec.structs.replace(given, default=DEFAULT, throttle=rule)


def turn(job: Job | None, message: Any, now: float, **at: Any) -> Any:
    moment = msgspec.structs.replace(AT, now=now, **at)
    return take_turn(KIND, job, message=message, at=moment)


def goals(found: Any) -> dict[int, SetSliceGoal]:
    sent = [send.message for send in found.sends]
    return {goal.number: goal for goal in sent if isinstance(goal, SetSliceGoal)}


def said(job: Job, now: float, number: int = 0, *, position: int = 1, **starts: Any) -> Any:
    """A turn upon the tally of a slice."""
    counts = (("INITIALIZED", starts["waiting"]), ("RUNNING", starts["begun"]))
    tally = Tally(counts, starts=StartsUsed(**starts))
    return turn(job, SliceTally(position, number, tally, job.version), now)


def due_at(job: Job) -> float | None:
    found = KIND.deadline(job)
    return None if found is None else job.waits.timed_from + found[1]


# ---- the job ----


def test_a_new_job_releases_as_many_as_the_throttle_allows() -> None:
    found = turn(None, m.CreateJob(throttled(25)), 100.0)
    (goal,) = goals(found).values()
    assert (goal.begins, goal.grant) == (10, None)
    assert due_at(found.state) is None, "what is open counts until the slice tells when it began"


def test_the_next_begin_a_period_after_the_last() -> None:
    job = turn(None, m.CreateJob(throttled(25)), 100.0).state
    job = said(job, 100.2, begun=10, waiting=15, begun_at=100.1).state
    assert due_at(job) == pytest.approx(101.1, abs=0.01) and due_at(job) > 101.1
    found = turn(job, Due(KIND.deadline(job)[0]), 101.11)
    assert goals(found)[0].begins == 20
    job = said(found.state, 101.3, position=2, begun=20, waiting=5, begun_at=101.2).state
    found = turn(job, Due("throttle"), 102.21)
    assert goals(found)[0].begins == 25
    job = said(found.state, 102.4, position=3, begun=25, waiting=0, begun_at=102.3).state
    assert KIND.deadline(job) is None, "none waits any more"


def test_a_late_tally_releases_at_once() -> None:
    job = turn(None, m.CreateJob(throttled(25)), 100.0).state
    found = said(job, 109.0, begun=10, waiting=15, begun_at=100.1)
    assert goals(found)[0].begins == 20


def test_a_job_that_may_not_begin_yet_begins_with_one_release() -> None:
    waits = msgspec.structs.replace(throttled(25), after=(After(Key("job/o")),))
    job = turn(None, m.CreateJob(waits), 100.0).state
    assert KIND.deadline(job) is None and KIND.inspect[m.GetJob](job, m.GetJob(), AT).blocked_by
    found = turn(job, m.EndTold(Key("job/o"), JobStates.SUCCEEDED), 500.0)
    assert goals(found)[0].begins == 10
    assert sum(isinstance(fact, f.GrantsRaised) for fact in found.facts) == 1


def test_the_deadline_of_the_job_still_comes_at_its_moment() -> None:
    both = msgspec.structs.replace(throttled(100), deadline=Deadline("1.5s", 1.5))
    job = turn(None, m.CreateJob(both), 100.0).state
    assert due_at(job) == 101.5
    job = said(job, 100.2, begun=10, waiting=90, begun_at=100.1).state
    assert due_at(job) == pytest.approx(101.101)
    job = turn(job, Due("throttle"), 101.2).state
    job = said(job, 101.3, position=2, begun=20, waiting=80, begun_at=101.2).state
    assert due_at(job) == pytest.approx(101.5)
    assert turn(job, Due("deadline"), 101.5).state.goal == JobGoals.KILLED


def test_with_a_limit_only_those_are_released_that_may_begin() -> None:
    job = turn(None, m.CreateJob(throttled(25, most=3)), 100.0).state
    assert job.throttled.slices[0].released == 3
    tally = Tally((("INITIALIZED", 22), ("RUNNING", 3)), active=3, starts=StartsUsed(3, 22, 100.0))
    job = turn(job, SliceTally(1, 0, tally, job.version), 100.1).state
    assert KIND.deadline(job) is None, "it waits for others to end, not for the throttle"
    tally = Tally(
        (("INITIALIZED", 22), ("SUCCEEDED", 3)), active=0, starts=StartsUsed(3, 22, 100.0)
    )
    found = turn(job, SliceTally(2, 0, tally, job.version), 100.2)
    assert goals(found)[0].begins == 6


def test_a_stopped_or_deleted_job_releases_nothing() -> None:
    job = turn(None, m.CreateJob(throttled(25)), 100.0).state
    job = said(job, 100.2, begun=10, waiting=15, begun_at=100.1).state
    for order in (m.StopJob(), m.DeleteJob(force=True)):
        ordered = turn(job, order, 100.5).state
        assert KIND.deadline(ordered) is None
        assert not turn(ordered, Due("throttle"), 102.0).facts


def test_new_instances_of_an_update_wait_too() -> None:
    job = turn(None, m.CreateJob(throttled(5)), 100.0).state
    job = said(job, 100.2, begun=5, waiting=0, begun_at=100.1).state
    more = msgspec.structs.replace(throttled(2000), throttle=None)
    assert updated(job.spec, more).throttle == RATE, "an update does not change it"
    found = turn(job, m.UpdateJob(more), 100.5)
    assert found.state.throttled.slices[1].waiting == 1000
    assert goals(found)[1].begins == 5, "5 of the 10 of this second"


# ---- the slice ----


def opened(count: int, begins: int) -> Any:
    opening = SliceOpening("j", "n", Key("respool/p"), count, TaskConfig())
    slice_ = SLICE.evolve[SliceOpened](None, SliceOpened(Key("job/j"), 0, opening, True))
    fact = SliceGoalSet(1, TaskGoals.SUCCEEDED, Bits(), None, begins)
    return SLICE.evolve[SliceGoalSet](slice_, fact)


def test_a_slice_counts_what_begins_by_the_throttle() -> None:
    slice_ = SLICE.evolve[MembersBegun](opened(20, 10), MembersBegun(Bits.span(0, 10), 7.0))
    assert slice_.starts == StartsUsed(10, 10, 7.0)
    slice_ = SLICE.evolve[MembersBegun](slice_, MembersBegun(Bits.of(15)))  # created to be killed
    assert slice_.starts == StartsUsed(10, 9, 7.0)


def test_a_slice_gives_back_starts_that_nobody_waits_for() -> None:
    slice_ = SLICE.evolve[MembersBegun](opened(20, 10), MembersBegun(Bits.span(0, 16)))
    assert slice_.starts == StartsUsed(6, 4)


# ---- any order of reports ----


class World:
    """Slices that begin what they may, at once or later, and report when they like."""

    def __init__(self, instances: int, rule: Throttle) -> None:
        self.rule = rule
        self.spec = msgspec.structs.replace(spec(instances, 0), throttle=rule)
        found = first_starts(self.spec)
        assert found is not None
        self.job, self.now = found, 0.0
        self.totals: dict[int, int] = {}
        self.begun = dict.fromkeys(found.slices, 0)
        self.last = dict.fromkeys(found.slices, 0.0)
        self.starts: list[float] = []

    def release(self) -> None:
        totals = to_release(self.job, self.rule, now=self.now, room=lambda number: 1000)
        self.job = released(without_old(self.job, self.rule, now=self.now), totals)
        self.totals |= dict(totals)

    def begin(self, number: int, count: int) -> None:
        more = min(self.totals.get(number, 0) - self.begun[number], count)
        if more > 0:
            self.begun[number] += more
            self.last[number] = self.now
            self.starts += [self.now] * more

    def report(self, number: int) -> None:
        size = first_starts(self.spec).slices[number].waiting  # type: ignore[union-attr]
        starts = StartsUsed(self.begun[number], size - self.begun[number], self.last[number])
        self.job = told(self.job, self.rule, number=number, starts=starts)
        self.job = without_old(self.job, self.rule, now=self.now)

    def finish(self) -> None:
        """All messages arrive at once from now on."""
        for _ in range(100_000):
            self.release()
            for number in sorted(self.begun):
                self.begin(number, 1000)
                self.report(number)
            self.release()  # as the job does upon each tally
            moment = next_release(self.job, self.rule)
            if self.job.open:
                continue
            if moment is None:
                return
            assert moment > self.now
            self.now = moment
        raise AssertionError("it does not end")


@settings(max_examples=200)
@given(
    instances=st.integers(1, 2500),
    rule=st.tuples(st.integers(100, 900), st.sampled_from([1.0, 60.0])),
    steps=st.lists(
        st.tuples(
            st.sampled_from(["release", "begin", "report"]),
            st.integers(0, 2),
            st.integers(1, 400),
            st.floats(0.0, 0.7),
        ),
        max_size=60,
    ),
)
def test_no_period_has_more_starts_than_allowed_and_all_begin(
    instances: int, rule: tuple[int, float], steps: list[tuple[str, int, int, float]]
) -> None:
    count, period_s = rule
    world = World(instances, Throttle("", count, period_s))
    for what, number, some, later in steps:
        world.now += later * period_s
        number %= len(world.begun)
        if what == "release":
            world.release()
        elif what == "begin":
            world.begin(number, some)
        else:
            world.report(number)
    world.finish()
    assert len(world.starts) == instances
    assert not world.job.open and not world.job.wanting
    for at, began in enumerate(world.starts):
        assert bisect.bisect_left(world.starts, began + period_s) - at <= count
    assert len(world.job.recent) <= RECENT_MAX + 2


def test_full_speed_is_reached() -> None:
    """With prompt reports each period has exactly as many starts as it may."""
    world = World(2500, RATE)
    world.finish()
    assert world.now == pytest.approx(249.0)
