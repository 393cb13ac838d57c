"""Jobs: create, get, query, delete.

No call waits. To stop a job is to stop all of its tasks, as one order to the job.
"""

from __future__ import annotations

import base64
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from peloton import ignored
from peloton.api.v0 import peloton_pb2
from peloton.api.v0.job import job_pb2 as job
from peloton.api.v0.job import job_pb2_grpc
from peloton.api.v0.query import query_pb2 as query
from peloton.api.v0.task import task_pb2 as task
from peloton.api.v0.task import task_pb2_grpc
from peloton.sdk import errors, specs, translate
from peloton.sdk.calls import Calls, M, call
from peloton.sdk.errors import BadSpec
from peloton.sdk.pools import PoolCalls
from peloton.sdk.rpc import RpcName, keyed
from peloton.sdk.wire import Wire

DAY_S = 24 * 3600
JOBS_MAX = 10_000
"""The newest jobs, among which names and the beginning of an id are searched."""
CONSIDERED = 100
"""Jobs that a query considers where it names no number, as in the original."""
ACTIVE_STATES = ("INITIALIZED", "PENDING", "RUNNING")
TERMINAL_STATES = ("SUCCEEDED", "FAILED", "KILLED", "DELETED")


@dataclass(frozen=True)
class JobQuery:
    """A filter for jobs. Empty fields do not filter; `days` counts back from now.

    At most `total_max` jobs are considered; 0 means a hundred, or as many as the page needs.
    """

    labels: tuple[tuple[str, str], ...] = ()
    keywords: tuple[str, ...] = ()
    states: tuple[str, ...] = ()
    pool: str = ""
    owner: str = ""
    name: str = ""
    days: int = 0
    offset: int = 0
    limit: int = 100
    total_max: int = 0
    sort: tuple[str, ...] = ("creation_time",)
    order: str = "DESC"
    archived: bool = False

    @property
    def considered(self) -> int:
        """Return how many jobs are considered at most."""
        return self.total_max or max(CONSIDERED, self.offset + self.limit)


ALL_JOBS = JobQuery()


def method(name: str) -> RpcName:
    return RpcName("jobmgr", job_pb2_grpc.JobManagerStub, name)


def job_id(value: str) -> peloton_pb2.JobID:
    return peloton_pb2.JobID(value=value)


@contextmanager
def naming_new(wanted_id: str, request_key: str | None) -> Iterator[str]:
    """Return the id to create a job with: one that is chosen here lets an error name what may
    exist.

    Empty, for the server to choose, if the caller has a key under which it may call again. Adds to
    an error after which the job may exist that it may, and its id.
    """
    found = wanted_id or ("" if request_key else str(uuid.uuid4()))
    try:
        yield found
    except errors.ServiceUnavailable as error:
        if error.kind not in (errors.NO_CONNECTION, errors.NO_ANSWER, translate.NO_GRPC):
            which = f", its id is {found}" if found else ""
            error.message += f"; the job may exist{which}"
            error.args = (error.message,)
        raise


def ignored_in_job(spec: Any) -> str:
    """Return what the spec of a job says without effect; "" for nothing."""
    return ignored.line(ignored.of_configs(specs.build(job.JobConfig, spec)))


def secret(path: str, data: bytes) -> peloton_pb2.Secret:
    """Return a secret as a create takes it: its data in base64."""
    value = peloton_pb2.Secret.Value(data=base64.b64encode(data))
    return peloton_pb2.Secret(path=path, value=value)


def built(config: Any) -> job.JobConfig:
    """Return the message of a spec."""
    made = job.JobConfig()
    made.CopyFrom(specs.build(job.JobConfig, config))
    return made


def state_name_of(info: job.JobInfo) -> str:
    return job.JobState.Name(info.runtime.state)


