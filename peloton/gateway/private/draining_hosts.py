"""Calls of InternalHostService about the life cycle of hosts: which drain, and what runs on them.

A host here drains by itself: it ends its runs, and is drained once they have ended. So a caller
that reports it as drained is checked, and changes nothing: runs may be left.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from peloton.actors.host.ledger import run_names
from peloton.actors.host.messages import GetHost
from peloton.actors.host.stages import Maintenance
from peloton.actors.host.state import Host, occupying_runs
from peloton.api.mesos.v1 import mesos_pb2 as mesos
from peloton.api.v0.host import host_pb2
from peloton.gateway.cluster.cluster_client import ClusterClient, Code, Context, end
from peloton.gateway.cluster.inventories import all_hosts, with_runs
from peloton.gateway.translate.host_states import wire_state
from peloton.gateway.translate.texts import client_name
from peloton.private.hostmgr.hostsvc import hostsvc_pb2 as hostsvc
from peloton.runtime.vocabulary import key

TASKS_OF_HOSTS_MAX = 100_000
"""Tasks in one answer, whatever limit is asked for."""
NO_MASTER = "unable to fetch leader mesos master hostname & port"


class DrainingHosts:
    """The calls of the service; one method for each, named as on the wire."""

    _cluster_client: ClusterClient

    def GetDrainingHosts(self, sent: hostsvc.GetDrainingHostsRequest, context: Context) -> Any:
        """Return the hosts that end their runs for maintenance, by name; without a limit, all.

        It answers at once, whatever `timeout` says, as the original does.
        """
        names = [
            client_name(view.summary.host)
            for view in all_hosts(self._cluster_client, context)
            if view.maintenance == Maintenance.DRAINING
        ]
        return hostsvc.GetDrainingHostsResponse(hostnames=names[: sent.limit or None])

    def MarkHostDrained(self, sent: hostsvc.MarkHostDrainedRequest, context: Context) -> Any:
        """Check that a draining host holds no run.

        It is drained by itself, at the latest once its backend answers.
        """
        host = self._cluster_client.ask(key("host", sent.hostname), GetHost(), context=context)
        draining = isinstance(host, Host) and not host.removed
        if not draining or host.maintenance != Maintenance.DRAINING:
            end(context, Code.NOT_FOUND, text="Host not in DRAINING state")
        occupying = sum(len(some.members) for _, some in occupying_runs(host))
        if occupying:
            text = f"{occupying} runs have not ended: the host is drained by itself once they have"
            end(context, Code.FAILED_PRECONDITION, text=text)
        return hostsvc.MarkHostDrainedResponse(hostname=sent.hostname)

    def GetTasksByHostState(
        self, sent: hostsvc.GetTasksByHostStateRequest, context: Context
    ) -> Any:
        """Return the runs that hold resources of hosts in this state; without a limit, all.

        It answers at once, whatever `timeout` says.
        """
        if sent.host_state == host_pb2.HOST_STATE_INVALID:
            end(context, Code.INVALID_ARGUMENT, text="no state is named", field="host_state")
        found = hostsvc.GetTasksByHostStateResponse()
        most = min(sent.limit or TASKS_OF_HOSTS_MAX, TASKS_OF_HOSTS_MAX)
        for run in self._runs_on(sent.host_state, context):
            found.task_ids.append(mesos.TaskID(value=run))
            if len(found.task_ids) == most:
                break
        return found

    def GetMesosMasterHostPort(
        self, sent: hostsvc.MesosMasterHostPortRequest, context: Context
    ) -> Any:
        """Answer as the original does when it finds no master, as there is no Mesos."""
        end(context, Code.UNKNOWN, text=NO_MASTER)

    def _runs_on(self, state: int, context: Context) -> Iterator[str]:
        hosts = [
            view.summary.host
            for view in all_hosts(self._cluster_client, context)
            if host_pb2.HostState.Value(wire_state(view)) == state
        ]
        for _, host in with_runs(self._cluster_client, hosts, context=context):
            yield from sorted(run_names(occupying_runs(host)))
