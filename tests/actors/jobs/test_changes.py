"""Commands that change a job after its creation: what its slices are told, in any order.

A slice is a set of members that wait, are active or have ended, and obeys each goal that reaches
it. Messages between job and slices are lost, late and repeated.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peloton.actors.job import messages as m
from peloton.actors.job.decide import PIECES_TIMEOUT_S
from peloton.actors.job.grants import Use
from peloton.actors.job.kind import KIND
from peloton.actors.job.messages import InstancesOrdered, JobUpdated
from peloton.actors.job.orders import goals_of
from peloton.actors.job.slice.messages import SetSliceGoal, SliceOpen, SliceTally, Tally
from peloton.actors.job.slice.task_config import Command, Override, TaskConfig
from peloton.actors.job.spec import JobSpec
from peloton.actors.job.stages import JobGoals, JobStates
from peloton.actors.job.state import Job
from peloton.actors.resources import Resources
from peloton.actors.task.messages import TaskGoals
from peloton.runtime.core.turning.turn import TurnOutcome, take_turn
from peloton.runtime.vocabulary import At, Bits, Due, Key, Message, Refused, Send

JOB = Key("job/" + "0" * 36)
DEFAULT = TaskConfig(resources=Resources(1, 1), command=Command("true"))
AT = At(now=5.0, key=JOB)


def receive(job: Job | None, message: Message, who: str = "ann") -> TurnOutcome:
    return take_turn(KIND, job, message=message, at=msgspec.structs.replace(AT, who=who))


def spec(instances: int, most: int = 0) -> JobSpec:
    return JobSpec("j", "me", Key("respool/p"), instances, DEFAULT, maximum_running=most)


def made(instances: int, most: int = 0) -> Job:
    job: Job = receive(None, m.CreateJob(spec(instances, most))).state
    return job


def told(sends: Sequence[Send]) -> dict[int, SetSliceGoal]:
    messages = [send.message for send in sends]
    return {each.number: each for each in messages if isinstance(each, SetSliceGoal)}


def tallied(job: Job, number: int, goal: int = 0, **counts: int) -> Job:
    report = job.reports.get(number)
    version = report.version + 1 if report is not None else 1
    tally = Tally(tuple(sorted(counts.items())))
    found: Job = receive(job, SliceTally(version, number, tally, goal)).state
    return found


def test_a_stopped_job_that_starts_in_part_stays_stopped_elsewhere() -> None:
    job = receive(made(1500), m.StopJob()).state
    turn = receive(job, m.StartInstances(((998, 1002),)))
    assert turn.reply == InstancesOrdered(((998, 1002),))
    assert turn.state.goal == JobGoals.SUCCEEDED and turn.state.state == JobStates.PENDING
    goals = told(turn.sends)
    assert {goals[0].goal, goals[1].goal} == {TaskGoals.SUCCEEDED}
    assert goals[0].stopped == Bits.span(0, 998) and goals[1].stopped == Bits.span(2, 500)
    assert goals[0].restarts == ((3, Bits.of(998, 999)),)
    assert goals[1].restarts == ((3, Bits.of(0, 1)),)


def test_orders_of_one_member_are_disjoint_and_leave_when_confirmed() -> None:
    job = receive(made(5), m.StartInstances(((0, 3),), again=True)).state
    turn = receive(job, m.StartInstances(((2, 4),), again=True))
    assert told(turn.sends)[0].restarts == ((2, Bits.of(0, 1)), (3, Bits.of(2, 3)))
    assert receive(turn.state, SliceOpen(0, 2)).state.restarts, "the first order alone is confirmed"
    assert not receive(turn.state, SliceOpen(0, 3)).state.restarts


def test_a_tally_of_before_the_restart_does_not_end_the_job() -> None:
    job = tallied(made(1001), 0, SUCCEEDED=1000)
    job = tallied(job, 1, SUCCEEDED=1)
    assert job.state == JobStates.SUCCEEDED and job.completed_at
    job = receive(job, m.StartInstances(((0, 1),), again=True)).state
    assert job.state == JobStates.PENDING and not job.completed_at
    assert tallied(job, 1, FAILED=1).state == JobStates.PENDING
    late = tallied(job, 0, 1, FAILED=1, SUCCEEDED=999)
    assert late.state == JobStates.PENDING, "made under an older goal"
    assert tallied(job, 0, 2, SUCCEEDED=1000).state == JobStates.SUCCEEDED


def test_a_slice_in_which_nothing_changed_ends_the_job_by_its_confirmation() -> None:
    """The restart was overtaken by a stop: no task changes, so no tally comes by itself."""
    job = tallied(made(2), 0, SUCCEEDED=2)
    job = receive(job, m.StartInstances(again=True)).state
    job = receive(job, m.StopJob()).state
    assert job.state == JobStates.KILLING and told(goals_of(job, Bits.of(0)))[0].tallied
    job = receive(job, SliceOpen(0, 3, Tally((("SUCCEEDED", 2),)))).state
    assert job.state == JobStates.SUCCEEDED and job.confirmed == Bits.of(0)


def test_a_tally_counts_though_another_slice_has_got_a_newer_goal_meanwhile() -> None:
    """What the end of one slice frees is granted to another; the third has just confirmed."""
    job = receive(made(2100, 2), m.StopJob(((0, 1), (1000, 1001), (2000, 2001)))).state
    ordered = job.version
    job = receive(job, SliceOpen(0, ordered, Tally((("KILLED", 1000),), active=0))).state
    assert job.version > ordered and dict(job.grants) == {0: 2, 1: 2} and 2 in job.awaited
    tally = Tally((("INITIALIZED", 99), ("KILLED", 1)), active=0)
    job = receive(job, SliceOpen(2, ordered, tally)).state
    assert 2 not in job.awaited and job.uses[2] == Use(0, 99)
    assert 2 not in job.confirmed, "it may not hold the newest goal"


@given(st.lists(st.tuples(st.integers(0, 2600), st.integers(1, 1300)), min_size=1, max_size=8))
def test_what_is_started_is_named_by_the_fewest_ranges(some: list[tuple[int, int]]) -> None:
    ranges = tuple((start, start + count) for start, count in some)
    reply = receive(made(2500), m.StartInstances(ranges, again=True)).reply
    expected = sorted({one for start, stop in ranges for one in range(start, min(stop, 2500))})
    assert [one for start, stop in reply.ranges for one in range(start, stop)] == expected
    assert all(stop < start for (_, stop), (start, _) in itertools.pairwise(reply.ranges))


def test_who_was_stopped_is_not_restarted() -> None:
    job = receive(made(1500), m.StopJob(((1, 1400),))).state
    turn = receive(job, m.StartInstances(again=True))
    assert turn.reply == InstancesOrdered(((0, 1), (1400, 1500)))
    assert turn.state.stopped == job.stopped
    assert receive(job, m.StartInstances(((1, 7),), again=True)).reply == InstancesOrdered(())
    stopped = receive(job, m.StopJob()).state
    assert receive(stopped, m.StartInstances(again=True)).reply == InstancesOrdered(())


def test_who_was_not_stopped_is_not_started() -> None:
    assert receive(made(3), m.StartInstances()).reply == InstancesOrdered(())
    over = tallied(made(3), 0, FAILED=3)
    refused = receive(over, m.StartInstances()).reply
    assert isinstance(refused, Refused) and refused.code == "TERMINATED"


def test_a_tally_under_an_older_goal_is_dropped_and_a_later_one_is_not() -> None:
    """Dropped, it would not come again: the runtime has seen it."""
    job = tallied(made(3), 0, 1, RUNNING=3)
    ended = SliceTally(9, 0, Tally((("SUCCEEDED", 3),)), 1)
    turn = take_turn(KIND, job, message=ended, at=AT)
    assert turn.state.state == JobStates.SUCCEEDED
    older = SliceTally(9, 0, Tally((("SUCCEEDED", 3),)), 0)
    assert not take_turn(KIND, job, message=older, at=AT).facts


def test_the_last_slice_grows_and_new_ones_open() -> None:
    own = Override(1200, TaskConfig(command=Command("own"), resources=Resources(1, 1)))
    turn = receive(made(1001), m.UpdateJob(spec(2500), ((1, (own,)),)))
    assert turn.reply == JobUpdated(1499, 2)
    goals = told(turn.sends)
    assert {k: goal.opening.count for k, goal in goals.items() if goal.opening} == {
        0: 1000, 1: 1000, 2: 500,
    }  # fmt: skip
    assert goals[1].opening is not None and goals[1].opening.overrides == (own,)
    assert goals[1].opening.config_version == 2


def test_pieces_of_an_update_are_of_one_client_and_not_kept_for_ever() -> None:
    own = Override(3, TaskConfig(command=Command("own"), resources=Resources(1, 1)))
    job = receive(made(3), m.AddChange(0, (own,))).state
    assert KIND.deadline(job) == ("pieces", PIECES_TIMEOUT_S)
    assert receive(job, m.AddChange(0, (own,)), "bob").reply.code == "BUSY"
    assert not receive(job, Due("pieces")).state.pieces
    lost = receive(job, m.UpdateJob(spec(4), pieces=2))
    assert lost.reply.code == "INCOMPLETE" and lost.reply.again
    done = receive(job, m.UpdateJob(spec(4), pieces=1))
    assert done.reply == JobUpdated(1, 2) and not done.state.pieces
    assert told(done.sends)[0].opening.overrides == (own,)  # type: ignore[union-attr]


@pytest.mark.parametrize("most", [1, 7, 0])
def test_a_limit_is_imposed_upon_a_job_without_one(most: int) -> None:
    job = tallied(made(1500), 0, RUNNING=1000)
    job = receive(job, m.UpdateJob(spec(1500, most))).state
    goals = told(goals_of(job, Bits.of(0, 1)))
    assert all((goal.grant is None) is (most == 0) for goal in goals.values())
    assert not most or sum(job.grants.values()) == 0, "all may be active: nothing is free"


# ---- the limit, under any order of messages ----


class FakeSlice:
    """A slice of a job with a limit: it obeys the newest goal that reached it."""

    def __init__(self, number: int) -> None:
        self.number, self.goal = number, SetSliceGoal(0, JOB, number, TaskGoals.SUCCEEDED)
        self.waiting = self.active = self.ended = self.reports = 0

    def take(self, goal: SetSliceGoal) -> SliceOpen:
        if goal.version > self.goal.version:
            assert goal.opening is not None
            self.waiting += goal.opening.count - (self.waiting + self.active + self.ended)
            for version, members in goal.restarts:
                if version > self.goal.version:
                    # The worst case: as many as possible had ended.
                    again = min(len(members), self.ended)
                    self.ended, self.waiting = self.ended - again, self.waiting + again
            self.goal = goal
        self.begin()
        return SliceOpen(self.number, self.goal.version, self.tally() if goal.tallied else None)

    def begin(self) -> None:
        some = max(min((self.goal.grant or 0) - self.active, self.waiting), 0)
        self.active, self.waiting = self.active + some, self.waiting - some

    def end(self, count: int) -> None:
        count = min(count, self.active)
        self.active, self.ended = self.active - count, self.ended + count
        self.begin()

    def tally(self) -> Tally:
        counts = {"INITIALIZED": self.waiting, "RUNNING": self.active, "SUCCEEDED": self.ended}
        return Tally(tuple(sorted((k, v) for k, v in counts.items() if v)), active=self.active)

    def report(self) -> SliceTally:
        self.reports += 1
        return SliceTally(self.reports, self.number, self.tally(), self.goal.version)


OTHERS = ("goal", "goal", "late", "restart", "grow", "lower")
STEPS = st.lists(
    st.tuples(
        st.sampled_from(("end", "end", "report", *OTHERS)),
        st.integers(0, 2), st.integers(1, 1000),
    ),
    max_size=60,
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(most=st.integers(1, 40), steps=STEPS)
def test_never_more_are_active_than_the_limit(most: int, steps: list[Any]) -> None:
    instances, limit = 2100, most
    job, slices = made(instances, most), [FakeSlice(0), FakeSlice(1), FakeSlice(2)]
    late: list[Any] = []  # to the job, not arrived yet
    for what, number, count in steps:
        one = slices[number]
        if what == "end":
            one.end(count)
        elif what == "report" and one.goal.version:  # before that there is no slice
            late.append(one.report())
        elif what == "goal":
            # Whatever goals were sent before are lost or overtaken: this is the newest.
            late += [one.take(goal) for goal in _owed(job) if goal.number == number]
        elif what == "late" and late:
            job = receive(job, late.pop(count % len(late))).state
        elif what == "restart":
            start = number * 1000
            job = receive(job, m.StartInstances(((start, start + count),), again=True)).state
        elif what == "grow" and instances < 2900:
            instances += 1 + count // 20
            job = receive(job, m.UpdateJob(spec(instances, limit))).state
        elif what == "lower":
            limit = max(limit - 1, 1)
            most_active = sum(each.active for each in slices)
            job = receive(job, m.UpdateJob(spec(instances, limit))).state
            most = max(limit, most_active, most)
        assert sum(each.active for each in slices) <= most


def _owed(job: Job) -> list[SetSliceGoal]:
    return [s.message for s in KIND.owed(job) if isinstance(s.message, SetSliceGoal)]


@settings(max_examples=60, deadline=None)
@given(most=st.integers(1, 40), steps=STEPS)
def test_and_in_the_end_as_many_as_may(most: int, steps: list[Any]) -> None:
    job, slices = made(2100, most), [FakeSlice(0), FakeSlice(1), FakeSlice(2)]
    for what, number, count in steps:
        if what == "end":
            slices[number].end(count)
        elif what == "restart":
            start = number * 1000
            job = receive(job, m.StartInstances(((start, start + count),), again=True)).state
        elif what == "goal":
            for goal in _owed(job):
                job = receive(job, slices[goal.number].take(goal)).state
    for _ in range(8):
        for goal in _owed(job):
            job = receive(job, slices[goal.number].take(goal)).state
        for one in slices:
            job = receive(job, one.report()).state
    unended = sum(each.active + each.waiting for each in slices)
    assert sum(each.active for each in slices) == min(most, unended)
