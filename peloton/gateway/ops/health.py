"""grpc.health.v1: whether the cluster behind this server takes calls.

The status is determined at the moment of the question and never stored: `Watch` is refused in
favour of `Check`, which the protocol provides for.

The server as a whole (``""``), each service and `readiness` answer as `/ready` over HTTP does, and
`liveness` as `/health` does.
"""

from __future__ import annotations

from typing import Any

from grpc_health.v1 import health_pb2

from peloton.gateway.cluster.cluster_client import Code, Context, end
from peloton.gateway.server.long_calls import LongCall
from peloton.runtime.shells.region import Region

LIVENESS, READINESS = "liveness", "readiness"


class Health:
    """The calls of the service; one method for each, named as on the wire."""

    def __init__(self, cluster: Region, services: frozenset[str]) -> None:
        self._cluster = cluster
        self._services = services

    async def Check(self, sent: health_pb2.HealthCheckRequest, context: LongCall) -> Any:
        """Return the status of the server as a whole, or of one service, which is the same.

        A coroutine that never waits: it is answered though all threads wait for the cluster.
        """
        if sent.service not in (LIVENESS, READINESS, "") and sent.service not in self._services:
            end(context, Code.NOT_FOUND, text=f"no service {sent.service}")
        condition = self._cluster.daemon_health()
        well = condition.live if sent.service == LIVENESS else condition.ready
        Response = health_pb2.HealthCheckResponse
        return Response(status=Response.SERVING if well else Response.NOT_SERVING)

    def Watch(self, sent: health_pb2.HealthCheckRequest, context: Context) -> Any:
        """Refuse: clients of the protocol take this answer for "healthy as long as it answers"."""
        end(context, Code.UNIMPLEMENTED, text="Health.Watch is not supported yet: use Check")
