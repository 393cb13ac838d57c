"""AdminService: each component really stops what it names, in the cluster, and goes on again."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from peloton.actors.lockdown.messages import ENGINE, LAUNCH, LOCKDOWN, READ, Lock, Locks, SetLocks
from peloton.api.v0.job import job_pb2
from peloton.api.v0.task import task_pb2 as task
from peloton.api.v1alpha.admin.svc import admin_svc_pb2 as svc
from peloton.api.v1alpha.admin.svc import admin_svc_pb2_grpc
from peloton.cli.shared import exits
from peloton.gateway.access.access_table import ACCESS_TABLE
from peloton.gateway.access.lockdowns import component_of, lock_notes
from peloton.placement.messages import LaunchesStopped
from peloton.runtime.core.turning.envelope import Envelope
from peloton.runtime.vocabulary import Key
from tests.cli.terminal import typed
from tests.gateway.fleet_fixture import (
    WAIT_S_MAX,
    Deployment,
    default_config,
    named,
    refused,
    running,
)

CODE = grpc.StatusCode
EVERY = [svc.GoalStateEngine, svc.Read, svc.Write, svc.Kill, svc.Launch]
A_WHILE_S = 0.2
ALL_READS, ALL_WRITES = "All read APIs are locked down", "All write APIs are locked down"


@pytest.fixture
def admin(deployment: Deployment) -> Iterator[Any]:
    found = admin_svc_pb2_grpc.AdminServiceStub(deployment.channel)
    yield found
    found.RemoveLockdown(svc.RemoveLockdownRequest(components=EVERY))


def lock(admin: Any, *components: Any) -> None:
    answer = admin.Lockdown(svc.LockdownRequest(components=components))
    assert [*answer.successes] == [*components] and not answer.failures


def unlock(admin: Any, *components: Any) -> None:
    answer = admin.RemoveLockdown(svc.RemoveLockdownRequest(components=components))
    assert [*answer.successes] == [*components] and not answer.failures


def states(deployment: Deployment, job: str) -> dict[str, int]:
    counts = deployment.job(job).runtime.taskStats
    return {name: count for name, count in counts.items() if count}


def is_locked(call: Any, sent: Any, text: str) -> bool:
    """Whether the call is refused with this text, and with who locked when."""
    code, found = refused(call, sent)
    since = rf"{text} by an operator since 20\d\d-\d\d-\d\dT[0-9:.]+Z"
    return code == CODE.INTERNAL and re.fullmatch(since, found) is not None


def test_reads_are_refused(deployment: Deployment, admin: Any) -> None:
    job = deployment.create(deployment.request())
    lock(admin, svc.Read)
    get = job_pb2.GetRequest(id=named(job))
    assert is_locked(deployment.jobs.Get, get, ALL_READS)
    assert deployment.create(deployment.request()), "writes go on"
    unlock(admin, svc.Read)
    assert deployment.job(job)


def test_writes_are_refused(deployment: Deployment, admin: Any) -> None:
    job = deployment.create(deployment.request())
    lock(admin, svc.Write)
    assert is_locked(deployment.jobs.Create, deployment.request(), ALL_WRITES)
    assert is_locked(deployment.tasks.Stop, task.StopRequest(jobId=named(job)), ALL_WRITES)
    assert deployment.job(job), "reads go on"
    unlock(admin, svc.Write)
    assert deployment.create(deployment.request())


def test_no_run_is_launched_while_launches_are_locked(deployment: Deployment, admin: Any) -> None:
    lock(admin, svc.Launch)
    job = deployment.create(deployment.request(3))
    waits = "launches are locked down by an operator since "
    deployment.until(lambda: waits in deployment.task(job).result.runtime.message)
    threading.Event().wait(A_WHILE_S)
    assert "RUNNING" not in states(deployment, job) and "SUCCEEDED" not in states(deployment, job)
    unlock(admin, svc.Launch)
    assert deployment.ended(job).state == "SUCCEEDED"


def test_what_was_launched_already_is_started_once_it_may(
    deployment: Deployment, admin: Any
) -> None:
    """The placer has proposed before it knew: the backend's gate is the last one."""
    lock(admin, svc.Launch)
    deployment.region.tell([Envelope(Key("placer/0"), LaunchesStopped(""))])
    job = deployment.create(deployment.request(2))
    deployment.until(lambda: states(deployment, job).get("LAUNCHED"))
    threading.Event().wait(A_WHILE_S)
    assert states(deployment, job) == {"LAUNCHED": 2}
    unlock(admin, svc.Launch)
    assert deployment.ended(job).state == "SUCCEEDED"


