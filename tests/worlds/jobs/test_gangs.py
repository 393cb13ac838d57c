"""Gangs on simulated clusters: all members run, or none; and each gang comes to its turn.

What counts is what tasks and hosts journal.
"""

from __future__ import annotations

import msgspec
import pytest

from peloton.actors.host.messages import BackendUp, ConfigureHost, StartMaintenance
from peloton.actors.job.messages import StartInstances, StopJob
from peloton.actors.job.slice.task_config import Command, Override, TaskConfig
from peloton.actors.job.spec import JobSpec
from peloton.actors.job.stages import JobStates
from peloton.actors.respool.lot.messages import GetLot
from peloton.actors.task.messages import End, RunOutcome
from peloton.chaos.cluster.checked import CheckedCluster
from peloton.chaos.cluster.world.cluster import HOST_CAPACITY, NEED, ClusterSetup, job_spec
from peloton.chaos.cluster.world.machines import MACHINE_BACKEND, Fate
from peloton.runtime.simulation.sends import SendFaults
from peloton.runtime.vocabulary import Key

FAILS = Fate(1.0, RunOutcome(End.FAILED, 1, message="exit 1"))
"""Each host has room for four instances."""


def cluster_of(hosts: int = 2, run_s: float | None = 1.0, **setup: object) -> CheckedCluster:
    given = {"fates": lambda run: Fate(run_s), **setup}
    daemons = given.pop("daemons", 1)
    return CheckedCluster(hosts=hosts, daemons=daemons, setup=ClusterSetup(**given))


def gang(members: int, instances: int = 0, **fields: object) -> JobSpec:
    of = job_spec(instances or members)
    return msgspec.structs.replace(of, minimum_running=members, **fields)


def state_of(cluster: CheckedCluster, job: Key) -> JobStates:
    return cluster.job(job).summary.state


def test_a_gang_runs_as_one() -> None:
    cluster = cluster_of()
    job = cluster.create_job(gang(6))
    cluster.run_until(lambda: cluster.counts(job).get("RUNNING") == 6, within_s=10.0)
    cluster.run_until(cluster.over)
    assert state_of(cluster, job) == JobStates.SUCCEEDED
    cluster.check_quiet()


def test_a_gang_without_room_for_all_runs_none() -> None:
    cluster = cluster_of(run_s=5.0)
    first = cluster.create_job(gang(5), "first")
    cluster.run_until(lambda: cluster.counts(first).get("RUNNING") == 5)
    second = cluster.create_job(gang(4), "second")
    cluster.run_for(3.0)
    assert cluster.counts(second) == {"PENDING": 4}
    cluster.run_until(lambda: cluster.counts(second).get("RUNNING") == 4)
    assert state_of(cluster, first) == JobStates.SUCCEEDED
    cluster.run_until(cluster.over)
    cluster.check_quiet()


def test_others_of_the_job_run_one_by_one() -> None:
    cluster = cluster_of()
    job = cluster.create_job(gang(3, 20))
    cluster.run_until(cluster.over, within_s=120.0)
    assert cluster.counts(job) == {"SUCCEEDED": 20}
    cluster.check_quiet()


def test_a_gang_of_several_shapes_is_admitted_as_one() -> None:
    cluster = cluster_of(run_s=5.0)
    large = TaskConfig(command=Command("x"), resources=NEED.times(2))
    mixed = (Override(1, large), Override(3, large))
    first = cluster.create_job(gang(2), "first")
    cluster.run_until(lambda: cluster.counts(first).get("RUNNING") == 2)
    second = cluster.create_job(gang(5), "second", overrides=mixed)
    cluster.run_for(2.0)
    assert cluster.counts(second) == {"PENDING": 5}
    cluster.run_until(lambda: cluster.counts(second).get("RUNNING") == 5)
    cluster.run_until(cluster.over)
    cluster.check_quiet()


def test_a_gang_that_is_larger_than_all_hosts_says_never() -> None:
    cluster = cluster_of(hosts=3)
    wide = NEED.times(3)
    job = cluster.create_job(gang(4, default=TaskConfig(command=Command("x"), resources=wide)))
    cluster.run_for(3.0)
    views = cluster.instances(job, 4)
    assert {view.code for view in views} == {"NEVER"}
    assert "could hold 3 if they were empty: it can never fit" in views[0].because
    other = cluster.create_job(job_spec(12), "other")
    cluster.run_until(lambda: state_of(cluster, other) == JobStates.SUCCEEDED)
    cluster.ask(job, StopJob())
    cluster.run_until(cluster.over)
    cluster.check_quiet()


def test_a_gang_beyond_the_limit_of_its_pool_says_never() -> None:
    cluster = cluster_of(hosts=3)
    pool = cluster.make_pool("small", NEED.times(3))
    job = cluster.create_job(gang(4, pool=pool))
    other = cluster.create_job(msgspec.structs.replace(job_spec(2), pool=pool), "other")
    cluster.run_until(lambda: state_of(cluster, other) == JobStates.SUCCEEDED)
    view = cluster.instances(job, 1)[0]
    found = cluster.ask(view.lot, GetLot())
    assert found.never and found.because.startswith("a gang of 4: requested 4 cpu, but the limit")
    cluster.ask(job, StopJob())
    cluster.run_until(cluster.over)
    cluster.check_quiet()


