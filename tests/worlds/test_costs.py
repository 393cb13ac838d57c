"""What a task costs: messages, entries, bytes, frames and calls, counted in a calm world, pinned.

A count that rises fails: raise the pin only with a reason in the commit. It must not measure
time: clocks differ from machine to machine, counts do not.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NamedTuple

import pytest

from peloton.actors.job.messages import CreateJob, DeleteJob, JobStates
from peloton.actors.resources import UNIT, Resources
from peloton.runtime.core.codec import encode
from peloton.runtime.core.shard import Shard
from peloton.runtime.vocabulary import Key
from tests.worlds import checks
from tests.worlds.harness import World, job_id, spec

SIZES = {"jobmgr": 8, "resmgr": 1, "hostmgr": 8}
ROOMY = Resources(100 * UNIT, 10**12, 10**12, 0)
SLACK = 1.02
"""What a pin leaves room for: how tasks fall on hosts moves a few of the counts."""
CALLS_SLACK = 1.05
"""Likewise, and the releases of Python differ in what they call."""


class Costs(NamedTuple):
    """Of a whole life, from creation to the last leave, per task; frames per job."""

    messages: float  # envelopes between shards
    entries: float  # journaled
    facts: float
    bytes: float  # of frames
    frames: float  # per job: each is one commit, unless it shares a round with others


class Work(NamedTuple):
    """What the shards do for it. Calls are of functions, Python's own and built-in ones: a measure
    of CPU time that does not depend on the machine, though a little on the release of Python."""

    turns: float  # per task
    calls: float  # per turn


def furnished() -> tuple[World, Key]:
    """A hundred hosts with room, and a pool."""
    world = World(100, ROOMY, sizes=SIZES)
    world.check = lambda world: None
    return world, world.make_pool()


def live(world: World, pool: Key, *, jobs: int, instances: int) -> None:
    """Jobs of so many instances each, all created at once, to their end."""
    for number in range(jobs):
        world.tell(job_id(f"j{number}"), CreateJob(spec(pool, instances)))
    world.run_until(lambda: len(world.cells("job")) == jobs and checks.over(world))


def costs(jobs: int, instances: int) -> Costs:
    """What is carried and written for them."""
    world, pool = furnished()
    carried = world.network.carried
    first = {shard: len(disk.frames) for shard, disk in world.disks.items()}
    live(world, pool, jobs=jobs, instances=instances)
    tasks = jobs * instances
    bodies = [
        frame.body for shard, disk in world.disks.items() for frame in disk.frames[first[shard] :]
    ]
    entries = [entry for body in bodies for entry in world.codec.decode_frame(body)[1]]
    return Costs(
        (world.network.carried - carried) / tasks,
        len(entries) / tasks,
        sum(len(entry.facts) for entry in entries) / tasks,
        sum(len(body) for body in bodies) / tasks,
        len(bodies) / jobs,
    )


class Counter:
    """Calls within those rounds of a shard (`Shard.ready`) in which there was a turn: between two
    of them the simulation asks every shard, and what that takes is nobody's cost."""

    def __init__(self) -> None:
        self.calls = 0
        self.turns = 0
        self._round: FrameType | None = None
        self._before = (0, 0)

    @contextmanager
    def counting(self) -> Iterator[None]:
        before = sys.getprofile()
        sys.setprofile(self._note)
        try:
            yield
        finally:
            sys.setprofile(before)

    def _note(self, frame: FrameType, event: str, of: object) -> None:
        if self._round is None:
            if event == "call" and frame.f_code is Shard.ready.__code__:
                self._round, self._before = frame, (self.calls, self.turns)
        elif event == "call" or event == "c_call":
            self.calls += 1
            if frame.f_code is Shard._turn.__code__ and event == "call":
                self.turns += 1
        elif event == "return" and frame is self._round:
            if self.turns == self._before[1]:
                self.calls = self._before[0]
            self._round = None


