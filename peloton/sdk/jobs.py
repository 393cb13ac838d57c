"""Jobs: create, get, query, delete.

Must not wait or print. To stop a job is to stop all of its tasks, as one order to the job.
"""

from __future__ import annotations

import base64
import time
from dataclasses import dataclass
from typing import Any

from peloton.api.v0 import peloton_pb2
from peloton.api.v0.job import job_pb2 as job
from peloton.api.v0.job import job_pb2_grpc
from peloton.api.v0.query import query_pb2 as query
from peloton.api.v0.task import task_pb2 as task
from peloton.api.v0.task import task_pb2_grpc
from peloton.sdk import specs, translate
from peloton.sdk.errors import BadSpec
from peloton.sdk.pools import PoolCalls
from peloton.sdk.wire import ONCE, RpcName, Wire, keyed

DAY_S = 24 * 3600
TERMINAL_STATES = ("SUCCEEDED", "FAILED", "KILLED", "DELETED")


@dataclass(frozen=True)
class JobQuery:
    """A filter for jobs. Empty fields do not filter; `days` counts back from now."""

    labels: tuple[tuple[str, str], ...] = ()
    keywords: tuple[str, ...] = ()
    states: tuple[str, ...] = ()
    pool: str = ""
    owner: str = ""
    name: str = ""
    days: int = 0
    offset: int = 0
    limit: int = 100
    total_max: int = 100
    sort: tuple[str, ...] = ("creation_time",)
    order: str = "DESC"


ALL_JOBS = JobQuery()


def method(name: str) -> RpcName:
    return RpcName("jobmgr", job_pb2_grpc.JobManagerStub, name)


def job_id(value: str) -> peloton_pb2.JobID:
    return peloton_pb2.JobID(value=value)


def secret(path: str, data: bytes) -> peloton_pb2.Secret:
    """A secret as a create wants it: its data in base64."""
    value = peloton_pb2.Secret.Value(data=base64.b64encode(data))
    return peloton_pb2.Secret(path=path, value=value)


def state_name_of(info: job.JobInfo) -> str:
    return job.JobState.Name(info.runtime.state)


class Jobs:
    """The calls about jobs."""

    def __init__(self, wire: Wire, pools: PoolCalls) -> None:
        self._wire = wire
        self._pools = pools

    def create(
        self,
        pool: str,
        config: Any,
        *,
        wanted_id: str = "",
        secrets: tuple[peloton_pb2.Secret, ...] = (),
        request_key: str | None = None,
    ) -> job.CreateResponse:
        """Submits a job to the pool at this path; `config` is a spec, see `specs`.

        The answer holds the id. Repeating the call with the same `request_key` makes no second job.
        """
        built = job.JobConfig()
        built.CopyFrom(specs.build(job.JobConfig, config))
        built.respoolID.value = self._pools.lookup(pool)
        request = job.CreateRequest(config=built, secrets=secrets)
        if wanted_id:
            request.id.value = wanted_id
        with specs.spelled_as(config):
            answer = self._wire.call(method("Create"), request, how=keyed(request_key))
            return translate.inside(answer)

    def get(self, job: str) -> job.GetResponse:
        answer = self._wire.call(method("Get"), get_request(job))
        return translate.inside(answer)

    def delete(self, job: str) -> job.DeleteResponse:
        """Deletes a job that has ended."""
        answer = self._wire.call(method("Delete"), delete_request(job), how=ONCE)
        return translate.inside(answer)

    def stop(self, job: str) -> task.StopResponse:
        """Stops the job: what runs of it is ended, and nothing of it runs again."""
        request = task.StopRequest(jobId=job_id(job))
        stop = RpcName("jobmgr", task_pb2_grpc.TaskManagerStub, "Stop")
        return translate.inside(self._wire.call(stop, request, how=keyed(None)))

    def query(self, wanted: JobQuery = ALL_JOBS) -> job.QueryResponse:
        """Summaries of the jobs that match all of the query; by default of the newest jobs."""
        request = job.QueryRequest(spec=spec_of(wanted), summaryOnly=True)
        if wanted.pool:
            request.respoolID.value = self._pools.lookup(wanted.pool)
        return translate.inside(self._wire.call(method("Query"), request))


def get_request(wanted: str) -> job.GetRequest:
    return job.GetRequest(id=job_id(wanted))


def delete_request(wanted: str) -> job.DeleteRequest:
    return job.DeleteRequest(id=job_id(wanted))


def number_of(kind: Any, name: str, *, what: str) -> Any:
    try:
        return kind.Value(name.upper())
    except ValueError:
        raise BadSpec(f"no such {what}: {name}; there is {', '.join(kind.keys())}") from None


def spec_of(wanted: JobQuery) -> job.QuerySpec:
    order = number_of(query.OrderBy.Order, wanted.order, what="order")
    by = [
        query.OrderBy(order=order, property=query.PropertyPath(value=name)) for name in wanted.sort
    ]
    spec = job.QuerySpec(
        pagination=query.PaginationSpec(
            offset=wanted.offset, limit=wanted.limit, orderBy=by, maxLimit=wanted.total_max
        ),
        labels=[peloton_pb2.Label(key=key, value=value) for key, value in wanted.labels],
        keywords=wanted.keywords,
        jobStates=[number_of(job.JobState, name, what="job state") for name in wanted.states],
        owner=wanted.owner,
        name=wanted.name,
    )
    if wanted.days:
        now = int(time.time())
        spec.creationTimeRange.min.FromSeconds(now - wanted.days * DAY_S)
        spec.creationTimeRange.max.FromSeconds(now)
    return spec
