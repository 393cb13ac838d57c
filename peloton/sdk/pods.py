"""Pods, by PodService of v1alpha: each by its name, `JOB-INSTANCE`. No call waits."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from peloton.api.v1alpha.pod import pod_pb2 as pod
from peloton.api.v1alpha.pod.svc import pod_svc_pb2 as svc
from peloton.api.v1alpha.pod.svc import pod_svc_pb2_grpc
from peloton.sdk import sandbox
from peloton.sdk.calls import Calls, M, call, stream
from peloton.sdk.rpc import READ, How, RpcName, keyed


def container_of(status: pod.PodStatus) -> pod.ContainerStatus:
    """Return the one container of a pod, as far as it is known."""
    return status.containers_status[0] if status.containers_status else pod.ContainerStatus()


class PodCalls(Calls[M]):
    """The calls about one pod."""

    @call
    async def get(
        self, name: str, *, status_only: bool = False, limit: int = 0
    ) -> svc.GetPodResponse:
        """Return the pod as it is, and the runs it had before: `limit` runs in all, 0 for every
        one."""
        return await self._call("GetPod", name, status_only=status_only, limit=limit)

    @call
    async def cache(self, name: str) -> svc.GetPodCacheResponse:
        """Return the status and the labels of a pod."""
        return await self._call("GetPodCache", name)

    @call
    async def events(self, name: str, *, run: str = "") -> svc.GetPodEventsResponse:
        """Return the events of one run, the newest first; of the newest run if none is named."""
        return await self._call("GetPodEvents", name, pod_id={"value": run})

    @call
    async def delete_events(
        self, name: str, run: str, *, request_key: str | None = None
    ) -> svc.DeletePodEventsResponse:
        """Hide the events until now of this run from all clients."""
        return await self._call(
            "DeletePodEvents", name, pod_id={"value": run}, how=keyed(request_key)
        )

    @call
    async def refresh(self, name: str) -> svc.RefreshPodResponse:
        """Whether there is such a pod: there is nothing to refresh."""
        return await self._call("RefreshPod", name)

    @call
    async def start(self, name: str, *, request_key: str | None = None) -> svc.StartPodResponse:
        """Begin a new run of a pod that was stopped; another is left as it is."""
        return await self._call("StartPod", name, how=keyed(request_key))

    @call
    async def stop(self, name: str, *, request_key: str | None = None) -> svc.StopPodResponse:
        """End a pod, which stays so until it is started."""
        return await self._call("StopPod", name, how=keyed(request_key))

    @call
    async def restart(
        self, name: str, *, check_sla: bool = False, request_key: str | None = None
    ) -> svc.RestartPodResponse:
        """Begin a new run of a pod; one that runs is killed first."""
        return await self._call("RestartPod", name, check_sla=check_sla, how=keyed(request_key))

    @call
    async def browse(self, name: str, *, run: str = "") -> svc.BrowsePodSandboxResponse:
        """Return where the files of a run are; of the newest run if none is named."""
        return await self._call("BrowsePodSandbox", name, pod_id={"value": run})

    @stream
    async def logs(
        self, name: str, *, run: str = "", filename: str = "stdout"
    ) -> AsyncGenerator[bytes, None]:
        """Yield the bytes of one file of the sandbox, piece by piece."""
        found = await self.browse(name, run=run)
        file = sandbox.file_named(filename, found.paths, host=found.hostname, port=found.port)
        async with aclosing(self._wire.download(file)) as pieces:
            async for piece in pieces:
                yield piece

    async def _call(self, call: str, name: str, *, how: How = READ, **more: Any) -> Any:
        request = getattr(svc, f"{call}Request")(pod_name={"value": name}, **more)
        method = RpcName("jobmgr", pod_svc_pb2_grpc.PodServiceStub, call)
        return await self._wire.call(method, request, how=how)
