"""JobService of v1alpha: services by their entity versions, and each refusal with code and text."""

from __future__ import annotations

from typing import Any

import grpc
import pytest

from peloton.api.v0.job import job_pb2
from peloton.api.v0.task import task_pb2
from peloton.api.v1alpha.job.stateless import stateless_pb2 as stateless
from peloton.api.v1alpha.job.stateless.svc import stateless_svc_pb2 as svc
from peloton.api.v1alpha.job.stateless.svc import stateless_svc_pb2_grpc
from peloton.api.v1alpha.pod import pod_pb2
from peloton.api.v1alpha.pod.svc import pod_svc_pb2, pod_svc_pb2_grpc
from peloton.gateway.cluster.requests import REQUEST_KEY
from tests.gateway.fleet_fixture import Deployment, default_config, refused
from tests.gateway.service_specs import creation, service_spec

CODE = grpc.StatusCode
NOBODY = "8c95fa0c-d174-40cd-ac17-6a1a166ec1a8"
NO_JOBS = ["", "nonsense", NOBODY]
OTHER_VERSIONS = ["", "x", "1-1", "2-1-1", "1-2-1", "1-1-2", "01-1-1", "1-1-1 ", "9" * 99 + "-1-1"]


@pytest.fixture
def jobs(deployment: Deployment) -> Any:
    return stateless_svc_pb2_grpc.JobServiceStub(deployment.channel)


def running(deployment: Deployment, *, name: str = "test", instances: int = 2) -> str:
    """A service that runs."""
    request = deployment.request(instances, defaultConfig=default_config(600.0), name=name)
    request.config.type = job_pb2.SERVICE
    request.config.sla.maximumUnavailableInstances = 1
    request.config.labels.add(key="k", value="v")
    job = deployment.create(request)
    deployment.until(lambda: deployment.job(job).runtime.taskStats["RUNNING"] == instances)
    return job


def summary(jobs: Any, job: str) -> stateless.JobSummary:
    sent = svc.GetJobRequest(job_id={"value": job}, summary_only=True)
    return jobs.GetJob(sent).summary


def version(jobs: Any, job: str) -> str:
    return str(summary(jobs, job).status.version.value)


def sent(name: str, job: str, known: str = "1-1-1", **more: Any) -> Any:
    fields = {"job_id": {"value": job}, "version": {"value": known}, **more}
    return getattr(svc, f"{name}Request")(**fields)


def test_a_service_is_seen_stopped_started_and_deleted(deployment: Deployment, jobs: Any) -> None:
    job = running(deployment)
    seen = summary(jobs, job)
    assert (seen.job_id.value, seen.name, seen.instance_count) == (job, "test", 2)
    assert (seen.owner, seen.owning_team) == ("team", "team")
    assert [(label.key, label.value) for label in seen.labels] == [("k", "v")]
    assert seen.respool_id.value == deployment.pool
    assert seen.sla.maximum_unavailable_instances == 1
    status = seen.status
    assert (status.state, status.desired_state) == (stateless.JOB_STATE_RUNNING,) * 2
    assert status.version.value == "1-1-1" and status.creation_time.endswith("Z")
    assert dict(status.pod_stats) == {"POD_STATE_RUNNING": 2}
    assert dict(status.pod_configuration_version_stats) == {"1-0-0": 2}
    assert status.revision.created_at <= status.revision.updated_at

    assert jobs.StopJob(sent("StopJob", job)).version.value == "1-2-1"
    deployment.until(lambda: summary(jobs, job).status.state == stateless.JOB_STATE_KILLED)
    assert summary(jobs, job).status.desired_state == stateless.JOB_STATE_KILLED
    assert jobs.StartJob(sent("StartJob", job, "1-2-1")).version.value == "1-3-1"
    deployment.until(lambda: dict(summary(jobs, job).status.pod_stats) == {"POD_STATE_RUNNING": 2})
    assert jobs.RefreshJob(svc.RefreshJobRequest(job_id={"value": job})) is not None

    code, text = refused(jobs.DeleteJob, sent("DeleteJob", job, "1-3-1"))
    assert (code, text) == (CODE.ABORTED, "job is not stopped")
    jobs.DeleteJob(sent("DeleteJob", job, "1-3-1", force=True))
    of_job = job_pb2.GetRequest(id={"value": job})
    deployment.until(lambda: deployment.jobs.Get(of_job).HasField("error"))


