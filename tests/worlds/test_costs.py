"""What a task costs: messages, entries, bytes, frames and calls, counted in a calm cluster, pinned.

A count that rises fails: raise the pin only with a reason in the commit. Clocks differ from machine
to machine, counts do not.

The shells run as in a daemon, and the seed decides which of them has its turn and how many messages
it takes then: within a round the answers of many hosts come one after the other, where a thread
would find all of them. Each pair of shards journals once which epoch of the other it has seen: in
the life of the only job that is four entries.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NamedTuple

import pytest

from peloton.actors.job.messages import CreateJob, DeleteJob
from peloton.actors.job.stages import JobStates
from peloton.actors.resources import UNIT, Resources
from peloton.chaos.cluster.checked import CheckedCluster
from peloton.chaos.cluster.world.cluster import ClusterSetup, job_id, job_spec
from peloton.runtime.core.entities.encoding import encode
from peloton.runtime.core.shard import Shard
from peloton.runtime.core.turning.envelope import Envelope, Stamp
from peloton.runtime.simulation.daemon import SimulatedDaemon
from peloton.runtime.vocabulary import kind_of

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
    calls: float  # per task, too: a turn that is spared would make others look dearer


class Sent:
    """Counts what shards and placers send to one another; neither orders to machines nor their
    reports."""

    def __init__(self, daemon: SimulatedDaemon) -> None:
        self.count = 0
        self._send = daemon.outlet
        daemon.outlet = self._through

    def _through(self, envelopes: list[Envelope], stamp: Stamp | None) -> Iterable[Envelope]:
        for envelope in envelopes:
            sender = envelope.sender
            inside = stamp is not None or (sender is not None and kind_of(sender) != "backend")
            self.count += inside and kind_of(envelope.to) != "backend"
        return self._send(envelopes, stamp)


def furnished() -> CheckedCluster:
    """One daemon, and a hundred hosts with room."""
    setup = ClusterSetup(host_capacity=ROOMY, checked=False)
    # Of a thousand instances the hosts are drawn: how many get some differs by seed, and costs too.
    cluster = CheckedCluster(hosts=100, sizes=SIZES, setup=setup, seed=2)
    cluster.run_for(0.1)
    return cluster


def live(cluster: CheckedCluster, *, jobs: int, instances: int, pause_s: float = 0.0) -> None:
    """Jobs of so many instances each, created all at once or with pauses, to their end."""
    spec = job_spec(instances)
    for number in range(jobs):
        cluster.tell(job_id(f"j{number}"), CreateJob(spec))
        if pause_s:
            cluster.run_for(pause_s)
    cluster.run_until(lambda: len(cluster.cells("job")) == jobs and cluster.over())


def costs(jobs: int, instances: int, pause_s: float = 0.0) -> Costs:
    """What is sent and written for them, until nothing waits to be written any more."""
    cluster = furnished()
    (daemon,) = cluster.world.living()
    sent = Sent(daemon)
    positions = {frame.shard: frame.position for frame in cluster.frames()}
    bytes_before = sum(cluster.frame_sizes())
    live(cluster, jobs=jobs, instances=instances, pause_s=pause_s)
    cluster.run_for(10.0)
    tasks = jobs * instances
    frames = [each for each in cluster.frames() if each.position > positions.get(each.shard, 0)]
    entries = [entry for frame in frames for entry in frame.entries]
    return Costs(
        sent.count / tasks,
        len(entries) / tasks,
        sum(len(entry.facts) for entry in entries) / tasks,
        (sum(cluster.frame_sizes()) - bytes_before) / tasks,
        len(frames) / jobs,
    )


class Counter:
    """Calls within those runs of a shard in which there was a turn, and in the closing of their
    frames: between them the simulation asks every shard, and what that takes is nobody's cost."""

    def __init__(self) -> None:
        self.calls = 0
        self.turns = 0
        self._framed: dict[int, None] = {}  # shards with turns in their open frame
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
            if event == "call" and frame.f_code in (Shard.run.__code__, Shard.close.__code__):
                self._round, self._before = frame, (self.calls, self.turns)
        elif event == "call" or event == "c_call":
            self.calls += 1
            if frame.f_code is Shard._turn.__code__ and event == "call":
                self.turns += 1
        elif event == "return" and frame is self._round:
            shard = id(frame.f_locals["self"])
            if self.turns > self._before[1]:
                self._framed[shard] = None
            elif frame.f_code is Shard.run.__code__ or shard not in self._framed:
                self.calls = self._before[0]
            if frame.f_code is Shard.close.__code__:
                self._framed.pop(shard, None)
            self._round = None


