"""UpdateService of v0 and the workflow calls of v1alpha, and each refusal with code and text.

Real updates of services of one daemon.
"""

from __future__ import annotations

from typing import Any

import grpc
import pytest

from peloton.api.v0.job import job_pb2
from peloton.api.v0.task import task_pb2
from peloton.api.v0.update import update_pb2
from peloton.api.v0.update.svc import update_svc_pb2 as svc
from peloton.api.v0.update.svc import update_svc_pb2_grpc
from peloton.api.v1alpha.job.stateless import stateless_pb2 as stateless
from peloton.api.v1alpha.job.stateless.svc import stateless_svc_pb2 as v1
from peloton.api.v1alpha.job.stateless.svc import stateless_svc_pb2_grpc
from peloton.gateway.v0.opaque_data import OPAQUE_BYTES_MAX
from peloton.ops.v1 import ops_pb2
from tests.gateway.fleet_fixture import Deployment, default_config, refused
from tests.gateway.service_specs import service_spec

CODE = grpc.StatusCode
NOBODY = "8c95fa0c-d174-40cd-ac17-6a1a166ec1a8"
SUCCEEDED, PAUSED, ABORTED = update_pb2.SUCCEEDED, update_pb2.PAUSED, update_pb2.ABORTED


@pytest.fixture
def updates(deployment: Deployment) -> Any:
    return update_svc_pb2_grpc.UpdateServiceStub(deployment.channel)


@pytest.fixture
def jobs(deployment: Deployment) -> Any:
    return stateless_svc_pb2_grpc.JobServiceStub(deployment.channel)


def refuses(code: Any, text: str, method: Any, sent: Any) -> None:
    found = refused(method, sent)
    assert found[0] == code and text in found[1], found


def config_of(deployment: Deployment, *, seconds: float = 600.0, count: int = 3) -> Any:
    config = deployment.request(count, defaultConfig=default_config(seconds), name="test").config
    config.type = job_pb2.SERVICE
    return config


def running(deployment: Deployment, count: int = 3) -> str:
    """A service that runs."""
    job = deployment.create(job_pb2.CreateRequest(config=config_of(deployment, count=count)))
    deployment.until(lambda: deployment.job(job).runtime.taskStats["RUNNING"] == count)
    return job


def update(deployment: Deployment, job: str, *, version: int = 1, **more: Any) -> Any:
    """A request for longer runs: another config."""
    config = config_of(deployment, seconds=700.0, count=more.pop("count", 3))
    config.changeLog.version = version
    return svc.CreateUpdateRequest(
        jobId={"value": job}, jobConfig=config, updateConfig=update_pb2.UpdateConfig(**more)
    )


def status(updates: Any, name: str) -> update_pb2.UpdateStatus:
    sent = svc.GetUpdateRequest(updateId={"value": name}, statusOnly=True)
    return updates.GetUpdate(sent).updateInfo.status


def test_an_update_is_created_seen_and_done(deployment: Deployment, updates: Any) -> None:
    job = running(deployment)
    sent = update(deployment, job, batchSize=1, count=4)
    sent.opaque_data.data = "mine"
    name = updates.CreateUpdate(sent).updateID.value
    deployment.until(lambda: status(updates, name).state == SUCCEEDED)
    info = updates.GetUpdate(svc.GetUpdateRequest(updateId={"value": name})).updateInfo
    assert (info.jobId.value, info.updateId.value) == (job, name)
    assert (info.configVersion, info.prevConfigVersion) == (2, 1)
    assert (info.config.batchSize, info.opaque_data.data) == (1, "mine")
    assert info.status == update_pb2.UpdateStatus(numTasksDone=4, state=SUCCEEDED)
    seen = deployment.job(job)
    assert seen.config.instanceCount == 4 and seen.config.changeLog.version == 2
    assert seen.runtime.taskStats["RUNNING"] == 4
    listed = updates.ListUpdates(svc.ListUpdatesRequest(jobID={"value": job})).updateInfo
    assert [one.updateId.value for one in listed] == [name]
    assert status(updates, name.upper()) == info.status


