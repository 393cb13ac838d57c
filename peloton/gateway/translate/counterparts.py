"""The calls of the second services, each with its counterpart: one table for each service.

Requests become those of the first service, whose messages have the same fields under the same
numbers, and its answers are translated back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

from google.protobuf.message import Message as ProtoMessage

from peloton.api.v0.job import job_pb2 as job
from peloton.api.v0.job.svc import job_svc_pb2 as job_svc
from peloton.api.v0.respool import respool_pb2 as respool
from peloton.api.v0.respool.svc import respool_svc_pb2 as respool_svc
from peloton.api.v0.task import task_pb2 as task
from peloton.api.v0.task.svc import task_svc_pb2 as task_svc
from peloton.api.v1alpha.respool import respool_pb2 as respool_v1
from peloton.api.v1alpha.respool.svc import respool_svc_pb2 as respool_svc_v1

M = TypeVar("M", bound=ProtoMessage)


def recast(cls: type[M], message: ProtoMessage) -> M:
    """Return the message as another class whose fields have the same numbers and types."""
    return cls.FromString(message.SerializeToString())


class Counterpart(NamedTuple):
    """One call: the method of the first service, its request, and the translation of its answer."""

    method: str
    request: type[ProtoMessage]
    answer: Callable[[Any], ProtoMessage]


def _pool(info: Any) -> respool_v1.ResourcePoolInfo:
    return recast(respool_v1.ResourcePoolInfo, info)


JOBS: Mapping[str, Counterpart] = {
    "DeleteJob": Counterpart(
        "Delete", job.DeleteRequest, lambda found: job_svc.DeleteJobResponse()
    ),
    "GetJob": Counterpart(
        "Get",
        job.GetRequest,
        lambda found: job_svc.GetJobResponse(result=found.jobInfo.config, secrets=found.secrets),
    ),
    "GetJobCache": Counterpart(
        "GetCache", job.GetCacheRequest, lambda found: recast(job_svc.GetJobCacheResponse, found)
    ),
    "RefreshJob": Counterpart(
        "Refresh", job.RefreshRequest, lambda found: job_svc.RefreshJobResponse()
    ),
    "RestartJob": Counterpart(
        "Restart", job.RestartRequest, lambda found: recast(job_svc.RestartJobResponse, found)
    ),
    "StartJob": Counterpart(
        "Start", job.StartRequest, lambda found: recast(job_svc.StartJobResponse, found)
    ),
    "StopJob": Counterpart(
        "Stop", job.StopRequest, lambda found: recast(job_svc.StopJobResponse, found)
    ),
    "UpdateJob": Counterpart(
        "Update", job.UpdateRequest, lambda found: job_svc.UpdateJobResponse()
    ),
}
TASKS: Mapping[str, Counterpart] = {
    "BrowseSandbox": Counterpart(
        "BrowseSandbox",
        task.BrowseSandboxRequest,
        lambda found: recast(task_svc.BrowseSandboxResponse, found),
    ),
    "GetPodEvents": Counterpart(
        "GetPodEvents",
        task.GetPodEventsRequest,
        lambda found: recast(task_svc.GetPodEventsResponse, found),
    ),
    "GetTask": Counterpart(
        "Get",
        task.GetRequest,
        lambda found: task_svc.GetTaskResponse(result=found.result, results=found.results),
    ),
    "GetTaskCache": Counterpart(
        "GetCache",
        task.GetCacheRequest,
        lambda found: task_svc.GetTaskCacheResponse(runtime=found.runtime),
    ),
    "ListTasks": Counterpart(
        "List",
        task.ListRequest,
        lambda found: task_svc.ListTasksResponse(tasks=found.result.value),
    ),
    "RefreshTasks": Counterpart(
        "Refresh", task.RefreshRequest, lambda found: task_svc.RefreshTasksResponse()
    ),
    "RestartTasks": Counterpart(
        "Restart", task.RestartRequest, lambda found: task_svc.RestartTasksResponse()
    ),
    "StartTasks": Counterpart(
        "Start",
        task.StartRequest,
        lambda found: task_svc.StartTasksResponse(
            started=found.startedInstanceIds, failed=found.invalidInstanceIds
        ),
    ),
    "StopTasks": Counterpart(
        "Stop",
        task.StopRequest,
        lambda found: task_svc.StopTasksResponse(
            stopped=found.stoppedInstanceIds, failed=found.invalidInstanceIds
        ),
    ),
}
POOLS: Mapping[str, Counterpart] = {
    "GetResourcePool": Counterpart(
        "GetResourcePool",
        respool.GetRequest,
        lambda found: respool_svc.GetResourcePoolResponse(
            resPool=found.poolinfo, childResPools=found.childPools
        ),
    ),
    "LookupResourcePoolID": Counterpart(
        "LookupResourcePoolID",
        respool.LookupRequest,
        lambda found: respool_svc.LookupResourcePoolIDResponse(id=found.id),
    ),
    "QueryResourcePools": Counterpart(
        "Query",
        respool.QueryRequest,
        lambda found: respool_svc.QueryResourcePoolsResponse(resPools=found.resourcePools),
    ),
    "UpdateResourcePool": Counterpart(
        "UpdateResourcePool",
        respool.UpdateRequest,
        lambda found: respool_svc.UpdateResourcePoolResponse(),
    ),
}
POOLS_V1: Mapping[str, Counterpart] = {
    "GetResourcePool": Counterpart(
        "GetResourcePool",
        respool.GetRequest,
        lambda found: respool_svc_v1.GetResourcePoolResponse(
            respool=_pool(found.poolinfo), child_respools=map(_pool, found.childPools)
        ),
    ),
    "LookupResourcePoolID": Counterpart(
        "LookupResourcePoolID",
        respool.LookupRequest,
        lambda found: respool_svc_v1.LookupResourcePoolIDResponse(
            respool_id={"value": found.id.value}
        ),
    ),
    "QueryResourcePools": Counterpart(
        "Query",
        respool.QueryRequest,
        lambda found: respool_svc_v1.QueryResourcePoolsResponse(
            respools=map(_pool, found.resourcePools)
        ),
    ),
    "UpdateResourcePool": Counterpart(
        "UpdateResourcePool",
        respool.UpdateRequest,
        lambda found: respool_svc_v1.UpdateResourcePoolResponse(),
    ),
}