class Jobs(Calls[M]):
    """The calls about jobs."""

    def __init__(self, wire: Wire, pools: PoolCalls[M]) -> None:
        super().__init__(wire)
        self._pools = pools

    @call
    async def create(
        self,
        pool: str,
        config: Any,
        *,
        wanted_id: str = "",
        secrets: tuple[peloton_pb2.Secret, ...] = (),
        request_key: str | None = None,
    ) -> job.CreateResponse:
        """Submit a job to the pool at this path; `config` is a spec, see `specs`.

        The answer holds the id. Repeating the call with the same `request_key` makes no second job.
        """
        request = job.CreateRequest(id=job_id(wanted_id), secrets=secrets)
        return await self._created(request, pool, config=config, request_key=request_key)

    @call
    async def create_with(
        self,
        files: Mapping[str, bytes] | str,
        pool: str,
        *,
        config: Any,
        request_key: str | None = None,
    ) -> job.CreateResponse:
        """Submit a job with files.

        The tasks find each of `files`, by its name, as
        `$PELOTON_KEEPER/files/$PELOTON_JOB_ID/NAME`. They have 32 MiB in all, at most. The id of a
        job instead: the files that came with that one.
        """
        if isinstance(files, str):
            request = job.CreateRequest(filesOf=job_id(files))
        else:
            request = job.CreateRequest(files=files)
        return await self._created(request, pool, config=config, request_key=request_key)

    async def _created(
        self, request: job.CreateRequest, pool: str, *, config: Any, request_key: str | None
    ) -> job.CreateResponse:
        request.config.CopyFrom(built(config))
        request.config.respoolID.value = await self._pools.lookup(pool)
        id_ = naming_new(request.id.value, request_key)
        with specs.spelled_as(config), id_ as request.id.value:
            answer = await self._wire.call(method("Create"), request, how=keyed(request_key))
            return translate.inside(answer)

    @call
    async def update(
        self,
        wanted: str,
        config: Any,
        *,
        secrets: tuple[peloton_pb2.Secret, ...] = (),
        request_key: str | None = None,
    ) -> job.UpdateResponse:
        """Add instances to a job, and answer without an id if nothing was changed.

        `config` is its spec with a higher count, and configs of new instances; without a pool it
        keeps its own. Of a job with secrets all have to be sent again, with these or other values.
        """
        built = job.JobConfig()
        built.CopyFrom(specs.build(job.JobConfig, config))
        request = job.UpdateRequest(id=job_id(wanted), config=built, secrets=secrets)
        with specs.spelled_as(config):
            answer = await self._wire.call(method("Update"), request, how=keyed(request_key))
            return translate.inside(answer)

    def instances_in(self, config: Any) -> int:
        """Return how many instances a spec asks for."""
        return int(specs.build(job.JobConfig, config).instanceCount)

    @call
    async def refresh(self, wanted: str) -> job.RefreshResponse:
        """Whether there is such a job: there is nothing to refresh."""
        request = job.RefreshRequest(id=job_id(wanted))
        answer: job.RefreshResponse = await self._wire.call(method("Refresh"), request)
        return answer

    @call
    async def get(self, job: str) -> job.GetResponse:
        answer = await self._wire.call(method("Get"), get_request(job))
        return translate.inside(answer)

    @call
    async def cache(self, wanted: str) -> job.GetCacheResponse:
        """Return the runtime of a job, and the parts of its config that are kept with it."""
        request = job.GetCacheRequest(id=job_id(wanted))
        answer: job.GetCacheResponse = await self._wire.call(method("GetCache"), request)
        return answer

    @call
    async def active(self) -> job.GetActiveJobsResponse:
        """Return the ids of all jobs that have not ended."""
        request = job.GetActiveJobsRequest()
        answer: job.GetActiveJobsResponse = await self._wire.call(method("GetActiveJobs"), request)
        return answer

    @call
    async def delete(self, job: str, *, request_key: str | None = None) -> job.DeleteResponse:
        """Delete a job that has ended."""
        answer = await self._wire.call(
            method("Delete"), delete_request(job), how=keyed(request_key)
        )
        return translate.inside(answer)

    @call
    async def stop(self, job: str, *, request_key: str | None = None) -> task.StopResponse:
        """Stop the job: its runs are ended, and nothing of it runs again."""
        request = task.StopRequest(jobId=job_id(job))
        stop = RpcName("jobmgr", task_pb2_grpc.TaskManagerStub, "Stop")
        return translate.inside(await self._wire.call(stop, request, how=keyed(request_key)))

    @call
    async def query(self, wanted: JobQuery = ALL_JOBS) -> job.QueryResponse:
        """Return summaries of the jobs that match all of the query; by default of the newest
        jobs."""
        request = job.QueryRequest(spec=spec_of(wanted), summaryOnly=True)
        if wanted.pool:
            request.respoolID.value = await self._pools.lookup(wanted.pool)
        return translate.inside(await self._wire.call(method("Query"), request))

    @call
    async def with_name_like(self, part: str) -> Sequence[job.JobSummary]:
        """Return the newest jobs whose names contain this."""
        found = await self.query(JobQuery(name=part, limit=JOBS_MAX, total_max=JOBS_MAX))
        return found.results


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
            offset=wanted.offset, limit=wanted.limit, orderBy=by, maxLimit=wanted.considered
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
    elif wanted.archived:
        # Whoever names times means jobs that left memory, too.
        spec.creationTimeRange.min.SetInParent()
    return spec