def test_an_update_is_paused_resumed_and_aborted(deployment: Deployment, updates: Any) -> None:
    job = running(deployment)
    name = updates.CreateUpdate(update(deployment, job, startPaused=True)).updateID.value
    assert status(updates, name).state == PAUSED
    assert status(updates, name).numTasksRemaining == 3
    updates.ResumeUpdate(svc.ResumeUpdateRequest(updateId={"value": name}))
    deployment.until(lambda: status(updates, name).state == SUCCEEDED)
    again = update(deployment, job, version=2, startPaused=True)
    again.jobConfig.defaultConfig.CopyFrom(default_config(800.0))
    other = updates.CreateUpdate(again).updateID.value
    updates.AbortUpdate(svc.AbortUpdateRequest(updateId={"value": other}))
    assert status(updates, other).state == ABORTED
    listed = updates.ListUpdates(svc.ListUpdatesRequest(jobID={"value": job}, limit=1)).updateInfo
    assert [one.updateId.value for one in listed] == [other]
    updates.PauseUpdate(svc.PauseUpdateRequest(updateId={"value": other}))
    assert status(updates, other).state == ABORTED, "what is over stays so"


def test_an_update_removes_instances_and_is_rolled_back(
    deployment: Deployment, updates: Any
) -> None:
    job = running(deployment)
    name = updates.CreateUpdate(update(deployment, job, count=2)).updateID.value
    deployment.until(lambda: status(updates, name).state == SUCCEEDED)
    seen = deployment.job(job)
    assert seen.config.instanceCount == 2 and dict(seen.runtime.taskStats)["RUNNING"] == 2
    assert len(deployment.tasks.List(task_pb2.ListRequest(jobId={"value": job})).result.value) == 2
    rollback = svc.RollbackUpdateRequest(updateId={"value": name})
    text = "workflow UPDATE cannot be rolled back: it is SUCCEEDED"
    refuses(CODE.INVALID_ARGUMENT, text, updates.RollbackUpdate, rollback)
    more = update(deployment, job, version=2, count=4, startPaused=True)
    more.jobConfig.defaultConfig.CopyFrom(default_config(800.0))
    name = updates.CreateUpdate(more).updateID.value
    updates.RollbackUpdate(svc.RollbackUpdateRequest(updateId={"value": name}))
    deployment.until(lambda: status(updates, name).state == update_pb2.ROLLED_BACK)
    info = updates.GetUpdate(svc.GetUpdateRequest(updateId={"value": name})).updateInfo
    assert (info.configVersion, info.prevConfigVersion) == (4, 2)
    assert deployment.job(job).config.instanceCount == 2


def test_why_names_the_run_for_which_an_update_was_rolled_back(
    deployment: Deployment, updates: Any
) -> None:
    job = running(deployment)
    limits = {"maxInstanceAttempts": 1, "maxFailureInstances": 1, "rollbackOnFailure": True}
    failing = update(deployment, job, **limits)
    failing.jobConfig.defaultConfig.CopyFrom(default_config(0.0, code=7))
    name = updates.CreateUpdate(failing).updateID.value
    deployment.until(lambda: status(updates, name).state == update_pb2.ROLLED_BACK)
    reasons = deployment.ops.Why(ops_pb2.WhyRequest(job_id=job)).reasons
    (failed,) = [one for one in reasons if one.code == "workflow-failed"]
    where = f"instance {failed.instance}, run {failed.run}"
    wanted = f"its update to version 2 was rolled back: {where}: Command exited with status 7"
    assert (failed.text, failed.run) == (wanted, 2)


@pytest.mark.parametrize(
    ("change", "code", "text"),
    [
        ({"version": 7}, CODE.INVALID_ARGUMENT, "invalid job configuration version"),
        ({"version": 0}, CODE.INVALID_ARGUMENT, "invalid job configuration version"),
    ],
)
def test_what_a_service_cannot_be_given(
    deployment: Deployment, updates: Any, change: dict[str, Any], code: Any, text: str
) -> None:
    job = running(deployment)
    refuses(code, text, updates.CreateUpdate, update(deployment, job, **change))
    assert deployment.job(job).config.changeLog.version == 1