def test_no_run_is_killed_while_kills_are_locked(deployment: Deployment, admin: Any) -> None:
    job = deployment.create(deployment.request(2, defaultConfig=default_config(600.0)))
    deployment.until(lambda: states(deployment, job) == {"RUNNING": 2})
    lock(admin, svc.Kill)
    deployment.tasks.Stop(task.StopRequest(jobId=named(job)))
    deployment.until(lambda: states(deployment, job) == {"KILLING": 2})
    threading.Event().wait(A_WHILE_S)
    assert states(deployment, job) == {"KILLING": 2}
    unlock(admin, svc.Kill)
    assert deployment.ended(job).state == "KILLED"


def test_locks_outlive_the_daemon(tmp_path: Path) -> None:
    with running(tmp_path) as deployment:
        lock(admin_svc_pb2_grpc.AdminServiceStub(deployment.channel), svc.Launch, svc.Write)
    with running(tmp_path) as deployment:
        admin = admin_svc_pb2_grpc.AdminServiceStub(deployment.channel)
        request = deployment.request()
        deployment.until(lambda: is_locked(deployment.jobs.Create, request, ALL_WRITES))
        unlock(admin, svc.Write)
        job = deployment.create(deployment.request())
        threading.Event().wait(A_WHILE_S)
        assert not states(deployment, job).get("RUNNING")
        unlock(admin, svc.Launch)
        assert deployment.ended(job).state == "SUCCEEDED"


def test_a_repeat_and_what_is_not_locked_succeed(admin: Any) -> None:
    lock(admin, svc.Kill)
    lock(admin, svc.Kill, svc.Launch)
    unlock(admin, *EVERY)
    unlock(admin, svc.Launch)
    assert not admin.Lockdown(svc.LockdownRequest()).successes


@pytest.mark.parametrize("call", ["Lockdown", "RemoveLockdown"])
def test_an_unknown_component_is_refused(admin: Any, call: str) -> None:
    sent = getattr(svc, f"{call}Request")(components=[svc.Kill, 9])
    code, text = refused(getattr(admin, call), sent)
    assert (code, text) == (CODE.INVALID_ARGUMENT, "components[1]: unknown component 9")


def test_below_its_feature_level_nothing_is_locked(deployment: Deployment) -> None:
    answer = deployment.region.ask(LOCKDOWN, SetLocks(("Nonsense",), True)).result(WAIT_S_MAX)
    assert answer.text == "no component Nonsense"


@pytest.mark.parametrize(
    ("method", "component"),
    [
        ("peloton.api.v0.job.JobManager.Get", "Read"),
        ("peloton.api.v0.job.JobManager.Query", "Read"),
        ("peloton.api.v0.task.TaskManager.BrowseSandbox", "Read"),
        ("peloton.api.v1alpha.watch.svc.WatchService.Cancel", "Read"),
        ("peloton.api.v1alpha.job.stateless.svc.JobService.PatchJob", "Write"),
        ("peloton.api.v0.job.JobManager.Refresh", "Write"),
        ("peloton.api.v0.host.svc.HostService.StartMaintenance", "Write"),
        ("peloton.api.v0.respool.ResourceManager.LookupResourcePoolID", ""),
        ("peloton.private.hostmgr.hostsvc.InternalHostService.KillTasks", ""),
        ("peloton.ops.v1.Ops.Why", "Read"),
        ("peloton.ops.v1.Ops.Redrive", "Write"),
        ("peloton.ops.v1.Schedules.CreateSchedule", "Write"),
        ("peloton.api.v1alpha.admin.svc.AdminService.Lockdown", ""),
        ("grpc.health.v1.Health.Check", ""),
    ],
)
def test_which_calls_are_reads_and_writes(method: str, component: str) -> None:
    assert component_of(method, ACCESS_TABLE.get(method)) == component


def test_locks_are_typed_and_shown(deployment: Deployment, admin: Any) -> None:
    where = ("--api", deployment.api)
    locked = typed(*where, "admin", "lock", "Launch")
    assert (locked.code, locked.out) == (0, "lock on Launch succeeded\n")
    job = deployment.create(deployment.request())
    deployment.until(lambda: "launches are locked down by" in typed(*where, "why", job).out)
    unlocked = typed(*where, "admin", "unlock", "Launch", "Kill")
    assert unlocked.code == 0
    assert unlocked.out.splitlines() == ["unlock on Launch succeeded", "unlock on Kill succeeded"]
    assert typed(*where, "admin", "lock").code == exits.USAGE
    deployment.ended(job)


def test_health_shows_locks() -> None:
    locks = Locks((Lock(LAUNCH, 1.5, "token:ann@127.0.0.1/tool"), Lock(READ, 1.5)), 2)
    since = "since 1970-01-01T00:00:01.500000000Z"
    assert [str(note) for note in lock_notes(locks)] == [
        f"lockdown: launches are locked down by ann (verified by token) {since}",
        f"lockdown: reads are locked down by an operator {since}",
    ]
    (note,) = lock_notes(Locks((Lock(ENGINE, 1.5),), 2))
    assert str(note) == f"lockdown: the goal state engine is locked down by an operator {since}"