def test_a_gang_runs_once_hosts_are_large_enough() -> None:
    cluster = cluster_of(hosts=3)
    wide = TaskConfig(command=Command("x"), resources=NEED.times(3))
    job = cluster.create_job(gang(4, default=wide))
    cluster.run_for(3.0)
    assert {view.code for view in cluster.instances(job, 4)} == {"NEVER"}
    larger = ConfigureHost(HOST_CAPACITY.times(2), (), MACHINE_BACKEND)
    cluster.tell(cluster.hosts[0], larger)
    cluster.tell(cluster.hosts[0], BackendUp())
    cluster.run_until(cluster.over)
    assert state_of(cluster, job) == JobStates.SUCCEEDED


def test_members_that_are_stopped_are_not_waited_for() -> None:
    cluster = cluster_of(run_s=5.0)
    first = cluster.create_job(gang(5), "first")
    cluster.run_until(lambda: cluster.counts(first).get("RUNNING") == 5)
    second = cluster.create_job(gang(4), "second")
    cluster.run_for(1.0)
    cluster.ask(second, StopJob(((1, 2),)))
    cluster.run_until(lambda: cluster.counts(second).get("RUNNING") == 3, within_s=2.0)
    cluster.run_until(cluster.over)
    assert cluster.counts(second) == {"SUCCEEDED": 3, "KILLED": 1}
    cluster.check_quiet()


def test_a_member_that_fails_is_retried_alone() -> None:
    def fates(run: str) -> Fate:
        return FAILS if run.endswith("-2-1") else Fate(4.0)

    cluster = cluster_of(fates=fates)
    config = TaskConfig(command=Command("x"), resources=NEED, max_failures=2)
    job = cluster.create_job(gang(4, default=config))
    cluster.run_until(cluster.over)
    views = cluster.instances(job, 4)
    assert [view.run for view in views] == [1, 1, 2, 1]
    assert {view.state for view in views} == {"SUCCEEDED"}
    cluster.check_quiet()


def test_a_gang_restarts_as_one() -> None:
    def fates(run: str) -> Fate:
        return FAILS if run.endswith(("-2-1", "-0-2")) else Fate(4.0)

    cluster = cluster_of(fates=fates)
    config = TaskConfig(command=Command("x"), resources=NEED, max_failures=2)
    job = cluster.create_job(gang(4, 5, default=config, gang_together=True))
    cluster.run_until(cluster.over)
    views = cluster.instances(job, 5)
    assert {view.state for view in views} == {"SUCCEEDED"}
    assert [view.run for view in views] == [3, 3, 3, 3, 1]
    assert [view.failures for view in views] == [1, 0, 1, 0, 0]
    cluster.check_quiet()


def test_a_gang_that_restarts_as_one_fails_with_its_last_attempt() -> None:
    def fates(run: str) -> Fate:
        return FAILS if "-2-" in run[36:] else Fate(4.0)

    cluster = cluster_of(fates=fates)
    config = TaskConfig(command=Command("x"), resources=NEED, max_failures=1)
    job = cluster.create_job(gang(3, default=config, gang_together=True))
    cluster.run_until(cluster.over)
    assert cluster.counts(job) == {"SUCCEEDED": 2, "FAILED": 1}
    assert state_of(cluster, job) == JobStates.FAILED
    cluster.check_quiet()


def test_a_gang_whose_job_is_started_again_is_a_gang_again() -> None:
    cluster = cluster_of()
    job = cluster.create_job(gang(4))
    cluster.run_until(cluster.over)
    before = cluster.create_job(job_spec(5), "before")
    cluster.run_until(lambda: cluster.counts(before).get("RUNNING") == 5)
    cluster.ask(job, StartInstances(again=True))
    cluster.run_for(0.5)
    assert cluster.counts(job) == {"PENDING": 4}
    cluster.run_until(cluster.over)
    assert [view.run for view in cluster.instances(job, 4)] == [2] * 4
    cluster.check_quiet()


def test_a_host_that_goes_down_gives_back_what_it_holds() -> None:
    cluster = cluster_of(hosts=3, run_s=3.0)
    job = cluster.create_job(gang(8))
    cluster.ask(cluster.hosts[0], StartMaintenance())
    cluster.run_until(lambda: cluster.counts(job).get("RUNNING") == 8, within_s=60.0)
    cluster.run_until(cluster.over)
    cluster.check_quiet()


@pytest.mark.parametrize("seed", range(12))
def test_gangs_compete_from_several_placers(seed: int) -> None:
    cluster = cluster_of(hosts=4, daemons=3, run_s=2.0)
    cluster.world.sends.faults = SendFaults(drop=0.1 * (seed % 3), repeat=0.1 * (seed % 2))
    jobs = [cluster.create_job(gang(6 + seed % 4), f"g{number}") for number in range(3)]
    if seed % 4 == 3:
        cluster.run_for(0.5)
        cluster.crash_shard(jobs[0])
    cluster.run_for(20.0)
    cluster.calm()
    cluster.run_until(cluster.over, within_s=240.0)
    assert {state_of(cluster, job) for job in jobs} == {JobStates.SUCCEEDED}
    cluster.check_quiet()