def work(jobs: int, instances: int) -> Work:
    """What is called for them."""
    cluster = furnished()
    counter = Counter()
    with counter.counting():
        live(cluster, jobs=jobs, instances=instances)
    tasks = jobs * instances
    return Work(counter.turns / tasks, counter.calls / tasks)


@pytest.mark.parametrize(
    ("jobs", "instances", "pause_s", "pinned"),
    [
        # One message and three frames in all are of the notifier, which every daemon has.
        pytest.param(1, 1000, 0, Costs(0.05, 0.074, 0.083, 20.66, 9.0), id="a job of 1000"),
        # A byte in each copy of a config and of a policy since it may have rules of its retries.
        pytest.param(1, 1, 0, Costs(12.0, 21.0, 25.0, 2147.0, 8.0), id="a job of one"),
        pytest.param(200, 1, 0.03, Costs(12.0, 18.05, 22.05, 2087.5, 8.0), id="200 jobs of one"),
        # A byte and a half since each run knows the version of the spec that it ran by. Three since
        # a job may say after what time the failures of its instances count no more.
        pytest.param(1000, 1, 0, Costs(10.09, 15.06, 19.06, 1838.0, 0.053), id="1000 jobs at once"),
    ],
)
def test_a_task_costs_no_more_than_it_did(
    jobs: int, instances: int, pause_s: float, pinned: Costs
) -> None:
    found = costs(jobs, instances, pause_s)
    print(f"\n{jobs} x {instances}: {found}")
    for name, count, pin in zip(Costs._fields, found, pinned, strict=True):
        assert count <= pin * SLACK, f"{name} rose from {pin} to {count:.3f}"


@pytest.mark.parametrize(
    ("jobs", "instances", "pinned"),
    [
        # A turn of a host or a slice asks each step of its goal table in turn: 25 calls a task.
        pytest.param(1, 1000, Work(0.071, 41.0), id="a job of 1000"),
        pytest.param(1, 1, Work(18.0, 5250), id="a job of one"),
        pytest.param(100, 1, Work(16.02, 3625), id="100 jobs of one"),
    ],
)
def test_a_task_takes_no_more_calls_than_it_did(jobs: int, instances: int, pinned: Work) -> None:
    work(1, 1)  # what is worked out once and kept is not this life's
    found = work(jobs, instances)
    print(f"\n{jobs} x {instances}: {found}")
    for name, count, pin in zip(Work._fields, found, pinned, strict=True):
        assert count <= pin * CALLS_SLACK, f"{name} rose from {pin} to {count:.3f}"


def test_a_hundred_thousand_instances_live_and_leave() -> None:
    """Work and state are bounded by slices: 100 of them, and nothing of 100,000 pieces."""
    setup = ClusterSetup(host_capacity=ROOMY.times(10), checked=False)
    cluster = CheckedCluster(hosts=200, sizes=SIZES, setup=setup)
    began = time.perf_counter()
    job = cluster.create_job(job_spec(100_000))
    cluster.run_until(lambda: cluster.job(job).summary.state == JobStates.RUNNING, within_s=30.0)
    state = cluster.cells("job")[job]
    slices = [len(encode(slice_)) for slice_ in cluster.cells("slice").values()]
    cluster.run_until(lambda: cluster.counts(job) == {"SUCCEEDED": 100_000}, within_s=60.0)
    lived = time.perf_counter()
    cluster.run_for(30.0)
    assert not cluster.cells("slice") and not cluster.crowds(), "ended slices leave memory"
    cluster.ask(job, DeleteJob())
    cluster.run_for(30.0)
    cluster.check_gone(job)
    deleted = time.perf_counter()
    largest = max(
        sum(len(encode(fact)) for fact in entry.facts) + len(encode(entry.values))
        for frame in cluster.frames()
        for entry in frame.entries
    )
    sizes = cluster.frame_sizes()
    print(
        f"\n100,000 instances: lived {lived - began:.1f} s, deleted {deleted - lived:.1f} s, "
        f"{len(sizes)} frames of at most {max(sizes)} B, entries of at most {largest} B, "
        f"job {len(encode(state))} B, slice at most {max(slices)} B"
    )
    assert len(encode(state)) < 16_384, "the job's state grows with its slices only"
    assert max(slices) < 1024, "a slice of alike instances holds one row"
    assert largest < 128 * 1024
