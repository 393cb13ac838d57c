"""Pods, by PodService of v1alpha: each by its name, `JOB-INSTANCE`. No call waits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from peloton.api.v1alpha.pod import pod_pb2 as pod
from peloton.api.v1alpha.pod.svc import pod_svc_pb2 as svc
from peloton.api.v1alpha.pod.svc import pod_svc_pb2_grpc
from peloton.sdk import sandbox
from peloton.sdk.wire import ONCE, READ, How, RpcName, Wire, keyed


def container_of(status: pod.PodStatus) -> pod.ContainerStatus:
    """Return the one container of a pod, as far as it is known."""
    return status.containers_status[0] if status.containers_status else pod.ContainerStatus()


class PodCalls:
    """The calls about one pod."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    def get(self, name: str, *, status_only: bool = False, limit: int = 0) -> svc.GetPodResponse:
        """Return the pod as it is, and the runs it had before: `limit` runs in all, 0 for every
        one."""
        return self._call("GetPod", name, status_only=status_only, limit=limit)

    def cache(self, name: str) -> svc.GetPodCacheResponse:
        """Return the status and the labels of a pod."""
        return self._call("GetPodCache", name)

    def events(self, name: str, *, run: str = "") -> svc.GetPodEventsResponse:
        """Return the events of one run, the newest first; of the newest run if none is named."""
        return self._call("GetPodEvents", name, pod_id={"value": run})

    def delete_events(self, name: str, run: str) -> svc.DeletePodEventsResponse:
        """Hide the events until now of this run from all clients."""
        return self._call("DeletePodEvents", name, pod_id={"value": run}, how=ONCE)

    def refresh(self, name: str) -> svc.RefreshPodResponse:
        """Whether there is such a pod: there is nothing to refresh."""
        return self._call("RefreshPod", name)

    def start(self, name: str) -> svc.StartPodResponse:
        """Begin a new run of a pod that was stopped; another is left as it is."""
        return self._call("StartPod", name, how=keyed(None))

    def stop(self, name: str) -> svc.StopPodResponse:
        """End a pod, which stays so until it is started."""
        return self._call("StopPod", name, how=keyed(None))

    def restart(self, name: str, *, check_sla: bool = False) -> svc.RestartPodResponse:
        """Begin a new run of a pod; one that runs is killed first."""
        return self._call("RestartPod", name, check_sla=check_sla, how=keyed(None))

    def browse(self, name: str, *, run: str = "") -> svc.BrowsePodSandboxResponse:
        """Return where the files of a run are; of the newest run if none is named."""
        return self._call("BrowsePodSandbox", name, pod_id={"value": run})

    def logs(self, name: str, *, run: str = "", filename: str = "stdout") -> Iterator[bytes]:
        """Yield the bytes of one file of the sandbox, piece by piece."""
        found = self.browse(name, run=run)
        file = sandbox.file_named(filename, found.paths, host=found.hostname, port=found.port)
        return sandbox.download(file, timeout_s=self._wire.timeout_s)

    def _call(self, call: str, name: str, *, how: How = READ, **more: Any) -> Any:
        request = getattr(svc, f"{call}Request")(pod_name={"value": name}, **more)
        method = RpcName("jobmgr", pod_svc_pb2_grpc.PodServiceStub, call)
        return self._wire.call(method, request, how=how)
