"""JobService.CreateJob and GetJob: what comes back of a spec, and each row of their errors."""

from __future__ import annotations

import uuid
from typing import Any

import grpc
import pytest

from peloton.api.v0.job import job_pb2
from peloton.api.v1alpha.job.stateless import stateless_pb2 as stateless
from peloton.api.v1alpha.job.stateless.svc import stateless_svc_pb2 as svc
from peloton.api.v1alpha.job.stateless.svc import stateless_svc_pb2_grpc
from peloton.api.v1alpha.pod import pod_pb2 as pod
from peloton.gateway.cluster.requests import REQUEST_KEY
from peloton.ops.v1 import ops_pb2
from peloton.private.jobmgrsvc import jobmgrsvc_pb2, jobmgrsvc_pb2_grpc
from tests.gateway.fleet_fixture import Deployment, default_config, refused
from tests.gateway.service_specs import creation, pod_spec, service_spec

CODE = grpc.StatusCode
NOBODY = "8c95fa0c-d174-40cd-ac17-6a1a166ec1a8"
SLA = {"priority": 3, "preemptible": True, "maximum_unavailable_instances": 1}


@pytest.fixture
def jobs(deployment: Deployment) -> Any:
    return stateless_svc_pb2_grpc.JobServiceStub(deployment.channel)


def got(jobs: Any, job: str, **more: Any) -> svc.GetJobResponse:
    return jobs.GetJob(svc.GetJobRequest(job_id={"value": job}, **more))


def gone(deployment: Deployment, jobs: Any, job: str) -> None:
    known = got(jobs, job).job_info.status.version
    jobs.DeleteJob(svc.DeleteJobRequest(job_id={"value": job}, version=known, force=True))
    of_job = job_pb2.GetRequest(id={"value": job})
    deployment.until(lambda: deployment.jobs.Get(of_job).HasField("error"))


def test_a_service_is_created_runs_and_gives_its_spec_back(
    deployment: Deployment, jobs: Any
) -> None:
    own = pod.PodSpec(labels=[{"key": "mine", "value": "1"}])
    spec = service_spec(
        deployment.pool,
        description="words",
        labels=[{"key": "k", "value": "v"}],
        ldap_groups=["g"],
        sla=SLA,
        instance_spec={1: own},
    )
    job_id = str(uuid.uuid4())
    answer = jobs.CreateJob(creation(spec, job_id={"value": job_id}))
    assert (answer.job_id.value, answer.version.value) == (job_id, "1-1-1")
    info = deployment.job(job_id)
    assert info.config.type == job_pb2.SERVICE
    deployment.until(lambda: deployment.job(job_id).runtime.taskStats["RUNNING"] == 2)

    found = got(jobs, job_id)
    assert not found.HasField("summary") and not found.secrets
    assert found.job_info.job_id.value == job_id
    assert found.job_info.status.state == stateless.JOB_STATE_RUNNING
    assert found.job_info.status.version.value == "1-1-1"
    back = found.job_info.spec
    assert back.revision.version == 1 and back.revision.created_at > 0
    for name in (
        "name", "owner", "owning_team", "ldap_groups", "description", "labels", "instance_count",
        "sla", "respool_id",
    ):  # fmt: skip
        assert getattr(back, name) == getattr(spec, name), name
    assert set(back.instance_spec) == {1}
    assert back.instance_spec[1].labels == own.labels
    container, sent = back.default_spec.containers[0], spec.default_spec.containers[0]
    for name in ("resource", "entrypoint", "environment", "ports", "image"):
        assert getattr(container, name) == getattr(sent, name), name
    assert container.command.value == sent.entrypoint.value  # the older form, too

    # What is given back makes the same job again.
    again = jobs.CreateJob(creation(back))
    second = got(jobs, again.job_id.value).job_info.spec
    second.revision.CopyFrom(back.revision)
    assert second == back
    for one in (job_id, again.job_id.value):
        gone(deployment, jobs, one)


