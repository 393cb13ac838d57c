"""peloton.private.hostmgr.v1alpha.svc.HostManagerService: hosts as pods see them.

Hosts are described from the views of inventories. Requests for hosts become leases, which are the
holds that v0 calls offers.
"""

from __future__ import annotations

from typing import Any

from peloton.actors.host.holds.foreign_names import held_task
from peloton.actors.host.holds.hold_messages import HoldReleased
from peloton.actors.resources import BadAmount, Resources, amount, millionths
from peloton.api.v0.task import task_pb2 as task
from peloton.gateway.cluster.cluster_client import ClusterClient, Code, Context, end
from peloton.gateway.cluster.inventories import (
    all_hosts,
    by_kind,
    capacity_of,
    status_of,
    unused_of,
)
from peloton.gateway.private.event_streams import PodEvents
from peloton.gateway.private.foreign_runs import (
    RunWanted,
    config_of_pod,
    kill_runs,
    launch_runs,
    no_runs_text,
    refused_code,
)
from peloton.gateway.private.host_offers import Wanted, hinted, hold_hosts, release_holds
from peloton.gateway.private.kill_switch import KILLS_DISABLED, KillSwitch
from peloton.gateway.private.task_holds import KillEntry, drop_task_holds, kill_and_hold
from peloton.gateway.server.long_calls import LongCall
from peloton.gateway.translate.bad_field import BadField
from peloton.gateway.translate.counterparts import recast
from peloton.gateway.translate.texts import client_name
from peloton.gateway.translate.translate_task import to_constraint
from peloton.placement import filters
from peloton.private.hostmgr.v1alpha import hostmgr_pb2 as hostmgr
from peloton.private.hostmgr.v1alpha.svc import hostmgr_svc_pb2 as hostmgr_svc
from peloton.runtime.vocabulary import Refused

RESULT_NAMES = {
    filters.SUITS: "MATCH",
    filters.NOT_READY: "MISMATCH_STATUS",
    filters.NOTHING_FREE: "INSUFFICIENT_RESOURCES",
    filters.TOO_SMALL: "INSUFFICIENT_RESOURCES",
    filters.SCARCE: "MISMATCH_GPU",
    filters.UNSUITABLE: "MISMATCH_CONSTRAINTS",
    filters.BEYOND_MOST: "MISMATCH_MAX_HOST_LIMIT",
}
"""Results of the filter in the words of v1alpha, which has fewer."""


