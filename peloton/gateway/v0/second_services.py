"""The second services of v0 jobs, tasks and pools, and of v1alpha pools.

Their calls become those of JobManager, TaskManager and ResourceManager (`counterparts.py`), and
errors inside of answers become statuses. A call is served if the first service serves its
counterpart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from peloton.actors.respool.messages import DeletePool, GetPool, pool_key
from peloton.api.v0.job import job_pb2 as job
from peloton.api.v0.job.svc import job_svc_pb2 as job_svc
from peloton.api.v0.respool import respool_pb2 as respool
from peloton.api.v0.respool.svc import respool_svc_pb2 as respool_svc
from peloton.api.v0.task import task_pb2 as task
from peloton.api.v0.task.svc import task_svc_pb2 as task_svc
from peloton.api.v1alpha.respool.svc import respool_svc_pb2 as respool_svc_v1
from peloton.gateway.cluster.cluster_client import ClusterClient, Code, Context, end
from peloton.gateway.cluster.requests import request_of
from peloton.gateway.translate.counterparts import JOBS, POOLS, POOLS_V1, TASKS, Counterpart, recast
from peloton.gateway.translate.texts import client_name
from peloton.runtime.vocabulary import Refused

CODES = {
    "notFound": Code.NOT_FOUND,
    "getRuntimeFail": Code.NOT_FOUND,
    "jobNotFound": Code.NOT_FOUND,
    "outOfRange": Code.NOT_FOUND,
    "alreadyExists": Code.ALREADY_EXISTS,
    "invalidConfig": Code.INVALID_ARGUMENT,
    "invalidJobId": Code.INVALID_ARGUMENT,
    "invalidResourcePoolConfig": Code.INVALID_ARGUMENT,
    "invalidPath": Code.INVALID_ARGUMENT,
    "invalidRespool": Code.INVALID_ARGUMENT,
    "err": Code.INVALID_ARGUMENT,
    "notRunning": Code.FAILED_PRECONDITION,
    "updateError": Code.INTERNAL,
    "failure": Code.INTERNAL,
}
"""The status of an error inside of an answer, by its field."""
OF_REFUSAL = {
    "NOT_FOUND": Code.NOT_FOUND,
    "BUSY": Code.FAILED_PRECONDITION,
    "NOT_LEAF": Code.FAILED_PRECONDITION,
    "INVALID_CONFIG": Code.INVALID_ARGUMENT,  # the root
}
"""The status of a pool's refusal to be deleted, by its code."""


class SecondService:
    """The calls of a table, each as an attribute named as on the wire."""

    def __init__(self, first: Any, table: Mapping[str, Counterpart]) -> None:
        """Take the servicer of the first service, and the table."""
        self.first = first
        for name, to in table.items():
            if hasattr(first, to.method):
                setattr(self, name, self._translated(to))

    def _translated(self, to: Counterpart) -> Callable[[Any, Context], Any]:
        def call(sent: Any, context: Context) -> Any:
            method = getattr(self.first, to.method)
            return to.answer(well(method(recast(to.request, sent), context), context))

        return call


class JobService(SecondService):
    """The service peloton.api.v0.job.svc.JobService."""

    def __init__(self, first: Any, cluster_client: ClusterClient) -> None:
        super().__init__(first, JOBS)
        self._cluster_client = cluster_client

    def CreateJob(self, sent: job_svc.CreateJobRequest, context: Context) -> Any:
        """Create a job in the pool at a path; without one, in the pool that its config names."""
        request = job.CreateRequest(id=sent.id, config=sent.config, secrets=sent.secrets)
        if sent.pool.value:
            found = self._cluster_client.pool(GetPool(path=_path(sent.pool.value)), context)
            if not found:
                end(context, Code.NOT_FOUND, text="resource pool not found", field="pool")
            request.config.respoolID.value = client_name(found[0].pool)
        answer = well(self.first.Create(request, context), context)
        return job_svc.CreateJobResponse(jobId=answer.jobId)

    def QueryJobs(self, sent: job_svc.QueryJobsRequest, context: Context) -> Any:
        """Return the jobs that match, with their configs."""
        request = job.QueryRequest(spec=sent.spec)
        if sent.HasField("pagination"):
            request.spec.pagination.CopyFrom(sent.pagination)
        found = well(self.first.Query(request, context), context)
        return job_svc.QueryJobsResponse(
            records=found.records, pagination=found.pagination, spec=found.spec
        )


class TaskService(SecondService):
    """The service peloton.api.v0.task.svc.TaskService."""

    def __init__(self, first: Any) -> None:
        super().__init__(first, TASKS)

    def QueryTasks(self, sent: task_svc.QueryTasksRequest, context: Context) -> Any:
        """Return the instances that match."""
        request = task.QueryRequest(jobId=sent.jobId, spec=sent.spec)
        if sent.HasField("pagination"):
            request.spec.pagination.CopyFrom(sent.pagination)
        found = well(self.first.Query(request, context), context)
        return task_svc.QueryTasksResponse(records=found.records, pagination=found.pagination)


class ResourcePoolService(SecondService):
    """The service peloton.api.v0.respool.ResourcePoolService, or that of v1alpha."""

    def __init__(self, first: Any, cluster_client: ClusterClient, *, v1: bool) -> None:
        super().__init__(first, POOLS_V1 if v1 else POOLS)
        self._cluster_client = cluster_client
        svc: Any = respool_svc_v1 if v1 else respool_svc
        self._svc, self._id = svc, "respool_id" if v1 else "id"

    def CreateResourcePool(self, sent: Any, context: Context) -> Any:
        """Create a pool, whose id the server makes."""
        if getattr(sent, self._id).value:
            text = "must not be given: the server makes the ids of pools"
            end(context, Code.INVALID_ARGUMENT, text=text, field=self._id)
        request = recast(respool.CreateRequest, sent)
        found = well(self.first.CreateResourcePool(request, context), context)
        return self._svc.CreateResourcePoolResponse(**{self._id: {"value": found.result.value}})

    def DeleteResourcePool(self, sent: Any, context: Context) -> Any:
        """Delete the pool of an id, if it is a leaf and unused."""
        named = getattr(sent, self._id).value
        if not named:
            end(context, Code.INVALID_ARGUMENT, text="resource pool ID is nil", field=self._id)
        key, request = pool_key(named), request_of(sent, context)
        answer = self._cluster_client.ask(key, DeletePool(), context=context, request=request)
        if isinstance(answer, Refused):
            end(context, OF_REFUSAL.get(answer.code, Code.INTERNAL), text=answer)
        return self._svc.DeleteResourcePoolResponse()


def _path(path: str) -> str:
    return "/" + "/".join(part for part in path.split("/") if part)


def well(answer: Any, context: Context) -> Any:
    """Return the answer; one with an error inside ends the call with its status."""
    fields = answer.DESCRIPTOR.fields_by_name
    places = [answer]
    if "error" in fields and answer.HasField("error"):
        places.append(answer.error)
    for place in places:
        for field, error in place.ListFields():
            if field.name in CODES:
                end(context, CODES[field.name], text=_text(error))
    return answer


def _text(error: Any) -> str:
    if "instanceCount" in error.DESCRIPTOR.fields_by_name:
        return f"no such instance: the job has {error.instanceCount}"
    return str(error.message)
