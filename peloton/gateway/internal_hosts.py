"""peloton.private.hostmgr.hostsvc.InternalHostService: what tools read of the hosts.

Turns the views of inventories into offers, agents and capacities. An offer here is what a host
has free at the moment of the call; it must not promise that anything is held.
"""

from __future__ import annotations

from typing import Any

from peloton.actors.host.inventory.messages import HostView
from peloton.actors.host.ledger import HOLDING
from peloton.actors.resources import BadAmount, Resources
from peloton.api.mesos.v1 import mesos_pb2 as mesos
from peloton.api.mesos.v1.master import master_pb2 as master
from peloton.gateway.cluster_client import ClusterClient, Code, Context, end
from peloton.gateway.draining_hosts import DrainingHosts
from peloton.gateway.host_pools import HostPoolCapacities
from peloton.gateway.host_watches import HostWatches
from peloton.gateway.inventories import all_hosts, by_kind, capacity_of, takes_work, with_runs
from peloton.gateway.long_calls import LongCall
from peloton.gateway.mesos_resources import mesos_attributes, mesos_resources
from peloton.gateway.texts import client_name
from peloton.gateway.translate_task import resources_of
from peloton.private.hostmgr.hostsvc import hostsvc_pb2 as hostsvc

FRAMEWORK = "peloton"
READY, UNKNOWN = "ready", "unknown"
AGENT_VERSION = "peloton"


class InternalHostService(DrainingHosts, HostPoolCapacities):
    """The calls; one method for each, named as on the wire."""

    def __init__(self, cluster_client: ClusterClient, watches: HostWatches) -> None:
        self._cluster_client = cluster_client
        self._watches = watches

    def ClusterCapacity(self, sent: hostsvc.ClusterCapacityRequest, context: Context) -> Any:
        """What runs hold, and what there is, of each kind. No slack is measured: its lists are
        zero."""
        total, held = capacity_of(all_hosts(self._cluster_client, context))
        return hostsvc.ClusterCapacityResponse(
            resources=by_kind(held, hostsvc.Resource),
            physicalResources=by_kind(total, hostsvc.Resource),
            allocatedSlackResources=by_kind(Resources(), hostsvc.Resource),
            physicalSlackResources=by_kind(Resources(), hostsvc.Resource),
        )

    def GetOutstandingOffers(
        self, sent: hostsvc.GetOutstandingOffersRequest, context: Context
    ) -> Any:
        """What each host has free, as an offer."""
        hosts = all_hosts(self._cluster_client, context)
        offers = [_offer(view) for view in hosts if takes_work(view) and _has_any(view)]
        if not offers:
            nothing = hostsvc.NoOffersError(message="no offers present in offer pool")
            error = hostsvc.GetOutstandingOffersResponse.Error(noOffers=nothing)
            return hostsvc.GetOutstandingOffersResponse(error=error)
        return hostsvc.GetOutstandingOffersResponse(offers=offers)

    def GetHostsByQuery(self, sent: hostsvc.GetHostsByQueryRequest, context: Context) -> Any:
        """The hosts that have so much free, or with `cmpLess` no more than that; with their tasks.

        Nothing is revocable yet, so that `includeRevocable` adds nothing.
        """
        try:
            wanted = resources_of(sent.resource, "resource")
        except BadAmount as error:
            end(context, Code.INVALID_ARGUMENT, text=str(error))
        named = frozenset(sent.hostnames)
        chosen = {
            view.summary.host: view
            for view in all_hosts(self._cluster_client, context)
            if (not named or client_name(view.summary.host) in named)
            and (not sent.HasField("resource") or _compares(view, wanted, less=sent.cmpLess))
        }
        found = hostsvc.GetHostsByQueryResponse()
        for key, host in with_runs(self._cluster_client, chosen, context=context):
            view = chosen[key]
            runs = sorted(name for name, run in host.runs.items() if run.phase in HOLDING)
            found.hosts.add(
                hostname=client_name(key),
                resources=mesos_resources(view.summary.free),
                status=READY if takes_work(view) else UNKNOWN,
                tasks=[mesos.TaskID(value=run) for run in runs],
            )
        return found

    def GetMesosAgentInfo(self, sent: hostsvc.GetMesosAgentInfoRequest, context: Context) -> Any:
        """Every host, or the one of that name, as the agent it would be."""
        found = [
            _agent(view)
            for view in all_hosts(self._cluster_client, context)
            if not sent.hostname or client_name(view.summary.host) == sent.hostname
        ]
        if sent.hostname and not found:
            missing = hostsvc.HostNotFound(message="host not found")
            error = hostsvc.GetMesosAgentInfoResponse.Error(hostNotFound=missing)
            return hostsvc.GetMesosAgentInfoResponse(error=error)
        return hostsvc.GetMesosAgentInfoResponse(agents=found)

    async def WatchEventStreamEvent(self, sent: hostsvc.WatchEventRequest, call: LongCall) -> None:
        """What becomes of runs, from now on."""
        await self._watches.watch_statuses(sent, call)

    async def WatchHostSummaryEvent(self, sent: hostsvc.WatchEventRequest, call: LongCall) -> None:
        """Each host that changes, from now on."""
        await self._watches.watch_hosts(sent, call)

    async def CancelWatchEvent(self, sent: hostsvc.CancelWatchRequest, call: LongCall) -> Any:
        """End a watch."""
        if not self._watches.cancel(sent.watch_id):
            end(call, Code.NOT_FOUND, text=f"no watch {sent.watch_id!r}")
        return hostsvc.CancelWatchResponse()


def _compares(view: HostView, wanted: Resources, *, less: bool) -> bool:
    free = view.summary.free
    return free.within(wanted) if less else wanted.within(free)


def _has_any(view: HostView) -> bool:
    return any(each > 0 for each in view.summary.free.amounts())


def _offer(view: HostView) -> mesos.Offer:
    summary = view.summary
    name = client_name(summary.host)
    return mesos.Offer(
        # Another offer as soon as the host has changed: nobody can take it for the present one.
        id=mesos.OfferID(value=f"{name}-{summary.position}"),
        framework_id=mesos.FrameworkID(value=FRAMEWORK),
        agent_id=mesos.AgentID(value=name),
        hostname=name,
        resources=mesos_resources(summary.free),
        attributes=mesos_attributes(summary.labels),
    )


def _agent(view: HostView) -> master.Response.GetAgents.Agent:
    summary = view.summary
    name = client_name(summary.host)
    info = mesos.AgentInfo(
        hostname=name,
        id=mesos.AgentID(value=name),
        resources=mesos_resources(summary.capacity),
        attributes=mesos_attributes(summary.labels),
    )
    return master.Response.GetAgents.Agent(
        agent_info=info,
        active=takes_work(view),
        version=AGENT_VERSION,
        total_resources=mesos_resources(summary.capacity),
        allocated_resources=mesos_resources(summary.capacity - summary.free),
    )