def test_a_repeat_under_its_request_key_gets_the_same_answer(
    deployment: Deployment, jobs: Any
) -> None:
    job = running(deployment, instances=1)
    again = ((REQUEST_KEY, f"stop-{job}"),)
    answers = [jobs.StopJob(sent("StopJob", job), metadata=again) for _ in range(2)]
    assert [answer.version.value for answer in answers] == ["1-2-1", "1-2-1"]
    assert refused(jobs.StopJob, sent("StopJob", job))[0] is CODE.ABORTED
    jobs.DeleteJob(sent("DeleteJob", job, "1-2-1", force=True))


@pytest.mark.parametrize("name", ["StartJob", "StopJob", "DeleteJob"])
def test_who_knows_another_version_changes_nothing(
    deployment: Deployment, jobs: Any, name: str
) -> None:
    job = running(deployment, instances=1)
    for known in OTHER_VERSIONS:
        code, text = refused(getattr(jobs, name), sent(name, job, known))
        assert (code, text) == (CODE.ABORTED, "unexpected entity version"), known
    assert version(jobs, job) == "1-1-1"
    assert summary(jobs, job).status.state == stateless.JOB_STATE_RUNNING
    jobs.DeleteJob(sent("DeleteJob", job, force=True))


@pytest.mark.parametrize("job", NO_JOBS)
@pytest.mark.parametrize("name", ["StartJob", "StopJob", "DeleteJob", "RefreshJob", "GetJob"])
@pytest.mark.parametrize("known", ["1-1-1", ""])
def test_of_a_job_that_does_not_exist(jobs: Any, job: str, name: str, known: str) -> None:
    request = getattr(svc, f"{name}Request")(job_id={"value": job})
    if hasattr(request, "version"):
        request.version.value = known
    code, text = refused(getattr(jobs, name), request)
    assert (code, text) == (CODE.NOT_FOUND, "job not found")


def test_a_batch_job_is_not_started_as_a_service(deployment: Deployment, jobs: Any) -> None:
    job = deployment.create(deployment.request(1, defaultConfig=default_config(600.0)))
    known = version(jobs, job)
    code, text = refused(jobs.StartJob, sent("StartJob", job, known))
    assert code is CODE.INVALID_ARGUMENT and "the job is not a service" in text
    assert summary(jobs, job).status.desired_state == stateless.JOB_STATE_SUCCEEDED
    assert jobs.StopJob(sent("StopJob", job, known)).version.value == version(jobs, job)
    deployment.ended(job)


def test_jobs_are_found_by_their_name_the_newest_first(deployment: Deployment, jobs: Any) -> None:
    made = [running(deployment, name="by-name", instances=1) for _ in range(2)]
    running(deployment, name="by-name-not", instances=1)
    found = jobs.GetJobIDFromJobName(svc.GetJobIDFromJobNameRequest(job_name="by-name"))
    assert [one.value for one in found.job_id] == made[::-1]
    nothing = svc.GetJobIDFromJobNameRequest(job_name="no-such")
    assert refused(jobs.GetJobIDFromJobName, nothing) == (
        CODE.NOT_FOUND, 'job id for job name not found: "no-such"',
    )  # fmt: skip


def test_instances_that_were_stopped_one_by_one_start_again(
    deployment: Deployment, jobs: Any
) -> None:
    job = running(deployment)
    ranges = [{"from": 0, "to": 1}]
    deployment.tasks.Stop(task_pb2.StopRequest(jobId={"value": job}, ranges=ranges))
    deployment.until(lambda: summary(jobs, job).status.pod_stats["POD_STATE_KILLED"] == 1)
    assert jobs.StartJob(sent("StartJob", job, version(jobs, job))).version.value == "1-2-1"
    deployment.until(lambda: dict(summary(jobs, job).status.pod_stats) == {"POD_STATE_RUNNING": 2})
    jobs.DeleteJob(sent("DeleteJob", job, "1-2-1", force=True))


