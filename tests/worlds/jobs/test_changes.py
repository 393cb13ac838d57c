"""Jobs that clients change after their creation: started, restarted and updated, in any order.

What counts is what runs on the machines, and how it ends.
"""

from __future__ import annotations

import random

import msgspec
import pytest

from peloton.actors.job.messages import (
    InstancesOrdered,
    JobUpdated,
    StartInstances,
    StopJob,
    UpdateJob,
)
from peloton.actors.job.slice.task_config import Command, Override, TaskConfig
from peloton.actors.job.spec import JobSpec
from peloton.actors.job.stages import JobStates
from peloton.actors.task.messages import TaskGoals
from peloton.chaos.cluster.checked import CheckedCluster
from peloton.chaos.cluster.world.cluster import NEED, STORM_POOL, ClusterSetup, job_spec
from peloton.chaos.cluster.world.machines import FAILURE, SUCCESS, Fate
from peloton.runtime.simulation.sends import SendFaults
from peloton.runtime.vocabulary import Key, Refused

FOREVER, SHORT = Fate(None), Fate(2.0)


def cluster_of(fate: Fate = SHORT, hosts: int = 3, **setup: object) -> CheckedCluster:
    given = {"fates": lambda run: fate, **setup}
    return CheckedCluster(hosts=hosts, setup=ClusterSetup(**given))


def runs(cluster: CheckedCluster, job: Key, count: int) -> list[int]:
    return [view.run for view in cluster.instances(job, count)]


def grown(spec: JobSpec, instances: int, **fields: object) -> JobSpec:
    return msgspec.structs.replace(spec, instances=instances, **fields)


def state_of(cluster: CheckedCluster, job: Key) -> JobStates:
    return cluster.job(job).summary.state


def test_stopped_instances_start_again_and_others_are_left() -> None:
    cluster = cluster_of(FOREVER)
    job = cluster.create_job(job_spec(4))
    cluster.run_until(lambda: cluster.counts(job) == {"RUNNING": 4})
    cluster.ask(job, StopJob(((1, 3),)))
    cluster.run_until(lambda: cluster.counts(job) == {"KILLED": 2, "RUNNING": 2})
    assert cluster.ask(job, StartInstances(((0, 2),))) == InstancesOrdered(((1, 2),))
    cluster.run_until(lambda: cluster.counts(job) == {"KILLED": 1, "RUNNING": 3})
    assert runs(cluster, job, 4) == [1, 2, 1, 1]
    assert cluster.ask(job, StartInstances(((0, 2),))) == InstancesOrdered(())


def test_restarted_instances_run_again_with_fresh_attempts() -> None:
    cluster = cluster_of(fates=lambda run: Fate(2.0, FAILURE))
    job = cluster.create_job(job_spec(2, max_failures=2))
    cluster.run_until(cluster.over)
    assert runs(cluster, job, 2) == [2, 2]
    first = cluster.job(job).summary
    assert first.state == JobStates.FAILED
    cluster.run_for(10.0)
    answer = cluster.ask(job, StartInstances(((1, 2),), again=True))
    assert answer == InstancesOrdered(((1, 2),))
    again = cluster.job(job).summary
    assert again.state == JobStates.PENDING and not again.completed_at
    cluster.run_until(cluster.over)
    assert runs(cluster, job, 2) == [2, 4], "one more attempt after the first, as at the beginning"
    last = cluster.job(job).summary
    assert last.started_at == first.started_at and last.completed_at > first.completed_at
    cluster.check_quiet()


def test_running_instances_are_killed_and_run_again() -> None:
    cluster = cluster_of(FOREVER)
    job = cluster.create_job(job_spec(3))
    cluster.run_until(lambda: cluster.counts(job) == {"RUNNING": 3})
    cluster.ask(job, StartInstances(again=True))
    cluster.run_until(
        lambda: runs(cluster, job, 3) == [2, 2, 2] and cluster.counts(job) == {"RUNNING": 3}
    )
    assert len(cluster.machines.running) == 3


@pytest.mark.parametrize("wait_s", [0.0, 0.3, 30.0])
def test_a_job_that_was_stopped_is_started_again(wait_s: float) -> None:
    """While it still stops, just after, and when it has left memory."""
    cluster = cluster_of(Fate(5.0), finished_jobs_max=0)
    job = cluster.create_job(job_spec(1003), "a")
    cluster.run_for(1.0)
    cluster.ask(job, StopJob())
    cluster.run_for(wait_s)
    assert cluster.ask(job, StartInstances(((0, 2), (1001, 1003)))) == InstancesOrdered(
        ((0, 2), (1001, 1003))
    )
    assert state_of(cluster, job) not in (JobStates.KILLED, JobStates.KILLING)
    cluster.run_until(cluster.over)
    assert cluster.counts(job) == {"KILLED": 999, "SUCCEEDED": 4}
    cluster.run_for(20.0)
    cluster.check_quiet()


