"""peloton.private.hostmgr.hostsvc.InternalHostService: hosts as tools read and use them.

The views of inventories become offers, agents and capacities, and requests for offers become holds.
An offer that was not acquired is what a host has free at the moment of the call; nothing is held
for it.
"""

from __future__ import annotations

from typing import Any

from peloton.actors.host.holds.foreign_names import shown_run
from peloton.actors.host.inventory.messages import HostView
from peloton.actors.host.ledger import run_names
from peloton.actors.host.state import occupying_runs
from peloton.actors.resources import SLACK, BadAmount, Resources
from peloton.api.mesos.v1 import mesos_pb2 as mesos
from peloton.api.mesos.v1.master import master_pb2 as master
from peloton.gateway.cluster.cluster_client import ClusterClient, Code, Context, end
from peloton.gateway.cluster.inventories import (
    all_hosts,
    by_kind,
    capacity_of,
    slack_by_kind,
    status_of,
    takes_work,
    unused_of,
    with_runs,
)
from peloton.gateway.private.draining_hosts import DrainingHosts
from peloton.gateway.private.foreign_runs import RunWanted, launch_runs, refused_code
from peloton.gateway.private.host_offers import (
    HostRanking,
    Wanted,
    hinted,
    hold_hosts,
    matching_hosts,
    release_holds,
)
from peloton.gateway.private.host_watches import HostWatches
from peloton.gateway.private.kill_switch import KillSwitch
from peloton.gateway.private.reservations import Reservations
from peloton.gateway.private.task_holds import drop_task_holds, named_task
from peloton.gateway.server.long_calls import LongCall
from peloton.gateway.translate.bad_field import BadField
from peloton.gateway.translate.mesos_resources import mesos_attributes, mesos_resources
from peloton.gateway.translate.texts import client_name
from peloton.gateway.translate.translate_task import resources_of, to_constraint
from peloton.gateway.v0.host_pools import HostPoolCapacities
from peloton.placement.filters import HostWant
from peloton.private.hostmgr.hostsvc import hostsvc_pb2 as hostsvc

_RANKINGS = {
    hostsvc.FilterHint.FILTER_HINT_RANKING_RANDOM: HostRanking.RANDOM,
    hostsvc.FilterHint.FILTER_HINT_RANKING_LEAST_AVAILABLE_FIRST: HostRanking.TIGHTEST_FIRST,
}
"""Orders that a filter may ask for. The load of hosts is not measured, so that has no effect."""
FRAMEWORK = "peloton"
AGENT_VERSION = "peloton"