def test_what_the_job_must_be(deployment: Deployment, updates: Any) -> None:
    job = running(deployment)
    bad = CODE.INVALID_ARGUMENT
    no_id = update(deployment, "nonsense")
    refuses(bad, "JobID must be of UUID format", updates.CreateUpdate, no_id)
    refuses(CODE.NOT_FOUND, "job not found", updates.CreateUpdate, update(deployment, NOBODY))
    unversioned = update(deployment, job)
    unversioned.jobConfig.ClearField("changeLog")
    text = "missing changelog in job configuration"
    refuses(bad, text, updates.CreateUpdate, unversioned)
    batch = update(deployment, job)
    batch.jobConfig.type = job_pb2.BATCH
    refuses(bad, "job type is immutable", updates.CreateUpdate, batch)
    moved = update(deployment, job)
    moved.jobConfig.respoolID.value = NOBODY
    text = "resource pool identifier is immutable"
    refuses(bad, text, updates.CreateUpdate, moved)
    other = deployment.create(deployment.request(1, defaultConfig=default_config(600.0)))
    text = "job must be of type service"
    refuses(bad, text, updates.CreateUpdate, update(deployment, other))


CALLS = [
    *("GetUpdate", "GetUpdateCache", "PauseUpdate", "ResumeUpdate", "AbortUpdate"),
    "RollbackUpdate",
]


def test_lists_of_updates_need_a_job(updates: Any) -> None:
    method, request = updates.ListUpdates, svc.ListUpdatesRequest
    refuses(CODE.INVALID_ARGUMENT, "no job ID provided", method, request())
    refuses(CODE.NOT_FOUND, "job not found", method, request(jobID={"value": NOBODY}))


@pytest.mark.parametrize("call", CALLS)
def test_there_is_no_such_update(deployment: Deployment, updates: Any, call: str) -> None:
    job = running(deployment)
    request = getattr(svc, f"{call}Request")
    method = getattr(updates, call)
    text = "no update ID provided"
    refuses(CODE.INVALID_ARGUMENT, text, method, request())
    for name in ("nonsense", f"{job}-1", f"{job}-x"):
        refuses(CODE.NOT_FOUND, "update not found", method, request(updateId={"value": name}))
    none = request(updateId={"value": f"{NOBODY}-1"})
    refuses(CODE.NOT_FOUND, "job not found", method, none)


def known(jobs: Any, job: str) -> str:
    sent = v1.GetJobRequest(job_id={"value": job}, summary_only=True)
    return str(jobs.GetJob(sent).summary.status.version.value)


def sent_v1(name: str, job: str, version: str, **more: Any) -> Any:
    return getattr(v1, f"{name}Request")(job_id={"value": job}, version={"value": version}, **more)


def test_a_service_is_restarted_by_ranges(deployment: Deployment, jobs: Any) -> None:
    job = running(deployment)
    spec = stateless.RestartSpec(batch_size=1)
    spec.ranges.add(to=2, **{"from": 1})
    more = {"restart_spec": spec, "opaque_data": {"data": "mine"}}
    answer = jobs.RestartJob(sent_v1("RestartJob", job, "1-1-1", **more))
    assert answer.version.value == "2-1-2"

    def info() -> Any:
        return jobs.ListJobWorkflows(
            v1.ListJobWorkflowsRequest(job_id={"value": job})
        ).workflow_infos[0]

    deployment.until(lambda: info().status.state == stateless.WORKFLOW_STATE_SUCCEEDED)
    found = info()
    assert found.status.type == stateless.WORKFLOW_TYPE_RESTART
    assert found.status.num_instances_completed == 1
    assert (found.status.version.value, found.status.prev_version.value) == ("2-1-2", "1-1-2")
    closed = stateless.RestartSpec(
        batch_size=1, ranges=[{"from": 1, "to": 1}], min_healthy_seconds=5
    )
    assert found.restart_spec == closed and found.opaque_data.data == "mine"
    states = [event.state for event in found.events]
    assert states == [
        stateless.WORKFLOW_STATE_SUCCEEDED,
        stateless.WORKFLOW_STATE_ROLLING_FORWARD,
        stateless.WORKFLOW_STATE_INITIALIZED,
    ]
    summary = jobs.GetJob(v1.GetJobRequest(job_id={"value": job}, summary_only=True)).summary
    assert summary.status.workflow_status == found.status
    tasks = deployment.tasks.List(task_pb2.ListRequest(jobId={"value": job})).result.value
    runs = [task.runtime.mesosTaskId.value[-2:] for task in tasks.values()]
    assert sorted(runs) == ["-1", "-1", "-2"]


