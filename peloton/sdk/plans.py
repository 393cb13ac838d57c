"""Plans: what a job, or another config of a pool, would bring about. Nothing is changed."""

from __future__ import annotations

from typing import Any

from peloton.api.v0.respool import respool_pb2 as respool
from peloton.ops.v1 import plans_pb2 as wire
from peloton.ops.v1 import plans_pb2_grpc
from peloton.sdk import specs
from peloton.sdk.calls import Calls, M, call
from peloton.sdk.errors import NotFound
from peloton.sdk.jobs import built
from peloton.sdk.pools import PoolCalls
from peloton.sdk.rpc import READ, RpcName
from peloton.sdk.wire import Wire


def _rpc(name: str) -> RpcName:
    return RpcName("api", plans_pb2_grpc.PlansStub, name)


class PlanCalls(Calls[M]):
    """The calls of peloton.ops.v1.Plans."""

    def __init__(self, wire: Wire, pools: PoolCalls[M]) -> None:
        super().__init__(wire)
        self._pools = pools

    @call
    async def job(self, pool: str, config: Any) -> wire.PlanJobResponse:
        """Return what would become of a job in the pool at this path; `config` is a spec, see
        `specs`."""
        message = built(config)
        message.respoolID.value = await self._pools.lookup(pool)
        with specs.spelled_as(config):
            request = wire.PlanJobRequest(config=message)
            found: wire.PlanJobResponse = await self._wire.call(_rpc("PlanJob"), request, how=READ)
            return found

    @call
    async def pool(self, config: Any, *, path: str = "") -> wire.PlanPoolResponse:
        """Return what this config would change, of the pool at `path` or of a new one there.

        `config` is a whole spec, as of `PoolCalls.create`; without a path, of a pool of the root.
        """
        path = path or "/" + specs.build(respool.ResourcePoolConfig, config).name
        request = wire.PlanPoolRequest(config=await self._pools.built(path, config))
        try:
            request.pool_id = await self._pools.lookup(path)
        except NotFound:
            pass
        with specs.spelled_as(config):
            found: wire.PlanPoolResponse = await self._wire.call(
                _rpc("PlanPool"), request, how=READ
            )
            return found

    @call
    async def explain(self, path: str) -> wire.ExplainPoolResponse:
        """Return how the pool at `path` came to its entitlement, which jobs wait there, and which
        give back.

        Raises NotFound.
        """
        request = wire.ExplainPoolRequest(path=path)
        found: wire.ExplainPoolResponse = await self._wire.call(
            _rpc("ExplainPool"), request, how=READ
        )
        return found
