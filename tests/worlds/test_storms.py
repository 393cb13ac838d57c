"""Small histories with faults at the moments that a storm over a whole fleet seldom meets.

Each is about one thing: an order that races with a launch, a shard that ends at any frame, a job of
several slices whose messages are lost. Storms in which anything may happen are in `test_fleet.py`.
A failing seed is in the test's name.
"""

from __future__ import annotations

import random
import zlib

import pytest

from peloton.actors.job.messages import AddOverrides, CreateJob, DeleteJob, JobCreated, StopJob
from peloton.actors.job.slice.task_config import Override, TaskConfig
from peloton.actors.job.stages import JobStates
from peloton.actors.resources import UNIT, Resources
from peloton.actors.task.messages import End, RunOutcome
from peloton.chaos.cluster.checked import CheckedCluster
from peloton.chaos.cluster.world.cluster import ClusterSetup, job_id, job_spec
from peloton.chaos.cluster.world.machines import FAILURE, SUCCESS, Fate
from peloton.runtime.core.offline.digest import digest
from peloton.runtime.ports import ShardId
from peloton.runtime.simulation.scan import Maker
from peloton.runtime.simulation.sends import SendFaults
from peloton.runtime.simulation.world import NotReached
from peloton.runtime.vocabulary import Refused
from tests.worlds.planted import JOBS_SEND_NOTHING_AGAIN, planted

REACHED_S_MAX = 180.0
"""Virtual time after the faults within which all must be over: a slow re-send takes 30 s."""


def fate(run: str) -> Fate:
    """Most succeed, some fail once or always, some are lost, a few never end by themselves."""
    x = zlib.crc32(f"3/{run}".encode()) % 100
    if x < 60:
        return Fate(0.5 + x / 20, SUCCESS)
    if x < 85:
        return Fate(0.3 + x / 50, FAILURE)
    if x < 90:
        return Fate(1.0, RunOutcome(End.LOST, system=True))
    return Fate(4.0) if x < 97 else Fate(None)


def finish(cluster: CheckedCluster) -> None:
    """The calm: what would run for ever is ended, and all must be over within a bound."""
    cluster.calm()
    ended: dict[str, None] = {}

    def over() -> bool:
        for run in [*cluster.machines.running]:
            if cluster.machines.fates(run).duration_s is None and run not in ended:
                ended[run] = None
                cluster.backend.end(run, FAILURE)
        return cluster.over()

    cluster.run_until(over, within_s=REACHED_S_MAX)
    cluster.run_for(40.0)
    cluster.check_quiet()


@pytest.mark.parametrize("seed", range(20))
def test_stopping_and_deleting_race_with_launches(seed: int) -> None:
    """The order comes at any moment between the first request for admission and the first start."""
    plan = random.Random(seed)
    cluster = CheckedCluster(seed=seed, setup=ClusterSetup(fates=lambda run: Fate(None)))
    cluster.machines.start_s = 0.2
    cluster.world.sends.faults = SendFaults(delay_s=0.3)
    job = cluster.create_job(job_spec(20))
    cluster.run_for(plan.random())
    deleted = plan.random() < 0.5
    cluster.order(job, DeleteJob(force=True) if deleted else StopJob())
    cluster.run_for(1.0)
    finish(cluster)
    if deleted:
        cluster.check_gone(job)
    else:
        assert cluster.job(job).summary.state == JobStates.KILLED


def test_what_is_replayed_is_what_lived_at_every_frame() -> None:
    """Whenever a shard is at rest, a recovery from its journal would be the same shard."""
    cluster = CheckedCluster(hosts=2, setup=ClusterSetup(fates=fate))
    world = cluster.world
    maker = Maker(world.store, world.kinds, sharding=world.sharding)
    seen: dict[ShardId, int] = {}
    compared = 0

    def check() -> None:
        nonlocal compared
        for shard, core in world.shards().items():
            row = world.store.registers.registers[shard]
            if core.busy or core.position != row.last_position or seen.get(shard) == core.position:
                continue
            seen[shard] = core.position
            compared += 1
            assert digest(maker.recovered(shard)) == digest(core), (shard, core.position)

    world.checks.append(check)
    job = cluster.create_job(job_spec(6, max_failures=2))
    other = cluster.create_job(job_spec(3), "k")
    cluster.run_for(2.0)
    cluster.ask(other, StopJob(((0, 2),)))
    cluster.cut(cluster.hosts[0])
    cluster.run_for(70.0)
    cluster.mend(cluster.hosts[0])
    finish(cluster)
    cluster.ask(job, DeleteJob(force=True))
    cluster.run_for(20.0)
    assert compared > 60


@pytest.mark.parametrize("seed", range(10))
def test_a_shard_may_end_at_any_frame_of_a_life(seed: int) -> None:
    """Two shards end at a drawn step, in an otherwise calm cluster: nobody notices."""
    plan = random.Random(seed)
    cluster = CheckedCluster(hosts=2, seed=seed, setup=ClusterSetup(fates=lambda run: Fate(1.0)))
    world = cluster.world
    job = cluster.create_job(job_spec(8))
    for _ in range(plan.randrange(120)):
        world.step()
    for shard in plan.sample([*world.shards()], 2):
        assert any(daemon.drop(shard) for daemon in world.living())
    finish(cluster)
    assert cluster.counts(job) == {"SUCCEEDED": 8}


@pytest.mark.parametrize("seed", [1, 2])
def test_a_job_of_many_slices_in_a_storm(seed: int) -> None:
    """Sets of a thousand are split by every loss and put together again."""
    _many_slices(seed)


def test_a_job_of_many_slices_that_sends_nothing_again_is_found() -> None:
    """The storm is strong enough to tell a wrong job from a right one."""
    with planted(JOBS_SEND_NOTHING_AGAIN), pytest.raises(NotReached):
        for seed in range(1, 11):
            _many_slices(seed)


def _many_slices(seed: int) -> None:
    setup = ClusterSetup(
        fates=lambda run: Fate(1.0 + zlib.crc32(run.encode()) % 3),
        host_capacity=Resources(300 * UNIT, 10**12, 10**12, 0),
    )
    sizes = {"jobmgr": 8, "resmgr": 1, "hostmgr": 2}  # so that slices live apart from their job
    cluster = CheckedCluster(daemons=2, hosts=10, seed=seed, sizes=sizes, setup=setup)
    plan, job = random.Random(seed), job_id("j")

    def storm() -> None:
        cluster.world.sends.faults = SendFaults(drop=0.4, repeat=0.2, delay_s=0.5)
        for _ in range(4):
            cluster.run_for(1.0)
            for shard in plan.sample([*cluster.world.shards()], 2):
                assert any(daemon.drop(shard) for daemon in cluster.world.living())

    cluster.order(job, CreateJob(job_spec(2500)))
    storm()
    cluster.order(job, StopJob(((900, 1100), (2400, 2500))))
    storm()
    finish(cluster)
    cluster.ask(job, DeleteJob())
    cluster.run_for(60.0)
    cluster.check_gone(job)


def test_a_job_that_was_never_wholly_sent_is_forgotten() -> None:
    cluster = CheckedCluster()
    job = job_id("j")
    cluster.ask(job, AddOverrides(0, (Override(0, TaskConfig()),)), keyed=False)
    cluster.crash_shard(job)
    answer = cluster.ask(job, CreateJob(job_spec(3), pieces=1))
    assert isinstance(answer, Refused) and answer.code == "INCOMPLETE"
    assert cluster.ask(job, CreateJob(job_spec(3))) == JobCreated(job)
