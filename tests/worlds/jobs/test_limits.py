"""Jobs of which only so many instances may run at once: counted on the machines, not in the actors.

What really runs is what was promised.
"""

from __future__ import annotations

import random

import msgspec
import pytest

from peloton.actors.job.messages import DeleteJob, StopJob
from peloton.actors.job.spec import JobSpec
from peloton.actors.job.stages import JobStates
from peloton.chaos.cluster.checked import CheckedCluster
from peloton.chaos.cluster.world.cluster import (
    HOST_CAPACITY,
    NEED,
    STORM_POOL,
    ClusterSetup,
    job_id,
    job_spec,
)
from peloton.chaos.cluster.world.machines import FAILURE, SUCCESS, Fate
from peloton.runtime.core.offline.digest import digest
from peloton.runtime.simulation.sends import SendFaults
from peloton.runtime.vocabulary import Key, kind_of


def once_in_vain(run: str) -> Fate:
    """The first run of every instance fails."""
    return Fate(2.0, FAILURE if run.endswith("-1") else SUCCESS)


def limited(count: int, most: int, **config: object) -> JobSpec:
    return msgspec.structs.replace(job_spec(count, **config), maximum_running=most)


def most_at_once(cluster: CheckedCluster, job: Key, *, for_s: float = 600.0) -> int:
    """How many of a job's runs there really were at once, until all is over or the time is."""
    name, most = job.partition("/")[2], 0
    end = cluster.world.now + for_s

    def over() -> bool:
        nonlocal most
        most = max(most, sum(run.startswith(name) for run in cluster.machines.running))
        return cluster.over() or cluster.world.now >= end

    cluster.run_until(over, within_s=for_s + 1.0)
    return most


@pytest.mark.parametrize(("count", "most"), [(20, 3), (3, 1), (1001, 40)])
def test_no_more_run_at_once_than_may(count: int, most: int) -> None:
    """The last job has two slices, and the second one gets the grant of the first."""
    cluster = CheckedCluster(hosts=12, setup=ClusterSetup(fates=once_in_vain))
    job = cluster.create_job(limited(count, most, max_failures=2))
    assert most < 12 * HOST_CAPACITY.cpu // NEED.cpu, "the hosts are not what limits it"
    assert most_at_once(cluster, job) == most
    assert cluster.counts(job) == {"SUCCEEDED": count}, "who failed tried again"


def test_nor_in_a_storm() -> None:
    """Two slices: at the end of the first one its grant goes over to the second, bit by bit."""
    setup = ClusterSetup(fates=once_in_vain, checked=False)
    cluster = CheckedCluster(daemons=2, hosts=40, seed=1, setup=setup)
    job = cluster.create_job(limited(1040, 80, max_failures=9))
    chance = random.Random(1)
    cluster.world.sends.faults = SendFaults(drop=0.2, repeat=0.2, delay_s=0.3)
    for _ in range(20):
        assert most_at_once(cluster, job, for_s=3.0) <= 80
        cluster.drop_shard(chance.choice([job, *cluster.hosts, STORM_POOL]))
    cluster.calm()
    assert most_at_once(cluster, job) <= 80
    assert cluster.counts(job) == {"SUCCEEDED": 1040}


def test_a_limited_job_that_is_stopped_ends_wholly() -> None:
    cluster = CheckedCluster(setup=ClusterSetup(fates=lambda run: Fate(None)))
    job = cluster.create_job(limited(1200, 4))
    cluster.run_for(1.0)
    assert cluster.counts(job) == {"RUNNING": 4, "INITIALIZED": 1196}
    assert cluster.job(job).summary.state == JobStates.RUNNING
    cluster.ask(job, StopJob(((1100, 1200), (0, 1))))
    cluster.run_for(1.0)
    counts = {"RUNNING": 4, "INITIALIZED": 1095, "KILLED": 101}
    assert cluster.counts(job) == counts, "another has taken its place"
    cluster.ask(job, StopJob())
    cluster.run_until(cluster.over)
    assert cluster.counts(job) == {"KILLED": 1200}
    cluster.ask(job, DeleteJob())
    cluster.run_for(20.0)
    cluster.check_gone(job)


def test_slices_that_end_before_they_began_are_recovered_without_them() -> None:
    """A job of three slices is stopped while one instance runs; later its shard is restarted.

    The tasks of the later slices begin to exist only in order to end. Once their slice has left
    memory and the journal says so, nothing of them may be left that a recovery finds.
    """
    cluster = CheckedCluster(hosts=1)
    job = cluster.create_job(limited(2500, 1))
    cluster.run_for(3.0)
    cluster.ask(job, StopJob())
    cluster.run_until(cluster.over)
    cluster.run_for(5.0)
    shard = cluster.world.sharding.shard_of(job)
    # One more frame, which says who has left.
    names = map(str, range(9))
    other = next(n for n in names if cluster.world.sharding.shard_of(job_id(n)) == shard)
    cluster.create_job(limited(3, 1), other)
    cluster.run_until(cluster.over)
    cluster.run_for(3.0)
    core = cluster.world.shards()[shard]
    assert not core.population.crowds and not [*cluster.cells("slice")]
    assert [kind_of(key) for key in core.population.cells] == ["job", "job"]
    before = digest(core)
    cluster.crash_shard(job)
    assert digest(cluster.world.shards()[shard]) == before
    summary = cluster.job(job).summary
    assert summary.state == JobStates.KILLED and sum(dict(summary.counts).values()) == 2500
