"""The volumes of services: listed, shown, deleted."""

from __future__ import annotations

from peloton.api.v0.volume import volume_pb2
from peloton.api.v0.volume.svc import volume_svc_pb2 as svc
from peloton.api.v0.volume.svc import volume_svc_pb2_grpc
from peloton.sdk.calls import Calls, M, call
from peloton.sdk.rpc import READ, RpcName, keyed


def _rpc(name: str) -> RpcName:
    return RpcName("jobmgr", volume_svc_pb2_grpc.VolumeServiceStub, name)


class VolumeCalls(Calls[M]):
    """Calls about volumes."""

    @call
    async def of_job(self, job: str) -> svc.ListVolumesResponse:
        """Return the volumes of a job, also of one that was deleted, by their names."""
        request = svc.ListVolumesRequest(jobId={"value": job})
        return await self._wire.call(_rpc("ListVolumes"), request, how=READ)

    @call
    async def get(self, volume: str) -> volume_pb2.PersistentVolumeInfo:
        """Return one volume."""
        request = svc.GetVolumeRequest(id={"value": volume})
        return (await self._wire.call(_rpc("GetVolume"), request, how=READ)).result

    @call
    async def delete(
        self, volume: str, *, request_key: str | None = None
    ) -> svc.DeleteVolumeResponse:
        """Remove a volume for ever, with what is in it."""
        request = svc.DeleteVolumeRequest(id={"value": volume})
        return await self._wire.call(_rpc("DeleteVolume"), request, how=keyed(request_key))