def test_a_service_is_not_stopped_while_an_update_starts_its_pods(
    deployment: Deployment, jobs: Any
) -> None:
    spec = service_spec(deployment.pool, 1, name="starting")
    job = jobs.CreateJob(creation(spec)).job_id.value
    deployment.until(lambda: dict(summary(jobs, job).status.pod_stats) == {"POD_STATE_RUNNING": 1})
    jobs.StopJob(sent("StopJob", job, version(jobs, job)))
    deployment.until(lambda: summary(jobs, job).status.state == stateless.JOB_STATE_KILLED)
    spec.default_spec.labels.add(key="k", value="another")
    options = {"start_pods": True, "start_paused": True}
    known = jobs.ReplaceJob(
        sent("ReplaceJob", job, version(jobs, job), spec=spec, update_spec=options)
    ).version.value
    assert refused(jobs.StopJob, sent("StopJob", job, known)) == (
        CODE.ABORTED, "job has active update with start_pods set, cannot stop it now",
    )  # fmt: skip
    known = jobs.AbortJobWorkflow(sent("AbortJobWorkflow", job, known)).version.value
    assert jobs.StopJob(sent("StopJob", job, known)).version.value == version(jobs, job)
    jobs.DeleteJob(sent("DeleteJob", job, version(jobs, job), force=True))


def test_instances_that_an_aborted_update_has_left_are_seen(
    deployment: Deployment, jobs: Any
) -> None:
    spec = service_spec(deployment.pool, 3, name="shrinking")
    job = jobs.CreateJob(creation(spec)).job_id.value
    deployment.until(lambda: dict(summary(jobs, job).status.pod_stats) == {"POD_STATE_RUNNING": 3})
    spec.instance_count = 1
    shrink = sent("ReplaceJob", job, version(jobs, job), spec=spec)
    shrink.update_spec.start_paused = True
    known = jobs.ReplaceJob(shrink).version.value
    jobs.AbortJobWorkflow(sent("AbortJobWorkflow", job, known))
    assert summary(jobs, job).instance_count == 1
    assert dict(summary(jobs, job).status.pod_stats) == {"POD_STATE_RUNNING": 3}
    names = [f"{job}-{number}" for number in range(3)]
    listed = jobs.ListPods(svc.ListPodsRequest(job_id={"value": job}))
    assert [each.pods[0].pod_name.value for each in listed] == names
    queried = jobs.QueryPods(svc.QueryPodsRequest(job_id={"value": job}))
    assert sorted(each.spec.pod_name.value for each in queried.pods) == names
    for count, removed in ((1, [(1, 2)]), (3, [])):
        spec.instance_count = count
        asked = sent("GetReplaceJobDiff", job, version(jobs, job), spec=spec)
        diff = jobs.GetReplaceJobDiff(asked)
        found = [(getattr(some, "from"), some.to) for some in diff.instances_removed]
        assert found == removed and not diff.instances_added
    pods = pod_svc_pb2_grpc.PodServiceStub(deployment.channel)
    last = pods.GetPod(pod_svc_pb2.GetPodRequest(pod_name={"value": names[2]})).current
    assert last.status.state == pod_pb2.POD_STATE_RUNNING
    pods.StopPod(pod_svc_pb2.StopPodRequest(pod_name={"value": names[2]}))
    killed = {"POD_STATE_KILLED": 1, "POD_STATE_RUNNING": 2}
    deployment.until(lambda: dict(summary(jobs, job).status.pod_stats) == killed)
    pods.StartPod(pod_svc_pb2.StartPodRequest(pod_name={"value": names[2]}))
    deployment.until(lambda: dict(summary(jobs, job).status.pod_stats) == {"POD_STATE_RUNNING": 3})
    jobs.StopJob(sent("StopJob", job, version(jobs, job)))
    deployment.until(lambda: summary(jobs, job).status.state == stateless.JOB_STATE_KILLED)
    jobs.DeleteJob(sent("DeleteJob", job, version(jobs, job), force=True))