class InternalHostService(DrainingHosts, HostPoolCapacities, Reservations):
    """The calls of the service; one method for each, named as on the wire."""

    def __init__(
        self, cluster_client: ClusterClient, watches: HostWatches, *, kills: KillSwitch
    ) -> None:
        self._cluster_client = cluster_client
        self._kills = kills
        self._watches = watches

    def ClusterCapacity(self, sent: hostsvc.ClusterCapacityRequest, context: Context) -> Any:
        """Return what runs hold, and what there is, of each kind; and of slack."""
        total, held = capacity_of(all_hosts(self._cluster_client, context))
        return hostsvc.ClusterCapacityResponse(
            resources=by_kind(held, hostsvc.Resource),
            physicalResources=by_kind(total, hostsvc.Resource),
            allocatedSlackResources=slack_by_kind(held, hostsvc.Resource),
            physicalSlackResources=slack_by_kind(total, hostsvc.Resource),
        )

    def GetOutstandingOffers(
        self, sent: hostsvc.GetOutstandingOffersRequest, context: Context
    ) -> Any:
        """Return what each host has free, or a client holds there, as an offer."""
        hosts = all_hosts(self._cluster_client, context)
        offers = [_offer(view) for view in hosts if takes_work(view) and _has_any(view)]
        if not offers:
            nothing = hostsvc.NoOffersError(message="no offers present in offer pool")
            error = hostsvc.GetOutstandingOffersResponse.Error(noOffers=nothing)
            return hostsvc.GetOutstandingOffersResponse(error=error)
        return hostsvc.GetOutstandingOffersResponse(offers=offers)

    def GetHostsByQuery(self, sent: hostsvc.GetHostsByQueryRequest, context: Context) -> Any:
        """Return the hosts that have so much free, or with `cmpLess` no more than that; with their
        tasks.

        Slack is for tasks of pools alone, so `includeRevocable` adds nothing.
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
            runs = sorted(run_names(occupying_runs(host)))
            found.hosts.add(
                hostname=client_name(key),
                resources=mesos_resources(unused_of(view)),
                status=status_of(view),
                held_tasks=[{"value": hold.task} for hold in view.task_holds],
                tasks=[mesos.TaskID(value=shown_run(run)) for run in runs],
            )
        return found

    def GetMesosAgentInfo(self, sent: hostsvc.GetMesosAgentInfoRequest, context: Context) -> Any:
        """Return every host, or the one of that name, as the agent it would be."""
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

    def AcquireHostOffers(self, sent: hostsvc.AcquireHostOffersRequest, context: Context) -> Any:
        """Hold hosts that suit, with all they have free, for `HOLD_S`."""
        wanted = _wanted(sent, context, no_filter=Code.INVALID_ARGUMENT)
        found = hold_hosts(self._cluster_client, wanted, context=context)
        answer = hostsvc.AcquireHostOffersResponse()
        for held in found.hosts:
            name = client_name(held.summary.host)
            answer.hostOffers.add(
                hostname=name,
                agentId={"value": name},
                resources=mesos_resources(held.resources),
                attributes=mesos_attributes(held.summary.labels),
                id={"value": held.name},
            )
        for result, count in found.counts.items():
            answer.filterResultCounts[result.lower()] = count
        return answer

    def ReleaseHostOffers(self, sent: hostsvc.ReleaseHostOffersRequest, context: Context) -> Any:
        """Release hosts; an offer that is not held any more is tolerated."""
        holds = ((offer.hostname, offer.id.value) for offer in sent.hostOffers)
        for _ in release_holds(self._cluster_client, holds, context=context):
            pass
        return hostsvc.ReleaseHostOffersResponse()

    def GetHosts(self, sent: hostsvc.GetHostsRequest, context: Context) -> Any:
        """Return the hosts that suit by all that they have, whatever runs there. Nothing is
        held."""
        wanted = _wanted(sent, context, no_filter=Code.INTERNAL)
        found = hostsvc.GetHostsResponse()
        for view in matching_hosts(self._cluster_client, wanted, context=context):
            name = client_name(view.summary.host)
            found.hosts.add(
                hostname=name,
                agentId={"value": name},
                resources=mesos_resources(view.summary.capacity),
                attributes=mesos_attributes(view.summary.labels),
            )
        if not found.hosts:
            text = "could not return matching hosts: no host matches the filter"
            end(context, Code.INTERNAL, text=text)
        return found

    def LaunchTasks(self, sent: hostsvc.LaunchTasksRequest, context: Context) -> Any:
        """Start tasks on a host that was acquired; the hold ends with it."""
        for missing, text in (
            (not sent.tasks, "empty task list"),
            (not sent.agentId.value, "empty agent id"),
            (not sent.hostname, "empty hostname"),
            (not sent.id.value, "empty host offer"),
        ):
            if missing:
                text = f"validate launch tasks failed: {text}"
                end(context, Code.INVALID_ARGUMENT, text=text)
        for at, one in enumerate(sent.tasks):
            if one.HasField("volume"):
                field = f"tasks[{at}].volume"
                end(context, Code.INVALID_ARGUMENT, text="is not supported yet", field=field)
        runs = [
            RunWanted(one.taskId.value, one.config, one.ports, f"tasks[{at}]")
            for at, one in enumerate(sent.tasks)
        ]
        # First, as in the original: what failed afterwards would have started the runs already.
        names = [named_task(one.taskId, one.id) for one in sent.tasks]
        drop_task_holds(self._cluster_client, names, context=context, but=sent.hostname)
        hold = (sent.hostname, sent.id.value)
        refused = launch_runs(self._cluster_client, hold, runs=runs, context=context)
        if refused is not None:
            text = f"claim for launch failed: {refused.text}"
            end(context, refused_code(refused), text=text)
        return hostsvc.LaunchTasksResponse()

    async def WatchEventStreamEvent(self, sent: hostsvc.WatchEventRequest, call: LongCall) -> None:
        """Stream statuses of runs, from now on."""
        await self._watches.watch_statuses(sent, call)

    async def WatchHostSummaryEvent(self, sent: hostsvc.WatchEventRequest, call: LongCall) -> None:
        """Stream each host that changes, from now on."""
        await self._watches.watch_hosts(sent, call)

    async def CancelWatchEvent(self, sent: hostsvc.CancelWatchRequest, call: LongCall) -> Any:
        """End a watch."""
        if not self._watches.cancel(sent.watch_id):
            end(call, Code.NOT_FOUND, text=f"no watch {sent.watch_id!r}")
        return hostsvc.CancelWatchResponse()


def _wanted(sent: Any, context: Context, *, no_filter: Code) -> Wanted:
    """Return what a filter asks for.

    Both calls have it, and differ in how they refuse a missing one.
    """
    if not sent.HasField("filter"):
        text = "invalid host filter" if no_filter is Code.INTERNAL else "invalid filter: missing"
        end(context, no_filter, text=text)
    by = sent.filter
    try:
        wants = by.resourceConstraint
        need = resources_of(wants.minimum, "filter.resourceConstraint.minimum")
        constraint = None
        if by.HasField("schedulingConstraint"):
            constraint = to_constraint(by.schedulingConstraint, "filter.schedulingConstraint")
    except (BadAmount, BadField) as error:
        end(context, Code.INVALID_ARGUMENT, text=f"invalid filter: {error}")
    return Wanted(
        HostWant(need, wants.numPorts, constraint, wants.revocable),
        most=by.quantity.maxHosts,
        first=hinted((hint.hostname, hint.taskID.value) for hint in by.hint.hostHint),
        ranking=_RANKINGS.get(by.hint.rankHint, HostRanking.BY_NAME),
    )


def _compares(view: HostView, wanted: Resources, *, less: bool) -> bool:
    free = unused_of(view)
    return free.within(wanted) if less else wanted.within(free)


def _has_any(view: HostView) -> bool:
    return any(each > 0 for each in unused_of(view).amounts()[:SLACK])


def _offer(view: HostView) -> mesos.Offer:
    summary = view.summary
    name = client_name(summary.host)
    return mesos.Offer(
        # Another offer as soon as the host has changed: nobody can take it for the present one.
        id=mesos.OfferID(value=view.hold or f"{name}-{summary.position}"),
        framework_id=mesos.FrameworkID(value=FRAMEWORK),
        agent_id=mesos.AgentID(value=name),
        hostname=name,
        resources=mesos_resources(unused_of(view)),
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
        allocated_resources=mesos_resources(summary.capacity - unused_of(view)),
    )
