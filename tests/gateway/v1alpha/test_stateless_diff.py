"""JobService.GetReplaceJobDiff: which pods another spec would change, and each of its refusals."""

from __future__ import annotations

from typing import Any

import grpc
import pytest

from peloton.api.v1alpha.job.stateless import stateless_pb2 as stateless
from peloton.api.v1alpha.job.stateless.svc import stateless_svc_pb2 as svc
from peloton.api.v1alpha.job.stateless.svc import stateless_svc_pb2_grpc
from peloton.api.v1alpha.pod import pod_pb2 as pod
from tests.gateway.fleet_fixture import Deployment, default_config, refused
from tests.gateway.service_specs import creation, pod_spec, service_spec

CODE = grpc.StatusCode
NOBODY = "8c95fa0c-d174-40cd-ac17-6a1a166ec1a8"
TWO = [{"key": "a", "value": "1"}, {"key": "b", "value": "2"}]


@pytest.fixture
def jobs(deployment: Deployment) -> Any:
    return stateless_svc_pb2_grpc.JobServiceStub(deployment.channel)


@pytest.fixture
def job(deployment: Deployment, jobs: Any) -> Any:
    """A service of four; the second has labels of its own."""
    own = {1: pod.PodSpec(labels=TWO)}
    spec = service_spec(deployment.pool, 4, instance_spec=own)
    made = jobs.CreateJob(creation(spec))
    yield made.job_id.value
    jobs.DeleteJob(svc.DeleteJobRequest(job_id=made.job_id, version=made.version, force=True))


def asked(job: str, spec: stateless.JobSpec, version: str = "1-1-1") -> Any:
    return svc.GetReplaceJobDiffRequest(
        job_id={"value": job}, version={"value": version}, spec=spec
    )


def found(jobs: Any, job: str, spec: stateless.JobSpec) -> dict[str, list[tuple[int, int]]]:
    answer = jobs.GetReplaceJobDiff(asked(job, spec))
    return {
        field.name.removeprefix("instances_"): [(getattr(one, "from"), one.to) for one in ranges]
        for field, ranges in answer.ListFields()
    }


def test_the_same_spec_changes_nothing(deployment: Deployment, jobs: Any, job: str) -> None:
    back = jobs.GetJob(svc.GetJobRequest(job_id={"value": job})).job_info.spec
    assert found(jobs, job, back) == {"unchanged": [(0, 3)]}
    # Neither labels of the job nor names, the order of labels and how the pool is named.
    back.labels.add(key="new", value="label")
    back.instance_spec[1].labels.reverse()
    back.default_spec.containers[0].name = "other"
    back.ClearField("respool_id")
    assert found(jobs, job, back) == {"unchanged": [(0, 3)]}


def test_a_spec_that_was_read_may_be_changed_in_either_form(jobs: Any, job: str) -> None:
    for form in ("command", "entrypoint"):
        back = jobs.GetJob(svc.GetJobRequest(job_id={"value": job})).job_info.spec
        getattr(back.default_spec.containers[0], form).value = "another"
        assert found(jobs, job, back) == {"updated": [(0, 3)]}


def test_what_changes_is_said_in_closed_ranges(deployment: Deployment, jobs: Any, job: str) -> None:
    own = {1: pod.PodSpec(labels=TWO)}
    more = service_spec(deployment.pool, 6, instance_spec=own)
    assert found(jobs, job, more) == {"added": [(4, 5)], "unchanged": [(0, 3)]}
    fewer = service_spec(deployment.pool, 1)
    assert found(jobs, job, fewer) == {"removed": [(1, 3)], "unchanged": [(0, 0)]}
    without_own = service_spec(deployment.pool, 4)
    assert found(jobs, job, without_own) == {
        "updated": [(1, 1)], "unchanged": [(0, 0), (2, 3)],
    }  # fmt: skip
    other = pod_spec(500.0)
    assert found(jobs, job, service_spec(deployment.pool, 4, default_spec=other)) == {
        "updated": [(0, 3)]
    }


def test_what_cannot_be_compared(deployment: Deployment, jobs: Any, job: str) -> None:
    spec = service_spec(deployment.pool)
    call = jobs.GetReplaceJobDiff
    assert refused(call, asked("nonsense", spec)) == (
        CODE.INVALID_ARGUMENT, "JobID must be of UUID format",
    )  # fmt: skip
    assert refused(call, asked(NOBODY, spec)) == (CODE.NOT_FOUND, "job not found")
    for version in ("", "2-1-1", "1-1-2", "x"):
        expected = CODE.ABORTED, "unexpected entity version"
        assert refused(call, asked(job, spec, version)) == expected
    other = service_spec(deployment.make_pool("of-a-diff", cpu=0.0))
    assert refused(call, asked(job, other)) == (
        CODE.INVALID_ARGUMENT,
        "failed to validate spec update: resource pool identifier is immutable",
    )
    two = pod.PodSpec(containers=[{"name": "a", "entrypoint": {"value": "x"}}, {}])
    assert refused(call, asked(job, service_spec(deployment.pool, default_spec=two))) == (
        CODE.INVALID_ARGUMENT,
        "invalid job spec: spec.default_spec.containers[1].entrypoint: missing: each of several "
        "containers has its own",
    )
    negative = pod.PodSpec(containers=[{"resource": {"cpu_limit": -1.0}}])
    code, text = refused(call, asked(job, service_spec(deployment.pool, default_spec=negative)))
    assert code is CODE.INVALID_ARGUMENT
    assert text.startswith("invalid job spec: spec.default_spec.containers[0].resource.cpu_limit:")
    many = service_spec(deployment.pool, 2**31)
    assert refused(call, asked(job, many))[0] is CODE.INVALID_ARGUMENT
    batch = deployment.create(deployment.request(1, defaultConfig=default_config(0.0)))
    known = jobs.GetJob(svc.GetJobRequest(job_id={"value": batch})).job_info.status.version.value
    assert refused(call, asked(batch, spec, known)) == (
        CODE.INVALID_ARGUMENT, "failed to validate spec update: job type is immutable",
    )  # fmt: skip
    deployment.ended(batch)
