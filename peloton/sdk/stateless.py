"""Services, by JobService of v1alpha: create, replace, restart, query, and their workflows.

No call waits. A change needs the entity version of the service: without one the present version is
read first, and a change by another client in between is a Conflict.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing, contextmanager
from typing import Any, NamedTuple

from peloton.api.v0.peloton_pb2 import Secret
from peloton.api.v1alpha.job.stateless import stateless_pb2 as stateless
from peloton.api.v1alpha.job.stateless.svc import stateless_svc_pb2 as svc
from peloton.api.v1alpha.job.stateless.svc import stateless_svc_pb2_grpc
from peloton.api.v1alpha.pod import pod_pb2 as pod
from peloton.api.v1alpha.query import query_pb2 as query
from peloton.sdk import specs
from peloton.sdk.calls import Calls, M, call, stream
from peloton.sdk.errors import BadSpec
from peloton.sdk.jobs import ALL_JOBS, JobQuery, naming_new, number_of
from peloton.sdk.pools import PoolCalls
from peloton.sdk.rpc import READ, How, RpcName, keyed
from peloton.sdk.service_queries import POD_STATE, order_by, prefixed, query_spec_of
from peloton.sdk.tasks import EVERY_INSTANCE, Range, TaskQuery
from peloton.sdk.wire import Wire

WORKFLOW_STATE = "WORKFLOW_STATE_"
ENDED_WORKFLOWS = ("SUCCEEDED", "ABORTED", "FAILED", "ROLLED_BACK")
"""The states in which a workflow has ended."""
_IN_SPEC = re.compile(
    r"invalid job spec: spec\.(?P<path>\w+(?:\.\w+|\[\w+\])*): (?P<text>.+)", re.S
)


class BatchOptions(NamedTuple):
    """How a workflow proceeds; 0 means no limit. What a call does not know, it ignores.

    `min_healthy_seconds`: for so long all have to do their work at the end; None: as the server
    says. `secrets` are files for the pods of a creation or a replacement (`jobs.secret`).
    `request_key`: under which the same order, for the same version, may be sent again.
    """

    batch: int = 0
    max_instance_retries: int = 0
    max_tolerable_instance_failures: int = 0
    rollback_on_failure: bool = False
    start_paused: bool = False
    in_place: bool = False
    start_pods: bool = False
    opaque: str = ""
    secrets: tuple[Secret, ...] = ()
    min_healthy_seconds: int | None = None
    request_key: str | None = None


AT_ONCE = BatchOptions()


def method(name: str) -> RpcName:
    return RpcName("jobmgr", stateless_svc_pb2_grpc.JobServiceStub, name)


def named(value: str) -> Any:
    """Return a message that has nothing but a value: an id, a version."""
    return {"value": value}


def built_spec(spec: Any) -> stateless.JobSpec:
    """Return the message of a spec."""
    made = stateless.JobSpec()
    made.CopyFrom(specs.build(stateless.JobSpec, spec))
    return made


def pod_range(pair: Range) -> pod.InstanceIDRange:
    # `from` is a keyword of Python.
    return pod.InstanceIDRange(**{"from": pair[0], "to": pair[1]})


def state_of(status: Any) -> str:
    """Return the state of a workflow, without the prefix that all have."""
    return stateless.WorkflowState.Name(status.state).removeprefix(WORKFLOW_STATE)


def is_over(status: Any) -> bool:
    """Return whether a workflow has ended."""
    return state_of(status) in ENDED_WORKFLOWS


@contextmanager
def of_spec(given: Any) -> Iterator[None]:
    """Turn a refusal of a spec into a BadSpec of the field, in the spelling of its writer."""
    try:
        yield
    except BadSpec as error:
        found = _IN_SPEC.fullmatch(error.message)
        if found is None:
            raise
        path = specs.spelled(given, found["path"]) if isinstance(given, dict) else found["path"]
        raise BadSpec(found["text"], field=path, kind=error.kind) from None


class StatelessCalls(Calls[M]):
    """The calls about services."""

    def __init__(self, wire: Wire, pools: PoolCalls[M]) -> None:
        super().__init__(wire)
        self._pools = pools

    @call
    async def create(
        self,
        pool: str,
        spec: Any,
        *,
        how: BatchOptions = AT_ONCE,
        wanted_id: str = "",
    ) -> svc.CreateJobResponse:
        """Submit a service to the pool at this path; `spec` is a JobSpec, see `specs`.

        The answer holds its id and its entity version.
        """
        request = svc.CreateJobRequest(
            spec=await self._built(spec, pool),
            create_spec=stateless.CreateSpec(
                batch_size=how.batch,
                max_instance_retries=how.max_instance_retries,
                max_tolerable_instance_failures=how.max_tolerable_instance_failures,
                start_paused=how.start_paused,
                min_healthy_seconds=how.min_healthy_seconds,
            ),
            opaque_data={"data": how.opaque},
        )
        for one in how.secrets:
            request.secrets.add(path=one.path, value={"data": one.value.data})
        with of_spec(spec), naming_new(wanted_id, how.request_key) as request.job_id.value:
            return await self._call("CreateJob", request, how=keyed(how.request_key))

    @call
    async def replace(
        self,
        job: str,
        spec: Any,
        *,
        pool: str = "",
        version: str = "",
        how: BatchOptions = AT_ONCE,
    ) -> svc.ReplaceJobResponse:
        """Give a service another spec, a batch of pods at a time. Without a pool it keeps its own.

        Secrets get new values by their paths, the others stay. The answer holds its new entity
        version.
        """
        request = svc.ReplaceJobRequest(
            job_id=named(job),
            spec=await self._built(spec, pool),
            version=named(version or await self.version(job)),
            update_spec=stateless.UpdateSpec(
                batch_size=how.batch,
                rollback_on_failure=how.rollback_on_failure,
                max_instance_retries=how.max_instance_retries,
                max_tolerable_instance_failures=how.max_tolerable_instance_failures,
                start_paused=how.start_paused,
                in_place=how.in_place,
                start_pods=how.start_pods,
                min_healthy_seconds=how.min_healthy_seconds,
            ),
            opaque_data={"data": how.opaque},
        )
        for one in how.secrets:
            request.secrets.add(path=one.path, value={"data": one.value.data})
        with of_spec(spec):
            return await self._call("ReplaceJob", request, how=keyed(how.request_key))

    @call
    async def diff(
        self, job: str, spec: Any, *, pool: str = "", version: str = ""
    ) -> svc.GetReplaceJobDiffResponse:
        """Return which pods `replace` would change; ranges of the answer include their last pod."""
        request = svc.GetReplaceJobDiffRequest(
            job_id=named(job),
            spec=await self._built(spec, pool),
            version=named(version or await self.version(job)),
        )
        with of_spec(spec):
            return await self._call("GetReplaceJobDiff", request)

    @call
    async def restart(
        self,
        job: str,
        ranges: Sequence[Range] = (),
        *,
        version: str = "",
        how: BatchOptions = AT_ONCE,
    ) -> svc.RestartJobResponse:
        """Begin new runs of pods, a batch at a time; without ranges, of all."""
        request = svc.RestartJobRequest(
            job_id=named(job),
            version=named(version or await self.version(job)),
            restart_spec=stateless.RestartSpec(
                batch_size=how.batch,
                ranges=map(pod_range, ranges),
                in_place=how.in_place,
                min_healthy_seconds=how.min_healthy_seconds,
            ),
            opaque_data={"data": how.opaque},
        )
        return await self._call("RestartJob", request, how=keyed(how.request_key))

    @call
    async def start(
        self, job: str, *, version: str = "", request_key: str | None = None
    ) -> svc.StartJobResponse:
        """Begin new runs of all stopped pods."""
        return await self._versioned("StartJob", job, version=version, request_key=request_key)

    @call
    async def stop(
        self, job: str, *, version: str = "", request_key: str | None = None
    ) -> svc.StopJobResponse:
        """End all pods, which stay so until the service is started."""
        return await self._versioned("StopJob", job, version=version, request_key=request_key)

    @call
    async def delete(
        self, job: str, *, version: str = "", force: bool = False, request_key: str | None = None
    ) -> svc.DeleteJobResponse:
        """Delete a service that is stopped, or with `force` any."""
        return await self._versioned(
            "DeleteJob", job, version=version, request_key=request_key, force=force
        )

    @call
    async def pause(
        self, job: str, *, version: str = "", opaque: str = "", request_key: str | None = None
    ) -> Any:
        """Pause the workflow: it begins with no more pods until it is resumed."""
        return await self._versioned(
            "PauseJobWorkflow",
            job,
            version=version,
            request_key=request_key,
            opaque_data={"data": opaque},
        )

    @call
    async def resume(
        self, job: str, *, version: str = "", opaque: str = "", request_key: str | None = None
    ) -> Any:
        """Resume the workflow: it goes on as before the pause."""
        return await self._versioned(
            "ResumeJobWorkflow",
            job,
            version=version,
            request_key=request_key,
            opaque_data={"data": opaque},
        )

    @call
    async def abort(
        self, job: str, *, version: str = "", opaque: str = "", request_key: str | None = None
    ) -> Any:
        """End the workflow; what was changed stays so."""
        return await self._versioned(
            "AbortJobWorkflow",
            job,
            version=version,
            request_key=request_key,
            opaque_data={"data": opaque},
        )

    @call
    async def workflows(self, job: str, *, limit: int = 0) -> svc.ListJobWorkflowsResponse:
        """Return the workflows of a service that are kept, the newest first; 0 for all."""
        request = svc.ListJobWorkflowsRequest(job_id=named(job), updates_limit=limit)
        return await self._call("ListJobWorkflows", request)

    @call
    async def workflow_events(
        self, job: str, instance: int, *, limit: int = 0
    ) -> svc.GetWorkflowEventsResponse:
        """Return what the present workflow did to one pod, the newest first; 0 for all."""
        request = svc.GetWorkflowEventsRequest(job_id=named(job), instance_id=instance, limit=limit)
        return await self._call("GetWorkflowEvents", request)

    @call
    async def get(
        self, job: str, *, version: str = "", summary_only: bool = False
    ) -> svc.GetJobResponse:
        """Return spec, status and newest workflow; of a version its spec alone; or the summary
        alone."""
        request = svc.GetJobRequest(job_id=named(job), summary_only=summary_only)
        if version:
            request.version.value = version
        return await self._call("GetJob", request)

    @call
    async def version(self, job: str) -> str:
        """Return the present entity version of a service."""
        found = await self.get(job, summary_only=True)
        return str(found.summary.status.version.value)

    @call
    async def cache(self, job: str) -> svc.GetJobCacheResponse:
        """Return the status, and the parts of the spec that are kept with it."""
        return await self._call("GetJobCache", svc.GetJobCacheRequest(job_id=named(job)))

    @call
    async def refresh(self, job: str) -> svc.RefreshJobResponse:
        """Whether there is such a service: there is nothing to refresh."""
        return await self._call("RefreshJob", svc.RefreshJobRequest(job_id=named(job)))

    @call
    async def ids(self, name: str) -> svc.GetJobIDFromJobNameResponse:
        """Return the ids of the jobs of exactly this name, the newest first."""
        return await self._call(
            "GetJobIDFromJobName", svc.GetJobIDFromJobNameRequest(job_name=name)
        )

    @call
    async def query(self, wanted: JobQuery = ALL_JOBS) -> svc.QueryJobsResponse:
        """Return summaries of the jobs that match all of the query; by default of the newest
        jobs."""
        return await self._call("QueryJobs", svc.QueryJobsRequest(spec=query_spec_of(wanted)))

    @stream
    async def list(self) -> AsyncGenerator[stateless.JobSummary, None]:
        """Yield every job in memory, in no order."""
        request = svc.ListJobsRequest()
        async with aclosing(self._wire.stream(method("ListJobs"), request)) as messages:
            async for message in messages:
                for one in message.jobs:
                    yield one

    @stream
    async def pods(
        self, job: str, *, only: Range = EVERY_INSTANCE
    ) -> AsyncGenerator[pod.PodSummary, None]:
        """Yield the pods of a job in a range."""
        request = svc.ListPodsRequest(job_id=named(job), range=pod_range(only))
        async with aclosing(self._wire.stream(method("ListPods"), request)) as messages:
            async for message in messages:
                for one in message.pods:
                    yield one

    @call
    async def query_pods(self, job: str, wanted: TaskQuery) -> svc.QueryPodsResponse:
        """Return the pods that match all of the query; names are those of their containers."""
        offset, limit = wanted.page
        pages = query.PaginationSpec(
            offset=offset, limit=limit, order_by=order_by(wanted.sort, wanted.order)
        )
        spec = pod.QuerySpec(
            pagination=pages,
            pod_states=[
                number_of(pod.PodState, prefixed(POD_STATE, name), what="pod state")
                for name in wanted.states
            ],
            names=[named(name) for name in wanted.names],
            hosts=wanted.hosts,
        )
        request = svc.QueryPodsRequest(job_id=named(job), spec=spec, pagination=pages)
        return await self._call("QueryPods", request)

    # ---- inside ----

    async def _built(self, spec: Any, pool: str) -> stateless.JobSpec:
        made = built_spec(spec)
        if pool:
            made.respool_id.value = await self._pools.lookup(pool)
        return made

    async def _versioned(
        self, name: str, job: str, *, version: str, request_key: str | None, **more: Any
    ) -> Any:
        job = await self._wire.job_id(job, changes=True)
        request = getattr(svc, f"{name}Request")(
            job_id=named(job), version=named(version or await self.version(job)), **more
        )
        return await self._call(name, request, how=keyed(request_key))

    async def _call(self, name: str, request: Any, *, how: How = READ) -> Any:
        return await self._wire.call(method(name), request, how=how)