def test_a_service_of_several_containers_runs_and_gives_its_spec_back(
    deployment: Deployment, jobs: Any
) -> None:
    default = pod_spec(init_containers=[{"name": "first"} | RUNS])
    default.containers[0].name = "main"
    default.containers.add(name="beside", **RUNS)
    spec = service_spec(deployment.pool, default_spec=default)
    spec.instance_spec[1].containers.add(name="alone", **RUNS)
    made = jobs.CreateJob(creation(spec))
    job = made.job_id.value
    deployment.until(lambda: deployment.job(job).runtime.taskStats["RUNNING"] == 2)
    back = got(jobs, job).job_info.spec
    sent = [*default.init_containers, *default.containers]
    seen = [*back.default_spec.init_containers, *back.default_spec.containers]
    for one in seen:
        one.ClearField("command")  # the older form
    assert seen == sent
    own = back.instance_spec[1]
    assert [one.name for one in (*own.init_containers, *own.containers)] == ["first", "alone"]
    assert diff(jobs, made, spec) == diff(jobs, made, got(jobs, job).job_info.spec) == [], "same"
    spec.default_spec.containers[1].entrypoint.value = "another"
    assert diff(jobs, made, spec) == [(0, 0)], "the other instance has containers of its own"
    spec.default_spec.init_containers[0].entrypoint.value = "another"
    assert diff(jobs, made, spec) == [(0, 1)]
    gone(deployment, jobs, job)


def diff(jobs: Any, made: Any, spec: stateless.JobSpec) -> list[tuple[int, int]]:
    """The instances that this spec would change."""
    asked = svc.GetReplaceJobDiffRequest(job_id=made.job_id, version=made.version, spec=spec)
    found = jobs.GetReplaceJobDiff(asked).instances_updated
    return [(getattr(one, "from"), one.to) for one in found]


def test_a_spec_is_given_back_by_its_version(deployment: Deployment, jobs: Any) -> None:
    job = jobs.CreateJob(creation(service_spec(deployment.pool, 1))).job_id.value
    found = got(jobs, job, version={"value": "1-7-9"})  # only its first part counts
    assert found.job_info.job_id.value == job and found.job_info.spec.name == "service"
    assert not found.job_info.HasField("status") and not found.HasField("summary")
    summed = got(jobs, job, summary_only=True)
    assert summed.summary.job_id.value == job and not summed.HasField("job_info")
    asked = {"job_id": {"value": job}}
    assert refused(jobs.GetJob, svc.GetJobRequest(**asked, version={"value": "2-1-1"})) == (
        CODE.NOT_FOUND, "there is no version 2; the newest is 1",
    )  # fmt: skip
    assert refused(jobs.GetJob, svc.GetJobRequest(**asked, version={"value": "1-1"})) == (
        CODE.INVALID_ARGUMENT, "entityVersion has wrong format",
    )  # fmt: skip
    gone(deployment, jobs, job)


def test_a_batch_job_is_shown_too(deployment: Deployment, jobs: Any) -> None:
    job = deployment.create(deployment.request(1, defaultConfig=default_config(0.0)))
    assert got(jobs, job).job_info.spec.default_spec.containers[0].entrypoint.value
    deployment.ended(job)


def test_the_cache_has_a_part_of_the_spec(deployment: Deployment, jobs: Any) -> None:
    job = jobs.CreateJob(creation(service_spec(deployment.pool, 1, sla=SLA))).job_id.value
    found = jobs.GetJobCache(svc.GetJobCacheRequest(job_id={"value": job}))
    assert found.spec.instance_count == 1 and found.spec.sla == stateless.SlaSpec(**SLA)
    assert found.spec.respool_id.value == deployment.pool and not found.spec.name
    assert found.status.version.value == "1-1-1"
    private = jobmgrsvc_pb2_grpc.JobManagerServiceStub(deployment.channel)
    same = private.GetJobCache(jobmgrsvc_pb2.GetJobCacheRequest(job_id={"value": job}))
    for one in (same.spec, found.spec):
        one.ClearField("revision")  # which says when the job changed last
    assert same.spec == found.spec and same.status.version == found.status.version
    gone(deployment, jobs, job)
    for nobody in ("", "nonsense", NOBODY):
        asked = svc.GetJobCacheRequest(job_id={"value": nobody})
        nothing = CODE.NOT_FOUND, "job not found in cache"
        assert refused(jobs.GetJobCache, asked) == nothing
        asked = jobmgrsvc_pb2.GetJobCacheRequest(job_id={"value": nobody})
        assert refused(private.GetJobCache, asked) == nothing


def test_a_repeat_of_a_creation_gets_the_same_answer(deployment: Deployment, jobs: Any) -> None:
    sent = creation(service_spec(deployment.pool, 1))
    again = ((REQUEST_KEY, str(uuid.uuid4())),)
    first, second = (jobs.CreateJob(sent, metadata=again) for _ in range(2))
    assert first == second
    gone(deployment, jobs, first.job_id.value)