def test_a_workflow_is_controlled_by_who_knows_the_version(
    deployment: Deployment, jobs: Any, updates: Any
) -> None:
    job = running(deployment)
    for verb in ("Pause", "Resume", "Abort"):
        name = f"{verb}JobWorkflow"
        no_workflow = sent_v1(name, job, "1-1-1")
        refuses(CODE.NOT_FOUND, "no workflow found", getattr(jobs, name), no_workflow)
        nobody = sent_v1(name, NOBODY, "1-1-1")
        refuses(CODE.NOT_FOUND, "job not found", getattr(jobs, name), nobody)
    updates.CreateUpdate(update(deployment, job, startPaused=True))
    for verb in ("Pause", "Resume", "Abort"):
        name = f"{verb}JobWorkflow"
        stale = sent_v1(name, job, "1-1-1")
        refuses(CODE.ABORTED, "unexpected entity version", getattr(jobs, name), stale)
    stale = sent_v1("RestartJob", job, "1-1-1")
    refuses(CODE.ABORTED, "unexpected entity version", jobs.RestartJob, stale)
    restart = sent_v1("RestartJob", job, known(jobs, job))
    text = "workflow RESTART cannot overwrite workflow UPDATE"
    refuses(CODE.INVALID_ARGUMENT, text, jobs.RestartJob, restart)
    answer = jobs.AbortJobWorkflow(sent_v1("AbortJobWorkflow", job, known(jobs, job)))
    assert answer.version.value == known(jobs, job) == "2-1-3"
    in_place = sent_v1("RestartJob", job, "2-1-3", restart_spec={"in_place": True})
    assert jobs.RestartJob(in_place).version.value == "3-1-4"


def replacing(deployment: Deployment, job: str, version: str = "1-1-1", **more: Any) -> Any:
    spec = service_spec(deployment.pool, more.pop("count", 3), **more.pop("spec", {}))
    return sent_v1("ReplaceJob", job, version, spec=spec, **more)


def test_a_service_is_given_another_spec(deployment: Deployment, jobs: Any) -> None:
    job = running(deployment)
    more = {
        "update_spec": {"batch_size": 1, "max_instance_retries": 3, "min_healthy_seconds": 1},
        "opaque_data": {"data": "mine"},
    }
    sent = replacing(deployment, job, count=4, spec={"description": "new"}, **more)
    assert jobs.ReplaceJob(sent).version.value == "2-1-2"

    def seen() -> Any:
        return jobs.GetJob(v1.GetJobRequest(job_id={"value": job}))

    deployment.until(
        lambda: seen().workflow_info.status.state == stateless.WORKFLOW_STATE_SUCCEEDED
    )
    found = seen()
    assert found.workflow_info.update_spec == sent.update_spec
    assert found.workflow_info.opaque_data.data == "mine"
    assert found.job_info.spec.description == "new" and found.job_info.spec.instance_count == 4
    assert found.job_info.status.pod_stats["POD_STATE_RUNNING"] == 4
    counts = dict(found.job_info.status.pod_configuration_version_stats)
    assert counts == {"2-0-0": 4}


def test_what_v1alpha_has_no_field_for_stays(deployment: Deployment, jobs: Any) -> None:
    request = deployment.request(2, defaultConfig=default_config(600.0))
    request.config.type = job_pb2.SERVICE
    request.config.placementStrategy = job_pb2.PLACEMENT_STRATEGY_SPREAD_JOB
    add = request.config.defaultConfig.environment.variables.add
    add(name="DATA", value="/data")
    own = request.config.instanceConfig[1].environment.variables.add
    own(name="DATA", value="/other")
    job = deployment.create(request)
    before = deployment.job(job).config
    spec = jobs.GetJob(v1.GetJobRequest(job_id={"value": job})).job_info.spec
    spec.description = "another"
    jobs.ReplaceJob(sent_v1("ReplaceJob", job, "1-1-1", spec=spec))
    after = deployment.job(job).config
    assert (before.description, after.description) == ("", "another")
    for one in (before, after):
        one.ClearField("description")
        one.ClearField("changeLog")
    assert after == before


