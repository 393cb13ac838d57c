"""JobManager.Update, TaskManager.Start, Restart and Refresh: jobs that change while they exist."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest

from peloton.api.v0.job import job_pb2 as job
from peloton.api.v0.task import task_pb2 as task
from tests.gateway.fleet_fixture import Deployment, default_config, named

CODE = grpc.StatusCode


@pytest.fixture
def long(deployment: Deployment) -> Iterator[str]:
    """A job of three that run until they are stopped."""
    request = deployment.request(3, defaultConfig=default_config(seconds=60))
    job_id = deployment.create(request)
    deployment.until(lambda: deployment.job(job_id).runtime.taskStats["RUNNING"] == 3)
    yield job_id
    deployment.tasks.Stop(task.StopRequest(jobId=named(job_id)))
    deployment.ended(job_id)


def update(deployment: Deployment, job_id: str, count: int, **key: Any) -> job.UpdateResponse:
    config = deployment.job(job_id).config
    config.instanceCount = count
    return deployment.jobs.Update(job.UpdateRequest(id=named(job_id), config=config), **key)


def refused(call: Callable[[], Any]) -> tuple[Any, str]:
    with pytest.raises(grpc.RpcError) as caught:
        call()
    return caught.value.code(), caught.value.details()


def span(start: int, stop: int) -> task.InstanceRange:
    return task.InstanceRange(**{"from": start, "to": stop})


def test_a_job_gets_more_instances(deployment: Deployment, long: str) -> None:
    config = deployment.job(long).config
    old = deployment.job(long).config
    config.instanceCount = 5
    config.instanceConfig[4].name = "four"
    config.instanceConfig[4].command.value = "sleep 61"
    answer = deployment.jobs.Update(job.UpdateRequest(id=named(long), config=config))
    assert (answer.id.value, answer.message) == (long, "added 2 instances")
    deployment.until(lambda: deployment.job(long).runtime.taskStats["RUNNING"] == 5)
    info = deployment.job(long)
    assert info.config.changeLog.version == info.runtime.configVersion == 2
    assert info.config.instanceCount == 5 and info.config.instanceConfig[4].name == "four"
    assert dict(info.runtime.taskConfigVersionStats) == {1: 3, 2: 2}
    assert deployment.task(long, 4).result.config.command.value == "sleep 61"
    versions = [deployment.task(long, n).result.runtime.configVersion for n in range(5)]
    assert versions == [1, 1, 1, 2, 2]
    stale = lambda: deployment.jobs.Update(  # noqa: E731
        job.UpdateRequest(id=named(long), config=old)
    )
    assert refused(stale) == (CODE.INVALID_ARGUMENT, "invalid job configuration version")


def test_an_update_may_be_said_twice_under_its_key(deployment: Deployment, long: str) -> None:
    config = deployment.job(long).config
    config.instanceCount = 4
    sent = job.UpdateRequest(id=named(long), config=config)
    key = [("peloton-request-key", "grow")]
    answers = [deployment.jobs.Update(sent, metadata=key) for _ in range(2)]
    assert [answer.message for answer in answers] == ["added 1 instances"] * 2
    assert deployment.job(long).config.instanceCount == 4


def test_nothing_to_add_is_no_error(deployment: Deployment, long: str) -> None:
    assert update(deployment, long, 3) == job.UpdateResponse()
    assert deployment.job(long).config.changeLog.version == 1


def test_what_an_update_may_not(deployment: Deployment, long: str) -> None:
    def changed(change: Callable[[job.JobConfig], object]) -> tuple[Any, str]:
        config = deployment.job(long).config
        config.instanceCount = 9
        change(config)
        sent = job.UpdateRequest(id=named(long), config=config)
        return refused(lambda: deployment.jobs.Update(sent))

    wrong = CODE.INVALID_ARGUMENT
    assert changed(lambda c: setattr(c, "name", "x")) == (wrong, "updating Name not supported")
    assert changed(lambda c: c.labels.add(key="a", value="b")) == (
        wrong, "updating Labels not supported",
    )  # fmt: skip
    assert changed(lambda c: (c.ClearField("defaultConfig"), c.ldapGroups.append("g"))) == (
        wrong, "updating LdapGroups not supported; updating DefaultConfig not supported",
    )  # fmt: skip
    code, text = changed(lambda c: setattr(c, "instanceCount", 1))
    assert code == wrong and "new instance count can't be less" in text
    code, text = changed(lambda c: setattr(c.instanceConfig[0], "name", "mine"))
    assert code == wrong and text.startswith("config.instanceConfig[0]: ")
    code, text = changed(lambda c: setattr(c.sla, "maximumRunningInstances", 10))
    assert code == wrong and "MaximumRunningInstances > InstanceCount" in text
    assert deployment.job(long).config.instanceCount == 3


def test_whom_an_update_finds_ended_or_not_at_all(deployment: Deployment) -> None:
    job_id = deployment.create(deployment.request(1, defaultConfig=default_config()))
    deployment.ended(job_id)
    text = "Job is in a terminal state:SUCCEEDED"
    assert refused(lambda: update(deployment, job_id, 2)) == (CODE.INVALID_ARGUMENT, text)
    sent = job.UpdateRequest(id=named(str(uuid.uuid4())))
    assert refused(lambda: deployment.jobs.Update(sent)) == (CODE.NOT_FOUND, "job not found")


def test_own_configs_that_are_large_travel_in_pieces(deployment: Deployment) -> None:
    job_id = deployment.create(deployment.request(2, defaultConfig=default_config(seconds=60)))
    config = deployment.job(job_id).config
    config.instanceCount = 2200
    for instance in range(2, 2200):
        config.instanceConfig[instance].command.value = f"sleep 60 # {instance} " + "x" * 1000
    sent = job.UpdateRequest(id=named(job_id), config=config)
    assert deployment.jobs.Update(sent).message == "added 2198 instances"
    for instance in (2, 999, 1000, 2199):
        value = deployment.task(job_id, instance).result.config.command.value
        assert value.startswith(f"sleep 60 # {instance} ")
    deployment.tasks.Stop(task.StopRequest(jobId=named(job_id)))
    deployment.ended(job_id)


def test_stopped_instances_start_again(deployment: Deployment, long: str) -> None:
    deployment.tasks.Stop(task.StopRequest(jobId=named(long), ranges=[span(0, 2)]))
    deployment.until(lambda: deployment.job(long).runtime.taskStats["KILLED"] == 2)
    sent = task.StartRequest(jobId=named(long), ranges=[span(1, 3), span(7, 8)])
    answer = deployment.tasks.Start(sent)
    assert list(answer.startedInstanceIds) == [1] and list(answer.invalidInstanceIds) == [7]
    deployment.until(lambda: deployment.job(long).runtime.taskStats["RUNNING"] == 2)
    runtime = deployment.task(long, 1).result.runtime
    assert runtime.mesosTaskId.value == f"{long}-1-2" and runtime.goalState == task.SUCCEEDED


def test_a_job_that_ended_is_restarted(deployment: Deployment) -> None:
    job_id = deployment.create(deployment.request(2, defaultConfig=default_config()))
    deployment.ended(job_id)
    first = deployment.job(job_id).runtime
    sent = task.RestartRequest(jobId=named(job_id), ranges=[span(0, 1)])
    key = [("peloton-request-key", "again")]
    for _ in range(2):
        assert deployment.tasks.Restart(sent, metadata=key) == task.RestartResponse()
    deployment.ended(job_id)
    last = deployment.job(job_id).runtime
    assert (last.state, last.startTime) == (job.SUCCEEDED, first.startTime)
    assert last.completionTime > first.completionTime
    runs = [deployment.task(job_id, n).result.runtime.mesosTaskId.value for n in range(2)]
    assert runs == [f"{job_id}-0-2", f"{job_id}-1-1"]
    nobody = task.RestartRequest(jobId=named(str(uuid.uuid4())))
    assert refused(lambda: deployment.tasks.Restart(nobody)) == (CODE.NOT_FOUND, "job not found")


def test_to_refresh_changes_nothing(deployment: Deployment, long: str) -> None:
    before = deployment.job(long)
    assert deployment.jobs.Refresh(job.RefreshRequest(id=named(long))) == job.RefreshResponse()
    sent = task.RefreshRequest(jobId=named(long), range=span(0, 2))
    assert deployment.tasks.Refresh(sent) == task.RefreshResponse()
    assert deployment.job(long) == before
    sent.range.CopyFrom(span(7, 9))
    assert refused(lambda: deployment.tasks.Refresh(sent)) == (CODE.NOT_FOUND, "tasks not found")
    nobody = named(str(uuid.uuid4()))
    for call in (
        lambda: deployment.jobs.Refresh(job.RefreshRequest(id=nobody)),
        lambda: deployment.tasks.Refresh(task.RefreshRequest(jobId=nobody)),
    ):
        assert refused(call) == (CODE.NOT_FOUND, "job not found")


def test_rolling_changes_are_for_services(deployment: Deployment, long: str) -> None:
    for name in ("Restart", "Start", "Stop"):
        sent = getattr(job, f"{name}Request")(id=named(long))
        text = f"{name.upper()} supported only for service jobs"
        assert refused(lambda n=name, s=sent: getattr(deployment.jobs, n)(s)) == (
            CODE.INVALID_ARGUMENT, text,
        )  # fmt: skip