def test_an_id_is_taken_once(deployment: Deployment, jobs: Any) -> None:
    sent = creation(service_spec(deployment.pool, 1), job_id={"value": str(uuid.uuid4())})
    job = jobs.CreateJob(sent).job_id.value
    code, text = refused(jobs.CreateJob, sent)
    assert code is CODE.ALREADY_EXISTS and text
    gone(deployment, jobs, job)


def test_a_job_has_a_pool_and_a_proper_id(deployment: Deployment, jobs: Any) -> None:
    wrong_id = creation(service_spec(deployment.pool), job_id={"value": "nonsense"})
    assert refused(jobs.CreateJob, wrong_id) == (
        CODE.INVALID_ARGUMENT, "jobID is not valid UUID",
    )  # fmt: skip
    parent = deployment.make_pool("with-a-child", cpu=0.0)
    deployment.make_pool("child", parent, cpu=0.0)
    failed = "failed to validate resource pool: "
    for pool, code, text in (
        ("", CODE.INVALID_ARGUMENT, "resource pool ID is null"),
        ("root", CODE.INVALID_ARGUMENT, "cannot submit jobs to the `root` resource pool"),
        (parent, CODE.INVALID_ARGUMENT, "cannot submit jobs to a non leaf resource pool"),
        (NOBODY, CODE.NOT_FOUND, "resource pool not found"),
    ):
        # Said first, whatever else is wrong.
        for default in (pod_spec(), pod.PodSpec(init_containers=[{}])):
            sent = creation(service_spec(pool, default_spec=default))
            assert refused(jobs.CreateJob, sent) == (code, failed + text)


def container(**fields: Any) -> pod.PodSpec:
    """A good pod with these fields in its container."""
    found = pod_spec()
    found.containers[0].MergeFrom(pod.ContainerSpec(**fields))
    return found


def bare(**fields: Any) -> pod.PodSpec:
    """A pod whose container has these fields alone."""
    return pod.PodSpec(containers=[fields])


AT = "invalid job spec: spec.default_spec."
IN = AT + "containers[0]."
SECRET_VOLUME = {"container_path": "/s", "mode": 1, "source": {"type": 3}}
RUNS = {"entrypoint": {"value": "x"}}


def several(*more: dict[str, Any], **fields: Any) -> pod.PodSpec:
    """A pod of a good container and these."""
    return pod.PodSpec(containers=[{"name": "a"} | RUNS, *more], **fields)


