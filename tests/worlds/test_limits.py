"""Jobs of which only so many instances may run at once: counted on the machines, not in the actors.

Must not look into grants; what really runs is what was promised.
"""

from __future__ import annotations

import msgspec
import pytest

from peloton.actors.job.messages import DeleteJob, JobStates, StopJob
from peloton.actors.job.spec import JobSpec
from peloton.chaos.cluster.machines import FAILURE, SUCCESS, Fate
from peloton.runtime.core.digest import digest
from peloton.runtime.ports import ShardId
from peloton.runtime.vocabulary import Key, kind_of
from tests.worlds import checks
from tests.worlds.harness import NEED, ROOM, World, job_id, spec
from tests.worlds.network import CALM, Storm


def once_in_vain(run: str) -> Fate:
    """The first run of every instance fails."""
    return Fate(2.0, FAILURE if run.endswith("-1") else SUCCESS)


def limited(world: World, count: int, most: int, **config: object) -> JobSpec:
    return msgspec.structs.replace(spec(world.make_pool(), count, **config), maximum_running=most)


def most_at_once(world: World, job: Key, *, for_s: float = 600.0, storm: Storm = CALM) -> int:
    """How many of a job's runs there really were at once, until all is over or the time is."""
    name, most, end = job.partition("/")[2], 0, world.now + for_s

    def over() -> bool:
        nonlocal most
        most = max(most, sum(run.startswith(name) for run in world.machines.running))
        return checks.over(world) or world.now >= end

    world.run_until(over, within_s=for_s + 1.0, storm=storm)
    return most


@pytest.mark.parametrize(("count", "most"), [(20, 3), (3, 1), (1015, 12)])
def test_no_more_run_at_once_than_may(count: int, most: int) -> None:
    world = World(hosts=12, fates=once_in_vain)
    if count > 1000:
        world.check = lambda world: None  # the checks of every step look at every task
    job = world.create(limited(world, count, most, max_failures=2))
    assert most < 12 * ROOM.cpu // NEED.cpu, "the hosts are not what limits it"
    assert most_at_once(world, job) == most
    assert world.job(job).summary.counts == (("SUCCEEDED", count),), "who failed tried again"


@pytest.mark.parametrize("seed", range(3))
def test_nor_in_a_storm(seed: int) -> None:
    """Two slices: at the end of the first one its grant goes over to the second, bit by bit."""
    world = World(hosts=12, seed=seed, fates=once_in_vain)
    world.check = lambda world: None
    job = world.create(limited(world, 1040, 80, max_failures=9))
    storm = Storm(drop=0.2, repeat=0.2, delay_s=0.3, crash=0.03)
    assert most_at_once(world, job, for_s=90.0, storm=storm) <= 80
    assert most_at_once(world, job) <= 80
    assert world.job(job).summary.counts == (("SUCCEEDED", 1040),)


def test_a_limited_job_that_is_stopped_ends_wholly() -> None:
    world = World(fates=lambda run: Fate(None))
    job = world.create(limited(world, 1200, 4))
    world.run_for(1.0)
    assert dict(world.job(job).summary.counts) == {"RUNNING": 4, "INITIALIZED": 1196}
    assert world.job(job).summary.state == JobStates.RUNNING
    world.ask(job, StopJob(((1100, 1200), (0, 1))))
    world.run_for(1.0)
    counts = {"RUNNING": 4, "INITIALIZED": 1095, "KILLED": 101}
    assert dict(world.job(job).summary.counts) == counts, "another has taken its place"
    world.ask(job, StopJob())
    world.run_until(lambda: checks.over(world))
    assert world.job(job).summary.counts == (("KILLED", 1200),)
    world.ask(job, DeleteJob())
    world.run_for(20.0)
    checks.nothing_is_left(world, job)


def test_slices_that_end_before_they_began_are_recovered_without_them() -> None:
    """A job of three slices is stopped while one instance runs; later its shard is restarted.

    The tasks of the later slices begin to exist only in order to end. Once their slice has left
    memory and the journal says so, nothing of them may be left that a recovery finds.
    """
    world = World(hosts=1)
    world.check = lambda world: None  # the checks of every step look at every task
    job = world.create(limited(world, 2500, 1))
    world.run_for(3.0)
    world.ask(job, StopJob())
    world.run_until(lambda: checks.over(world))
    world.run_for(5.0)
    shard = world.sharding.shard_of(job)
    # One more frame, which says who has left.
    other = next(name for name in map(str, range(9)) if _lives_in(world, name, shard=shard))
    world.create(limited(world, 3, 1), other)
    world.run_until(lambda: checks.over(world))
    core = world.shards[shard]
    assert not core.population.crowds and not [*world.cells("slice")]
    assert [kind_of(key) for key in core.population.cells] == ["job", "job"]
    world.crash(shard)
    assert digest(world.recovered(shard)) == digest(core)
    summary = world.job(job).summary
    assert summary.state == JobStates.KILLED and sum(dict(summary.counts).values()) == 2500


def _lives_in(world: World, name: str, *, shard: ShardId) -> bool:
    return world.sharding.shard_of(job_id(name)) == shard
