"""Every host of the cluster, as the inventories of its shards know them.

One query for each inventory becomes a list by name. Single hosts are not queried, as there may be
many: the inventory of a shard follows each of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from peloton.actors.host.inventory.messages import (
    HostView,
    ListHosts,
    inventory_key,
)
from peloton.actors.host.messages import GetHost
from peloton.actors.host.stages import HostStates, Maintenance
from peloton.actors.host.state import Host
from peloton.actors.resources import SLACK, Resources, amount
from peloton.gateway.cluster.cluster_client import RETRY_S, ClusterClient, Code, Context, end
from peloton.gateway.cluster.soon import listed_soon
from peloton.placement.conditions import HOST_IP, HOST_POOL
from peloton.placement.messages import HostSummary, Label
from peloton.runtime.vocabulary import Key

READY, PLACING, UNKNOWN = "ready", "placing", "unknown"
RESERVED, HELD_FOR_TASKS = "reserved", "held"


def all_hosts(
    cluster_client: ClusterClient, context: Context, *, labels: bool = False
) -> list[HostView]:
    """Return every host, by name; one inventory that cannot answer makes the whole call
    unavailable.

    `labels`: with those of the tasks on them, as placers know them.
    """
    return _asked(cluster_client, ListHosts(labels=labels), context=context)


def troubled_hosts(cluster_client: ClusterClient, context: Context) -> list[HostView]:
    """Return the hosts that are out of reach, lost or in maintenance; none if that is not told
    soon."""
    return hosts_soon(cluster_client, ListHosts(troubled=True), context=context) or []


def hosts_soon(
    cluster_client: ClusterClient, query: ListHosts, *, context: Context
) -> list[HostView] | None:
    """Return the hosts of every inventory, in no order; None if one of these does not answer
    soon."""
    shards = range(len(cluster_client.cluster.shards_of("inventory")))
    asks = [(inventory_key(at), query) for at in shards]
    answers = listed_soon(cluster_client, asks, context=context)
    return None if answers is None else [view for views in answers for view in views]


def hosts_held_for(
    cluster_client: ClusterClient, tasks: Iterable[str], *, context: Context
) -> list[HostView]:
    """Return the hosts that are held for one of these tasks, by name."""
    names = tuple(sorted(set(tasks)))
    return _asked(cluster_client, ListHosts(names), context=context) if names else []


def _asked(cluster_client: ClusterClient, query: ListHosts, *, context: Context) -> list[HostView]:
    found: list[HostView] = []
    shards = cluster_client.cluster.shards_of("inventory")
    inventories = [inventory_key(at) for at in range(len(shards))]
    answers = cluster_client.each(((inventory, query) for inventory in inventories), context)
    for inventory, views in zip(inventories, answers, strict=True):
        if not isinstance(views, tuple):
            text = f"{inventory} is not created yet: the cluster is still starting"
            end(context, Code.UNAVAILABLE, text=text, retry_s=RETRY_S)
        found += views
    return sorted(found, key=lambda view: view.summary.host)


def with_runs(
    cluster_client: ClusterClient, hosts: Iterable[Key], *, context: Context, removed: bool = False
) -> Iterator[tuple[Key, Host]]:
    """Yield the hosts with the runs in their ledgers, in order.

    Hosts that do not exist are left out, and unless `removed`, those that no longer belong to the
    cluster.
    """
    keys = [*hosts]
    answers = cluster_client.each(((key, GetHost()) for key in keys), context)
    for key, answer in zip(keys, answers, strict=True):
        if isinstance(answer, Host) and (removed or not answer.removed):
            yield key, answer


def attributes(summary: HostSummary) -> list[Label]:
    """Return the labels of the machine itself, without its pool."""
    return [label for label in summary.labels if label.key != HOST_POOL]


def address_of(summary: HostSummary) -> str:
    """Return the address of the machine; empty if its backend does not know it."""
    # An attribute of its own may have that name as well; ours is the last.
    found = [label.value for label in summary.labels if label.key == HOST_IP]
    return found[-1] if found else ""


def takes_work(view: HostView) -> bool:
    """Return whether new runs may be launched on a host."""
    return view.summary.up


def status_of(view: HostView) -> str:
    """Return the status of a host in the original's words."""
    if not takes_work(view):
        return UNKNOWN
    if view.hold:
        return PLACING
    if any(hold.reserved for hold in view.task_holds):
        return RESERVED
    return HELD_FOR_TASKS if view.task_holds else READY


def unused_of(view: HostView) -> Resources:
    """Return what no run holds: it is free, or held for a client."""
    return view.summary.free + view.held


def capacity_of(views: Iterable[HostView]) -> tuple[Resources, Resources]:
    """Return what the hosts have in all, and what runs hold of it.

    Hosts that are lost or in maintenance add to neither.
    """
    total, free = Resources(), Resources()
    for view in views:
        if view.state != HostStates.LOST and view.maintenance == Maintenance.NONE:
            total, free = total + view.summary.capacity, free + unused_of(view)
    return total, total - free


def by_kind(of: Resources, message: type) -> list[Any]:
    """Return the amounts as messages of a kind and a capacity, of which each API version has its
    own.

    Slack is no kind there: `slack_by_kind` has lists of its own for it.
    """
    return [
        message(kind=kind, capacity=amount(value))
        for kind, value in zip(of.KINDS[:SLACK], of.amounts()[:SLACK], strict=True)
    ]


def slack_by_kind(of: Resources, message: type) -> list[Any]:
    """Return the amount of slack, which is cpu, as such messages."""
    return by_kind(Resources(of.slack), message)