def test_specs_that_a_service_cannot_be_given(deployment: Deployment, jobs: Any) -> None:
    job = running(deployment)
    bad, call = CODE.INVALID_ARGUMENT, jobs.ReplaceJob
    refuses(bad, "JobID must be of UUID format", call, replacing(deployment, "nonsense"))
    refuses(CODE.NOT_FOUND, "job not found", call, replacing(deployment, NOBODY))
    stale = replacing(deployment, job, "7-1-1")
    refuses(CODE.ABORTED, "unexpected entity version", call, stale)
    moved = replacing(deployment, job)
    moved.spec.respool_id.value = NOBODY
    text = "failed to validate spec update: resource pool identifier is immutable"
    refuses(bad, text, call, moved)
    batch = deployment.create(deployment.request(1, defaultConfig=default_config(600.0)))
    text = "failed to validate spec update: job type is immutable"
    refuses(bad, text, call, replacing(deployment, batch))
    secret = replacing(deployment, job, secrets=[{"path": "/x"}])
    refuses(bad, "secrets not enabled in cluster", call, secret)
    nothing = replacing(deployment, job)
    del nothing.spec.default_spec.containers[:]
    refuses(bad, "invalid job spec: spec.default_spec", call, nothing)
    assert known(jobs, job) == "1-1-1"


def test_lists_of_workflows(deployment: Deployment, jobs: Any) -> None:
    job = running(deployment)
    method, request = jobs.ListJobWorkflows, v1.ListJobWorkflowsRequest
    assert not method(request(job_id={"value": job})).workflow_infos
    refuses(CODE.INVALID_ARGUMENT, "no job id provided", method, request())
    refuses(CODE.NOT_FOUND, "job not found", method, request(job_id={"value": NOBODY}))


STATES = stateless.WorkflowState
FORWARD = STATES.WORKFLOW_STATE_ROLLING_FORWARD
THROUGH, BEGUN = STATES.WORKFLOW_STATE_SUCCEEDED, STATES.WORKFLOW_STATE_INITIALIZED


def test_a_service_is_rolled_through_by_v0(deployment: Deployment, updates: Any) -> None:
    job = running(deployment)
    stop = {"id": {"value": job}, "ranges": [{"from": 1, "to": 3}]}

    def counts() -> dict[str, int]:
        return {k: v for k, v in deployment.job(job).runtime.taskStats.items() if v}

    for name in ("Restart", "Start", "Stop"):
        call, request = getattr(deployment.jobs, name), getattr(job_pb2, f"{name}Request")
        text = "invalid job configuration version"
        for version in (0, 7):
            stale = request(resourceVersion=version, **stop)
            refuses(CODE.INVALID_ARGUMENT, text, call, stale)
        refuses(CODE.NOT_FOUND, "job not found", call, request(id={"value": NOBODY}))
    config = {"batchSize": 1}
    sent = job_pb2.StopRequest(stopConfig=config, resourceVersion=1, **stop)
    stopped = deployment.jobs.Stop(sent)
    assert stopped.resourceVersion == 2
    deployment.until(lambda: status(updates, stopped.updateID.value).state == SUCCEEDED)
    deployment.until(lambda: counts() == {"RUNNING": 1, "KILLED": 2})
    sent = job_pb2.StartRequest(id={"value": job}, resourceVersion=2, startConfig=config)
    started = deployment.jobs.Start(sent)
    deployment.until(lambda: status(updates, started.updateID.value).state == SUCCEEDED)
    deployment.until(lambda: counts() == {"RUNNING": 3})
    again = deployment.jobs.Restart(job_pb2.RestartRequest(id={"value": job}, resourceVersion=3))
    assert again.resourceVersion == 4
    deployment.until(lambda: status(updates, again.updateID.value).state == SUCCEEDED)
    tasks = deployment.tasks.List(task_pb2.ListRequest(jobId={"value": job})).result.value
    runs = [task.runtime.mesosTaskId.value[-2:] for task in tasks.values()]
    assert sorted(runs) == ["-2", "-3", "-3"]


