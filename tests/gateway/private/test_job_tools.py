"""Calls of tools about the instances of one job, and about hosts that are cheap to empty."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
import pytest

from peloton.api.v0.host.svc import host_svc_pb2 as host_svc
from peloton.api.v0.host.svc import host_svc_pb2_grpc
from peloton.api.v0.job import job_pb2
from peloton.api.v0.task import task_pb2
from peloton.api.v1alpha.pod import pod_pb2
from peloton.api.v1alpha.pod.svc import pod_svc_pb2 as pod_svc
from peloton.api.v1alpha.pod.svc import pod_svc_pb2_grpc
from peloton.ops.v1 import ops_pb2
from peloton.private.jobmgrsvc import jobmgrsvc_pb2 as jobmgrsvc
from peloton.private.jobmgrsvc import jobmgrsvc_pb2_grpc
from peloton.private.resmgrsvc import resmgrsvc_pb2 as resmgrsvc
from peloton.private.resmgrsvc import resmgrsvc_pb2_grpc
from tests.cli.terminal import typed
from tests.gateway.fleet_fixture import HOSTS, Deployment, default_config, running

CODE = grpc.StatusCode
THROTTLED = "Task throttled due to failure"


@pytest.fixture
def jobs(deployment: Deployment) -> Any:
    return jobmgrsvc_pb2_grpc.JobManagerServiceStub(deployment.channel)


def test_which_instances_of_a_job_are_available(deployment: Deployment, jobs: Any) -> None:
    job = deployment.create(deployment.request(3, defaultConfig=default_config(600.0)))
    deployment.until(lambda: deployment.job(job).runtime.taskStats["RUNNING"] == 3)
    deployment.tasks.Stop(task_pb2.StopRequest(jobId={"value": job}, ranges=[{"from": 1, "to": 2}]))
    deployment.until(lambda: deployment.job(job).runtime.taskStats["KILLED"] == 1)

    def found(*instances: int) -> dict[int, str]:
        sent = jobmgrsvc.GetInstanceAvailabilityInfoForJobRequest(
            job_id={"value": job}, instances=instances
        )
        return dict(jobs.GetInstanceAvailabilityInfoForJob(sent).instance_availability_map)

    available, killed = "InstanceAvailability_AVAILABLE", "InstanceAvailability_KILLED"
    assert found() == {0: available, 1: killed, 2: available}
    assert found(1, 9) == {1: killed, 9: "InstanceAvailability_INVALID"}
    printed = typed("--api", deployment.api, "jobmgr", "instance-availability", job, "-i", "0, 1")
    assert printed.code == 0 and available in printed.out and killed in printed.out
    wrong = typed("--api", deployment.api, "jobmgr", "instance-availability", job, "-i", "x")
    assert wrong.code == 64 and "'x' is not an instance number" in wrong.err
    assert jobs.RefreshJob(jobmgrsvc.RefreshJobRequest(job_id={"value": job})) is not None
    deployment.tasks.Stop(task_pb2.StopRequest(jobId={"value": job}))
    deployment.ended(job)


@pytest.mark.parametrize("job", ["", "nonsense", "8c95fa0c-d174-40cd-ac17-6a1a166ec1a8"])
def test_of_a_job_that_does_not_exist(jobs: Any, job: str) -> None:
    for name in ("GetInstanceAvailabilityInfoForJob", "RefreshJob"):
        sent = getattr(jobmgrsvc, f"{name}Request")(job_id={"value": job})
        with pytest.raises(grpc.RpcError) as caught:
            getattr(jobs, name)(sent)
        assert caught.value.code() is CODE.NOT_FOUND


def test_pods_that_wait_after_a_failure_are_throttled(deployment: Deployment, jobs: Any) -> None:
    def throttled() -> list[str]:
        found = jobs.GetThrottledPods(jobmgrsvc.GetThrottledPodsRequest()).throttled_pods
        return [one.value for one in found]

    assert not throttled()
    batch = deployment.create(deployment.request(1, defaultConfig=default_config(600.0)))
    request = deployment.request(2, defaultConfig=default_config(600.0))
    request.config.type = job_pb2.SERVICE
    failing = default_config(0.02, 1)
    request.config.instanceConfig[1].CopyFrom(failing)
    job = deployment.create(request)
    deployment.until(lambda: throttled() == [f"{job}-1"])
    printed = typed("--api", deployment.api, "jobmgr", "throttled-pods")
    assert printed.code == 0 and f"{job}-1" in printed.out
    found = deployment.tasks.Get(task_pb2.GetRequest(jobId={"value": job}, instanceId=1))
    runtime = found.result.runtime
    assert (runtime.state, runtime.message) == (task_pb2.FAILED, THROTTLED)
    assert runtime.throttleReason.startswith("waits after failure 1: ")
    assert runtime.nextAttemptTime > runtime.completionTime
    sent = pod_svc.GetPodRequest(pod_name={"value": f"{job}-1"})
    status = pod_svc_pb2_grpc.PodServiceStub(deployment.channel).GetPod(sent).current.status
    assert (status.state, status.message) == (pod_pb2.POD_STATE_FAILED, THROTTLED)
    assert status.throttle_reason == runtime.throttleReason
    assert status.next_attempt_time == runtime.nextAttemptTime
    (container,) = status.containers_status
    assert container.message and container.message in runtime.throttleReason
    events = deployment.tasks.GetPodEvents(
        task_pb2.GetPodEventsRequest(jobId={"value": job}, instanceId=1)
    ).result
    assert [one.actualState for one in events[:2]] == ["FAILED", "FAILED"]
    assert events[0].message == THROTTLED and "next attempt at" in events[0].reason
    (line,) = typed("--api", deployment.api, "task", "get", job, "1").out.splitlines()[1:2]
    assert "waits after failure 1" in line and "next attempt at" in line
    waits = deployment.ops.Why(ops_pb2.WhyRequest(job_id=job, instance=1))
    assert [(one.code, one.state) for one in waits.reasons] == [("retry-backoff", "FAILED")]
    part = task_pb2.StopRequest(jobId={"value": job}, ranges=[{"from": 1, "to": 2}])
    assert [*deployment.tasks.Stop(part).stoppedInstanceIds] == [1], "it has not ended for good"
    for one in (job, batch):
        deployment.tasks.Stop(task_pb2.StopRequest(jobId={"value": one}))
        deployment.ended(one)
    assert not throttled()


def test_hosts_that_are_cheap_to_empty_come_first(tmp_path: Path) -> None:
    with running(tmp_path) as deployment:
        stub = host_svc_pb2_grpc.HostServiceStub(deployment.channel)
        tasks = resmgrsvc_pb2_grpc.ResourceManagerServiceStub(deployment.channel)

        def cheapest(limit: int = 0) -> list[str]:
            sent = resmgrsvc.GetHostsByScoresRequest(limit=limit)
            return list(tasks.GetHostsByScores(sent).hosts)

        def run(host: str, count: int, *, preemptible: bool) -> None:
            config = default_config(600.0)
            config.constraint.type = task_pb2.Constraint.LABEL_CONSTRAINT
            leaf = config.constraint.labelConstraint
            leaf.kind, leaf.requirement = task_pb2.LabelConstraint.HOST, 0
            leaf.condition = task_pb2.LabelConstraint.CONDITION_GREATER_THAN
            leaf.label.key, leaf.label.value = "hostname", host
            sent = deployment.request(count, defaultConfig=config)
            sent.config.sla.preemptible = preemptible
            job = deployment.create(sent)
            deployment.until(lambda: deployment.job(job).runtime.taskStats["RUNNING"] == count)

        assert cheapest() == [], "none is in the pool"
        stub.CreateHostPool(host_svc.CreateHostPoolRequest(name="shared"))
        for host in HOSTS:
            stub.ChangeHostPool(
                host_svc.ChangeHostPoolRequest(
                    hostname=host, sourcePool="default", destinationPool="shared"
                )
            )
        assert cheapest() == [*HOSTS] and cheapest(limit=2) == [*HOSTS[:2]]
        run("a", 2, preemptible=True)
        run("b", 1, preemptible=True)
        assert cheapest() == ["c", "b", "a"]
        run("b", 1, preemptible=False)
        assert cheapest() == ["c", "a"]
        stub.StartMaintenance(host_svc.StartMaintenanceRequest(hostname="c"))
        deployment.until(lambda: cheapest() == ["a"])
