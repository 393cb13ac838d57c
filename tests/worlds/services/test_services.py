"""Services on simulated clusters: instances that run for ever, whatever ends them.

What counts is when runs begin, and what the job is called.
"""

from __future__ import annotations

import random

import msgspec
import pytest

from peloton.actors.job.messages import DeleteJob, StartInstances, StartJob, StopJob
from peloton.actors.job.slice.messages import InstanceView
from peloton.actors.job.spec import JobSpec, Throttle
from peloton.actors.job.stages import EntityVersion, JobGoals, JobStates
from peloton.actors.task.messages import TaskGoals
from peloton.actors.task.state import HEALTHY_AFTER_S
from peloton.chaos.cluster.checked import CheckedCluster
from peloton.chaos.cluster.world.cluster import (
    HOST_CAPACITY,
    NEED,
    STORM_POOL,
    ClusterSetup,
    job_spec,
)
from peloton.chaos.cluster.world.machines import FAILURE, SUCCESS, Fate
from peloton.runtime.vocabulary import Key, Refused

FOR_EVER = Fate(None)
RUNNING = {"RUNNING": 2}


def cluster_of(
    *fates: Fate, last: Fate = FOR_EVER, seed: int = 0, **setup: object
) -> CheckedCluster:
    """Runs of an instance end like this, one after the other, and then like the last."""

    def fate(run: str) -> Fate:
        number = int(run.rpartition("-")[2])
        return fates[number - 1] if number <= len(fates) else last

    given = {"fates": fate, **setup}
    return CheckedCluster(hosts=3, seed=seed, setup=ClusterSetup(**given))  # type: ignore[arg-type]


def service(instances: int = 2, **fields: object) -> JobSpec:
    return msgspec.structs.replace(job_spec(instances), job_type="SERVICE", **fields)


def states(cluster: CheckedCluster, job: Key) -> dict[str, int]:
    return dict(cluster.job(job).summary.counts)


def state_of(cluster: CheckedCluster, job: Key) -> JobStates:
    return cluster.job(job).summary.state


def running(cluster: CheckedCluster, **fields: object) -> Key:
    job = cluster.create_job(service(**fields), "s")
    cluster.run_until(lambda: states(cluster, job) == RUNNING, within_s=60)
    return job


def one(cluster: CheckedCluster, job: Key) -> InstanceView:
    return cluster.instances(job, 2)[0]


def test_a_service_runs_and_has_no_end() -> None:
    cluster = cluster_of()
    job = running(cluster)
    cluster.run_for(3600.0)
    view = cluster.job(job)
    assert (view.goal, view.summary.state) == (JobGoals.RUNNING, JobStates.RUNNING)
    assert view.summary.completed_at == 0.0
    assert {(each.goal, each.run) for each in cluster.instances(job, 2)} == {(TaskGoals.RUNNING, 1)}


@pytest.mark.parametrize("outcome", [SUCCESS, FAILURE])
def test_whatever_ends_a_run_the_next_begins_after_longer_and_longer(outcome: object) -> None:
    """30 s after the first failure, twice as long after each, and never more than an hour."""
    ends = [Fate(1.0, outcome)] * 9  # type: ignore[arg-type]
    cluster = cluster_of(*ends)
    job = cluster.create_job(service(), "s")
    seen: set[JobStates] = set()
    while (view := one(cluster, job)).run < 10 or view.state != "RUNNING":
        cluster.run_for(100.0)
        seen.add(state_of(cluster, job))
    assert view.failures == 9
    pauses = [
        after.started_at - before.ended_at  # type: ignore[operator]
        for before, after in zip(view.runs, [*view.runs[1:], view], strict=True)
    ]
    expected = [30, 60, 120, 240, 480, 960, 1920, 3600, 3600]
    assert all(0 <= pause - want < 2.0 for pause, want in zip(pauses, expected, strict=True))
    assert seen == {JobStates.PENDING, JobStates.RUNNING}
    assert cluster.job(job).summary.completed_at == 0.0
    cluster.run_for(HEALTHY_AFTER_S)
    assert one(cluster, job).failures == 0, "it has run for so long that its next pause is short"


def test_between_two_runs_it_is_pending() -> None:
    cluster = cluster_of(Fate(1.0, FAILURE))
    job = cluster.create_job(service(), "s")
    cluster.run_until(lambda: one(cluster, job).code == "RETRY", within_s=60)
    cluster.run_for(5.0)
    assert state_of(cluster, job) == JobStates.PENDING
    assert states(cluster, job) == {"FAILED": 2}
    view = one(cluster, job)
    assert (view.state, view.because) == ("FAILED", "waits after failure 1")
    # What waits has not ended: it is stopped as any other.
    cluster.ask(job, StopJob())
    cluster.run_until(lambda: state_of(cluster, job) == JobStates.KILLED, within_s=60)
    assert states(cluster, job) == {"KILLED": 2}


def test_during_a_pause_others_have_its_room() -> None:
    cluster = cluster_of(*[Fate(1.0, FAILURE)] * 4)
    hosts_full = 3 * HOST_CAPACITY.cpu // NEED.cpu
    job = cluster.create_job(service(hosts_full), "s")
    cluster.run_until(lambda: one(cluster, job).code == "RETRY", within_s=60)
    other = cluster.create_job(job_spec(hosts_full), "b")
    # The first pause is 30 s; those who waited for it would be told so.
    cluster.run_until(lambda: sum_running(cluster, other) > 0, within_s=20)
    cluster.run_for(40.0)
    assert one(cluster, job).failures < 4


def sum_running(cluster: CheckedCluster, job: Key) -> int:
    return states(cluster, job).get("RUNNING", 0) + states(cluster, job).get("SUCCEEDED", 0)


