"""How slices share what may be down at once: histories with late, lost and repeated messages.

The job is the real one; slices are as simple as they can be, and take somebody down whenever they
may.
"""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peloton.actors.job.budget import bounds_of, budget_of
from peloton.actors.job.kind import KIND
from peloton.actors.job.messages import CreateJob
from peloton.actors.job.slice.messages import SetSliceGoal, SliceOpen, SliceTally, Tally
from peloton.actors.job.slice.rollout_messages import DownBudget, DownTally, SpareAsked
from peloton.actors.job.slice.task_config import Command, TaskConfig
from peloton.actors.job.spec import JobSpec
from peloton.actors.job.state import Job
from peloton.actors.job.workflow.messages import ReplaceJob
from peloton.actors.resources import Resources
from peloton.runtime.core.turning.turn import take_turn
from peloton.runtime.vocabulary import At, Bits, Key, Message

JOB, SLICES = Key("job/j"), 3
DEFAULT = TaskConfig(resources=Resources(1), command=Command("x"))


def service(bound: int, instances: int = SLICES * 1000) -> JobSpec:
    return JobSpec(
        "s", "me", Key("respool/p"), instances, DEFAULT,
        job_type="SERVICE", maximum_unavailable=bound,
    )  # fmt: skip


class Member:
    """A slice: what it was told, and how many are down for what was wanted, or by themselves."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.version, self.budget = 0, DownBudget(0, 1)
        self.taken = self.failed = self.wanted = self.asks = 0
        self.reports = 0

    @property
    def tally(self) -> Tally:
        down = self.taken + self.failed
        return Tally((("RUNNING", 1000 - down),), down=DownTally(down, self.wanted))

    def take(self) -> None:
        while self.wanted and self.taken + self.failed < self.budget.allowance:
            self.taken, self.wanted = self.taken + 1, self.wanted - 1


class World:
    """A job and its slices; messages wait until they are delivered, in any order, any number of
    times."""

    def __init__(self, bound: int) -> None:
        self.bound = bound
        self.job: Job = None  # type: ignore[assignment]
        self.members = [Member(number) for number in range(SLICES)]
        self.to_slices: list[SetSliceGoal] = []
        self.to_job: list[Message] = []
        self.tell(CreateJob(service(bound)))

    def tell(self, message: Message) -> None:
        at = At(now=1.0, key=JOB)
        turn = take_turn(KIND, self.job, message=message, at=at)
        self.job = turn.state
        self.to_slices += [s.message for s in turn.sends if isinstance(s.message, SetSliceGoal)]

    def deliver(self, goal: SetSliceGoal) -> None:
        member = self.members[goal.number]
        if goal.version > member.version:
            member.version = goal.version
            assert goal.budget is not None
            member.budget = goal.budget
        counted = member.tally if goal.tallied else None
        self.to_job.append(SliceOpen(member.number, member.version, counted))
        member.take()

    def report(self, member: Member) -> None:
        member.reports += 1
        tally = SliceTally(member.reports, member.number, member.tally, member.version)
        self.to_job.append(tally)

    def ask(self, member: Member) -> None:
        self.to_job.append(SpareAsked(member.number, member.asks))

    def check(self) -> None:
        taken = sum(member.taken for member in self.members)
        assert taken <= self.bound, [vars(member) for member in self.members]


STEPS = st.tuples(
    st.sampled_from(
        ["want", "fail", "back", "mended", "report", "ask", "goal", "mail", "goal", "mail"]
    ),
    st.integers(0, SLICES - 1),
    st.integers(0, 1000),
)


@settings(max_examples=150, deadline=None)
@given(st.integers(1, 4), st.lists(STEPS, max_size=60))
def test_what_is_taken_down_is_never_more_than_may_be(
    bound: int, steps: list[tuple[str, int, int]]
) -> None:
    world = World(bound)
    for step, number, which in steps:
        play(world, step, world.members[number], which=which)
        world.check()
    settle(world)


def play(world: World, step: str, member: Member, *, which: int) -> None:
    if step == "want":
        member.wanted, member.asks = member.wanted + 1, member.asks + 1
        member.take()
    elif step == "fail":
        member.failed += 1
    elif step == "mended":
        member.failed = max(member.failed - 1, 0)
        member.take()
    elif step == "back":
        member.taken = max(member.taken - 1, 0)
        member.take()
    elif step == "report":
        world.report(member)
    elif step == "ask":
        world.ask(member)
    elif step == "goal" and world.to_slices:  # any one that was ever sent
        world.deliver(world.to_slices[which % len(world.to_slices)])
    elif step == "mail" and world.to_job:
        world.tell(world.to_job[which % len(world.to_job)])


def settle(world: World) -> None:
    """All that is owed arrives: then each gets what it wants, and nobody keeps an allowance."""
    for _ in range(400):
        for member in world.members:
            member.failed = 0
            member.taken = max(member.taken - 1, 0)
            member.take()
            world.check()
            if member.asks > member.budget.heard:
                world.ask(member)
            world.report(member)
        mail, world.to_job = world.to_job, []
        for message in mail:
            world.tell(message)
        goals = [send.message for send in KIND.owed(world.job)]
        for goal in goals:
            assert isinstance(goal, SetSliceGoal)
            world.deliver(goal)
            world.check()
        if not any(m.wanted or m.taken for m in world.members) and not goals and not world.to_job:
            break
    assert not any(member.wanted for member in world.members)
    assert not any(share.allowance for share in world.job.shares.values())


@pytest.mark.parametrize(
    ("instances", "bound", "expected"),
    [(10, 3, DownBudget(3)), (10, 0, None), (2500, 3, DownBudget(0, 3)), (2500, 0, None)],
)
def test_one_slice_has_all_and_several_begin_with_nothing(
    instances: int, bound: int, expected: DownBudget | None
) -> None:
    at = At(now=1.0, key=JOB)
    job = take_turn(KIND, None, message=CreateJob(service(bound, instances)), at=at).state
    assert budget_of(job, 0) == expected


def test_a_batch_job_has_no_budget() -> None:
    spec = msgspec.structs.replace(service(3, 10), job_type="BATCH")
    at = At(now=1.0, key=JOB)
    assert budget_of(take_turn(KIND, None, message=CreateJob(spec), at=at).state, 0) is None


def test_those_who_want_some_get_even_parts() -> None:
    world = World(4)
    for number, wanted in ((0, 9), (1, 1), (2, 9)):
        world.members[number].wanted = wanted
        world.report(world.members[number])
    for message in world.to_job:
        world.tell(message)
    assert sum(bounds_of(world.job).values()) == 4
    settle(world)


def test_what_slices_may_have_taken_under_another_bound_is_not_given_again() -> None:
    """Without a bound any number was down; with one, nobody is given any before that is told."""
    world = World(0)
    for goal in world.to_slices[:SLICES]:
        world.members[goal.number].version = goal.version
    world.bound = 2
    world.tell(ReplaceJob(service(2)))
    assert bounds_of(world.job) == dict.fromkeys(range(SLICES), 1000)
    world.members[1].wanted = 5
    world.report(world.members[1])
    for message in world.to_job:
        world.tell(message)
    assert not any(share.allowance for share in world.job.shares.values())
    world.to_job.clear()
    world.members[0].failed = 1
    newest = {goal.number: goal for goal in world.to_slices}
    assert {*newest} == {*range(SLICES)} and all(goal.tallied for goal in newest.values())
    for goal in newest.values():
        world.deliver(goal)
    for message in world.to_job:
        world.tell(message)
    assert world.job.shares[1].allowance == 1, "one has failed elsewhere"
    assert Bits.of(1) & (Bits.span(0, SLICES) - world.job.confirmed)
