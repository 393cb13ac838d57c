"""What a task costs: messages, entries and bytes, counted in a calm world and pinned.

A count that rises fails: raise the pin only with a reason in the commit. It must not measure
time: clocks differ from machine to machine, counts do not.
"""

from __future__ import annotations

import time
from typing import NamedTuple

import pytest

from peloton.actors.job.messages import CreateJob, DeleteJob, JobStates
from peloton.actors.resources import UNIT, Resources
from peloton.runtime.core.codec import encode
from tests.worlds import checks
from tests.worlds.harness import World, job_id, spec

SIZES = {"jobmgr": 8, "resmgr": 1, "hostmgr": 8}
ROOMY = Resources(100 * UNIT, 10**12, 10**12, 0)
SLACK = 1.02
"""What a pin leaves room for: how tasks fall on hosts moves a few of the counts."""


class Costs(NamedTuple):
    """Of a whole life, from creation to the last leave, per task."""

    messages: float  # envelopes between shards
    entries: float  # journaled
    facts: float
    bytes: float  # of frames


def costs(jobs: int, instances: int) -> Costs:
    """Jobs of so many instances each, all created at once, on a hundred hosts with room."""
    world = World(100, ROOMY, sizes=SIZES)
    world.check = lambda world: None
    pool = world.make_pool()
    carried = world.network.carried
    first = {shard: len(disk.frames) for shard, disk in world.disks.items()}
    for number in range(jobs):
        world.tell(job_id(f"j{number}"), CreateJob(spec(pool, instances)))
    world.run_until(lambda: len(world.cells("job")) == jobs and checks.over(world))
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
    )


@pytest.mark.parametrize(
    ("jobs", "instances", "pinned"),
    [
        pytest.param(1, 1000, Costs(0.031, 0.055, 0.059, 18.13), id="a job of 1000"),
        pytest.param(1000, 1, Costs(11.0, 17.02, 21.02, 1800.3), id="1000 jobs of one"),
    ],
)
def test_a_task_costs_no_more_than_it_did(jobs: int, instances: int, pinned: Costs) -> None:
    found = costs(jobs, instances)
    print(f"\n{jobs} x {instances}: {found}")
    for name, count, pin in zip(Costs._fields, found, pinned, strict=True):
        assert count <= pin * SLACK, f"{name} per task rose from {pin} to {count:.3f}"


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
