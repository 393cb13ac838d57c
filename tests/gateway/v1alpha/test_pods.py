"""PodService: the pods of jobs by their names, and each refusal with code and text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
import msgspec
import pytest

from peloton.actors.job.slice.messages import InstanceView
from peloton.actors.job.slice.task_config import TaskConfig
from peloton.actors.task.messages import TaskGoals
from peloton.api.v0.job import job_pb2
from peloton.api.v0.task import task_pb2 as task
from peloton.api.v1alpha.pod import pod_pb2 as pod
from peloton.api.v1alpha.pod.svc import pod_svc_pb2 as svc
from peloton.api.v1alpha.pod.svc import pod_svc_pb2_grpc
from peloton.gateway.v1alpha.pods import why_not_startable
from tests.gateway.fleet_fixture import Deployment, default_config, named, refused, running

CODE = grpc.StatusCode
NOBODY = "8c95fa0c-d174-40cd-ac17-6a1a166ec1a8"
ALL = (
    "StartPod", "StopPod", "RestartPod", "GetPod", "GetPodCache", "GetPodEvents",
    "RefreshPod", "BrowsePodSandbox", "DeletePodEvents",
)  # fmt: skip
FINDERS = [name for name in ALL if name not in ("GetPodCache", "GetPodEvents")]
"""Those that refuse a pod that is not there in one way."""


@pytest.fixture
def pods(deployment: Deployment) -> Any:
    return pod_svc_pb2_grpc.PodServiceStub(deployment.channel)


def service(deployment: Deployment, instances: int = 2, **more: Any) -> str:
    """A service that runs."""
    config = default_config(600.0)
    config.labels.add(key="tier", value="web")
    config.ports.add(name="http", envName="HTTP")
    request = deployment.request(instances, defaultConfig=config, **more)
    request.config.type = job_pb2.SERVICE
    job = deployment.create(request)
    deployment.until(lambda: deployment.job(job).runtime.taskStats["RUNNING"] == instances)
    return job


def failing(deployment: Deployment, runs: int = 3) -> str:
    """A job of one instance that has failed so many times."""
    config = default_config(code=3)
    config.restartPolicy.maxFailures = runs
    job = deployment.create(deployment.request(1, defaultConfig=config))
    deployment.ended(job)
    return job


def of(name: str, pod_name: str, **more: Any) -> Any:
    """The request of a call about a pod."""
    if name == "DeletePodEvents":
        more.setdefault("pod_id", {"value": f"{pod_name}-1"})
    return getattr(svc, f"{name}Request")(pod_name={"value": pod_name}, **more)


def status(pods: Any, pod_name: str) -> pod.PodStatus:
    return pods.GetPod(of("GetPod", pod_name, limit=1)).current.status


def runs(answer: svc.GetPodResponse) -> list[str]:
    """The numbers of the runs in an answer."""
    infos = [answer.current, *answer.previous]
    return [info.status.pod_id.value.rpartition("-")[2] for info in infos]


def test_a_pod_is_seen_as_it_is(deployment: Deployment, pods: Any) -> None:
    job = service(deployment)
    name = f"{job}-1"
    found = pods.GetPod(of("GetPod", name)).current
    assert found.spec.pod_name.value == name
    assert [(one.key, one.value) for one in found.spec.labels] == [("tier", "web")]
    assert found.spec.containers[0].resource.cpu_limit == pytest.approx(0.1)
    seen = found.status
    assert (seen.state, seen.desired_state) == (pod.POD_STATE_RUNNING,) * 2
    assert seen.pod_id.value == seen.desired_pod_id.value == f"{name}-1"
    assert seen.version.value == seen.desired_version.value == "1-0-0"
    assert seen.host and seen.host_id == seen.agent_id.value == seen.host
    assert seen.start_time.endswith("Z") and not seen.completion_time
    (container,) = seen.containers_status
    assert (container.name, container.state) == ("t", pod.CONTAINER_STATE_RUNNING)
    assert container.healthy.state == pod.HEALTH_STATE_DISABLED
    assert container.ports["http"] > 0
    alone = pods.GetPod(of("GetPod", name, status_only=True)).current
    assert not alone.HasField("spec") and alone.status == seen

    cached = pods.GetPodCache(of("GetPodCache", name))
    assert cached.status == seen
    assert [(one.key, one.value) for one in cached.labels] == [("tier", "web")]
    assert pods.RefreshPod(of("RefreshPod", name)) == svc.RefreshPodResponse()
    upper = f"{job.upper()}-1"
    assert pods.GetPod(of("GetPod", upper)).current.status == seen


def test_a_pod_is_stopped_started_and_restarted(deployment: Deployment, pods: Any) -> None:
    job = service(deployment)
    name = f"{job}-0"
    for _ in range(2):  # the second one finds nothing to do
        assert pods.StopPod(of("StopPod", name)) == svc.StopPodResponse()
    deployment.until(lambda: status(pods, name).state == pod.POD_STATE_KILLED)
    stopped = status(pods, name)
    assert stopped.desired_state == pod.POD_STATE_KILLED
    ended = stopped.containers_status[0]
    assert ended.state == pod.CONTAINER_STATE_KILLED
    reason = pod.TerminationStatus.TERMINATION_STATUS_REASON_KILLED_ON_REQUEST
    assert ended.terminationStatus.reason == reason
    other = f"{job}-1"
    assert status(pods, other).state == pod.POD_STATE_RUNNING, "the others go on"

    assert pods.StartPod(of("StartPod", name)) == svc.StartPodResponse()
    deployment.until(lambda: status(pods, name).state == pod.POD_STATE_RUNNING)
    assert status(pods, name).pod_id.value == f"{name}-2"
    assert status(pods, name).prev_pod_id.value == f"{name}-1"
    pods.StartPod(of("StartPod", name))  # it runs already
    assert status(pods, name).pod_id.value == f"{name}-2"

    assert pods.RestartPod(of("RestartPod", name)) == svc.RestartPodResponse()
    deployment.until(lambda: status(pods, name).pod_id.value == f"{name}-3")
    assert status(pods, other).pod_id.value == f"{other}-1"


def test_runs_are_limited_as_asked(deployment: Deployment, pods: Any) -> None:
    name = f"{failing(deployment)}-0"
    for limit, shown in ((0, "321"), (1, "3"), (2, "32"), (3, "321"), (9, "321")):
        assert runs(pods.GetPod(of("GetPod", name, limit=limit))) == [*shown], limit
    found = pods.GetPod(of("GetPod", name))
    assert found.current.status.state == pod.POD_STATE_FAILED
    ended = found.previous[0].status.containers_status[0].terminationStatus
    assert ended.exit_code == 3
    assert ended.reason == pod.TerminationStatus.TERMINATION_STATUS_REASON_FAILED


def test_events_of_one_run_the_newest_first(deployment: Deployment, pods: Any) -> None:
    name = f"{failing(deployment)}-0"
    newest = pods.GetPodEvents(of("GetPodEvents", name)).events
    assert {event.pod_id.value for event in newest} == {f"{name}-3"}
    assert newest[0].actual_state == "POD_STATE_FAILED"
    assert newest[-1].actual_state == "POD_STATE_INITIALIZED"
    assert {event.desired_state for event in newest} == {"POD_STATE_SUCCEEDED"}
    assert newest[0].version.value == "1-0-0" and newest[0].prev_pod_id.value == f"{name}-2"
    assert newest[0].healthy == "HEALTH_STATE_INVALID"
    assert newest[1].healthy == "HEALTH_STATE_DISABLED"
    first = pods.GetPodEvents(of("GetPodEvents", name, pod_id={"value": f"{name}-1"})).events
    assert {event.pod_id.value for event in first} == {f"{name}-1"}
    for unknown in (f"{NOBODY}-0", name[:-1] + "7"):
        assert not pods.GetPodEvents(of("GetPodEvents", unknown)).events


def test_events_of_exactly_one_run_are_deleted(tmp_path: Path) -> None:
    def shown() -> list[str]:
        sent = task.GetPodEventsRequest(jobId=named(job), instanceId=0, limit=100)
        names = [one.taskId.value for one in deployment.tasks.GetPodEvents(sent).result]
        return [*dict.fromkeys(one.rpartition("-")[2] for one in names)]

    with running(tmp_path) as deployment:
        job = failing(deployment, runs=4)
        pods = pod_svc_pb2_grpc.PodServiceStub(deployment.channel)
        name = f"{job}-0"
        for run, left in (("2", "431"), ("4", "31"), ("2", "31"), ("9", "31")):
            sent = of("DeletePodEvents", name, pod_id={"value": f"{name}-{run}"})
            assert pods.DeletePodEvents(sent) == svc.DeletePodEventsResponse()
            assert shown() == [*left]
    with running(tmp_path) as deployment:
        assert shown() == ["3", "1"], "also after a restart"
        upto = task.DeletePodEventsRequest(jobId=named(job), instanceId=0, runId=1)
        deployment.tasks.DeletePodEvents(upto)
        assert shown() == ["3"]


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize(
    ("pod_name", "text"),
    [
        ("", "invalid pelotonTaskID "),
        ("x", "invalid pelotonTaskID x"),
        ("not-a-uuid-0", "invalid pelotonTaskID not-a-uuid-0"),
        (NOBODY, f"invalid pelotonTaskID {NOBODY}"),
        (f"{NOBODY}-x", "unable to parse instanceID x"),
        (f"{NOBODY}-", "unable to parse instanceID "),
        (f"{NOBODY}-01", "unable to parse instanceID 01"),
        (f"{NOBODY}-99999999999", "unable to parse instanceID 99999999999"),
    ],
)
def test_a_name_that_is_none(pods: Any, name: str, pod_name: str, text: str) -> None:
    code, said = refused(getattr(pods, name), of(name, pod_name))
    if name == "RestartPod":
        text = "invalid pod name"
    assert (code, said) == (CODE.INVALID_ARGUMENT, text)


@pytest.mark.parametrize("name", FINDERS)
def test_a_pod_that_is_not_there(deployment: Deployment, pods: Any, name: str) -> None:
    job = failing(deployment, runs=0)
    assert refused(getattr(pods, name), of(name, f"{NOBODY}-0")) == (
        CODE.NOT_FOUND, "job not found",
    )  # fmt: skip
    assert refused(getattr(pods, name), of(name, f"{job}-1")) == (CODE.NOT_FOUND, "pod not found")


def test_a_pod_that_is_not_in_the_cache(deployment: Deployment, pods: Any) -> None:
    job = failing(deployment, runs=0)
    said = refused(pods.GetPodCache, of("GetPodCache", f"{NOBODY}-0"))
    assert said == (CODE.NOT_FOUND, "job not found in cache")
    said = refused(pods.GetPodCache, of("GetPodCache", f"{job}-1"))
    assert said == (CODE.NOT_FOUND, "task not found in cache")


def test_no_pod_of_a_batch_job_that_has_ended_is_started(deployment: Deployment, pods: Any) -> None:
    name = f"{failing(deployment, runs=0)}-0"
    assert refused(pods.StartPod, of("StartPod", name)) == (
        CODE.INVALID_ARGUMENT, "cannot start pod in terminated job",
    )  # fmt: skip


def test_a_pod_that_is_going_to_be_deleted_is_not_started() -> None:
    """A job that is being deleted is no job any more, but a service may lose a pod."""
    nothing = (None,) * 5
    view = InstanceView(0, "RUNNING", TaskGoals.RUNNING, 1, 0, "", *nothing, (), TaskConfig())
    assert why_not_startable(view) == ""
    going = msgspec.structs.replace(view, goal=TaskGoals.DELETED)
    assert why_not_startable(going) == "cannot start a pod going to be deleted"


def test_a_restart_that_is_to_heed_the_sla(deployment: Deployment, pods: Any) -> None:
    sla = job_pb2.SlaConfig(maximumUnavailableInstances=1)
    job = service(deployment, 2, sla=sla)
    name = f"{job}-0"
    assert pods.RestartPod(of("RestartPod", name, check_sla=True)) == svc.RestartPodResponse()
    deployment.until(lambda: status(pods, name).pod_id.value == f"{name}-2")
    deployment.until(lambda: status(pods, name).state == pod.POD_STATE_RUNNING)
    # Without a maximum any pod may go.
    free = f"{service(deployment, 1)}-0"
    pods.RestartPod(of("RestartPod", free, check_sla=True))
    deployment.until(lambda: status(pods, free).pod_id.value == f"{free}-2")


def test_a_restart_beyond_the_sla_is_refused(deployment: Deployment, pods: Any) -> None:
    own = default_config(600.0)
    own.resource.cpuLimit = 100.0  # no host has so much: it is unavailable
    sla = job_pb2.SlaConfig(maximumUnavailableInstances=1)
    request = deployment.request(
        2, defaultConfig=default_config(600.0), instanceConfig={1: own}, sla=sla
    )
    request.config.type = job_pb2.SERVICE
    job = deployment.create(request)
    deployment.until(lambda: deployment.job(job).runtime.taskStats["RUNNING"] == 1)
    name = f"{job}-0"
    assert refused(pods.RestartPod, of("RestartPod", name, check_sla=True)) == (
        CODE.ABORTED, "pod restart would violate SLA",
    )  # fmt: skip
    assert status(pods, name).pod_id.value == f"{name}-1"
    pods.RestartPod(of("RestartPod", name))  # who does not ask is not refused
    deployment.until(lambda: status(pods, name).pod_id.value == f"{name}-2")


def test_the_run_has_to_be_one_of_the_pod(deployment: Deployment, pods: Any) -> None:
    job = failing(deployment, runs=0)
    for run in (f"{job}-1-1", f"{NOBODY}-0-1", "1", f"{job}-0", f"{job}-0-0", f"{job}-0-01"):
        for name in ("GetPodEvents", "DeletePodEvents"):
            sent = of(name, f"{job}-0", pod_id={"value": run})
            code, text = refused(getattr(pods, name), sent)
            said = f"pod_id: {run!r} is not a run of pod {job}-0"
            assert (code, text) == (CODE.INVALID_ARGUMENT, said)
    sent = of("DeletePodEvents", f"{job}-0", pod_id={"value": ""})
    assert refused(pods.DeletePodEvents, sent)[0] is CODE.INVALID_ARGUMENT


def test_the_files_of_a_run(deployment: Deployment, pods: Any, folder: Path) -> None:
    name = f"{failing(deployment, runs=1)}-0"
    sandbox = folder / "runs" / f"{name}-1"
    sandbox.mkdir(parents=True)
    (sandbox / "stdout").write_text("hello")
    found = pods.BrowsePodSandbox(of("BrowsePodSandbox", name))
    assert (found.hostname, found.port) == (deployment.http.host, str(deployment.http.port))
    assert any(path.endswith("stdout") for path in found.paths)
    for none in ("x", name, f"{name}-0", f"{name}-1-1", f"{{{NOBODY}}}-0-1"):
        sent = of("BrowsePodSandbox", name, pod_id={"value": none})
        said = f"pod_id: {none!r} is not the id of a pod"
        assert refused(pods.BrowsePodSandbox, sent) == (CODE.INVALID_ARGUMENT, said)
    for stranger in (f"{name}-7", f"{NOBODY}-0-1"):
        sent = of("BrowsePodSandbox", name, pod_id={"value": stranger})
        assert refused(pods.BrowsePodSandbox, sent) == (
            CODE.NOT_FOUND, f"{stranger!r} is not a run of this instance",
        )  # fmt: skip


def test_no_files_before_it_runs(deployment: Deployment, pods: Any) -> None:
    config = default_config(1.0)
    config.resource.cpuLimit = 100.0  # no host has so much
    job = deployment.create(deployment.request(1, defaultConfig=config))
    code, text = refused(pods.BrowsePodSandbox, of("BrowsePodSandbox", f"{job}-0"))
    assert code is CODE.ABORTED and text.startswith("pod has not been run: instance 0 is ")