class HostManagerService:
    """The calls of the service; one method for each, named as on the wire."""

    def __init__(
        self, cluster_client: ClusterClient, events: PodEvents, *, kills: KillSwitch
    ) -> None:
        self._cluster_client = cluster_client
        self._kills = kills
        self._events = events

    def ClusterCapacity(self, sent: hostmgr_svc.ClusterCapacityRequest, context: Context) -> Any:
        """Return what runs hold, and what there is; the lists of slack stay empty, as in the
        original."""
        total, held = capacity_of(all_hosts(self._cluster_client, context))
        allocation, capacity = (by_kind(of, hostmgr.Resource) for of in (held, total))
        return hostmgr_svc.ClusterCapacityResponse(allocation=allocation, capacity=capacity)

    def GetHostCache(self, sent: hostmgr_svc.GetHostCacheRequest, context: Context) -> Any:
        """Return each host: its status, what runs hold there, and what it has."""
        found = hostmgr_svc.GetHostCacheResponse()
        for view in all_hosts(self._cluster_client, context):
            summary = view.summary
            found.summaries.add(
                hostname=client_name(summary.host),
                status=status_of(view),
                allocation=by_kind(summary.capacity - unused_of(view), hostmgr.Resource),
                capacity=by_kind(summary.capacity, hostmgr.Resource),
            )
        return found

    def AcquireHosts(self, sent: hostmgr_svc.AcquireHostsRequest, context: Context) -> Any:
        """Lease hosts that suit, with all they have free."""
        if not sent.HasField("filter"):
            end(context, Code.INTERNAL, text="invalid host filter")
        found = hold_hosts(self._cluster_client, _wanted_by(sent.filter, context), context=context)
        answer = hostmgr_svc.AcquireHostsResponse()
        for held in found.hosts:
            summary = answer.hosts.add(lease_id={"value": held.name}).host_summary
            summary.hostname = client_name(held.summary.host)
            summary.resources.cpu = amount(held.resources.cpu)
            summary.resources.memMb = amount(held.resources.memory)
            summary.resources.diskMb = amount(held.resources.disk)
            summary.resources.gpu = amount(held.resources.gpu)
            for label in held.summary.labels:
                summary.labels.add(key=label.key, value=label.value)
        for result, count in found.counts.items():
            answer.filter_result_counts[f"HOST_FILTER_{RESULT_NAMES[result]}".lower()] += count
        return answer

    def TerminateLeases(self, sent: hostmgr_svc.TerminateLeasesRequest, context: Context) -> Any:
        """Release hosts; those that could not be released are named together."""
        pairs = [(one.hostname, one.lease_id.value) for one in sent.leases]
        texts = ["a lease without its id or its hostname"] if not all(map(all, pairs)) else []
        for lease, answer in release_holds(self._cluster_client, pairs, context=context):
            if not (isinstance(answer, HoldReleased) and answer.known):
                texts.append(f"{lease} is not a lease of this host")
        if texts:
            end(context, Code.INTERNAL, text="; ".join(texts))
        return hostmgr_svc.TerminateLeasesResponse()

    def LaunchPods(self, sent: hostmgr_svc.LaunchPodsRequest, context: Context) -> Any:
        """Start pods on a leased host; the lease ends with it."""
        for missing, text in (
            (not sent.pods, "Empty pods list"),
            (not sent.lease_id.value, "Empty lease id"),
            (not sent.hostname, "Empty host name"),
        ):
            if missing:
                end(context, Code.INTERNAL, text=text)
        try:
            runs = [_run_wanted(pod, f"pods[{at}]") for at, pod in enumerate(sent.pods)]
        except BadField as error:
            end(context, Code.INVALID_ARGUMENT, text=str(error))
        names = [held_task(run.task) for run in runs]
        drop_task_holds(self._cluster_client, names, context=context, but=sent.hostname)
        lease = (sent.hostname, sent.lease_id.value)
        refused = launch_runs(self._cluster_client, lease, runs=runs, context=context)
        if isinstance(refused, Refused):
            end(context, refused_code(refused), text=f"launch pods failed: {refused.text}")
        return hostmgr_svc.LaunchPodsResponse()

    def KillPods(self, sent: hostmgr_svc.KillPodsRequest, context: Context) -> Any:
        """End runs: foreign ones at their host, and a job's through the job."""
        names = [one.value for one in sent.pod_ids]
        self._may_kill(context)
        drop_task_holds(self._cluster_client, map(held_task, names), context=context)
        missing = kill_runs(self._cluster_client, names, context=context)
        if missing:
            end(context, Code.INTERNAL, text=no_runs_text(missing))
        return hostmgr_svc.KillPodsResponse()

    def KillAndHoldPods(self, sent: hostmgr_svc.KillAndHoldPodsRequest, context: Context) -> Any:
        """End runs, and hold a host for the next run of each of these pods."""
        names = [one.pod_id.value for one in sent.entries]
        entries = [
            KillEntry(name, held_task(name), one.hostToHold)
            for name, one in zip(names, sent.entries, strict=True)
        ]
        self._may_kill(context)
        missing = kill_and_hold(self._cluster_client, entries, context=context)
        if missing:
            end(context, Code.INTERNAL, text=no_runs_text(missing))
        return hostmgr_svc.KillAndHoldPodsResponse()

    def _may_kill(self, context: Context) -> None:
        if self._kills.disabled:
            end(context, Code.INTERNAL, text=KILLS_DISABLED)

    async def GetEvents(self, sent: hostmgr_svc.GetEventsRequest, call: LongCall) -> Any:
        """Return the newest starts and ends of runs that are kept for the event streams."""
        return hostmgr_svc.GetEventsResponse(events=await self._events.kept(call))


def _run_wanted(pod: hostmgr.LaunchablePod, field: str) -> RunWanted:
    config = config_of_pod(pod.spec, f"{field}.spec")
    return RunWanted(pod.pod_id.value, config, pod.ports, field)


def _wanted_by(by: hostmgr.HostFilter, context: Context) -> Wanted:
    """Return what a filter asks for."""
    least, field = by.resource_constraint.minimum, "filter.resource_constraint.minimum"
    try:
        need = Resources(
            cpu=millionths(least.cpu_limit, f"{field}.cpu_limit"),
            memory=millionths(least.mem_limit_mb, f"{field}.mem_limit_mb"),
            disk=millionths(least.disk_limit_mb, f"{field}.disk_limit_mb"),
            gpu=millionths(least.gpu_limit, f"{field}.gpu_limit"),
        )
        constraint = None
        if by.HasField("scheduling_constraint"):
            first = recast(task.Constraint, by.scheduling_constraint)
            constraint = to_constraint(first, "filter.scheduling_constraint")
    except (BadAmount, BadField) as error:
        end(context, Code.INVALID_ARGUMENT, text=str(error))
    want = filters.HostWant(need, by.resource_constraint.num_ports, constraint)
    pods = ((hint.hostname, held_task(hint.pod_id.value)) for hint in by.hint.host_hint)
    return Wanted(want, most=by.max_hosts, first=hinted(pods))
