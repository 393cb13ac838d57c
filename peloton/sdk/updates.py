"""Updates of services, by UpdateService of v0, and restarts, starts and stops by JobManager.

No call waits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from peloton.api.v0.job import job_pb2
from peloton.api.v0.update import update_pb2 as update
from peloton.api.v0.update.svc import update_svc_pb2 as svc
from peloton.api.v0.update.svc import update_svc_pb2_grpc
from peloton.sdk import jobs, specs
from peloton.sdk.calls import Calls, M, call
from peloton.sdk.pools import PoolCalls
from peloton.sdk.rpc import READ, How, RpcName, keyed
from peloton.sdk.stateless import AT_ONCE, ENDED_WORKFLOWS, BatchOptions
from peloton.sdk.tasks import Range, range_of
from peloton.sdk.translate import inside
from peloton.sdk.wire import Wire


def method(name: str) -> RpcName:
    return RpcName("jobmgr", update_svc_pb2_grpc.UpdateServiceStub, name)


def state_of(status: update.UpdateStatus) -> str:
    """Return the name of the state of an update."""
    return update.State.Name(status.state)


def is_over(status: update.UpdateStatus) -> bool:
    """Return whether an update has ended."""
    return state_of(status) in ENDED_WORKFLOWS


class UpdateCalls(Calls[M]):
    """The calls about updates."""

    def __init__(self, wire: Wire, pools: PoolCalls[M]) -> None:
        super().__init__(wire)
        self._pools = pools

    @call
    async def create(
        self,
        wanted: str,
        config: Any,
        *,
        pool: str = "",
        version: int = 0,
        how: BatchOptions = AT_ONCE,
    ) -> svc.CreateUpdateResponse:
        """Give a service another config; `config` is a spec, see `specs`.

        Without a `version` the update is made for the config that the job has now.
        """
        message = jobs.built(config)
        if pool:
            message.respoolID.value = await self._pools.lookup(pool)
        message.changeLog.version = version or await self.config_version(wanted)
        request = svc.CreateUpdateRequest(
            jobId=jobs.job_id(wanted),
            jobConfig=message,
            updateConfig=update.UpdateConfig(
                batchSize=how.batch,
                startPaused=how.start_paused,
                rollbackOnFailure=how.rollback_on_failure,
                maxInstanceAttempts=how.max_instance_retries,
                maxFailureInstances=how.max_tolerable_instance_failures,
                inPlace=how.in_place,
                startTasks=how.start_pods,
                minHealthySeconds=how.min_healthy_seconds,
            ),
            opaque_data={"data": how.opaque},
        )
        with specs.spelled_as(config):
            return await self._call("CreateUpdate", request, how=keyed(how.request_key))

    @call
    async def config_version(self, wanted: str) -> int:
        """Return the version of the config that a job has now."""
        answer = inside(await self._wire.call(jobs.method("Get"), jobs.get_request(wanted)))
        return int(answer.jobInfo.config.changeLog.version)

    @call
    async def get(self, update_id: str, *, status_only: bool = False) -> svc.GetUpdateResponse:
        """Return one update, and how far it is."""
        request = svc.GetUpdateRequest(updateId={"value": update_id}, statusOnly=status_only)
        return await self._call("GetUpdate", request)

    @call
    async def list(self, wanted: str, *, limit: int = 0) -> svc.ListUpdatesResponse:
        """Return the updates of a job that are kept, the newest first; 0 for all."""
        request = svc.ListUpdatesRequest(jobID=jobs.job_id(wanted), limit=limit)
        return await self._call("ListUpdates", request)

    @call
    async def cache(self, update_id: str) -> svc.GetUpdateCacheResponse:
        """Return the state of an update, and its instances by what became of them."""
        return await self._call("GetUpdateCache", _about("GetUpdateCache", update_id))

    @call
    async def pause(
        self, update_id: str, *, opaque: str = "", request_key: str | None = None
    ) -> svc.PauseUpdateResponse:
        """Pause the update: it begins with no more instances until it is resumed."""
        return await self._change("PauseUpdate", update_id, opaque=opaque, request_key=request_key)

    @call
    async def resume(
        self, update_id: str, *, opaque: str = "", request_key: str | None = None
    ) -> svc.ResumeUpdateResponse:
        """Resume the update: it goes on as before the pause."""
        return await self._change("ResumeUpdate", update_id, opaque=opaque, request_key=request_key)

    @call
    async def abort(
        self, update_id: str, *, opaque: str = "", request_key: str | None = None
    ) -> svc.AbortUpdateResponse:
        """End the update; what was changed stays so."""
        return await self._change("AbortUpdate", update_id, opaque=opaque, request_key=request_key)

    @call
    async def rollback(
        self, update_id: str, *, request_key: str | None = None
    ) -> svc.RollbackUpdateResponse:
        """Give the instances the configs before the update."""
        return await self._call(
            "RollbackUpdate", _about("RollbackUpdate", update_id), how=keyed(request_key)
        )

    @call
    async def roll(
        self,
        verb: str,
        wanted: str,
        *,
        ranges: Sequence[Range] = (),
        version: int = 0,
        how: BatchOptions = AT_ONCE,
    ) -> Any:
        """Restart, start or stop instances of a service, a batch at a time.

        `verb`: `restart`, `start` or `stop`. Without ranges, of all; without a `version` by the
        config that the job has now. Of `how` only `batch` counts, and `min_healthy_seconds` of what
        is to run.
        """
        name = verb.capitalize()
        request = getattr(job_pb2, f"{name}Request")(
            id=jobs.job_id(wanted),
            ranges=map(range_of, ranges),
            resourceVersion=version or await self.config_version(wanted),
        )
        config = getattr(request, f"{verb}Config")
        config.batchSize = how.batch
        if how.min_healthy_seconds is not None and verb != "stop":
            config.minHealthySeconds = how.min_healthy_seconds
        return await self._wire.call(jobs.method(name), request, how=keyed(how.request_key))

    async def _change(
        self, name: str, update_id: str, *, opaque: str, request_key: str | None
    ) -> Any:
        request = _about(name, update_id)
        request.opaque_data.data = opaque
        return await self._call(name, request, how=keyed(request_key))

    async def _call(self, name: str, request: Any, *, how: How = READ) -> Any:
        return await self._wire.call(method(name), request, how=how)


def _about(name: str, update_id: str) -> Any:
    return getattr(svc, f"{name}Request")(updateId={"value": update_id})
