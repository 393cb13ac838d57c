"""peloton.private.hostmgr.v1alpha.svc.HostManagerService: capacity, and the hosts as kept.

Turns the views of inventories into messages. Must not query single hosts.
"""

from __future__ import annotations

from typing import Any

from peloton.gateway.cluster_client import ClusterClient, Context
from peloton.gateway.event_streams import PodEvents
from peloton.gateway.internal_hosts import READY, UNKNOWN
from peloton.gateway.inventories import all_hosts, by_kind, capacity_of, takes_work
from peloton.gateway.long_calls import LongCall
from peloton.gateway.texts import client_name
from peloton.private.hostmgr.v1alpha import hostmgr_pb2 as hostmgr
from peloton.private.hostmgr.v1alpha.svc import hostmgr_svc_pb2 as hostmgr_svc


class HostManagerService:
    """The calls; one method for each, named as on the wire."""

    def __init__(self, cluster_client: ClusterClient, events: PodEvents) -> None:
        self._cluster_client = cluster_client
        self._events = events

    def ClusterCapacity(self, sent: hostmgr_svc.ClusterCapacityRequest, context: Context) -> Any:
        """What runs hold, and what there is; the lists of slack stay empty, as in the original."""
        total, held = capacity_of(all_hosts(self._cluster_client, context))
        allocation, capacity = (by_kind(of, hostmgr.Resource) for of in (held, total))
        return hostmgr_svc.ClusterCapacityResponse(allocation=allocation, capacity=capacity)

    def GetHostCache(self, sent: hostmgr_svc.GetHostCacheRequest, context: Context) -> Any:
        """Each host: its status, what runs hold there, and what it has."""
        found = hostmgr_svc.GetHostCacheResponse()
        for view in all_hosts(self._cluster_client, context):
            summary = view.summary
            found.summaries.add(
                hostname=client_name(summary.host),
                status=READY if takes_work(view) else UNKNOWN,
                allocation=by_kind(summary.capacity - summary.free, hostmgr.Resource),
                capacity=by_kind(summary.capacity, hostmgr.Resource),
            )
        return found

    async def GetEvents(self, sent: hostmgr_svc.GetEventsRequest, call: LongCall) -> Any:
        """The newest starts and ends of runs that are kept for the event streams."""
        return hostmgr_svc.GetEventsResponse(events=await self._events.kept(call))