def test_events_of_instances(deployment: Deployment, jobs: Any, updates: Any) -> None:
    job = running(deployment)
    events, request = jobs.GetWorkflowEvents, v1.GetWorkflowEventsRequest
    bad = request(job_id={"value": "nonsense"})
    refuses(CODE.INVALID_ARGUMENT, "job ID must be of UUID format", events, bad)
    none = request(job_id={"value": NOBODY})
    refuses(CODE.NOT_FOUND, "job not found", events, none)
    text = "job runtime does not have workflow"
    refuses(CODE.UNAVAILABLE, text, events, request(job_id={"value": job}))
    spec = {"batch_size": 1, "ranges": [{"from": 0, "to": 2}]}
    jobs.RestartJob(sent_v1("RestartJob", job, "1-1-1", restart_spec=spec))

    def listed(**more: Any) -> Any:
        sent = v1.ListJobWorkflowsRequest(job_id={"value": job}, **more)
        return jobs.ListJobWorkflows(sent).workflow_infos

    deployment.until(lambda: listed()[0].status.state == THROUGH)
    found = events(request(job_id={"value": job}, instance_id=1)).events
    assert [each.state for each in found] == [THROUGH, FORWARD, BEGUN]
    assert [each.timestamp for each in found] == sorted(
        (each.timestamp for each in found), reverse=True
    )
    assert {each.type for each in found} == {stateless.WORKFLOW_TYPE_RESTART}
    newest = events(request(job_id={"value": job}, instance_id=1, limit=1)).events
    assert [*newest] == [found[0]]
    for stranger in (2, 7, 100_000):
        assert not events(request(job_id={"value": job}, instance_id=stranger)).events
    name = updates.CreateUpdate(update(deployment, job, version=2, count=4)).updateID.value
    deployment.until(lambda: status(updates, name).state == SUCCEEDED)
    last, first = listed(instance_events=True, instance_events_limit=1)
    assert [one.instance_id for one in last.instance_events] == [0, 1, 2, 3]
    assert [one.instance_id for one in first.instance_events] == [0, 1]
    assert {len(one.events) for one in last.instance_events} == {1}
    whole = jobs.GetJob(v1.GetJobRequest(job_id={"value": job})).workflow_info
    assert [(getattr(one, "from"), one.to) for one in whole.instances_added] == [(3, 3)]
    assert [(getattr(one, "from"), one.to) for one in whole.instances_updated] == [(0, 2)]
    assert not whole.instances_removed and not whole.status.instances_current
    cached = updates.GetUpdateCache(svc.GetUpdateCacheRequest(updateId={"value": name}))
    assert cached == svc.GetUpdateCacheResponse(
        jobId={"value": job},
        state=SUCCEEDED,
        instancesTotal=range(4),
        instancesDone=range(4),
        instancesAdded=[3],
        instancesUpdated=range(3),
    )


def test_who_is_under_way_is_named(deployment: Deployment, jobs: Any, updates: Any) -> None:
    job = running(deployment)
    sent = update(deployment, job, batchSize=2, count=2)
    sent.jobConfig.defaultConfig.resource.memLimitMb = 10**9
    name = updates.CreateUpdate(sent).updateID.value

    def seen() -> Any:
        return updates.GetUpdateCache(svc.GetUpdateCacheRequest(updateId={"value": name}))

    deployment.until(lambda: [*seen().instancesCurrent] == [0, 1])
    assert [*seen().instancesTotal] == [0, 1, 2] and not seen().instancesDone
    info = jobs.GetJob(v1.GetJobRequest(job_id={"value": job}))
    assert [*info.job_info.status.workflow_status.instances_current] == [0, 1]
    assert [(getattr(one, "from"), one.to) for one in info.workflow_info.instances_removed] == [
        (2, 2)
    ]


def patching(deployment: Deployment, job: str, version: str = "1-1-1", **more: Any) -> Any:
    return sent_v1("PatchJob", job, version, **more)


