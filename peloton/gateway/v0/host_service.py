"""HostService of both API versions: the hosts of the cluster, their maintenance and their pool.

The lists of inventories become HostInfo, and maintenance calls goals of hosts. Both versions have
the same messages in packages of their own, so one servicer serves either. A listing does not query
hosts, as there may be many.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import grpc

from peloton.actors.host.inventory.messages import HostView
from peloton.actors.host.messages import (
    NO_HOST,
    NOT_DOWN,
    CompleteMaintenance,
    StartMaintenance,
)
from peloton.actors.host.stages import Maintenance
from peloton.gateway.cluster.cluster_client import ClusterClient, Code, Context, end
from peloton.gateway.cluster.inventories import address_of, all_hosts, attributes
from peloton.gateway.cluster.requests import request_of
from peloton.gateway.translate.host_states import wire_state
from peloton.gateway.translate.texts import client_name
from peloton.gateway.v0.host_moves import HostMoves
from peloton.gateway.v0.host_pools import HostPoolCalls
from peloton.runtime.vocabulary import Message, Refused, key


class HostService(HostPoolCalls, HostMoves):
    """The calls of the service; one method for each, named as on the wire."""

    def __init__(self, cluster_client: ClusterClient, *, host: Any, svc: Any) -> None:
        """Take the generated modules of the values (`host`) and of the calls (`svc`)."""
        self._cluster_client = cluster_client
        self._host, self._svc = host, svc

    def QueryHosts(self, sent: Any, context: Context) -> Any:
        """Return the hosts in these states, by name; without any, all hosts."""
        wanted = {*sent.host_states}
        infos = map(self._info, all_hosts(self._cluster_client, context))
        found = [info for info in infos if not wanted or info.state in wanted]
        return self._svc.QueryHostsResponse(host_infos=found)

    def StartMaintenance(self, sent: Any, context: Context) -> Any:
        """Start a maintenance: the host grants nothing more, its runs move, and then it is down."""
        name = self._each(sent, context, message=StartMaintenance(), code_of=_code_of_start)
        return self._svc.StartMaintenanceResponse(hostname=name)

    def CompleteMaintenance(self, sent: Any, context: Context) -> Any:
        """Complete a maintenance: a host that is down for it is up again."""
        name = self._each(sent, context, message=CompleteMaintenance(), code_of=_code_of_complete)
        return self._svc.CompleteMaintenanceResponse(hostname=name)

    def _info(self, view: HostView) -> Any:
        states = self._host.HostState
        down = view.maintenance != Maintenance.NONE
        info = self._host.HostInfo(
            hostname=client_name(view.summary.host),
            ip=address_of(view.summary),
            state=states.Value(wire_state(view)),
            goal_state=states.Value("HOST_STATE_DOWN" if down else "HOST_STATE_UP"),
        )
        for label in attributes(view.summary):
            info.labels.add(key=label.key, value=label.value)
        if "current_pool" in info.DESCRIPTOR.fields_by_name:
            info.current_pool, info.desired_pool = view.pool, view.moving or view.pool
        return info

    def _each(
        self,
        sent: Any,
        context: Context,
        *,
        message: Message,
        code_of: Callable[[Refused], grpc.StatusCode],
    ) -> str:
        """Give each host the goal; return the name to answer with, which a list of hosts has not.

        Of a list all are tried, and what was refused is answered as one error.
        """
        if sent.hostname:
            refused = self._give(sent.hostname, message, sent=sent, context=context)
            if refused is not None:
                end(context, code_of(refused), text=refused)
            return str(sent.hostname)
        if not sent.hostnames:
            end(context, Code.INVALID_ARGUMENT, text="no host is named", field="hostname")
        texts = []
        for name in _once(sent.hostnames):
            refused = self._give(name, message, sent=sent, context=context)
            if refused is not None:
                texts.append(f"{name}: {refused.text}")
        if texts:
            end(context, Code.INTERNAL, text="; ".join(texts))
        return ""

    def _give(self, name: str, message: Message, *, sent: Any, context: Context) -> Refused | None:
        request, host = request_of(sent, context), key("host", name)
        answer = self._cluster_client.ask(host, message, context=context, request=request)
        return answer if isinstance(answer, Refused) else None


def _once(names: Iterable[str]) -> list[str]:
    return [*dict.fromkeys(names)]


def _code_of_start(refused: Refused) -> grpc.StatusCode:
    return Code.ABORTED if refused.code == NO_HOST else Code.FAILED_PRECONDITION


def _code_of_complete(refused: Refused) -> grpc.StatusCode:
    return Code.NOT_FOUND if refused.code in (NO_HOST, NOT_DOWN) else Code.FAILED_PRECONDITION
