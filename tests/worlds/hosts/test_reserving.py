"""Hosts that are held for tasks, and hosts that move, on simulated clusters with crashes.

What counts is where tasks run, and who owns which host.
"""

from __future__ import annotations

import random
import zlib
from typing import Any

import msgspec
import pytest

from peloton.actors.host.holds.hold_messages import (
    HeldForTask,
    HoldForTask,
    ReleaseTaskHolds,
)
from peloton.actors.host.inventory.messages import POOLS_OWNER, HostPoolChanged, MakeHostPool
from peloton.actors.host.machine_messages import MoveToPool
from peloton.actors.host.messages import MaintenanceSet
from peloton.actors.host.stages import Maintenance
from peloton.actors.host.state import Host
from peloton.actors.job.messages import StartInstances, StopJob
from peloton.chaos.cluster.checked import CheckedCluster
from peloton.chaos.cluster.world.cluster import HOST_CAPACITY, ClusterSetup, job_spec
from peloton.chaos.cluster.world.machines import Fate
from peloton.placement.reserved import RESERVED_AFTER_S
from peloton.runtime.vocabulary import Key

HOLD_S = 180.0
LONG = Fate(10_000.0)


def cluster_of(fate: Fate = LONG, hosts: int = 3) -> CheckedCluster:
    setup = ClusterSetup(fates=lambda run: fate)
    return CheckedCluster(hosts=hosts, setup=setup)


def hosts_of(cluster: CheckedCluster) -> dict[Key, Host]:
    return dict(cluster.cells("host"))


def where(cluster: CheckedCluster, crowd: Key, member: int) -> set[Key]:
    """The hosts that have a run of this task which holds anything."""
    return {
        name
        for name, host in hosts_of(cluster).items()
        for some in host.runs.grouped.get(crowd, ())
        if member in some.members and some.resources != type(some.resources)()
    }


def wait_for(crowd: Key, member: int = 0, **more: Any) -> HoldForTask:
    return HoldForTask(task_of(crowd, member), crowd, member, "zoe", HOLD_S, **more)


def task_of(crowd: Key, member: int = 0) -> str:
    return f"{crowd.split('/')[1]}-{member}"


def crowd_of(job: Key) -> Key:
    return Key(f"task/{job.partition('/')[2]}/0")


def free_hosts(cluster: CheckedCluster, crowd: Key) -> list[Key]:
    return sorted({*hosts_of(cluster)} - where(cluster, crowd, 0))


@pytest.mark.parametrize("crash", [False, True])
def test_a_task_that_is_started_again_comes_to_the_host_that_waits(crash: bool) -> None:
    cluster = cluster_of()
    job = cluster.create_job(job_spec())
    crowd = crowd_of(job)
    cluster.run_until(lambda: cluster.counts(job) == {"RUNNING": 1})
    other = free_hosts(cluster, crowd)[-1]
    cluster.ask(job, StopJob())
    assert isinstance(cluster.ask(other, wait_for(crowd)), HeldForTask)
    cluster.run_until(lambda: cluster.counts(job) == {"KILLED": 1})
    if crash:
        cluster.crash_shard(other)
        cluster.kill()
    # The placer learns of it from the host's report.
    cluster.run_for(20.0)
    cluster.ask(job, StartInstances())
    cluster.run_until(lambda: cluster.counts(job) == {"RUNNING": 1})
    assert where(cluster, crowd, 0) == {other} and not hosts_of(cluster)[other].task_holds
    cluster.ask(job, StopJob())
    cluster.run_until(cluster.over)
    cluster.check_quiet()


