"""What the daemons know of hosts, queues and tasks: calls of the original's private services."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, NamedTuple

from peloton.api.v0.task import task_pb2 as task
from peloton.private.hostmgr.hostsvc import hostsvc_pb2 as hostsvc
from peloton.private.hostmgr.hostsvc import hostsvc_pb2_grpc
from peloton.private.hostmgr.v1alpha.svc import hostmgr_svc_pb2 as hostmgr_svc
from peloton.private.hostmgr.v1alpha.svc import hostmgr_svc_pb2_grpc
from peloton.private.jobmgrsvc import jobmgrsvc_pb2 as jobmgrsvc
from peloton.private.jobmgrsvc import jobmgrsvc_pb2_grpc
from peloton.private.resmgrsvc import resmgrsvc_pb2 as resmgrsvc
from peloton.private.resmgrsvc import resmgrsvc_pb2_grpc
from peloton.sdk.calls import Calls, M, call, stream
from peloton.sdk.rpc import RpcName


def of_hosts(name: str) -> RpcName:
    return RpcName("hostmgr", hostsvc_pb2_grpc.InternalHostServiceStub, name)


def of_jobs(name: str) -> RpcName:
    return RpcName("jobmgr", jobmgrsvc_pb2_grpc.JobManagerServiceStub, name)


def of_tasks(name: str) -> RpcName:
    return RpcName("resmgr", resmgrsvc_pb2_grpc.ResourceManagerServiceStub, name)


class FreeAmounts(NamedTuple):
    """The amounts that a host has to have free."""

    cpu: float = 0.0
    memory_mb: float = 0.0
    disk_mb: float = 0.0
    gpu: float = 0.0


class InternalCalls(Calls[M]):
    """Calls of the private services."""

    @call
    async def capacity(self) -> hostsvc.ClusterCapacityResponse:
        """Return what there is of each kind of resource, and what runs hold of it."""
        return await self._wire.call(of_hosts("ClusterCapacity"), hostsvc.ClusterCapacityRequest())

    @call
    async def offers(self) -> hostsvc.GetOutstandingOffersResponse:
        """Return what each host has free; raises NotFound if none has anything."""
        request = hostsvc.GetOutstandingOffersRequest()
        return await self._wire.call(of_hosts("GetOutstandingOffers"), request)

    @call
    async def hosts_by_free(
        self, free: FreeAmounts, *, less: bool = False, names: Sequence[str] = ()
    ) -> hostsvc.GetHostsByQueryResponse:
        """Return the hosts that have so much free; with `less`, those that have no more than
        that."""
        resource = task.ResourceConfig(
            cpuLimit=free.cpu,
            memLimitMb=free.memory_mb,
            diskLimitMb=free.disk_mb,
            gpuLimit=free.gpu,
        )
        request = hostsvc.GetHostsByQueryRequest(resource=resource, cmpLess=less, hostnames=names)
        return await self._wire.call(of_hosts("GetHostsByQuery"), request)

    @call
    async def host_cache(self) -> hostmgr_svc.GetHostCacheResponse:
        """Return each host: its status, what runs hold there, and what it has."""
        call = RpcName("hostmgr", hostmgr_svc_pb2_grpc.HostManagerServiceStub, "GetHostCache")
        return await self._wire.call(call, hostmgr_svc.GetHostCacheRequest())

    @stream
    def run_events(self) -> AsyncGenerator[hostsvc.WatchEventStreamEventResponse, None]:
        """Yield the starts and ends of runs from now on; the first message has the watch's id
        alone."""
        request = hostsvc.WatchEventRequest(topic="eventstream")
        return self._wire.stream(of_hosts("WatchEventStreamEvent"), request)

    @stream
    def host_events(self) -> AsyncGenerator[hostsvc.WatchHostSummaryEventResponse, None]:
        """Yield each host that changes from now on; the first message has the watch's id alone."""
        request = hostsvc.WatchEventRequest(topic="hostSummary")
        return self._wire.stream(of_hosts("WatchHostSummaryEvent"), request)

    @call
    async def active_tasks(
        self, *, job: str = "", pool_id: str = "", states: Sequence[str] = ()
    ) -> resmgrsvc.GetActiveTasksResponse:
        """Return the tasks that have not ended, by state."""
        request = resmgrsvc.GetActiveTasksRequest(jobID=job, respoolID=pool_id, states=states)
        return await self._wire.call(of_tasks("GetActiveTasks"), request)

    @call
    async def pending_tasks(
        self, pool_id: str, *, limit: int = 0
    ) -> resmgrsvc.GetPendingTasksResponse:
        """Return the tasks that wait in the queue of a pool, in order."""
        request = resmgrsvc.GetPendingTasksRequest(respoolID={"value": pool_id}, limit=limit)
        return await self._wire.call(of_tasks("GetPendingTasks"), request)

    @call
    async def orphan_tasks(self, pool_id: str = "") -> resmgrsvc.GetOrphanTasksResponse:
        """Return tasks that hold resources under an earlier run."""
        request = resmgrsvc.GetOrphanTasksRequest(respoolID=pool_id)
        return await self._wire.call(of_tasks("GetOrphanTasks"), request)

    @call
    async def job_cache(
        self, *, name: str = "", labels: Mapping[str, str] | None = None
    ) -> jobmgrsvc.QueryJobCacheResponse:
        """Return the jobs of exactly that name that have all of these labels."""
        spec: dict[str, Any] = {"name": name}
        spec["labels"] = [{"key": key, "value": value} for key, value in (labels or {}).items()]
        return await self._wire.call(
            of_jobs("QueryJobCache"), jobmgrsvc.QueryJobCacheRequest(spec=spec)
        )

    @call
    async def throttled_pods(self) -> jobmgrsvc.GetThrottledPodsResponse:
        """Return the pods of services that fail too often to be started again at once."""
        return await self._wire.call(
            of_jobs("GetThrottledPods"), jobmgrsvc.GetThrottledPodsRequest()
        )

    @call
    async def availability(
        self, job: str, instances: Sequence[int] = ()
    ) -> jobmgrsvc.GetInstanceAvailabilityInfoForJobResponse:
        """Return whether these instances run as they should; without any, all of the job's."""
        request = jobmgrsvc.GetInstanceAvailabilityInfoForJobRequest(
            job_id={"value": job}, instances=instances
        )
        return await self._wire.call(of_jobs("GetInstanceAvailabilityInfoForJob"), request)
