"""The second services: the same jobs, tasks and pools, with errors as statuses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import Descriptor
from google.protobuf.message_factory import GetMessageClass

from peloton.api.v0.job import job_pb2 as job
from peloton.api.v0.job.svc import job_svc_pb2 as job_svc
from peloton.api.v0.job.svc import job_svc_pb2_grpc
from peloton.api.v0.respool import respool_pb2 as respool
from peloton.api.v0.respool.svc import respool_svc_pb2 as respool_svc
from peloton.api.v0.respool.svc import respool_svc_pb2_grpc
from peloton.api.v0.task import task_pb2 as task
from peloton.api.v0.task.svc import task_svc_pb2 as task_svc
from peloton.api.v0.task.svc import task_svc_pb2_grpc
from peloton.api.v1alpha.respool import respool_pb2 as respool_v1
from peloton.api.v1alpha.respool.svc import respool_svc_pb2 as respool_svc_v1
from peloton.api.v1alpha.respool.svc import respool_svc_pb2_grpc as respool_svc_v1_grpc
from peloton.gateway.translate import counterparts
from tests.gateway.fleet_fixture import Deployment, default_config, named, refused

CODE = grpc.StatusCode
NOBODY = "00000000-0000-4000-8000-000000000000"
SERVICES: dict[str, tuple[Any, Any]] = {
    "JobService": (job_svc, counterparts.JOBS),
    "TaskService": (task_svc, counterparts.TASKS),
    "ResourcePoolService": (respool_svc, counterparts.POOLS),
    "ResourcePoolService of v1alpha": (respool_svc_v1, counterparts.POOLS_V1),
}
RECAST = [
    (job_svc.GetJobCacheResponse, job.GetCacheResponse),
    (job_svc.RestartJobResponse, job.RestartResponse),
    (job_svc.StartJobResponse, job.StartResponse),
    (job_svc.StopJobResponse, job.StopResponse),
    (task_svc.BrowseSandboxResponse, task.BrowseSandboxResponse),
    (task_svc.GetPodEventsResponse, task.GetPodEventsResponse),
    (respool_v1.ResourcePoolInfo, respool.ResourcePoolInfo),
    (respool.CreateRequest, respool_svc.CreateResourcePoolRequest),
    (respool.CreateRequest, respool_svc_v1.CreateResourcePoolRequest),
]
"""What is read as another class, besides requests: read as, written as."""
RENAMED = {"changelog": "revision", "config": "spec", "usage": "usages", "id": "respoolid"}


def requests() -> Iterator[tuple[Any, Any]]:
    for name, (svc, table) in SERVICES.items():
        described = svc.DESCRIPTOR.services_by_name[name.partition(" ")[0]]
        for method, to in table.items():
            yield to.request, GetMessageClass(described.methods_by_name[method].input_type)


@pytest.mark.parametrize(
    ("read", "written"),
    [*requests(), *RECAST],
    ids=lambda cls: cls.DESCRIPTOR.full_name.removeprefix("peloton.api."),
)
def test_what_is_read_as_another_class_has_its_fields(read: Any, written: Any) -> None:
    assert_same(read.DESCRIPTOR, written.DESCRIPTOR, seen=set())


def assert_same(one: Descriptor, other: Descriptor, *, seen: set[str]) -> None:
    """Fields of the same number have the same name and type, all the way down."""
    if one.full_name == other.full_name or one.full_name in seen:
        return
    seen.add(one.full_name)
    for field in one.fields:
        of = other.fields_by_number.get(field.number)
        if of is None:
            continue
        names = {plain(field.name), plain(of.name)}
        assert len(names) == 1 or (min(names), max(names)) in RENAMED.items(), (
            one.full_name,
            names,
        )
        assert (field.cpp_type, field.is_repeated) == (of.cpp_type, of.is_repeated) or {
            field.cpp_type,
            of.cpp_type,
        } == {field.CPPTYPE_INT64, field.CPPTYPE_UINT64}
        if field.message_type is not None:
            assert of.message_type is not None
            assert_same(field.message_type, of.message_type, seen=seen)


def plain(name: str) -> str:
    return name.replace("_", "").lower()


def test_the_life_of_a_job(deployment: Deployment) -> None:
    jobs = job_svc_pb2_grpc.JobServiceStub(deployment.channel)
    tasks = task_svc_pb2_grpc.TaskServiceStub(deployment.channel)
    config = deployment.request(2, defaultConfig=default_config(600.0)).config
    config.ClearField("respoolID")
    sent = job_svc.CreateJobRequest(pool={"value": "//work/"}, config=config)
    made = jobs.CreateJob(sent).jobId.value
    deployment.until(lambda: deployment.job(made).runtime.taskStats["RUNNING"] == 2)
    got = jobs.GetJob(job_svc.GetJobRequest(id=named(made))).result
    assert (got.name, got.respoolID.value) == (config.name, deployment.pool)
    found = jobs.QueryJobs(
        job_svc.QueryJobsRequest(spec={"name": config.name}, pagination={"limit": 1, "offset": 0})
    )
    assert len(found.records) == 1 and found.records[0].config.name == config.name
    listed = tasks.ListTasks(task_svc.ListTasksRequest(jobId=named(made))).tasks
    assert sorted(listed) == [0, 1]
    one = tasks.GetTask(task_svc.GetTaskRequest(jobId=named(made), instanceId=1))
    assert one.result.runtime.state == task.RUNNING and len(one.results) == 1
    page = tasks.QueryTasks(task_svc.QueryTasksRequest(jobId=named(made), pagination={"limit": 1}))
    assert len(page.records) == 1 and page.pagination.total == 2
    events = tasks.GetPodEvents(task_svc.GetPodEventsRequest(jobId=named(made), instanceId=0))
    assert events.result[0].taskId.value.startswith(f"{made}-0-")
    stopped = tasks.StopTasks(task_svc.StopTasksRequest(jobId=named(made)))
    assert sorted(stopped.stopped) == [0, 1]
    deployment.ended(made)
    jobs.DeleteJob(job_svc.DeleteJobRequest(id=named(made)))
    assert refused(jobs.GetJob, job_svc.GetJobRequest(id=named(made)))[0] is CODE.NOT_FOUND


def test_errors_of_jobs_and_tasks_are_statuses(deployment: Deployment) -> None:
    jobs = job_svc_pb2_grpc.JobServiceStub(deployment.channel)
    tasks = task_svc_pb2_grpc.TaskServiceStub(deployment.channel)
    config = deployment.request(1).config
    sent = job_svc.CreateJobRequest(pool={"value": "/nowhere"}, config=config)
    assert refused(jobs.CreateJob, sent)[0] is CODE.NOT_FOUND
    sent = job_svc.CreateJobRequest(pool={"value": "/work"}, config=config, id={"value": "no id"})
    code, text = refused(jobs.CreateJob, sent)
    assert code is CODE.INVALID_ARGUMENT and "UUID" in text
    made = deployment.create(deployment.request(1))
    sent = job_svc.CreateJobRequest(pool={"value": "/work"}, config=config, id=named(made))
    assert refused(jobs.CreateJob, sent)[0] is CODE.ALREADY_EXISTS
    beyond = task_svc.GetTaskRequest(jobId=named(made), instanceId=1)
    assert refused(tasks.GetTask, beyond) == (
        CODE.NOT_FOUND,
        "no such instance: the job has 1",
    )
    absent = task_svc.ListTasksRequest(jobId=named(NOBODY))
    assert refused(tasks.ListTasks, absent) == (CODE.NOT_FOUND, "job not found")
    wrong = job_svc.QueryJobsRequest(spec={"creationTimeRange": {"min": {"seconds": 9}, "max": {}}})
    assert refused(jobs.QueryJobs, wrong)[0] is CODE.INVALID_ARGUMENT


def test_the_life_of_a_pool(deployment: Deployment) -> None:
    pools = respool_svc_pb2_grpc.ResourcePoolServiceStub(deployment.channel)
    config = respool.ResourcePoolConfig(
        name="second", parent={"value": deployment.make_pool("above")}, owningTeam="us"
    )
    config.resources.add(kind="cpu", limit=2.0)
    made = pools.CreateResourcePool(respool_svc.CreateResourcePoolRequest(config=config)).id
    path = respool.ResourcePoolPath(value="/above/second")
    sent = respool_svc.LookupResourcePoolIDRequest(path=path)
    assert pools.LookupResourcePoolID(sent).id == made
    config.resources[0].limit = 1.0
    pools.UpdateResourcePool(respool_svc.UpdateResourcePoolRequest(id=made, config=config))
    above = pools.GetResourcePool(
        respool_svc.GetResourcePoolRequest(id=config.parent, includeChildPools=True)
    )
    (below,) = above.childResPools
    assert below.id == made and above.resPool.path.value == "/above"
    assert {one.kind: one.limit for one in below.config.resources}["cpu"] == 1.0
    found = pools.QueryResourcePools(respool_svc.QueryResourcePoolsRequest()).resPools
    assert made in [one.id for one in found]
    full = respool_svc.DeleteResourcePoolRequest(id=config.parent)
    assert refused(pools.DeleteResourcePool, full)[0] is CODE.FAILED_PRECONDITION
    root = respool_svc.DeleteResourcePoolRequest(id={"value": "root"})
    assert refused(pools.DeleteResourcePool, root) == (
        CODE.INVALID_ARGUMENT, "the root resource pool cannot be deleted",
    )  # fmt: skip
    gone = respool_svc.DeleteResourcePoolRequest(id=made)
    pools.DeleteResourcePool(gone)
    assert refused(pools.DeleteResourcePool, gone)[0] is CODE.NOT_FOUND
    assert refused(pools.LookupResourcePoolID, sent)[0] is CODE.NOT_FOUND


def test_the_pools_of_v1alpha_are_the_same(deployment: Deployment) -> None:
    pools = respool_svc_v1_grpc.ResourcePoolServiceStub(deployment.channel)
    spec = respool_v1.ResourcePoolSpec(
        name="third", parent={"value": "root"}, owning_team="us", ldap_groups=["g"]
    )
    spec.resources.add(kind="cpu", limit=2.0)
    create = respool_svc_v1.CreateResourcePoolRequest(spec=spec)
    made = pools.CreateResourcePool(create).respool_id.value
    again = refused(pools.CreateResourcePool, create)
    assert again[0] in (CODE.ALREADY_EXISTS, CODE.INVALID_ARGUMENT)
    create.respool_id.value = NOBODY
    assert refused(pools.CreateResourcePool, create)[0] is CODE.INVALID_ARGUMENT
    by_id = {"respool_id": {"value": made}}
    info = pools.GetResourcePool(respool_svc_v1.GetResourcePoolRequest(**by_id)).respool
    assert (info.respool_id.value, info.path.value) == (made, "/third")
    assert (info.spec.owning_team, [*info.spec.ldap_groups]) == ("us", ["g"])
    assert {one.kind: one.limit for one in info.spec.resources}["cpu"] == 2.0
    found = pools.LookupResourcePoolID(
        respool_svc_v1.LookupResourcePoolIDRequest(path={"value": "/third"})
    )
    assert found.respool_id.value == made
    spec.resources[0].limit = 3.0
    pools.UpdateResourcePool(respool_svc_v1.UpdateResourcePoolRequest(spec=spec, **by_id))
    every = pools.QueryResourcePools(respool_svc_v1.QueryResourcePoolsRequest()).respools
    limits = {one.path.value: one.spec.resources for one in every}
    assert {one.kind: one.limit for one in limits["/third"]}["cpu"] == 3.0
    pools.DeleteResourcePool(respool_svc_v1.DeleteResourcePoolRequest(**by_id))
    code, text = refused(pools.GetResourcePool, respool_svc_v1.GetResourcePoolRequest(**by_id))
    assert (code, text) == (CODE.NOT_FOUND, "resource pool not found")
