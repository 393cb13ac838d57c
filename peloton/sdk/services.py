"""Services as they change, where their instances are, and lockdowns of the cluster.

A watch that breaks is resumed behind its last revision. If something may have been missed,
everything is told as it is now, after a `gap`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import NamedTuple

from peloton.api.v1alpha.admin.svc import admin_svc_pb2 as admin
from peloton.api.v1alpha.admin.svc import admin_svc_pb2_grpc
from peloton.api.v1alpha.watch.svc import watch_svc_pb2 as svc
from peloton.api.v1alpha.watch.svc import watch_svc_pb2_grpc
from peloton.ops.v1 import endpoints_pb2, endpoints_pb2_grpc
from peloton.sdk.calls import Calls, M, call, stream
from peloton.sdk.errors import PelotonError, ServiceUnavailable, TryLater
from peloton.sdk.ops import SILENCE_PAUSE_S, Silence
from peloton.sdk.rpc import ONCE, RpcName, keyed

EVERYTHING = 1
"""The revision from which a watch tells everything as it is now."""
BROKEN = ("ABORTED", "OUT_OF_RANGE")
"""Statuses with which a watch ends that can be begun anew: overflown, or with a gap."""
CANCELLED = "watch cancelled: "
LabelPairs = Sequence[tuple[str, str]]


class WatchTold(NamedTuple):
    """One message; `gap`: what changed before it may be missing, so everything follows."""

    message: svc.WatchResponse
    gap: str = ""


class ServiceCalls(Calls[M]):
    """Calls about services, their endpoints, and lockdowns."""

    @call
    async def endpoints(self, job: str) -> endpoints_pb2.ListEndpointsResponse:
        """Return the instances of a job that are available."""
        call = RpcName("jobmgr", endpoints_pb2_grpc.EndpointsStub, "ListEndpoints")
        return await self._wire.call(call, endpoints_pb2.ListEndpointsRequest(job_id=job))

    @stream
    def watch_jobs(
        self,
        jobs: Sequence[str] = (),
        *,
        labels: LabelPairs = (),
        since: int = 0,
        silent: Callable[[str], None] | None = None,
    ) -> AsyncGenerator[WatchTold, None]:
        """Yield these services, or all, as they change behind a revision; `silent` is as in
        `OpsCalls.wait`.

        `since`: the revision of a message, 0 for now, or EVERYTHING. See docs/watching.md.
        """
        request = svc.WatchRequest(start_revision=since)
        wanted = request.stateless_job_filter
        wanted.SetInParent()
        for job in jobs:
            wanted.job_ids.add(value=job)
        for key, value in labels:
            wanted.labels.add(key=key, value=value)
        return self._watch(request, silent)

    @stream
    def watch_pods(
        self,
        job: str = "",
        pods: Sequence[str] = (),
        *,
        labels: LabelPairs = (),
        since: int = 0,
        silent: Callable[[str], None] | None = None,
    ) -> AsyncGenerator[WatchTold, None]:
        """Yield these pods, or all of a service, or of all services, as they change."""
        request = svc.WatchRequest(start_revision=since)
        wanted = request.pod_filter
        wanted.SetInParent()
        if job:
            wanted.job_id.value = job
        for pod in pods:
            wanted.pod_names.add(value=pod)
        for key, value in labels:
            wanted.labels.add(key=key, value=value)
        return self._watch(request, silent)

    @call
    async def cancel_watch(self, watch_id: str) -> svc.CancelResponse:
        """End a watch of the daemon that is called."""
        call = RpcName("jobmgr", watch_svc_pb2_grpc.WatchServiceStub, "Cancel")
        return await self._wire.call(call, svc.CancelRequest(watch_id=watch_id), how=ONCE)

    @call
    async def lock(
        self, components: Sequence[str], *, request_key: str | None = None
    ) -> admin.LockdownResponse:
        """Stop these components of the cluster."""
        request = admin.LockdownRequest(components=components)
        return await self._wire.call(_admin("Lockdown"), request, how=keyed(request_key))

    @call
    async def unlock(
        self, components: Sequence[str], *, request_key: str | None = None
    ) -> admin.RemoveLockdownResponse:
        """Let these components go on."""
        request = admin.RemoveLockdownRequest(components=components)
        return await self._wire.call(_admin("RemoveLockdown"), request, how=keyed(request_key))

    async def _watch(
        self, request: svc.WatchRequest, silent: Callable[[str], None] | None
    ) -> AsyncGenerator[WatchTold, None]:
        silence, gap = Silence(silent, self._wire.now), ""
        for named in (*request.stateless_job_filter.job_ids, request.pod_filter.job_id):
            if named.value:
                named.value = await self._wire.job_id(named.value, changes=False)
        call = RpcName("jobmgr", watch_svc_pb2_grpc.WatchServiceStub, "Watch")
        while True:
            try:
                async with aclosing(self._wire.stream(call, request)) as messages:
                    async for message in messages:
                        silence.is_over()
                        request.start_revision = message.revision
                        yield WatchTold(message, gap)
                        gap = ""
                raise ServiceUnavailable("the stream ended")
            except (TryLater, ServiceUnavailable) as error:
                if CANCELLED in str(error):
                    return
                await silence.outlast(error, self._wire)
            except PelotonError as error:
                if error.kind not in BROKEN:
                    raise
                if error.kind == "OUT_OF_RANGE":
                    gap, request.start_revision = str(error), EVERYTHING
                await self._wire.sleep(SILENCE_PAUSE_S)


def _admin(name: str) -> RpcName:
    return RpcName("jobmgr", admin_svc_pb2_grpc.AdminServiceStub, name)