UNFIT: list[tuple[pod.PodSpec, Any, str]] = [
    (container(container={"type": 2, "volumes": [SECRET_VOLUME]}),
     CODE.INVALID_ARGUMENT, "input cannot contain secret volume: "
     "spec.default_spec.containers[0].container.volumes[0]: a secret is given beside the spec"),
    *((sent, CODE.INVALID_ARGUMENT, text) for sent, text in (
        (
            pod_spec(volume={"size_mb": 1}),
            AT + "volume.container_path: no path of letters, digits and . _ - in folders: ''",
        ),
        (pod_spec(volumes=[{"name": "v"}]), AT + "volumes: a volume is not supported yet"),
        (pod_spec(host_ports=[{}]), AT + "host_ports: a port of the host is not supported yet"),
        (pod_spec(pod_name={"value": "p"}),
         AT + "pod_name: the name of a pod follows from its job"),
        (pod_spec(mesos_spec={"uris": [{"value": "u"}]}),
         AT + "mesos_spec.uris: fetching files is not supported yet"),
        (pod_spec(mesos_spec={"uris": [{"value": ""}]}),
         AT + "mesos_spec.uris[0].value: must have"),
        (several({"name": "b"} | RUNS, mesos_spec={"uris": [{"value": "u"}]}),
         AT + "mesos_spec.uris: fetching files for several containers is not supported yet"),
        (pod_spec(mesos_spec={"executor_spec": {"type": 2}}),
         AT + "mesos_spec.executor_spec: an executor is not supported: a pod is a command"),
        (pod_spec(mesos_spec={"network_spec": {"type": 2}}),
         AT + "mesos_spec.network_spec.type: another network than the host's is not supported yet"),
        (pod_spec(mesos_spec={"docker_parameters": [{"key": "k"}]}),
         AT + "mesos_spec.docker_parameters: are of docker containers only"),
        (pod_spec(revocable=True),
         AT + "revocable: is decided by spec.sla.revocable, which is not set"),
        (pod_spec(constraint={"type": 9}), AT + "constraint.type: unknown constraint type 9"),
        (pod_spec(constraint={"type": 1}), AT + "constraint.label_constraint.kind: unknown kind 0"),
        (pod_spec(preemption_policy={"kill_on_preempt": True}),
         AT + "preemption_policy.kill_on_preempt: Invalid config for instance 1, "
         "Task preemption policy should be false for stateless job"),
        (container(readiness_check={"enabled": True}), IN + "readiness_check.type: must be "
         "COMMAND or HTTP, got UNKNOWN"),
        (container(volume_mounts=[{}]), IN + "volume_mounts: a volume is not supported yet"),
        (container(liveness_check={"success_threshold": 1}), IN + "liveness_check."
         "success_threshold: a number of successes is not supported yet"),
        (container(ports=[{"name": "p", "template_name": "t"}]), IN + "ports[0].template_name: "
         "a port for a template is not supported yet"),
        (container(ports=[{"name": "p", "type": 1}]), IN + "ports[0].type: PORT_TYPE_STATIC and "
         "the number 0 exclude each other"),
        (container(ports=[{"name": "p"}]), IN + "ports: Invalid config for instance 1, "
         "Env name is missing for dynamic port"),
        (container(resource={"cpu_limit": -1.0}), IN + "resource.cpu_limit: "),
        (container(image="!"), IN + "image: not the name of an image: '!'"),
        (container(environment=[{"name": "="}]), IN + "environment[2].name: '=' is not a valid "
         "variable name"),
        (container(command={"value": "other"}), IN + "entrypoint.value: differs from "
         "command.value, the older form of it: give one of both"),
        (container(image="a", container={"type": 2}), IN + "image: differs from container, "
         "the older form of it: give one of both"),
        (container(executor={"executor_id": {"value": "x"}}), IN + "executor"),
        (bare(command={"uris": [{"value": "u"}], "value": "c"}),
         IN + "command.uris: fetching files is not supported yet"),
        (several({"name": "b"}), AT + "containers[1].entrypoint: missing: each of several "),
        (several(init_containers=[{"name": "i"}]), AT + "init_containers[0].entrypoint: missing"),
        (pod.PodSpec(init_containers=[{"name": "i"} | RUNS]), AT + "containers: a pod needs one "
         "beside its init containers"),
        (several(RUNS), AT + "containers[1].name: each of several containers needs one of "
         "letters, digits, `.`, `-` and `_`, got ''"),
        (several({"name": "../b"} | RUNS), AT + "containers[1].name: each of several"),
        (several({"name": "a"} | RUNS), AT + "containers[1].name: a is the name of another"),
        (several(init_containers=[{"name": "a"} | RUNS]), AT + "containers[0].name: a is the name"),
        (several(*({"name": f"c{at}"} | RUNS for at in range(32))),
         AT + "containers: the limit of one pod is 32"),
        (several({"name": "b", "environment": [{"name": "="}]} | RUNS),
         AT + "containers[1].environment[0].name: '=' is not a valid variable name"),
        (several({"name": "b", "image": "!"} | RUNS), AT + "containers[1].image: not the name"),
        (several({"name": "b", "ports": [{"name": "p", "value": 1}]} | RUNS,
                 {"name": "c", "ports": [{"name": "p", "value": 2}]} | RUNS),
         AT + "containers[2].ports[0].name: p is named twice in the pod"),
        (several({"name": "b", "liveness_check": {}} | RUNS, {"name": "c", "liveness_check": {}}
                 | RUNS), AT + "containers[2].liveness_check: the check of a second container"),
        (several(init_containers=[{"name": "i", "liveness_check": {}} | RUNS]),
         AT + "init_containers[0].liveness_check: an init container has none"),
        (several({"name": "b", "volume_mounts": [{}]} | RUNS),
         AT + "containers[1].volume_mounts: a volume is not supported yet"),
        (bare(name="x"), IN + "entrypoint: missing command info for instance 1"),
        (pod.PodSpec(), IN + "entrypoint: missing command info for instance 1"),
    )),
]  # fmt: skip


@pytest.mark.parametrize(("default", "code", "text"), UNFIT, ids=[row[2] for row in UNFIT])
def test_what_a_pod_cannot_be(
    deployment: Deployment, jobs: Any, default: pod.PodSpec, code: Any, text: str
) -> None:
    sent = creation(service_spec(deployment.pool, default_spec=default))
    found, said = refused(jobs.CreateJob, sent)
    assert (found, said[: len(text)]) == (code, text), said


