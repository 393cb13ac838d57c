"""Hosts as the original's tools see them: their states, and maintenance.

`ops.hosts` tells what a host has and what of it is free.
"""

from __future__ import annotations

from collections.abc import Sequence

from peloton.api.v0.host import host_pb2 as host
from peloton.api.v0.host.svc import host_svc_pb2 as svc
from peloton.api.v0.host.svc import host_svc_pb2_grpc
from peloton.sdk.calls import Calls, M, call
from peloton.sdk.errors import BadSpec
from peloton.sdk.rpc import RpcName, keyed

PREFIX = "HOST_STATE_"
STATES = ("unknown", "up", "draining", "drained", "down")


def method(name: str) -> RpcName:
    return RpcName("hostmgr", host_svc_pb2_grpc.HostServiceStub, name)


def state_named(text: str) -> int:
    """Return a state by its name, with or without the prefix, in any case."""
    name = text.strip().upper().removeprefix(PREFIX)
    if name.lower() not in STATES:
        raise BadSpec(f"{text!r} is no state of a host; states: {', '.join(STATES)}")
    return int(host.HostState.Value(PREFIX + name))


def state_text(state: int) -> str:
    """Return the name of a state without its prefix."""
    return host.HostState.Name(state).removeprefix(PREFIX)


class HostCalls(Calls[M]):
    """The calls about hosts."""

    @call
    async def query(self, states: Sequence[str] = ()) -> svc.QueryHostsResponse:
        """Return the hosts in these states (`up`, `draining`, `drained`, `down`); without any,
        all."""
        wanted = [state_named(one) for one in states]
        request = svc.QueryHostsRequest(host_states=wanted)  # type: ignore[arg-type]
        return await self._wire.call(method("QueryHosts"), request)

    @call
    async def pools(self) -> svc.ListHostPoolsResponse:
        """Return the host pools, with the hosts of each."""
        return await self._wire.call(method("ListHostPools"), svc.ListHostPoolsRequest())

    @call
    async def create_pool(
        self, name: str, *, request_key: str | None = None
    ) -> svc.CreateHostPoolResponse:
        """Create a host pool, with no hosts."""
        request = svc.CreateHostPoolRequest(name=name)
        return await self._wire.call(method("CreateHostPool"), request, how=keyed(request_key))

    @call
    async def delete_pool(
        self, name: str, *, request_key: str | None = None
    ) -> svc.DeleteHostPoolResponse:
        """Delete a host pool: its hosts join the default one."""
        request = svc.DeleteHostPoolRequest(name=name)
        return await self._wire.call(method("DeleteHostPool"), request, how=keyed(request_key))

    @call
    async def change_pool(
        self, name: str, *, source: str, destination: str, request_key: str | None = None
    ) -> svc.ChangeHostPoolResponse:
        """Move a host from one pool to another."""
        request = svc.ChangeHostPoolRequest(
            hostname=name, sourcePool=source, destinationPool=destination
        )
        return await self._wire.call(method("ChangeHostPool"), request, how=keyed(request_key))

    @call
    async def start_maintenance(
        self, name: str, *, request_key: str | None = None
    ) -> svc.StartMaintenanceResponse:
        """Start a maintenance: the host grants nothing more, its runs move, and then it is down."""
        request = svc.StartMaintenanceRequest(hostname=name)
        return await self._wire.call(method("StartMaintenance"), request, how=keyed(request_key))

    @call
    async def complete_maintenance(
        self, name: str, *, request_key: str | None = None
    ) -> svc.CompleteMaintenanceResponse:
        """Complete a maintenance: a host that is down for it is up again."""
        request = svc.CompleteMaintenanceRequest(hostname=name)
        return await self._wire.call(method("CompleteMaintenance"), request, how=keyed(request_key))
