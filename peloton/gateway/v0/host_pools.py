"""Host pools: their list, their changes, and what each has.

Calls of HostService become orders to the first inventory, which alone decides, and its list becomes
messages. Nothing is cached: another daemon may change the pools.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from peloton.actors.host.inventory.messages import (
    BAD_POOL,
    NO_POOL,
    POOL_EXISTS,
    POOLS_OWNER,
    WRONG_SOURCE,
    AssignHost,
    DropHostPool,
    GetHostPools,
    HostPoolChanged,
    HostPools,
    HostView,
    MakeHostPool,
)
from peloton.actors.host.messages import GetHost, SetHostPool
from peloton.actors.host.state import Host
from peloton.gateway.cluster.cluster_client import RETRY_S, ClusterClient, Code, Context, end
from peloton.gateway.cluster.inventories import all_hosts, by_kind, capacity_of, slack_by_kind
from peloton.gateway.cluster.requests import request_of
from peloton.gateway.translate.texts import client_name
from peloton.placement.conditions import DEFAULT_HOST_POOL
from peloton.private.hostmgr.hostsvc import hostsvc_pb2 as hostsvc
from peloton.runtime.vocabulary import Message, Refused, key

_CODES = {
    BAD_POOL: Code.INVALID_ARGUMENT,
    NO_POOL: Code.NOT_FOUND,
    POOL_EXISTS: Code.ALREADY_EXISTS,
    WRONG_SOURCE: Code.INVALID_ARGUMENT,
}


def hosts_by_pool(cluster_client: ClusterClient, context: Context) -> dict[str, list[HostView]]:
    """Return every pool with its hosts by name; the default one first."""
    found = cluster_client.ask(POOLS_OWNER, GetHostPools(), context=context)
    if not isinstance(found, HostPools):
        text = "the pools of hosts cannot be read: the cluster is starting, or being upgraded"
        end(context, Code.UNAVAILABLE, text=text, retry_s=RETRY_S)
    pools: dict[str, list[HostView]] = {name: [] for name in found.names}
    members: Mapping[str, str] = dict(found.members)
    for view in all_hosts(cluster_client, context):
        pools[members.get(view.summary.host, DEFAULT_HOST_POOL)].append(view)
    return pools


class HostPoolCalls:
    """The calls of HostService; one method for each, named as on the wire."""

    _cluster_client: ClusterClient
    _host: Any
    _svc: Any

    def ListHostPools(self, sent: Any, context: Context) -> Any:
        """Return every pool and its hosts."""
        found = self._svc.ListHostPoolsResponse()
        for name, views in hosts_by_pool(self._cluster_client, context).items():
            found.pools.add(name=name, hosts=[client_name(view.summary.host) for view in views])
        return found

    def CreateHostPool(self, sent: Any, context: Context) -> Any:
        """Create a pool, without hosts."""
        if not sent.name:
            end(context, Code.INVALID_ARGUMENT, text="a host pool has a name", field="name")
        self._order(MakeHostPool(sent.name), sent=sent, context=context)
        return self._svc.CreateHostPoolResponse()

    def DeleteHostPool(self, sent: Any, context: Context) -> Any:
        """Delete a pool: its hosts are in the default one."""
        self._order(DropHostPool(sent.name), sent=sent, context=context)
        return self._svc.DeleteHostPoolResponse()

    def ChangeHostPool(self, sent: Any, context: Context) -> Any:
        """Move a host from one pool to another, at once; what runs there stays."""
        host = key("host", sent.hostname)
        view = self._cluster_client.ask(host, GetHost(), context=context)
        if not isinstance(view, Host) or view.removed:
            end(context, Code.NOT_FOUND, text="host not found")
        message = AssignHost(host, sent.sourcePool, sent.destinationPool)
        codes = {**_CODES, NO_POOL: Code.INVALID_ARGUMENT}
        version = self._order(message, sent=sent, context=context, codes=codes)
        if version:
            # The owner tells the host as well; so the next task is granted by the new pool.
            order = SetHostPool(sent.destinationPool, version)
            self._cluster_client.ask(host, order, context=context)
        return self._svc.ChangeHostPoolResponse()

    def _order(
        self, message: Message, *, sent: Any, context: Context, codes: Mapping[str, Any] = _CODES
    ) -> int:
        """Return the version of the order to a host; 0 if there is none."""
        request = request_of(sent, context)
        answer = self._cluster_client.ask(POOLS_OWNER, message, context=context, request=request)
        if isinstance(answer, Refused):
            code = codes.get(answer.code, Code.FAILED_PRECONDITION)
            end(context, code, text=answer, field=answer.field)
        assert isinstance(answer, HostPoolChanged), answer
        return answer.version


class HostPoolCapacities:
    """The call of InternalHostService about host pools."""

    _cluster_client: ClusterClient

    def GetHostPoolCapacity(
        self, sent: hostsvc.GetHostPoolCapacityRequest, context: Context
    ) -> Any:
        """Return what the hosts of each pool have, and what of slack."""
        found = hostsvc.GetHostPoolCapacityResponse()
        for name, views in hosts_by_pool(self._cluster_client, context).items():
            total, _ = capacity_of(views)
            found.pools.add(
                poolName=name,
                physicalCapacity=by_kind(total, hostsvc.Resource),
                slackCapacity=slack_by_kind(total, hostsvc.Resource),
            )
        return found
