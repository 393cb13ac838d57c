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
from tests.clusters import checks
from tests.clusters.harness import NEED, ROOM, World, job_id, spec
from tests.clusters.network import CALM, Storm


def once_in_vain(run: str) -> Fate:
    """The first run of every instance fails."""
    return Fate(2.0, FAILURE if run.endswith("-1") else SUCCESS)


def limited(cluster: CheckedCluster, count: int, most: int, **config: object) -> JobSpec:
    return msgspec.structs.replace(job_spec(count, **config), maximum_running=most)


def most_at_once(cluster: CheckedCluster, job: Key, *, for_s: float = 600.0, storm: Storm = CALM) -> int:
    """How many of a job's runs there really were at once, until all is over or the time is."""
    name, most, end = job.partition("/")[2], 0, cluster.now + for_s

    def over() -> bool:
        nonlocal most
        most = max(most, sum(run.startswith(name) for run in cluster.machines.running))
        return cluster.over() or cluster.now >= end

    cluster.run_until(over, within_s=for_s + 1.0, storm=storm)
    return most


@pytest.mark.parametrize(("count", "most"), [(20, 3), (3, 1), (1015, 12)])
def test_no_more_run_at_once_than_may(count: int, most: int) -> None:
    cluster = CheckedCluster(hosts=12, setup=ClusterSetup(fates=once_in_vain))
    if count > 1000:
        cluster.check = lambda cluster: None  # the checks of every step look at every task
    job = cluster.create_job(limited(cluster, count, most, max_failures=2))
    assert most < 12 * ROOM.cpu // NEED.cpu, "the hosts are not what limits it"
    assert most_at_once(cluster, job) == most
    assert cluster.job(job).summary.counts == (("SUCCEEDED", count),), "who failed tried again"


@pytest.mark.parametrize("seed", range(3))
def test_nor_in_a_storm(seed: int) -> None:
    """Two slices: at the end of the first one its grant goes over to the second, bit by bit."""
    cluster = CheckedCluster(hosts=12, seed=seed, fates=once_in_vain)
    cluster.check = lambda cluster: None
    job = cluster.create_job(limited(cluster, 1040, 80, max_failures=9))
    storm = Storm(drop=0.2, repeat=0.2, delay_s=0.3, crash=0.03)
    assert most_at_once(cluster, job, for_s=90.0, storm=storm) <= 80
    assert most_at_once(cluster, job) <= 80
    assert cluster.counts(job) == {"SUCCEEDED": 1040}


def test_a_limited_job_that_is_stopped_ends_wholly() -> None:
    cluster = CheckedCluster(setup=ClusterSetup(fates=lambda run: Fate(None)))
    job = cluster.create_job(limited(cluster, 1200, 4))
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
    cluster.check = lambda cluster: None  # the checks of every step look at every task
    job = cluster.create_job(limited(cluster, 2500, 1))
    cluster.run_for(3.0)
    cluster.ask(job, StopJob())
    cluster.run_until(cluster.over)
    cluster.run_for(5.0)
    shard = cluster.sharding.shard_of(job)
    # One more frame, which says who has left.
    other = next(name for name in map(str, range(9)) if _lives_in(cluster, name, shard=shard))
    cluster.create_job(limited(cluster, 3, 1), other)
    cluster.run_until(cluster.over)
    core = cluster.shards[shard]
    assert not core.population.crowds and not [*cluster.cells("slice")]
    assert [kind_of(key) for key in core.population.cells] == ["job", "job"]
    cluster.crash(shard)
    assert digest(cluster.recovered(shard)) == digest(core)
    summary = cluster.job(job).summary
    assert summary.state == JobStates.KILLED and sum(dict(summary.counts).values()) == 2500


def _lives_in(cluster: CheckedCluster, name: str, *, shard: ShardId) -> bool:
    return cluster.sharding.shard_of(job_id(name)) == shard
