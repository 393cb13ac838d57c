"""GetJob of v1alpha by a version, with each refusal; and by which config each run of a pod ran."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
import pytest

from peloton.actors.job.messages import GetJob, JobView, KeptSpec, job_key
from peloton.actors.job.version.messages import OWN_BYTES_KEPT_MAX, SPECS_KEPT_MAX
from peloton.api.v0.job import job_pb2
from peloton.api.v0.task import task_pb2
from peloton.api.v1alpha.job.stateless import stateless_pb2 as stateless
from peloton.api.v1alpha.job.stateless.svc import stateless_svc_pb2 as svc
from peloton.api.v1alpha.job.stateless.svc import stateless_svc_pb2_grpc
from peloton.api.v1alpha.pod.svc import pod_svc_pb2 as pods_svc
from peloton.api.v1alpha.pod.svc import pod_svc_pb2_grpc
from peloton.gateway.v1alpha.spec_versions import why_not
from tests.gateway.fleet_fixture import (
    WAIT_S_MAX,
    Deployment,
    default_config,
    named,
    refused,
    running,
)
from tests.gateway.service_specs import creation, pod_spec, service_spec

CODE = grpc.StatusCode


@pytest.fixture
def jobs(deployment: Deployment) -> Any:
    return stub(deployment)


def stub(deployment: Deployment) -> Any:
    return stateless_svc_pb2_grpc.JobServiceStub(deployment.channel)


def at(jobs: Any, job: str, version: int) -> stateless.JobInfo:
    """What is answered of a version."""
    sent = svc.GetJobRequest(job_id={"value": job}, version={"value": f"{version}-1-1"})
    return jobs.GetJob(sent).job_info


def now(jobs: Any, job: str) -> str:
    sent = svc.GetJobRequest(job_id={"value": job}, summary_only=True)
    return str(jobs.GetJob(sent).summary.status.version.value)


def replaced(jobs: Any, job: str, spec: stateless.JobSpec) -> None:
    version = {"value": now(jobs, job)}
    jobs.ReplaceJob(svc.ReplaceJobRequest(job_id={"value": job}, version=version, spec=spec))


def gone(jobs: Any, job: str) -> None:
    version = {"value": now(jobs, job)}
    jobs.DeleteJob(svc.DeleteJobRequest(job_id={"value": job}, version=version, force=True))


def all_run(deployment: Deployment, job: str, version: int, count: int = 1) -> None:
    def done() -> bool:
        runtime = deployment.job(job).runtime
        by_version = {v: n for v, n in runtime.taskConfigVersionStats.items() if n}
        return runtime.taskStats["RUNNING"] == count and by_version == {version: count}

    deployment.until(done)


def described(text: str, pool: str, **more: Any) -> stateless.JobSpec:
    return service_spec(pool, 1, description=text, **more)


def test_each_version_has_its_spec(deployment: Deployment, jobs: Any) -> None:
    own = {0: pod_spec(700.0)}
    first = described("one", deployment.pool, instance_spec=own)
    job = jobs.CreateJob(creation(first)).job_id.value
    known = at(jobs, job, 1).spec
    replaced(jobs, job, described("two", deployment.pool))
    restart = svc.RestartJobRequest(job_id={"value": job}, version={"value": now(jobs, job)})
    deployment.until(lambda: deployment.job(job).runtime.taskStats["RUNNING"] == 1)
    abort = svc.AbortJobWorkflowRequest(job_id={"value": job}, version={"value": now(jobs, job)})
    restart.version.value = jobs.AbortJobWorkflow(abort).version.value
    assert jobs.RestartJob(restart).version.value.startswith("3-")
    seen = {version: at(jobs, job, version) for version in (1, 2, 3)}
    assert [one.spec.description for one in seen.values()] == ["one", "two", "two"]
    assert [one.spec.revision.version for one in seen.values()] == [1, 2, 3]
    assert not any(one.HasField("status") for one in seen.values())
    assert dict(seen[1].spec.instance_spec) == dict(known.instance_spec) != {}
    assert not seen[2].spec.instance_spec
    gone(jobs, job)
    asked = svc.GetJobRequest(job_id={"value": job}, version={"value": "1-1-1"})
    assert refused(jobs.GetJob, asked) == (CODE.NOT_FOUND, "job not found")


def test_a_spec_that_is_yet_to_come_is_read_as_it_was_written(
    deployment: Deployment, jobs: Any
) -> None:
    """Instances whose turn is yet to come have the configs of the spec before, own or not."""
    spec = described("one", deployment.pool, instance_spec={0: pod_spec(700.0)})
    spec.instance_count = 3
    job = jobs.CreateJob(creation(spec)).job_id.value
    all_run(deployment, job, 1, count=3)
    spec = described("two", deployment.pool, instance_spec={0: pod_spec(800.0)})
    spec.default_spec.CopyFrom(pod_spec(900.0))
    spec.instance_count = 3
    sent = svc.ReplaceJobRequest(job_id={"value": job}, spec=spec)
    sent.version.value = now(jobs, job)
    sent.update_spec.start_paused = True
    patch = svc.PatchJobRequest(job_id={"value": job}, spec={"description": "three"})
    patch.version.value = jobs.ReplaceJob(sent).version.value
    patch.update_spec.start_paused = True
    jobs.PatchJob(patch)
    whole = jobs.GetJob(svc.GetJobRequest(job_id={"value": job})).job_info.spec
    for found in (whole, at(jobs, job, 2).spec, at(jobs, job, 3).spec):
        (own,) = found.instance_spec.values()
        for one, wanted in ((own, 800.0), (found.default_spec, 900.0)):
            (container,) = one.containers
            assert container.environment == pod_spec(wanted).containers[0].environment
    gone(jobs, job)


def test_what_is_kept_outlives_the_daemon(tmp_path: Path) -> None:
    with running(tmp_path) as deployment:
        jobs = stub(deployment)
        job = jobs.CreateJob(creation(described("one", deployment.pool))).job_id.value
        for text in ("two", "three"):
            replaced(jobs, job, described(text, deployment.pool))
        assert at(jobs, job, 1).spec.description == "one"
    with running(tmp_path) as deployment:
        jobs = stub(deployment)
        found = [at(jobs, job, version).spec.description for version in (1, 2, 3)]
        assert found == ["one", "two", "three"]


def test_the_oldest_are_refused_and_so_is_what_never_was(deployment: Deployment, jobs: Any) -> None:
    job = jobs.CreateJob(creation(described("1", deployment.pool))).job_id.value
    newest = SPECS_KEPT_MAX + 3
    for number in range(2, newest + 1):
        replaced(jobs, job, described(str(number), deployment.pool))
    assert at(jobs, job, 3).spec.description == "3"
    for version, text in (
        (
            2,
            "version 2 is no longer stored; the oldest available is 3: of a job the last "
            f"{SPECS_KEPT_MAX} specs before the present one are kept",
        ),
        (newest + 1, f"there is no version {newest + 1}; the newest is {newest}"),
        (0, f"there is no version 0; the newest is {newest}"),
    ):
        asked = svc.GetJobRequest(job_id={"value": job}, version={"value": f"{version}-1-1"})
        assert refused(jobs.GetJob, asked) == (CODE.NOT_FOUND, text)
    gone(jobs, job)


def test_too_many_own_configs_are_named(deployment: Deployment, jobs: Any) -> None:
    job = jobs.CreateJob(creation(described("1", deployment.pool))).job_id.value
    view = deployment.region.ask(job_key(job), GetJob()).result(WAIT_S_MAX)
    assert isinstance(view, JobView)
    text = why_not(view, 1, kept=KeptSpec(1, 1, 0))
    assert text == (
        "version 1 is not stored: its instances had configs of their own of more than "
        f"{OWN_BYTES_KEPT_MAX} bytes in all"
    )
    gone(jobs, job)


def test_an_updated_batch_job_has_its_first_spec_too(deployment: Deployment, jobs: Any) -> None:
    own = {0: default_config(700.0)}
    request = deployment.request(1, defaultConfig=default_config(600.0), instanceConfig=own)
    job = deployment.create(request)
    request.config.instanceCount, request.config.description = 2, "more"
    changed = job_pb2.UpdateRequest(id=named(job), config=request.config)
    assert not deployment.jobs.Update(changed).HasField("error")
    first, second = (at(jobs, job, version).spec for version in (1, 2))
    assert (first.instance_count, first.description) == (1, "")
    assert (second.instance_count, second.description) == (2, "more")
    assert [*first.instance_spec] == [0] and first.instance_spec == second.instance_spec
    deployment.tasks.Stop(task_pb2.StopRequest(jobId=named(job)))
    deployment.ended(job)


def test_each_run_shows_the_config_that_it_ran_by(deployment: Deployment, jobs: Any) -> None:
    pods = pod_svc_pb2_grpc.PodServiceStub(deployment.channel)
    job = jobs.CreateJob(creation(described("one", deployment.pool))).job_id.value
    all_run(deployment, job, 1)
    pods.RestartPod(pods_svc.RestartPodRequest(pod_name={"value": f"{job}-0"}))
    deployment.until(lambda: deployment.task(job).result.runtime.mesosTaskId.value == f"{job}-0-2")
    all_run(deployment, job, 1)
    replaced(jobs, job, described("two", deployment.pool, default_spec=pod_spec(700.0)))
    all_run(deployment, job, 2)

    runs = [one.runtime for one in deployment.task(job).results]
    assert [one.configVersion for one in runs] == [2, 1, 1]
    assert [one.desiredConfigVersion for one in runs] == [2, 1, 1]
    name = {"value": f"{job}-0"}
    found = pods.GetPod(pods_svc.GetPodRequest(pod_name=name))
    assert found.current.status.version.value == "2-0-0"
    assert [one.status.version.value for one in found.previous] == ["1-0-0", "1-0-0"]
    sent = task_pb2.GetPodEventsRequest(jobId=named(job), instanceId=0, limit=10)
    events = deployment.tasks.GetPodEvents(sent).result
    seen = {(one.taskId.value.rpartition("-")[2], one.configVersion) for one in events}
    assert seen == {("3", 2), ("2", 1), ("1", 1)}
    later = pods.GetPodEvents(pods_svc.GetPodEventsRequest(pod_name=name)).events
    assert {one.version.value for one in later} <= {"1-0-0", "2-0-0"}
    (listed,) = [one for page in jobs.ListPods(svc.ListPodsRequest(job_id={"value": job}))
                 for one in page.pods]  # fmt: skip
    assert listed.status.version.value == listed.status.desired_version.value == "2-0-0"
    gone(jobs, job)


def test_a_stopped_pod_ran_by_the_config_before(deployment: Deployment, jobs: Any) -> None:
    job = jobs.CreateJob(creation(described("one", deployment.pool))).job_id.value
    all_run(deployment, job, 1)
    stop = svc.StopJobRequest(job_id={"value": job}, version={"value": now(jobs, job)})
    jobs.StopJob(stop)
    deployment.until(lambda: deployment.task(job).result.runtime.state == task_pb2.KILLED)
    replaced(jobs, job, described("two", deployment.pool, default_spec=pod_spec(700.0)))
    deployment.until(lambda: deployment.task(job).result.runtime.desiredConfigVersion == 2)
    assert deployment.task(job).result.runtime.configVersion == 1
    start = svc.StartJobRequest(job_id={"value": job}, version={"value": now(jobs, job)})
    jobs.StartJob(start)
    all_run(deployment, job, 2)
    runs = [one.runtime.configVersion for one in deployment.task(job).results]
    assert runs == [2, 1]
    gone(jobs, job)


def test_a_spec_has_no_own_configs_of_instances_that_it_has_not(
    deployment: Deployment, jobs: Any
) -> None:
    own = {1: pod_spec(700.0)}
    spec = service_spec(deployment.pool, 2, instance_spec=own)
    job = jobs.CreateJob(creation(spec)).job_id.value
    all_run(deployment, job, 1, 2)
    fewer = svc.ReplaceJobRequest(
        job_id={"value": job},
        version={"value": now(jobs, job)},
        spec=service_spec(deployment.pool, 1, instance_spec={0: pod_spec(700.0)}),
        update_spec=stateless.UpdateSpec(start_paused=True),
    )
    version = jobs.ReplaceJob(fewer).version
    jobs.AbortJobWorkflow(svc.AbortJobWorkflowRequest(job_id={"value": job}, version=version))
    found = jobs.GetJob(svc.GetJobRequest(job_id={"value": job})).job_info.spec
    assert 1 not in found.instance_spec and found.instance_count == 1
    assert [*at(jobs, job, 1).spec.instance_spec] == [1]
    gone(jobs, job)
