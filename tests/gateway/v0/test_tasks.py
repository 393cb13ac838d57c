"""TaskManager: instances as they are and were, stopping them, their events and files."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from peloton.api.v0.job import job_pb2 as job
from peloton.api.v0.query import query_pb2 as query
from peloton.api.v0.task import task_pb2 as task
from peloton.ops.v1 import ops_pb2
from tests.gateway.fleet_fixture import Deployment, default_config, named


@pytest.fixture
def long(deployment: Deployment) -> Iterator[str]:
    """A job of five that run until they are stopped."""
    request = deployment.request(5, defaultConfig=default_config(seconds=60))
    request.config.instanceConfig[3].name = "three"
    request.config.instanceConfig[3].labels.add(key="own", value="label")
    job_id = deployment.create(request)
    deployment.until(lambda: deployment.job(job_id).runtime.taskStats["RUNNING"] == 5)
    yield job_id
    deployment.tasks.Stop(task.StopRequest(jobId=named(job_id)))
    deployment.ended(job_id)


def listed(deployment: Deployment, job_id: str, *only: int) -> dict[int, task.TaskInfo]:
    sent = task.ListRequest(jobId=named(job_id))
    if only:
        sent.range.CopyFrom(task.InstanceRange(**{"from": only[0], "to": only[1]}))
    return dict(deployment.tasks.List(sent).result.value)


def test_a_running_instance(deployment: Deployment, long: str) -> None:
    answer = deployment.task(long, 3)
    runtime = answer.result.runtime
    assert (answer.result.instanceId, answer.result.jobId.value) == (3, long)
    assert (runtime.state, runtime.goalState) == (task.RUNNING, task.SUCCEEDED)
    assert runtime.mesosTaskId.value == runtime.desiredMesosTaskId.value == f"{long}-3-1"
    assert runtime.host in ("a", "b", "c")
    assert runtime.agentID.value == runtime.host
    assert runtime.startTime and not runtime.completionTime
    assert not runtime.reason and not runtime.message
    assert answer.result.config.name == "three"
    assert answer.result.config.labels[0].key == "own"
    assert answer.result.config.command == default_config(seconds=60).command
    assert [info.runtime.mesosTaskId.value for info in answer.results] == [f"{long}-3-1"]


def test_lists_are_half_open(deployment: Deployment, long: str) -> None:
    assert sorted(listed(deployment, long)) == [0, 1, 2, 3, 4]
    assert sorted(listed(deployment, long, 1, 3)) == [1, 2]
    assert sorted(listed(deployment, long, 3, 2**31 - 1)) == [3, 4]
    assert not listed(deployment, long, 2, 2)
    assert not listed(deployment, long, 7, 9)


def test_stopping_some_and_then_all(deployment: Deployment, long: str) -> None:
    ranges = [task.InstanceRange(**{"from": 1, "to": 3}), task.InstanceRange(to=0)]
    answer = deployment.tasks.Stop(task.StopRequest(jobId=named(long), ranges=ranges))
    assert list(answer.stoppedInstanceIds) == [1, 2]
    deployment.until(lambda: deployment.job(long).runtime.taskStats["KILLED"] == 2)
    runtime = deployment.task(long, 1).result.runtime
    assert (runtime.state, runtime.goalState) == (task.KILLED, task.KILLED)
    status = runtime.terminationStatus.reason
    assert status == task.TerminationStatus.TERMINATION_STATUS_REASON_KILLED_ON_REQUEST
    answer = deployment.tasks.Stop(task.StopRequest(jobId=named(long)))
    assert list(answer.stoppedInstanceIds) == [0, 1, 2, 3, 4], "as the job is stopped, all are"


def test_queries(deployment: Deployment, long: str) -> None:
    def found(spec: task.QuerySpec) -> tuple[list[int], int]:
        answer = deployment.tasks.Query(task.QueryRequest(jobId=named(long), spec=spec))
        assert not answer.HasField("error"), answer
        return [record.instanceId for record in answer.records], answer.pagination.total

    Q, P = task.QuerySpec, query.PaginationSpec
    backwards = query.OrderBy(order=query.OrderBy.DESC, property={"value": "instanceId"})
    assert found(Q()) == ([0, 1, 2, 3, 4], 5)
    assert found(Q(names=["three"])) == ([3], 1)
    assert found(Q(taskStates=[task.RUNNING, task.FAILED])) == ([0, 1, 2, 3, 4], 5)
    assert found(Q(taskStates=[task.PENDING])) == ([], 0)
    assert found(Q(hosts=["nobody"])) == ([], 0)
    assert found(Q(pagination=P(offset=1, limit=2, orderBy=[backwards]))) == ([3, 2], 5)
    wrong = P(orderBy=[query.OrderBy(property={"value": "shoe_size"})])
    refused = deployment.tasks.Query(task.QueryRequest(jobId=named(long), spec=Q(pagination=wrong)))
    assert "shoe_size" in refused.error.notFound.message, "the original has one error for all"


def test_the_cache_of_a_task(deployment: Deployment, long: str) -> None:
    found = deployment.tasks.GetCache(task.GetCacheRequest(jobId=named(long), instanceId=3))
    assert found.runtime == deployment.task(long, 3).result.runtime
    assert [label.key for label in found.labels] == ["own"]
    for job_id, text in ((long, "Task not found in cache"), (str(uuid.uuid4()), "Job not found")):
        with pytest.raises(grpc.RpcError) as caught:
            deployment.tasks.GetCache(task.GetCacheRequest(jobId=named(job_id), instanceId=5))
        assert caught.value.code() == grpc.StatusCode.NOT_FOUND
        assert text in caught.value.details()


def test_every_run_is_told(deployment: Deployment) -> None:
    config = default_config(code=7)
    config.restartPolicy.maxFailures = 2
    config.retry.pauseSeconds = 0
    job_id = deployment.create(deployment.request(1, defaultConfig=config))
    deployment.ended(job_id)
    answer = deployment.task(job_id)
    runs = [info.runtime for info in answer.results]
    assert [run.mesosTaskId.value[-2:] for run in runs] == ["-2", "-1"]
    assert {run.state for run in runs} == {task.FAILED}
    assert {run.terminationStatus.exit_code for run in runs} == {7}
    assert answer.result.runtime.failureCount == 2
    used = [dict(run.resourceUsage) for run in runs]
    assert all({*each} == {"cpu", "memory", "gpu"} for each in used)
    assert used[0]["cpu"] > used[1]["cpu"] > 0, "the instance's is that of all its runs"
    ended = deployment.job(job_id).runtime
    assert ended.resourceUsage["cpu"] == pytest.approx(used[0]["cpu"])
    assert (ended.startTime, ended.completionTime) == (runs[1].startTime, runs[0].completionTime)
    assert answer.result.runtime.prevMesosTaskId.value == f"{job_id}-0-1"
    sent = task.GetPodEventsRequest(jobId=named(job_id), instanceId=0)
    events = deployment.tasks.GetPodEvents(sent).result
    newest = [event for event in events if event.taskId.value.endswith("-2")]
    assert [event.actualState for event in newest] == [
        "FAILED", "RUNNING", "LAUNCHED", "INITIALIZED",
    ]  # fmt: skip
    assert [event.timestamp for event in newest] == sorted(
        (event.timestamp for event in newest), reverse=True
    )
    assert list(events[: len(newest)]) == newest
    sent.limit = 1
    assert list(deployment.tasks.GetPodEvents(sent).result) == newest
    sent.runId = f"{job_id}-0-1"
    first = deployment.tasks.GetPodEvents(sent).result
    assert {event.taskId.value for event in first} == {sent.runId}
    assert [event.actualState for event in first] == [
        "FAILED", "RUNNING", "LAUNCHED", "INITIALIZED",
    ]  # fmt: skip
    assert first[0].timestamp == newest[-1].timestamp, "a run begins when the last one ended"
    sent.runId = "1"
    assert deployment.tasks.GetPodEvents(sent).result
    assert not any("exact time is not kept" in event.message for event in events)
    paths = [
        deployment.tasks.BrowseSandbox(
            task.BrowseSandboxRequest(jobId=named(job_id), taskId=run.mesosTaskId.value)
        ).paths[0]
        for run in runs
    ]
    assert paths == [f"/{job_id}-0-2/stdout", f"/{job_id}-0-1/stdout"], "of any run"
    outcomes = {event.reason for event in events if event.actualState == "FAILED"}
    assert outcomes == {"exited"} and {event.hostname for event in newest[:3]} != {""}


def test_an_exit_code_that_is_ruled_out_ends_the_task(deployment: Deployment) -> None:
    config = default_config(code=7)
    config.restartPolicy.maxFailures = 3
    config.retry.pauseSeconds = 0
    config.retry.never[:] = [7]
    job_id = deployment.create(deployment.request(1, defaultConfig=config))
    assert deployment.ended(job_id).state == "FAILED"
    answer = deployment.task(job_id)
    assert (len(answer.results), answer.result.runtime.failureCount) == (1, 1)
    reasons = deployment.ops.Why(ops_pb2.WhyRequest(job_id=job_id)).reasons
    assert "status 7; not run again, by `retry` of its config" in reasons[0].text


def test_a_run_that_takes_too_long_says_so(deployment: Deployment) -> None:
    config = default_config(seconds=600)
    config.restartPolicy.maxFailures = 3
    config.labels.add(key="peloton.task.max_running_time_s", value="0.2")
    request = deployment.request(1, defaultConfig=config)
    request.config.sla.maxRunningTime = 500
    job_id = deployment.create(request)
    deployment.ended(job_id)
    assert deployment.job(job_id).runtime.state == job.KILLED
    info = deployment.task(job_id)
    runtime = info.result.runtime
    assert (len(info.results), runtime.state, runtime.reason) == (
        1, task.KILLED, "Deadline exceeded",
    )  # fmt: skip
    assert runtime.message == "Deadline exceeded: ran longer than 0.2 s"
    status = task.TerminationStatus
    too_long = status.TERMINATION_STATUS_REASON_DEADLINE_TIMEOUT_EXCEEDED
    assert runtime.terminationStatus.reason == too_long


def test_what_is_ignored_is_said(deployment: Deployment) -> None:
    config = default_config()
    request = deployment.request(2, defaultConfig=config)
    request.config.instanceConfig[0].resource.fdLimit = 9
    job_id = deployment.create(request)
    deployment.ended(job_id)

    def said(instance: int) -> str:
        sent = task.GetPodEventsRequest(jobId=named(job_id), instanceId=instance)
        (text,) = [e.message for e in deployment.tasks.GetPodEvents(sent).result if e.message]
        return str(text)

    assert said(0) == "ignored: resource.fdLimit (it is not enforced)"


def test_instances_that_a_job_does_not_have_are_not_stopped(deployment: Deployment) -> None:
    job_id = deployment.create(deployment.request(3, defaultConfig=default_config(seconds=60)))

    def stopped(*ranges: tuple[int, int]) -> tuple[list[int], list[int]]:
        sent = [task.InstanceRange(**{"from": start, "to": stop}) for start, stop in ranges]
        answer = deployment.tasks.Stop(task.StopRequest(jobId=named(job_id), ranges=sent))
        return list(answer.stoppedInstanceIds), list(answer.invalidInstanceIds)

    assert stopped((7, 9)) == ([], [7, 8])
    assert stopped((1, 2), (8, 9), (3, 4), (3, 5)) == ([1], [8, 3, 4])
    many = stopped((3, 2**32 - 1), (3, 2**32 - 1))[1]
    assert (len(many), many[0]) == (1000, 3)
    assert stopped((2, 2**32 - 1)) == ([2], []), "to the last"
    deployment.tasks.Stop(task.StopRequest(jobId=named(job_id)))
    deployment.ended(job_id)


@pytest.mark.parametrize("run", ["x", "9" * 5000, "4294967296", "-"])
def test_a_run_that_cannot_be(deployment: Deployment, run: str) -> None:
    job_id = deployment.create(deployment.request(1))
    with pytest.raises(grpc.RpcError) as caught:
        deployment.tasks.GetPodEvents(task.GetPodEventsRequest(jobId=named(job_id), runId=run))
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    deployment.ended(job_id)


def test_the_ports_of_a_run(deployment: Deployment) -> None:
    config = default_config(seconds=60)
    config.ports.add(name="web", envName="WEB")
    config.ports.add(name="fixed", value=31007)
    job_id = deployment.create(deployment.request(1, defaultConfig=config))
    deployment.until(lambda: deployment.job(job_id).runtime.taskStats["RUNNING"] == 1)
    ports = deployment.task(job_id).result.runtime.ports
    assert dict(ports) == {"web": ports["web"], "fixed": 31007}
    assert 31000 <= ports["web"] < 32000
    deployment.tasks.Stop(task.StopRequest(jobId=named(job_id)))
    deployment.ended(job_id)


def test_an_image_is_said_to_be_ignored(deployment: Deployment) -> None:
    config = default_config()
    config.container.type = config.container.DOCKER
    config.container.docker.image = "debian"
    job_id = deployment.create(deployment.request(1, defaultConfig=config))
    deployment.ended(job_id)
    sent = task.GetPodEventsRequest(jobId=named(job_id), instanceId=0)
    texts = [event.message for event in deployment.tasks.GetPodEvents(sent).result]
    assert any("image debian is ignored" in text for text in texts)


def test_where_the_files_are(deployment: Deployment, long: str, folder: Path) -> None:
    def browse(**more: object) -> task.BrowseSandboxResponse:
        sent = task.BrowseSandboxRequest(jobId=named(long), **more)  # type: ignore[arg-type]
        return deployment.tasks.BrowseSandbox(sent)

    answer = browse()
    assert (answer.hostname, answer.port) == (deployment.http.host, str(deployment.http.port))
    assert list(answer.paths) == [f"/{long}-0-1/stdout", f"/{long}-0-1/stderr"]
    box = folder / "runs" / f"{long}-1-1"
    box.mkdir(parents=True)
    (box / "result.txt").write_text("x")
    assert list(browse(instanceId=1, taskId=f"{long}-1-1").paths) == [f"/{long}-1-1/result.txt"]
    assert browse(instanceId=9).error.outOfRange.instanceCount == 5
    assert browse(taskId=f"{long}-0-9").error.HasField("outOfRange")


def test_the_files_of_a_run_that_is_not_listed_any_more(
    deployment: Deployment, folder: Path
) -> None:
    config = default_config(code=1)
    config.restartPolicy.maxFailures = 13
    config.retry.pauseSeconds = 0
    job = deployment.create(deployment.request(2, defaultConfig=config))
    deployment.ended(job)
    listed = {one.runtime.mesosTaskId.value for one in deployment.task(job).results}
    assert len(listed) == 11 and f"{job}-0-1" not in listed

    def browse(run: str) -> task.BrowseSandboxResponse:
        sent = task.BrowseSandboxRequest(jobId=named(job), instanceId=0, taskId=run)
        return deployment.tasks.BrowseSandbox(sent)

    gone = browse(f"{job}-0-1").error.failure.message
    assert gone == f"the files of run {job}-0-1 are gone, and the run is no longer listed"
    (folder / "runs" / f"{job}-0-1").mkdir(parents=True)
    (folder / "runs" / f"{job}-0-1" / "stdout").write_text("x")
    assert list(browse(f"{job}-0-1").paths) == [f"/{job}-0-1/stdout"]
    for other in (f"{job}-1-1", f"{job}-0-0", f"{job}-0-99", "x-0-1", "x"):
        assert browse(other).error.HasField("outOfRange"), other


def test_what_is_not_there(deployment: Deployment, long: str) -> None:
    for name in (str(uuid.uuid4()), "x", ""):
        job_id = named(name)
        assert deployment.tasks.Get(task.GetRequest(jobId=job_id)).HasField("notFound")
        assert deployment.tasks.List(task.ListRequest(jobId=job_id)).HasField("notFound")
        assert deployment.tasks.Query(task.QueryRequest(jobId=job_id)).error.HasField("notFound")
        assert deployment.tasks.Stop(task.StopRequest(jobId=job_id)).error.HasField("notFound")
        assert deployment.tasks.Start(task.StartRequest(jobId=job_id)).error.HasField("notFound")
        browsed = deployment.tasks.BrowseSandbox(task.BrowseSandboxRequest(jobId=job_id))
        assert browsed.error.HasField("notFound")
        asked = task.GetPodEventsRequest(jobId=job_id)
        assert not deployment.tasks.GetPodEvents(asked).result, "OK and empty, as in the original"
    asked = task.GetPodEventsRequest(jobId=named(long), instanceId=5)
    assert not deployment.tasks.GetPodEvents(asked).result
    outside = deployment.task(long, 5).outOfRange
    assert (outside.jobId.value, outside.instanceCount) == (long, 5)


def test_starting_is_refused_as_the_original_refuses(deployment: Deployment, long: str) -> None:
    job_id = deployment.create(deployment.request())
    deployment.ended(job_id)
    with pytest.raises(grpc.RpcError) as caught:
        deployment.tasks.Start(task.StartRequest(jobId=named(job_id)))
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert caught.value.details() == "cannot start tasks in a terminated job"
    started = deployment.tasks.Start(task.StartRequest(jobId=named(long)))
    assert not started.startedInstanceIds, "none of them was stopped"


def test_a_stop_may_be_said_twice_under_its_key(deployment: Deployment) -> None:
    """A client that heard no answer says it again, and is answered though the job has ended."""
    job_id = deployment.create(deployment.request(2, defaultConfig=default_config(seconds=60)))
    deployment.until(lambda: deployment.job(job_id).runtime.taskStats["RUNNING"] == 2)
    for killed, ranges in enumerate(([task.InstanceRange(**{"from": 0, "to": 1})], []), 1):
        sent = task.StopRequest(jobId=named(job_id), ranges=ranges)
        key = [("peloton-request-key", f"stop-{len(ranges)}")]
        for _ in range(2):
            answer = deployment.tasks.Stop(sent, metadata=key)
            assert not answer.HasField("error"), answer
            stopped = list(answer.stoppedInstanceIds)
            wanted = [0] if ranges else [0, 1]
            assert stopped == wanted, "the second time as the first"
            deployment.until(
                lambda n=killed: deployment.job(job_id).runtime.taskStats["KILLED"] == n
            )
    assert deployment.ended(job_id).state == "KILLED"
    unknown = task.StopRequest(jobId=named("00000000-0000-4000-8000-000000000000"))
    for _ in range(2):
        assert deployment.tasks.Stop(unknown, metadata=key).error.HasField("notFound")