def test_it_is_stopped_started_and_restarted() -> None:
    cluster = cluster_of()
    job = running(cluster)
    cluster.ask(job, StopJob())
    cluster.run_until(lambda: state_of(cluster, job) == JobStates.KILLED, within_s=60)
    cluster.check_quiet()
    assert states(cluster, job) == {"KILLED": 2} and cluster.job(job).summary.completed_at
    cluster.ask(job, StartInstances())
    cluster.run_until(lambda: states(cluster, job) == RUNNING, within_s=60)
    view = cluster.job(job)
    assert (view.goal, view.summary.state) == (JobGoals.RUNNING, JobStates.RUNNING)
    assert view.summary.completed_at == 0.0
    cluster.ask(job, StartInstances(again=True))
    cluster.run_until(
        lambda: {(each.run, each.state) for each in cluster.instances(job, 2)} == {(3, "RUNNING")},
        within_s=60,
    )
    assert one(cluster, job).failures == 0


def test_a_change_by_who_knows_another_version_is_refused() -> None:
    cluster = cluster_of()
    job = running(cluster)
    known = cluster.job(job).version
    assert str(known) == "1-1-1"
    other = EntityVersion(1, 2, 1)
    for message in (StopJob(expected=other), StartJob(other), DeleteJob(True, other)):
        refused = cluster.ask(job, message)
        assert isinstance(refused, Refused) and refused.text == "unexpected entity version"
    stopped = cluster.ask(job, StopJob(expected=known))
    assert stopped.version == cluster.job(job).version == EntityVersion(1, 2, 1)
    refused = cluster.ask(job, StartJob(known))
    assert isinstance(refused, Refused) and refused.code == "OTHER_VERSION"
    assert cluster.ask(job, StopJob(expected=stopped.version)).version == stopped.version
    started = cluster.ask(job, StartJob(stopped.version))
    assert started.version == cluster.job(job).version == EntityVersion(1, 3, 1)
    assert cluster.ask(job, StartJob(started.version)) == started, "nothing is left to start"
    cluster.run_until(lambda: states(cluster, job) == RUNNING, within_s=60)


def test_a_batch_job_is_not_started_as_a_whole() -> None:
    cluster = cluster_of()
    job = cluster.create_job(job_spec(), "b")
    refused = cluster.ask(job, StartJob())
    assert isinstance(refused, Refused) and refused.text == "the job is not a service"


@pytest.mark.parametrize("seed", range(8))
def test_lost_shards_lose_no_stop_and_no_start(seed: int) -> None:
    """Whoever owns the job or its pool next goes on with what was acknowledged."""
    chance = random.Random(seed)
    cluster = cluster_of(seed=seed)
    job = running(cluster)
    for message in (StopJob(), StartJob()):
        for order in (lambda: None, lambda: cluster.ask(job, message)):  # noqa: B023
            order()
            cluster.run_for(chance.random() * 2)
            cluster.crash_shard(chance.choice((job, STORM_POOL)))
    cluster.run_until(
        lambda: {(each.run, each.state) for each in cluster.instances(job, 2)} == {(2, "RUNNING")},
        within_s=300,
    )
    assert str(cluster.job(job).version) == "1-3-1"
    assert len(cluster.machines.running) == 2


def test_one_of_which_all_instances_are_stopped_has_ended() -> None:
    cluster = cluster_of()
    job = running(cluster)
    cluster.ask(job, StopJob(ranges=((0, 1),)))
    cluster.run_until(lambda: states(cluster, job) == {"KILLED": 1, "RUNNING": 1}, within_s=60)
    assert state_of(cluster, job) == JobStates.RUNNING
    cluster.ask(job, StopJob(ranges=((1, 2),)))
    cluster.run_until(lambda: states(cluster, job) == {"KILLED": 2}, within_s=60)
    assert (cluster.job(job).goal, state_of(cluster, job)) == (JobGoals.RUNNING, JobStates.KILLED)
    cluster.ask(job, StartInstances(ranges=((1, 2),)))
    cluster.run_until(lambda: states(cluster, job) == {"KILLED": 1, "RUNNING": 1}, within_s=60)
    assert state_of(cluster, job) == JobStates.RUNNING


def test_a_stopped_service_is_deleted() -> None:
    cluster = cluster_of()
    job = running(cluster)
    refused = cluster.ask(job, DeleteJob())
    assert isinstance(refused, Refused) and refused.text.endswith("terminal state: RUNNING")
    cluster.ask(job, StopJob())
    cluster.run_until(lambda: state_of(cluster, job) == JobStates.KILLED, within_s=60)
    cluster.ask(job, DeleteJob())
    cluster.run_for(10.0)
    cluster.check_gone(job)
    cluster.check_quiet()


def test_the_loss_of_a_host_moves_its_instances_and_is_not_charged() -> None:
    cluster = cluster_of()
    job = running(cluster)
    view = one(cluster, job)
    cluster.cut(Key(view.host))
    cluster.run_until(
        lambda: one(cluster, job).run == 2 and one(cluster, job).state == "RUNNING", within_s=1200
    )
    assert one(cluster, job).host != view.host and one(cluster, job).failures == 0


def test_a_throttle_paces_the_first_starts() -> None:
    cluster = cluster_of()
    job = cluster.create_job(service(throttle=Throttle("1/1m", 1, 60.0)), "s")
    cluster.run_until(lambda: states(cluster, job).get("RUNNING") == 1, within_s=30)
    cluster.run_for(30.0)
    assert states(cluster, job) == {"INITIALIZED": 1, "RUNNING": 1}
    cluster.run_until(lambda: states(cluster, job) == RUNNING, within_s=60)