def work(jobs: int, instances: int) -> Work:
    """What is called for them."""
    world, pool = furnished()
    counter = Counter()
    with counter.counting():
        live(world, pool, jobs=jobs, instances=instances)
    return Work(counter.turns / (jobs * instances), counter.calls / counter.turns)


@pytest.mark.parametrize(
    ("jobs", "instances", "pinned"),
    [
        pytest.param(1, 1000, Costs(0.031, 0.055, 0.059, 18.13, 15.0), id="a job of 1000"),
        pytest.param(1, 1, Costs(13.0, 19.0, 23.0, 2076.0, 15.0), id="a job of one"),
        pytest.param(1000, 1, Costs(11.0, 17.02, 21.02, 1800.3, 0.078), id="1000 jobs of one"),
    ],
)
def test_a_task_costs_no_more_than_it_did(jobs: int, instances: int, pinned: Costs) -> None:
    found = costs(jobs, instances)
    print(f"\n{jobs} x {instances}: {found}")
    for name, count, pin in zip(Costs._fields, found, pinned, strict=True):
        assert count <= pin * SLACK, f"{name} rose from {pin} to {count:.3f}"


@pytest.mark.parametrize(
    ("jobs", "instances", "pinned"),
    [
        pytest.param(1, 1000, Work(0.059, 1069), id="a job of 1000"),
        pytest.param(1, 1, Work(23.0, 245), id="a job of one"),
        pytest.param(100, 1, Work(20.03, 203), id="100 jobs of one"),
    ],
)
def test_a_turn_costs_no_more_calls_than_it_did(jobs: int, instances: int, pinned: Work) -> None:
    work(1, 1)  # what is worked out once and kept is not this life's
    found = work(jobs, instances)
    print(f"\n{jobs} x {instances}: {found}")
    for name, count, pin in zip(Work._fields, found, pinned, strict=True):
        assert count <= pin * CALLS_SLACK, f"{name} rose from {pin} to {count:.3f}"


def test_a_hundred_thousand_instances_live_and_leave() -> None:
    """Work and state are bounded by slices: 100 of them, and nothing of 100,000 pieces."""
    world = World(200, ROOMY.times(10), sizes=SIZES)
    largest = {"frame": 0, "entry": 0}
    world.check = lambda world: None
    pool = world.make_pool()
    began = time.perf_counter()
    job = world.create(spec(pool, 100_000))
    world.run_until(lambda: world.job(job).summary.state == JobStates.RUNNING, within_s=30.0)
    state = world.cells("job")[job]
    slices = [len(encode(slice_)) for slice_ in world.cells("slice").values()]
    world.run_until(
        lambda: world.job(job).summary.counts == (("SUCCEEDED", 100_000),), within_s=60.0
    )
    lived = time.perf_counter()
    world.run_for(30.0)
    assert not world.cells("slice") and not world.crowds(), "ended slices leave memory"
    world.ask(job, DeleteJob())
    world.run_for(30.0)
    checks.nothing_is_left(world, job)
    deleted = time.perf_counter()
    for disk in world.disks.values():
        for frame in disk.frames:
            largest["frame"] = max(largest["frame"], len(frame.body))
            for entry in world.codec.decode_frame(frame.body)[1]:
                size = sum(len(encode(fact)) for fact in entry.facts) + len(encode(entry.values))
                largest["entry"] = max(largest["entry"], size)
    frames = sum(len(disk.frames) for disk in world.disks.values())
    print(
        f"\n100,000 instances: lived {lived - began:.1f} s, deleted {deleted - lived:.1f} s, "
        f"{frames} frames, {world.network.carried} messages, largest {largest}, "
        f"job {len(encode(state))} B, slice at most {max(slices)} B"
    )
    assert len(encode(state)) < 16_384, "the job's state grows with its slices only"
    assert max(slices) < 1024, "a slice of alike instances holds one row"
    assert largest["entry"] < 128 * 1024
