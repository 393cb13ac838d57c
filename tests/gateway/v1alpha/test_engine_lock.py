"""The lock of the goal state engine: jobs keep what they are told, and begin nothing by themselves.

Whatever was said meanwhile is done at once when it is unlocked, also by another process.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from peloton.api.v0.job import job_pb2
from peloton.api.v0.task import task_pb2 as task
from peloton.api.v0.update.svc import update_svc_pb2 as update
from peloton.api.v0.update.svc import update_svc_pb2_grpc
from peloton.api.v1alpha.admin.svc import admin_svc_pb2 as svc
from peloton.api.v1alpha.admin.svc import admin_svc_pb2_grpc
from peloton.ops.v1 import ops_pb2
from tests.cli.terminal import typed
from tests.gateway.fleet_fixture import Deployment, default_config, named, running

A_WHILE_S = 0.2
ENGINE = "GoalStateEngine"


class Admin:
    """Locks the engine, and lets it go on."""

    def __init__(self, deployment: Deployment) -> None:
        self._stub = admin_svc_pb2_grpc.AdminServiceStub(deployment.channel)

    def lock(self) -> None:
        answer = self._stub.Lockdown(svc.LockdownRequest(components=[svc.GoalStateEngine]))
        assert [*answer.successes] == [svc.GoalStateEngine] and not answer.failures

    def unlock(self) -> None:
        answer = self._stub.RemoveLockdown(
            svc.RemoveLockdownRequest(components=[svc.GoalStateEngine])
        )
        assert [*answer.successes] == [svc.GoalStateEngine] and not answer.failures


@pytest.fixture
def admin(deployment: Deployment) -> Iterator[Admin]:
    found = Admin(deployment)
    yield found
    found.unlock()


def states(deployment: Deployment, job: str) -> dict[str, int]:
    counts = deployment.job(job).runtime.taskStats
    return {name: count for name, count in counts.items() if count}


def stay(deployment: Deployment, job: str, wanted: dict[str, int]) -> None:
    deployment.until(lambda: states(deployment, job) == wanted)
    threading.Event().wait(A_WHILE_S)
    assert states(deployment, job) == wanted


def service(deployment: Deployment, seconds: float = 600.0) -> str:
    config = default_config(seconds)
    request = deployment.request(2, defaultConfig=config, type=job_pb2.SERVICE)
    return deployment.create(request)


def running_service(deployment: Deployment) -> str:
    job = service(deployment)
    deployment.until(lambda: states(deployment, job) == {"RUNNING": 2})
    return job


def locked_while_it_runs(deployment: Deployment, admin: Admin) -> str:
    """A service whose runs end after the lock: longer ones, where that took too long."""
    for seconds in (0.5, 2.0, 8.0, 32.0):
        job = service(deployment, seconds)

        def all_run(job: str = job) -> bool:
            return states(deployment, job) == {"RUNNING": 2}

        def one_ended(job: str = job) -> bool:
            return any(deployment.task(job, at).result.runtime.failureCount for at in range(2))

        deployment.until(lambda: all_run() or one_ended())
        admin.lock()
        if all_run():
            return job
        admin.unlock()
        stop(deployment, job)
    raise AssertionError("the runs ended each time before the engine was locked")


def stop(deployment: Deployment, job: str) -> None:
    answer = deployment.tasks.Stop(task.StopRequest(jobId=named(job)))
    assert not answer.HasField("error"), answer


def test_a_new_job_is_kept_and_begins_once_it_may(deployment: Deployment, admin: Admin) -> None:
    admin.lock()
    job = deployment.create(deployment.request(3))
    stay(deployment, job, {"INITIALIZED": 3})
    reasons = deployment.ops.Why(ops_pb2.WhyRequest(job_id=job)).reasons
    assert reasons[0].code == "lockdown" and len(reasons) > 1
    why = typed("--api", deployment.api, "why", job).out
    assert "no estimate: \n" not in why, "nothing is said of a time where there is none"
    admin.unlock()
    assert deployment.ended(job).state == "SUCCEEDED"


def test_what_runs_goes_on_and_a_stop_is_kept(deployment: Deployment, admin: Admin) -> None:
    job = running_service(deployment)
    admin.lock()
    stop(deployment, job)
    stay(deployment, job, {"RUNNING": 2})
    admin.unlock()
    deployment.until(lambda: states(deployment, job) == {"KILLED": 2})


def test_who_ends_is_not_begun_anew(deployment: Deployment, admin: Admin) -> None:
    """It goes on to wait for its next run, which takes half a minute (`tests/actors`)."""
    job = locked_while_it_runs(deployment, admin)
    deployment.until(lambda: states(deployment, job) == {"SUCCEEDED": 2})
    stay(deployment, job, {"SUCCEEDED": 2})
    admin.unlock()
    deployment.until(lambda: states(deployment, job) == {"FAILED": 2})
    (reason,) = deployment.ops.Why(ops_pb2.WhyRequest(job_id=job)).reasons
    assert (reason.code, reason.instances) == ("retry-backoff", 2)


def test_an_update_is_kept_and_goes_no_step(deployment: Deployment, admin: Admin) -> None:
    job = running_service(deployment)
    updates = update_svc_pb2_grpc.UpdateServiceStub(deployment.channel)
    admin.lock()
    found = deployment.job(job)
    config = found.config
    config.defaultConfig.command.value = "new"
    config.changeLog.version = found.runtime.configurationVersion
    sent = update.CreateUpdateRequest(jobId=named(job), jobConfig=config)
    sent.updateConfig.batchSize = 1
    known = updates.CreateUpdate(sent).updateID

    def status() -> Any:
        asked = update.GetUpdateRequest(updateId=known, statusOnly=True)
        return updates.GetUpdate(asked).updateInfo.status

    threading.Event().wait(A_WHILE_S)
    assert (status().numTasksDone, status().numTasksRemaining) == (0, 2)
    assert states(deployment, job) == {"RUNNING": 2}
    admin.unlock()
    deployment.until(lambda: status().numTasksDone == 2)


def test_it_is_shown_to_who_asks_why(deployment: Deployment, admin: Admin) -> None:
    admin.lock()
    job = deployment.create(deployment.request())
    shown = typed("--api", deployment.api, "why", job).out
    assert "the goal state engine is locked down by an operator since " in shown
    assert "peloton admin unlock GoalStateEngine" in shown
    admin.unlock()
    assert "locked down" not in typed("--api", deployment.api, "why", job).out
    deployment.ended(job)


def test_the_lock_and_what_was_said_meanwhile_outlive_the_daemon(tmp_path: Path) -> None:
    with running(tmp_path) as deployment:
        Admin(deployment).lock()
        first = deployment.create(deployment.request(2))
    with running(tmp_path) as deployment:
        stay(deployment, first, {"INITIALIZED": 2})
        second = deployment.create(deployment.request(2))
        stay(deployment, second, {"INITIALIZED": 2})
        Admin(deployment).unlock()
        assert deployment.ended(first).state == "SUCCEEDED"
        assert deployment.ended(second).state == "SUCCEEDED"
