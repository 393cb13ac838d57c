"""Arrays with a throttle on simulated clusters: no period has more starts, and all end.

What counts is when instances begin by the facts of their slices.
"""

from __future__ import annotations

import bisect

import msgspec
import pytest

from peloton.actors.job.messages import StartInstances, StopJob, UpdateJob
from peloton.actors.job.spec import JobSpec, Throttle
from peloton.actors.job.stages import JobStates
from peloton.chaos.cluster.checked import CheckedCluster
from peloton.chaos.cluster.world.cluster import ClusterSetup, job_spec
from peloton.chaos.cluster.world.machines import Fate
from peloton.runtime.simulation.sends import SendFaults
from peloton.runtime.vocabulary import Key


def cluster_of(run_s: float | None = 0.5, **setup: object) -> CheckedCluster:
    given = {"fates": lambda run: Fate(run_s), **setup}
    return CheckedCluster(hosts=3, setup=ClusterSetup(**given))


def throttled(instances: int, count: int, period_s: float = 1.0, **fields: object) -> JobSpec:
    rule = Throttle("", count, period_s)
    return msgspec.structs.replace(job_spec(instances), throttle=rule, **fields)


def state_of(cluster: CheckedCluster, job: Key) -> JobStates:
    return cluster.job(job).summary.state


def begun_of(cluster: CheckedCluster, job: Key) -> list[float]:
    """When tasks were created, which is when their instances began."""
    views = cluster.instances(job, cluster.job(job).spec.instances)
    return sorted(view.created_at for view in views if view.created_at is not None)


def check_pace(starts: list[float], count: int, period_s: float = 1.0) -> None:
    for at, began in enumerate(starts):
        assert bisect.bisect_left(starts, began + period_s) - at <= count, began


def test_instances_begin_at_the_pace_of_the_throttle() -> None:
    cluster = cluster_of()
    job = cluster.create_job(throttled(25, 5))
    began = cluster.world.now
    cluster.run_until(cluster.over)
    starts = begun_of(cluster, job)
    assert state_of(cluster, job) == JobStates.SUCCEEDED and len(starts) == 25
    check_pace(starts, 5)
    assert 4.0 <= starts[-1] - began < 5.0, "each second has its five"
    cluster.check_quiet()


def test_a_limit_and_a_throttle_hold_both() -> None:
    cluster = cluster_of(2.0)
    job = cluster.create_job(throttled(12, 3, maximum_running=4))
    while not cluster.over():
        cluster.run_for(0.2)
        counts = dict(cluster.job(job).summary.counts)
        assert sum(counts.get(name, 0) for name in ("PENDING", "LAUNCHED", "RUNNING")) <= 4
    assert state_of(cluster, job) == JobStates.SUCCEEDED
    check_pace(begun_of(cluster, job), 3)


def test_several_slices_share_one_throttle() -> None:
    cluster = cluster_of(0.1)
    job = cluster.create_job(throttled(1003, 250, maximum_running=750))
    cluster.run_until(cluster.over, within_s=600.0)
    starts = begun_of(cluster, job)
    assert state_of(cluster, job) == JobStates.SUCCEEDED and len(starts) == 1003
    check_pace(starts, 250)


@pytest.mark.parametrize("seed", range(6))
def test_losses_of_messages_and_owners_make_it_no_faster(seed: int) -> None:
    cluster = cluster_of()
    cluster.world.sends.faults = SendFaults(drop=0.3, repeat=0.2)
    job = cluster.create_job(throttled(20, 4, maximum_running=(0, 6)[seed % 2]))
    for _ in range(4):
        cluster.run_for(1.1 + 0.1 * seed)
        cluster.crash_shard(job)
    if seed % 3 == 0:
        cluster.kill(seed % 2)
    cluster.calm()
    cluster.run_until(cluster.over)
    starts = begun_of(cluster, job)
    assert state_of(cluster, job) == JobStates.SUCCEEDED and len(starts) == 20
    check_pace(starts, 4)
    cluster.check_quiet()


def test_stopped_instances_take_no_start_from_others() -> None:
    cluster = cluster_of()
    job = cluster.create_job(throttled(1020, 5, 60.0))
    cluster.run_for(2.0)
    cluster.ask(job, StopJob(((0, 1000),)))
    cluster.run_until(cluster.over, within_s=600.0)
    counts = dict(cluster.job(job).summary.counts)
    assert counts == {"SUCCEEDED": 25, "KILLED": 995}


def test_a_job_that_is_started_again_keeps_the_pace() -> None:
    cluster = cluster_of()
    job = cluster.create_job(throttled(10, 5))
    cluster.run_until(cluster.over)
    cluster.run_for(5.0)
    before = cluster.world.now
    cluster.ask(job, StartInstances(again=True))
    cluster.run_until(cluster.over)
    assert state_of(cluster, job) == JobStates.SUCCEEDED
    began = sorted(view.begun_at or 0.0 for view in cluster.instances(job, 10))
    assert began[0] >= before and began[5] - began[0] >= 0.9


def test_instances_that_an_update_adds_begin_as_well() -> None:
    cluster = cluster_of()
    job = cluster.create_job(throttled(7, 5))
    cluster.run_for(0.5)
    spec = msgspec.structs.replace(cluster.job(job).spec, instances=1010, throttle=None)
    cluster.ask(job, StopJob(((0, 1),)))
    cluster.ask(job, UpdateJob(spec))
    cluster.run_for(3.0)
    cluster.ask(job, StopJob(((20, 1005),)))
    cluster.run_until(cluster.over)
    counts = dict(cluster.job(job).summary.counts)
    assert sum(counts.values()) == 1010 and counts["SUCCEEDED"] >= 24
