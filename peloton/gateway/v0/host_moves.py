"""MoveHosts: hosts of the pool `shared` move to another pool, the cheapest to empty first.

Wanted sizes become orders to hosts, which drain, change their pool and come back by themselves. A
host on its way counts as one of the pool that it goes to, so a repeat of the call moves no more.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from peloton.actors.host.inventory.messages import HostView
from peloton.actors.host.machine_messages import MoveToPool
from peloton.actors.host.messages import MaintenanceSet
from peloton.gateway.cluster.cluster_client import ClusterClient, Code, Context, end
from peloton.gateway.v0.host_pools import hosts_by_pool
from peloton.gateway.v0.host_scores import SHARED, cheapest_hosts
from peloton.runtime.vocabulary import key


class HostMoves:
    """The call of HostService that only v0 has."""

    _cluster_client: ClusterClient
    _svc: Any

    def MoveHosts(self, sent: Any, context: Context) -> Any:
        """Move hosts until the destination has as many as are wanted."""
        pools = hosts_by_pool(self._cluster_client, context)
        for name, text in (
            (sent.sourcePool, "source pool doesn't exist"),
            (sent.destinationPool, "destination pool doesn't exist"),
        ):
            if name not in pools:
                end(context, Code.UNKNOWN, text=text)
        sizes = desired_sizes(view for views in pools.values() for view in views)
        source, destination = sent.sourcePool, sent.destinationPool
        growth = sent.destPoolDesiredHosts - sizes.get(destination, 0)
        if growth <= 0:
            return self._svc.MoveHostsResponse()
        if source != SHARED:
            end(context, Code.UNKNOWN, text="move Not supported for source pool")
        shrink = sizes.get(source, 0) - sent.srcPoolDesiredHosts
        if sizes.get(source, 0) < growth:
            end(context, Code.UNKNOWN, text="source pool has fewer hosts than are to be moved")
        if shrink != growth:
            text = f"the source would shrink by {shrink}, the destination grow by {growth}"
            end(context, Code.UNKNOWN, text=text)
        names = cheapest_hosts(self._cluster_client, context)
        if len(names) < growth:
            end(context, Code.UNKNOWN, text="not enough hosts to move")
        self._move(names, destination, most=growth, context=context)
        return self._svc.MoveHostsResponse()

    def _move(self, names: list[str], pool: str, *, most: int, context: Context) -> None:
        """Order the first hosts that can move; those that changed meanwhile are passed over."""
        rest, texts = iter(names), list[str]()
        while most:
            some = [name for name, _ in zip(rest, range(most), strict=False)]
            if not some:
                text = f"not enough hosts to move: {'; '.join(texts)}"
                end(context, Code.UNKNOWN, text=text)
            asks = [(key("host", name), MoveToPool(SHARED, pool)) for name in some]
            for answer in self._cluster_client.each(asks, context, changes=True):
                most -= isinstance(answer, MaintenanceSet)
                texts += [] if isinstance(answer, MaintenanceSet) else [answer.text]


def desired_sizes(views: Iterable[HostView]) -> dict[str, int]:
    """Return how many hosts each pool has, or is to have once those on their way have come."""
    sizes: dict[str, int] = {}
    for view in views:
        pool = view.moving or view.pool
        sizes[pool] = sizes.get(pool, 0) + 1
    return sizes