def test_a_job_that_ended_by_itself_is_not_started() -> None:
    cluster = cluster_of()
    job = cluster.create_job(job_spec(2))
    cluster.run_until(cluster.over)
    refused = cluster.ask(job, StartInstances())
    assert isinstance(refused, Refused)
    assert refused.text == "cannot start tasks in a terminated job"


def test_a_job_grows() -> None:
    cluster = cluster_of(Fate(20.0), hosts=4)
    spec = job_spec(2)
    job = cluster.create_job(spec)
    cluster.run_until(lambda: cluster.counts(job) == {"RUNNING": 2})
    own = Override(4, TaskConfig(command=Command("own"), resources=NEED))
    answer = cluster.ask(job, UpdateJob(grown(spec, 5), ((0, (own,)),), version=1))
    assert answer == JobUpdated(3, 2)
    cluster.run_until(lambda: cluster.counts(job) == {"RUNNING": 5})
    views = cluster.instances(job, 5)
    assert [view.config_version for view in views] == [1, 1, 2, 2, 2]
    assert views[4].config.command == Command("own") != views[3].config.command
    view = cluster.job(job)
    assert view.summary.config_version == 2 and view.summary.versions == ((1, 2), (2, 3))
    late = cluster.ask(job, UpdateJob(grown(spec, 6), version=1))
    assert isinstance(late, Refused) and late.text == "invalid job configuration version"
    cluster.run_until(cluster.over)
    assert cluster.counts(job) == {"SUCCEEDED": 5}
    late = cluster.ask(job, UpdateJob(grown(spec, 6)))
    assert isinstance(late, Refused) and late.text == "Job is in a terminal state:SUCCEEDED"
    cluster.check_quiet()


def test_a_job_grows_by_slices() -> None:
    cluster = cluster_of(Fate(30.0), checked=False)
    spec = job_spec(998)
    job = cluster.create_job(spec)
    cluster.run_for(1.0)
    assert cluster.ask(job, UpdateJob(grown(spec, 2003))) == JobUpdated(1005, 2)
    cluster.crash_shard(job)
    cluster.run_for(2.0)
    assert sum(cluster.counts(job).values()) == 2003
    cluster.ask(job, StopJob(((5, 2003),)))
    cluster.run_until(cluster.over)
    assert cluster.counts(job) == {"KILLED": 1998, "SUCCEEDED": 5}


def test_what_an_update_may_not() -> None:
    cluster = cluster_of(FOREVER)
    spec = job_spec(3)
    job = cluster.create_job(spec)
    less = cluster.ask(job, UpdateJob(grown(spec, 2)))
    assert isinstance(less, Refused) and "can't be less" in less.text
    own = Override(1, TaskConfig(command=Command("own"), resources=NEED))
    existing = cluster.ask(job, UpdateJob(grown(spec, 4), ((0, (own,)),)))
    assert isinstance(existing, Refused) and existing.field == "config.instanceConfig[1]"
    assert cluster.ask(job, UpdateJob(spec)) == JobUpdated(0, 1), "nothing to do"


# ---- limits ----


def limited(count: int, most: int) -> JobSpec:
    return msgspec.structs.replace(job_spec(count, max_failures=1), maximum_running=most)


def running(cluster: CheckedCluster, job: Key) -> int:
    name = job.partition("/")[2]
    return sum(run.startswith(name) for run in cluster.machines.running)


def test_a_limited_job_that_has_ended_is_restarted_within_its_limit() -> None:
    cluster = cluster_of(Fate(1.0), hosts=12)
    job = cluster.create_job(limited(1010, 12))
    cluster.run_until(cluster.over)
    cluster.ask(job, StartInstances(((5, 8), (990, 1010)), again=True))
    most = 0

    def over() -> bool:
        nonlocal most
        most = max(most, running(cluster, job))
        return cluster.over()

    cluster.run_until(over)
    assert most == 12
    views = cluster.instances(job, 1010)
    assert [view.instance for view in views if view.run == 2] == [5, 6, 7, *range(990, 1010)]
    assert cluster.counts(job) == {"SUCCEEDED": 1010}


def test_a_limit_is_lowered_raised_and_lifted() -> None:
    cluster = cluster_of(Fate(3.0), hosts=12)
    spec = grown(job_spec(60), 60, maximum_running=30)
    job = cluster.create_job(spec)
    cluster.run_until(lambda: running(cluster, job) == 30)
    cluster.ask(job, UpdateJob(grown(spec, 60, maximum_running=5)))
    cluster.run_for(5.0)
    assert 0 < running(cluster, job) <= 5
    cluster.ask(job, UpdateJob(grown(spec, 70, maximum_running=3)))
    cluster.run_until(lambda: running(cluster, job) == 3)
    for _ in range(100):
        cluster.run_for(0.1)
        assert running(cluster, job) <= 3
    cluster.ask(job, UpdateJob(grown(spec, 70, maximum_running=0)))
    cluster.run_for(1.0)
    assert running(cluster, job) > 5
    cluster.run_until(cluster.over)
    assert cluster.counts(job) == {"SUCCEEDED": 70}
    cluster.check_quiet()