def test_the_config_of_one_instance_is_named(deployment: Deployment, jobs: Any) -> None:
    own = {1: pod.PodSpec(containers=[{"ports": [{"name": "p"}]}])}
    sent = creation(service_spec(deployment.pool, instance_spec=own))
    assert refused(jobs.CreateJob, sent) == (
        CODE.INVALID_ARGUMENT,
        "invalid job spec: spec.instance_spec[1].containers[0].ports: "
        "Invalid config for instance 1, Env name is missing for dynamic port",
    )


def test_what_a_service_cannot_be(deployment: Deployment, jobs: Any) -> None:
    for more, text in (
        ({"instance_count": 100_001}, "spec.instance_count: Requested tasks: 100001 for job is "
         "greater than supported: 100000 tasks/job"),
        ({"sla": {"revocable": True}}, "spec.sla.revocable: revocable job must be preemptible"),
        ({"labels": [{"key": "peloton.gang", "value": "together"}]}, "spec.labels"),
    ):  # fmt: skip
        sent = creation(service_spec(deployment.pool, **more))
        code, said = refused(jobs.CreateJob, sent)
        assert code is CODE.INVALID_ARGUMENT
        assert said.startswith(f"invalid job spec: {text}"), said


def test_pods_are_added_by_a_workflow(deployment: Deployment, jobs: Any) -> None:
    spec = service_spec(deployment.pool, 3)
    more = {
        "create_spec": {"batch_size": 1, "max_instance_retries": 3, "start_paused": True},
        "opaque_data": {"data": "mine"},
    }
    answer = jobs.CreateJob(creation(spec, **more))
    job = answer.job_id.value

    def seen() -> Any:
        return jobs.GetJob(svc.GetJobRequest(job_id={"value": job}))

    found = seen().workflow_info
    assert found.status.state == stateless.WORKFLOW_STATE_PAUSED
    assert (found.status.version.value, found.status.prev_version.value) == ("1-1-1", "0-1-1")
    assert found.update_spec == stateless.UpdateSpec(
        batch_size=1, max_instance_retries=3, start_paused=True, min_healthy_seconds=5
    )
    assert found.opaque_data.data == "mine" and found.status.num_instances_remaining == 3
    counts = dict(seen().job_info.status.pod_stats)
    assert counts == {}, "what no batch has come to does not exist"
    why = deployment.ops.Why(ops_pb2.WhyRequest(job_id=job)).reasons
    assert [(one.code, "3 instances to add" in one.text) for one in why] == [("workflow", True)]
    assert "paused" in why[0].text
    alone = ops_pb2.WhyRequest(job_id=job, instance=1)
    with pytest.raises(grpc.RpcError, match="instance 1 does not exist: its workflow has 3"):
        deployment.ops.Why(alone)
    resume = svc.ResumeJobWorkflowRequest(job_id={"value": job}, version=answer.version)
    assert jobs.ResumeJobWorkflow(resume).version.value == "1-1-2"
    deployment.until(
        lambda: seen().workflow_info.status.state == stateless.WORKFLOW_STATE_SUCCEEDED
    )
    assert dict(seen().job_info.status.pod_stats) == {"POD_STATE_RUNNING": 3}
    gone(deployment, jobs, job)


def test_a_creation_has_no_secrets(deployment: Deployment, jobs: Any) -> None:
    spec = service_spec(deployment.pool)
    secret = creation(spec, secrets=[{"path": "/p", "value": {"data": b"eA=="}}])
    assert refused(jobs.CreateJob, secret) == (
        CODE.INVALID_ARGUMENT, "secrets not enabled in cluster",
    )  # fmt: skip


def test_a_user_that_the_caller_may_not_name_is_named_by_its_field(
    deployment: Deployment, jobs: Any
) -> None:
    sent = creation(
        service_spec(
            deployment.pool,
            default_spec=bare(command={"value": "true", "user": "ann"}),
        )
    )
    with pytest.raises(grpc.RpcError) as caught:
        jobs.CreateJob(sent, metadata=(("username", "ann"),))
    assert caught.value.code() is CODE.PERMISSION_DENIED  # type: ignore[attr-defined]
    field = "spec.default_spec.containers[0].command.user"
    assert caught.value.details().startswith(f"{field}: a caller that has not")  # type: ignore[attr-defined]
