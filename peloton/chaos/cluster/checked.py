"""A simulated cluster for tests: checked after every step, with calls that wait for their answers.

Turns a few arguments into a cluster that is ready, and calls of a test into actions of clients,
operators and faults. Everything is in virtual time, on the caller's thread. `ClusterChecks` judges
the cluster; the rest is asserted by the test.

    cluster = CheckedCluster(hosts=3, setup=ClusterSetup(fates=lambda run: Fate(2.0)))
    job = cluster.create_job(job_spec(10))
    cluster.run_until(cluster.over, within_s=60)
    assert cluster.job(job).summary.state == JobStates.SUCCEEDED
    cluster.check_quiet()

Faults: `drop_shard`, `kill`, `cut` and `mend`; and those of the parts of a cluster, as
`cluster.world.network.faults`, `cluster.world.sends.faults` or `cluster.backend.faults`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from peloton.actors.job.messages import (
    CreateJob,
    DeleteJob,
    GetJob,
    JobView,
    StartInstances,
    StartJob,
    StopJob,
    UpdateJob,
)
from peloton.actors.job.slice.messages import InstanceView, ListInstances, slice_key, slices_of
from peloton.actors.job.slice.task_config import Override
from peloton.actors.job.spec import JobSpec
from peloton.actors.resources import Resources
from peloton.actors.respool.messages import ROOT, CreatePool, PoolConfig, pool_key
from peloton.actors.task.messages import SLICE_SIZE
from peloton.chaos.cluster.checks import ClusterChecks, nothing_is_left, outcomes_are_true
from peloton.chaos.cluster.world.cluster import ClusterSetup, SimulatedCluster, job_id
from peloton.chaos.cluster.world.furnished import SIZES
from peloton.chaos.cluster.world.history import Operation
from peloton.runtime.core.turning.envelope import Envelope
from peloton.runtime.simulation.checkers import DecodedFrame
from peloton.runtime.simulation.scan import Scan
from peloton.runtime.simulation.stepper import BEGIN_S
from peloton.runtime.simulation.world import NotReached
from peloton.runtime.vocabulary import Key, Message, Query, members_of

READY_S_MAX = 120.0
ANSWER_S_MAX = 60.0
INSTANT_STEPS_MAX = 1_000_000
LINES_SHOWN = 60
CLIENT = "c1"


class CheckedCluster(SimulatedCluster):
    """A cluster that is ready, with its checks. Its pool is `STORM_POOL`, as large as all hosts.

    `ClusterSetup(checked=False)` leaves the checks out, for tests that count, and for large jobs.
    """

    def __init__(
        self,
        *,
        seed: int = 0,
        daemons: int = 1,
        hosts: int = 3,
        sizes: Mapping[str, int] = SIZES,
        setup: ClusterSetup = ClusterSetup(),  # noqa: B008
    ) -> None:
        super().__init__(seed=seed, daemons=daemons, hosts=hosts, sizes=sizes, setup=setup)
        self.checks = ClusterChecks(self) if setup.checked else None
        if self.checks is not None:
            self._scan = self.checks.core.scan
        else:
            self._scan = Scan(self.world.store)
            self.world.checks.append(self._scan.poll)
        self.run_until(self.ready, within_s=READY_S_MAX)

    # ---- clients ----

    def tell(self, to: Key, message: Message) -> None:
        """Send a message from outside, once; nobody answers."""
        self.world.living()[0].region.tell((Envelope(to, message),))

    def order(self, to: Key, message: Message | Query, *, keyed: bool = True) -> Operation:
        """Send a command or a query until it is answered, whatever happens meanwhile.

        Creations, stops and deletions of jobs enter the history that the checks judge. A command
        has a request key unless `keyed` is false.
        """
        clients = self.clients
        if isinstance(message, CreateJob):
            return clients.create(CLIENT, to, message=message)
        if isinstance(message, DeleteJob):
            return clients.delete(CLIENT, to, force=message.force, expected=message.expected)
        if isinstance(message, StopJob) and not message.ranges:
            return clients.stop(CLIENT, to, expected=message.expected)
        if isinstance(message, StopJob):
            return clients.stop_some(CLIENT, to, ranges=message.ranges)
        if isinstance(message, StartInstances | StartJob | UpdateJob):
            return clients.change(CLIENT, to, message=message)
        return clients.command(CLIENT, to, message=message, keyed=keyed)

    def ask(self, to: Key, message: Message | Query, *, keyed: bool = True) -> Any:
        """Like `order`, and wait for the answer."""
        operation = self.order(to, message, keyed=keyed)
        self.run_until(lambda: operation.known, within_s=ANSWER_S_MAX)
        return operation.answer

    def make_pool(self, name: str, limit: Resources) -> Key:
        """Create a pool below the root."""
        pool = pool_key(name)
        answer = self.ask(pool, CreatePool(PoolConfig(name, ROOT, Resources(), limit)))
        assert getattr(answer, "pool", None) == pool, answer
        return pool

    def create_job(
        self, spec: JobSpec, name: str = "j", *, overrides: tuple[Override, ...] = ()
    ) -> Key:
        """Create a job, and wait until that is acknowledged; return its key."""
        by_slice: dict[int, list[Override]] = {}
        for override in overrides:
            by_slice.setdefault(override.instance // SLICE_SIZE, []).append(override)
        pieces = tuple((number, tuple(some)) for number, some in by_slice.items())
        job = job_id(name)
        answer = self.ask(job, CreateJob(spec, pieces))
        assert getattr(answer, "job", None) == job, answer
        return job

    def job(self, job: Key) -> JobView:
        """Return the job as clients see it; `Absent` if there is none."""
        view: JobView = self.ask(job, GetJob())
        return view

    def counts(self, job: Key) -> dict[str, int]:
        """Return how many instances of a job are in which state."""
        return dict(self.job(job).summary.counts)

    def instances(self, job: Key, count: int) -> list[InstanceView]:
        """Return the first instances of a job as clients see them."""
        found: list[InstanceView] = []
        for number in range(slices_of(count)):
            part = self.ask(slice_key(job.partition("/")[2], number), ListInstances(0, count))
            found += part if isinstance(part, tuple) else ()
        return found

    # ---- the journal ----

    def frames(self) -> list[DecodedFrame]:
        """Return all frames that were ever committed, of one shard after the other."""
        decode = self.world.codec.decode_frame
        return [
            DecodedFrame(shard, frame.position, *decode(frame.body))
            for shard, frames in self._scan.frames.items()
            for frame in frames
        ]

    def frame_sizes(self) -> list[int]:
        """Return the bytes of each of these frames."""
        return [len(frame.body) for frames in self._scan.frames.values() for frame in frames]

    def written(self, fact: type) -> int:
        """Return how many facts of a class were ever committed."""
        entries = [entry for frame in self.frames() for entry in frame.entries]
        return sum(isinstance(each, fact) for entry in entries for each in entry.facts)

    # ---- time ----

    def run_until(self, reached: Callable[[], bool], *, within_s: float = 600.0) -> float:
        """Run until the condition holds; return the virtual seconds that took. Raises `NotReached`.

        The condition is evaluated when everything has been done that can be done at an instant, so
        it may ask: otherwise its own questions would keep time from passing.
        """
        world = self.world
        begun_s = world.now
        end_s = begun_s + within_s
        world.later.at(end_s, lambda: None)
        while not reached():
            if world.now >= end_s:
                text = f"not reached within {within_s:g} s, at {world.elapsed_s:.1f} s"
                raise NotReached(f"{text}\n{self.story()}")
            self._instant()
        return world.now - begun_s

    def _instant(self) -> None:
        """Go on to the next instant at which anything happens, with all that happens then."""
        world = self.world
        world.step()
        for _ in range(INSTANT_STEPS_MAX):
            if world.stepper.idle:
                return
            world.step()
        raise NotReached(f"no rest at {world.elapsed_s:.1f} s: something loops\n{self.story()}")

    def story(self) -> str:
        """Return what all actors did last, for the message of a failing test."""
        cores = self.world.shards().values()
        lines = [line for core in cores for line in core.turns.story._lines]
        return "\n".join(
            f"{line.at - BEGIN_S:.3f} {line.key} {members_of(line.members)[:8]} {line.cause} "
            f"{[type(fact).__name__ for fact in line.facts]} {line.because}"
            for line in sorted(lines, key=lambda line: line.at)[-LINES_SHOWN:]
        )

    def run_for(self, seconds: float) -> None:
        """Let so many virtual seconds pass."""
        self.world.run_for(seconds)

    # ---- faults ----

    def drop_shard(self, of: Key) -> None:
        """End the shard of an actor at once; its owner recovers it from the journal."""
        shard = self.world.sharding.shard_of(of)
        assert any(daemon.drop(shard) for daemon in self.world.living()), f"{shard} is not open"

    def crash_shard(self, of: Key) -> None:
        """Drop the shard of an actor, and wait until it is recovered."""
        shard = self.world.sharding.shard_of(of)
        before = self.world.shards().get(shard)
        self.drop_shard(of)
        self.run_until(lambda: self.world.shards().get(shard) not in (None, before))

    def kill(self, number: int = 0) -> None:
        """Kill one of the living daemons as by `kill -9`; the world restarts it."""
        living = self.world.living()
        self.world.kill(living[number % len(living)])

    def cut(self, host: Key) -> None:
        """Cut a machine off; its runs go on."""
        self.backend.cut(host)

    def mend(self, host: Key) -> None:
        """Let a machine be reached again."""
        self.backend.mend(host)

    def calm(self) -> None:
        """End all faults."""
        self.world.calm()
        self.backend.calm()
        if self.checks is not None:
            self.checks.processes.calm(self.world.later)

    # ---- checks ----

    def check_quiet(self) -> None:
        """Make all checks of a point at which nothing more is to happen."""
        assert self.checks is not None, "this cluster is not checked"
        self.checks.quiet()
        outcomes_are_true(self)

    def check_gone(self, job: Key) -> None:
        """Raise `Contradiction` unless a deleted job is found in the journal only."""
        nothing_is_left(self, job)