def once_in_vain(run: str) -> Fate:
    """Runs of instances fail now and then."""
    return Fate(1.0 + len(run) % 3, FAILURE if run.endswith("1") else SUCCESS)


def storm(cluster: CheckedCluster, seed: int, *, spec: JobSpec) -> None:
    """Commands in any order, sends lost, late and repeated; and then all are to run again."""
    chance = random.Random(seed)
    job = cluster.create_job(spec)
    cluster.world.sends.faults = SendFaults(drop=0.2, repeat=0.2, delay_s=0.3)
    most, limit = spec.instances, spec.maximum_running
    for _ in range(25):
        start = chance.randrange(spec.instances)
        ranges = ((start, start + chance.choice((1, 7, 40))),)
        some = chance.choice(((), ranges, ranges))
        kind = chance.choice(("stop", "start", "restart", "restart", "update", "crash"))
        if kind == "stop":
            cluster.ask(job, StopJob(some))
        elif kind == "start":
            cluster.ask(job, StartInstances(some))
        elif kind == "restart":
            cluster.ask(job, StartInstances(some, again=True))
        elif kind == "update":
            answer = cluster.ask(job, UpdateJob(grown(spec, most + 1)))
            if isinstance(answer, JobUpdated):
                assert answer.added == 1
                most += 1
        else:
            cluster.drop_shard(chance.choice([job, *cluster.hosts, STORM_POOL]))
        end = cluster.world.now + chance.choice((0.01, 0.3, 2.0))

        def passed(end: float = end) -> bool:
            if limit:
                assert running(cluster, job) <= limit
            return cluster.world.now >= end

        cluster.run_until(passed, within_s=60.0)
    cluster.calm()
    cluster.ask(job, StartInstances())
    cluster.ask(job, StartInstances(again=True))

    def over() -> bool:
        if limit:
            assert running(cluster, job) <= limit
        return cluster.over()

    cluster.run_until(over)
    counts = cluster.counts(job)
    assert sum(counts.values()) == most and not counts.get("KILLED")
    views = cluster.instances(job, most)
    assert [view.instance for view in views] == [*range(most)]
    assert all(view.goal == TaskGoals.SUCCEEDED for view in views)
    cluster.ask(job, StopJob())
    cluster.ask(job, StartInstances(((0, 1),), again=True))
    cluster.run_until(cluster.over)
    assert not cluster.counts(job).get("KILLED"), "who had ended keeps its outcome"


@pytest.mark.parametrize("seed", range(4))
def test_in_any_order_the_last_goal_is_reached(seed: int) -> None:
    setup = ClusterSetup(fates=once_in_vain, finished_jobs_max=seed % 2)
    cluster = CheckedCluster(daemons=2, hosts=8, seed=seed, setup=setup)
    storm(cluster, seed, spec=job_spec(30, max_failures=1))
    cluster.run_for(20.0)
    cluster.check_quiet()


def test_nor_is_the_limit_ever_exceeded() -> None:
    setup = ClusterSetup(fates=once_in_vain, checked=False)
    cluster = CheckedCluster(daemons=2, hosts=40, seed=1, setup=setup)
    storm(cluster, 1, spec=limited(1040, 80))


@pytest.mark.parametrize(("before_s", "after_s"), [(0.0, 20.0), (500.0, 20.0), (20.0, 0.0)])
def test_a_new_limit_holds_for_instances_that_run(before_s: float, after_s: float) -> None:
    """From their start, or where they had none from the update on; of all slices."""
    cluster = cluster_of(Fate(60.0))
    spec = grown(job_spec(4), 4, max_running_time_s=before_s)
    job = cluster.create_job(spec)
    cluster.run_until(lambda: cluster.counts(job) == {"RUNNING": 4})
    cluster.run_for(5.0)
    answer = cluster.ask(job, UpdateJob(grown(spec, 4, max_running_time_s=after_s)))
    assert answer == JobUpdated(0, 2)
    cluster.run_until(cluster.over)
    end = "KILLED" if after_s else "SUCCEEDED"
    assert cluster.counts(job) == {end: 4}
    took = [view.ended_at - view.started_at for view in cluster.instances(job, 4)]
    least_s = (25.0 if not before_s else 20.0) if after_s else 60.0
    assert all(least_s - 0.1 <= each < least_s + 5.0 for each in took), took


def test_a_new_limit_does_not_replace_a_lower_one_of_an_instance() -> None:
    cluster = cluster_of(Fate(60.0))
    spec = job_spec(2, max_running_s=30.0)
    job = cluster.create_job(grown(spec, 2, max_running_time_s=40.0))
    cluster.run_until(lambda: cluster.counts(job) == {"RUNNING": 2})
    cluster.ask(job, UpdateJob(grown(spec, 2, max_running_time_s=50.0)))
    cluster.run_until(cluster.over)
    took = [view.ended_at - view.started_at for view in cluster.instances(job, 2)]
    assert all(29.9 <= each < 35.0 for each in took), took
