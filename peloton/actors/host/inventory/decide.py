"""How an inventory decides messages, and what it reports.

Changes of its hosts become deltas for placers, and a sum of capacity for the root pool.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec.structs import replace

from peloton.actors.host.drain_view import waits_for_slice, why_not_down
from peloton.actors.host.inventory import pools
from peloton.actors.host.inventory.facts import InventoryOpened
from peloton.actors.host.inventory.following import follow, unfollow
from peloton.actors.host.inventory.messages import (
    PLACERS_ALL,
    AssignHost,
    DropHostPool,
    FollowHosts,
    HostPoolSeen,
    HostView,
    ListHosts,
    MakeHostPool,
    MoveHostPool,
    OpenInventory,
    UnfollowHosts,
    is_troubled,
)
from peloton.actors.host.inventory.state import Hosts, Inventory
from peloton.actors.host.messages import RecheckBackend
from peloton.actors.host.stages import Maintenance
from peloton.actors.host.state import Host
from peloton.actors.respool.messages import ROOT, Capacity
from peloton.placement.conditions import DEFAULT_HOST_POOL
from peloton.placement.messages import SnapshotWanted
from peloton.runtime.vocabulary import At, Decision, Key, Send


def opened(message: OpenInventory, at: At) -> Decision:
    """Begin to exist."""
    return Decision(facts=(InventoryOpened(),), because="first start")


def already_open(inventory: Inventory, message: OpenInventory, at: At) -> Decision:
    """Do nothing, because the inventory exists."""
    return Decision()


def snapshot(inventory: Inventory, message: SnapshotWanted, at: At) -> Decision:
    """Send all hosts to a placer that missed a delta or has just started."""
    deltas = at.index.snapshot(at.key)
    return Decision(sends=(Send(message.placer, deltas),))


def not_open(message: SnapshotWanted | FollowHosts | UnfollowHosts, at: At) -> Decision:
    """Ignore the request, because there are no hosts to send yet."""
    return Decision(because="the inventory is not open yet")


DECIDE: Mapping[type, Callable[[Any, Any, At], Decision]] = {
    OpenInventory: already_open,
    SnapshotWanted: snapshot,
    MakeHostPool: pools.make,
    DropHostPool: pools.drop,
    AssignHost: pools.assign,
    HostPoolSeen: pools.seen,
    MoveHostPool: pools.move_host,
    FollowHosts: follow,
    UnfollowHosts: unfollow,
}

ABSENT: Mapping[type, Callable[[Any, At], Decision]] = {
    OpenInventory: opened,
    SnapshotWanted: not_open,
    MakeHostPool: pools.not_there,
    DropHostPool: pools.not_there,
    AssignHost: pools.not_there,
    HostPoolSeen: pools.not_there,
    MoveHostPool: pools.not_there,
    FollowHosts: not_open,
    UnfollowHosts: not_open,
}


def report(inventory: Inventory, at: At) -> tuple[Send, ...]:
    """Report what has changed to placers, to the slices that follow hosts, and the sum to the root
    pool.

    Placers notice gaps. After a recovery each host is sent `RecheckBackend`, because its backend
    may not know that the shard was away.
    """
    hosts: Hosts = at.index
    deltas, capacity = hosts.deltas(at.key), hosts.new_capacity
    sends = tuple(Send(host, RecheckBackend()) for host in hosts.recovered)
    if deltas is not None:
        sends = (*sends, Send(PLACERS_ALL, deltas))
    sends += hosts.followed.take(inventory.followers, hosts.hosts, version=at.position)
    hosts.reported(deltas)
    if capacity is None:
        return sends
    return (*sends, Send(ROOT, Capacity(at.position, at.key, capacity)))


def _why(host: Host) -> str:
    if host.maintenance != Maintenance.NONE:
        sets = host.runs.sets()
        waiting = ((crowd, len(some.members)) for crowd, some in sets if waits_for_slice(some))
        return host.because or why_not_down(waiting, host.use)
    return host.because or (host.quarantine.text if host.quarantine is not None else "")


def list_hosts(inventory: Inventory, query: ListHosts, at: At) -> tuple[HostView, ...]:
    """Return the hosts of the shard that were asked for, by name."""
    hosts: Hosts = at.index
    asked = hosts.held_for(query.tasks) if query.tasks else hosts.hosts
    keys = [key for key in asked if not query.troubled or is_troubled(hosts.hosts[key])]
    return tuple(_view(key, hosts.hosts[key], labels=query.labels) for key in sorted(keys))


def _view(key: Key, host: Host, *, labels: bool) -> HostView:
    summary = host.summary(key, tasks=labels)
    view = HostView(
        summary,
        host.state,
        len(host.runs),
        _why(host),
        host.maintenance,
        host.pool or DEFAULT_HOST_POOL,
    )
    if not (host.held or host.foreign or host.moving):
        return view
    return replace(
        view,
        hold="" if host.hold is None else host.hold.name,
        held=host.unused - host.free,
        foreign=host.foreign,
        task_holds=host.task_holds,
        moving=host.moving,
    )