def test_who_names_another_version_hears_of_that_first(deployment: Deployment, jobs: Any) -> None:
    made = v1.CreateJobRequest(spec=service_spec(deployment.pool, 2))
    job = jobs.CreateJob(made).job_id.value
    moved = replacing(deployment, job, "7-1-1")
    moved.spec.respool_id.value = NOBODY
    unbuilt = replacing(deployment, job, "7-1-1")
    unbuilt.spec.default_spec.containers.add(name="second")
    many = {"instance_count": 10**6}
    long = {"opaque_data": {"data": "x" * (OPAQUE_BYTES_MAX + 1)}}
    for stale in (
        moved,
        unbuilt,
        replacing(deployment, job, "nonsense", spec=many),
        replacing(deployment, job, "7-1-1", **long),
        patching(deployment, job, "7-1-1", spec=many),
        sent_v1("RestartJob", job, "7-1-1", **long),
        sent_v1("AbortJobWorkflow", job, "7-1-1", **long),
    ):
        name = type(stale).__name__.removesuffix("Request")
        refuses(CODE.ABORTED, "unexpected entity version", getattr(jobs, name), stale)
    for right in (replacing(deployment, job, **long), sent_v1("RestartJob", job, "1-1-1", **long)):
        name = type(right).__name__.removesuffix("Request")
        refuses(CODE.INVALID_ARGUMENT, "opaque_data.data: ", getattr(jobs, name), right)


def test_a_spec_is_patched(deployment: Deployment, jobs: Any) -> None:
    made = v1.CreateJobRequest(spec=service_spec(deployment.pool, 2, description="old"))
    job = jobs.CreateJob(made).job_id.value
    before = jobs.GetJob(v1.GetJobRequest(job_id={"value": job})).job_info.spec
    deployment.until(lambda: deployment.job(job).runtime.taskStats["RUNNING"] == 2)
    bad, call = CODE.INVALID_ARGUMENT, jobs.PatchJob
    refuses(bad, "JobID must be of UUID format", call, patching(deployment, "nonsense"))
    refuses(CODE.NOT_FOUND, "job not found", call, patching(deployment, NOBODY))
    stale = patching(deployment, job, "7-1-1", spec={"description": "new"})
    refuses(CODE.ABORTED, "unexpected entity version", call, stale)
    wrong = patching(deployment, job, known(jobs, job), spec={"instance_count": 10**6})
    refuses(bad, "invalid job spec: ", call, wrong)
    patch = {"description": "new", "sla": {"priority": 3}, "instance_count": 1}
    version = known(jobs, job)
    answer = jobs.PatchJob(patching(deployment, job, version, spec=patch))
    assert answer.version.value == known(jobs, job) != version
    after = jobs.GetJob(v1.GetJobRequest(job_id={"value": job})).job_info.spec
    assert (after.description, after.sla.priority, after.instance_count) == ("new", 3, 1)
    assert after.name == before.name and after.default_spec == before.default_spec
    deployment.until(lambda: dict(deployment.job(job).runtime.taskStats) == {"RUNNING": 1})


def test_what_is_kept_with_a_workflow_has_a_limit(
    deployment: Deployment, jobs: Any, updates: Any
) -> None:
    job = running(deployment)
    most = {"data": "é" * (OPAQUE_BYTES_MAX // 2)}
    name = updates.CreateUpdate(update(deployment, job, startPaused=True)).updateID.value
    version = known(jobs, job)
    more = {"opaque_data": {"data": "x" * (OPAQUE_BYTES_MAX + 1)}}
    text = f"opaque_data.data: {OPAQUE_BYTES_MAX + 1} bytes, the limit is {OPAQUE_BYTES_MAX}"
    created = v1.CreateJobRequest(spec=service_spec(deployment.pool, 1), **more)
    replaced = replacing(deployment, job, version, **more)
    calls = [
        (jobs.CreateJob, created),
        (jobs.ReplaceJob, replaced),
        *(
            (getattr(jobs, call), sent_v1(call, job, version, **more))
            for call in ("RestartJob", "PauseJobWorkflow", "ResumeJobWorkflow", "AbortJobWorkflow")
        ),
        *(
            (
                getattr(updates, call),
                getattr(svc, f"{call}Request")(updateId={"value": name}, **more),
            )
            for call in ("PauseUpdate", "ResumeUpdate", "AbortUpdate")
        ),
    ]
    for call, sent in calls:
        refuses(CODE.INVALID_ARGUMENT, text, call, sent)
    assert known(jobs, job) == version
    sent = svc.PauseUpdateRequest(updateId={"value": name}, opaque_data=most)
    updates.PauseUpdate(sent)
    info = updates.GetUpdate(svc.GetUpdateRequest(updateId={"value": name})).updateInfo
    assert info.opaque_data.data == most["data"]