def test_a_large_task_gets_a_host_amid_a_steady_load_of_small_ones() -> None:
    """Of twelve cpus eight are in use at any time, scattered over three hosts."""
    setup = ClusterSetup(fates=lambda run: Fate(5.0 + zlib.crc32(run.encode()) % 20))
    cluster = CheckedCluster(hosts=3, setup=setup)
    small = job_spec(2000)
    small = msgspec.structs.replace(small, maximum_running=8, spread=True)
    load = cluster.create_job(small, "load")
    cluster.run_until(lambda: cluster.counts(load).get("RUNNING") == 8)
    large = cluster.create_job(job_spec(resources=HOST_CAPACITY), "large")
    began = cluster.world.now
    cluster.run_until(lambda: cluster.counts(large) == {"RUNNING": 1})
    assert cluster.world.now - began > RESERVED_AFTER_S, "else it was not needed"
    cluster.run_until(lambda: cluster.counts(large) == {"SUCCEEDED": 1})
    cluster.run_for(HOLD_S)
    assert not any(host.task_holds for host in hosts_of(cluster).values())
    for job in (load, large):
        cluster.ask(job, StopJob())
    cluster.run_until(cluster.over)
    cluster.check_quiet()


@pytest.mark.parametrize("seed", range(8))
def test_holds_kills_and_starts_in_any_order(seed: int) -> None:
    """No hold outlives its time, nobody else gets the room, and every task runs in the end."""
    drawn = random.Random(seed)
    cluster = cluster_of()
    jobs = [cluster.create_job(job_spec(), name) for name in ("j", "k", "l")]
    cluster.run_for(5.0)
    for _ in range(25):
        job, host = drawn.choice(jobs), drawn.choice(sorted(hosts_of(cluster)))
        do = drawn.randrange(6)
        if do == 0:
            cluster.ask(host, wait_for(crowd_of(job)))
        elif do == 1:
            cluster.ask(host, ReleaseTaskHolds((task_of(crowd_of(job)),)), keyed=False)
        elif do == 2:
            cluster.ask(job, StopJob())
        elif do == 3:
            cluster.ask(job, StartInstances())
        elif do == 4:
            cluster.crash_shard(drawn.choice((job, host)))
        cluster.run_for(drawn.choice((0.01, 0.5, 5.0, 60.0)))
        for known in hosts_of(cluster).values():
            assert all(cluster.world.now < one.until + 15.0 for one in known.task_holds)
    cluster.run_for(HOLD_S + 60.0)
    assert not any(known.task_holds for known in hosts_of(cluster).values())
    for job in jobs:
        cluster.ask(job, StartInstances())
    cluster.run_until(lambda: all(cluster.counts(job) == {"RUNNING": 1} for job in jobs))
    for job in jobs:
        cluster.ask(job, StopJob())
    cluster.run_until(cluster.over)
    cluster.check_quiet()


@pytest.mark.parametrize("seed", range(8))
def test_a_host_moves_whatever_crashes(seed: int) -> None:
    drawn = random.Random(seed)
    cluster = cluster_of()
    job = cluster.create_job(job_spec())
    cluster.run_until(lambda: cluster.counts(job) == {"RUNNING": 1})
    (host,) = where(cluster, crowd_of(job), 0)
    assert isinstance(cluster.ask(POOLS_OWNER, MakeHostPool("x")), HostPoolChanged)
    assert isinstance(cluster.ask(host, MoveToPool("default", "x")), MaintenanceSet)
    for _ in range(6):
        cluster.run_for(drawn.choice((0.0, 0.01, 0.05, 0.5, 3.0)))
        cluster.crash_shard(drawn.choice((host, POOLS_OWNER)))

    def moved() -> bool:
        known = hosts_of(cluster)[host]
        return known.pool == "x" and known.maintenance == Maintenance.NONE and known.grants

    cluster.run_until(moved)
    assert not hosts_of(cluster)[host].moving
    cluster.run_until(lambda: cluster.counts(job) == {"RUNNING": 1})
    assert where(cluster, crowd_of(job), 0) != {host}, "it is not of its pool any more"
    cluster.ask(job, StopJob())
    cluster.run_until(cluster.over)
    cluster.check_quiet()


def test_a_host_comes_back_from_a_pool_that_there_is_not() -> None:
    cluster = cluster_of()
    cluster.run_for(5.0)
    host = sorted(hosts_of(cluster))[0]
    assert isinstance(cluster.ask(host, MoveToPool("default", "x")), MaintenanceSet)
    cluster.run_until(lambda: hosts_of(cluster)[host].maintenance == Maintenance.NONE)
    known = hosts_of(cluster)[host]
    assert known.pool in ("", "default") and not known.moving and known.grants
