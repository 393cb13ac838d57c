"""The hosts as people see them: their state, what they have, what of it is free.

Turns what inventories list into messages of the ops calls. It must not ask a host: the inventory of
its shard follows each of them.
"""

from __future__ import annotations

from typing import Any

from peloton.actors.host.inventory.messages import HostView, ListHosts, inventory_key
from peloton.actors.host.messages import GetHost
from peloton.actors.host.state import Host
from peloton.actors.resources import Resources, amount
from peloton.gateway.desk import Context, Desk
from peloton.gateway.texts import name_of
from peloton.ops.v1 import ops_pb2 as ops
from peloton.runtime.vocabulary import Key

INVENTORIES_MAX = 10_000
"""No cluster has so many shards; what ends the search is the first number that nobody has."""


def listed(desk: Desk, context: Context) -> list[ops.Host]:
    """Every host, by name."""
    found: list[HostView] = []
    for number in range(INVENTORIES_MAX):
        views = desk.ask(inventory_key(number), ListHosts(), context=context)
        if not isinstance(views, tuple):
            break  # they are numbered without a gap
        found += views
    return [_told(view) for view in sorted(found, key=lambda view: view.summary.host)]


def known_host(desk: Desk, host: Key, *, context: Context) -> bool:
    """Whether there is a host of this key."""
    return isinstance(desk.ask(host, GetHost(), context=context), Host)


def _told(view: HostView) -> Any:
    summary = view.summary
    return ops.Host(
        name=name_of(summary.host),
        state=view.state.name,
        text=view.because,
        capacity=_amounts(summary.capacity),
        free=_amounts(summary.free),
        runs=view.runs,
        attributes={label.key: label.value for label in summary.labels},
    )


def _amounts(of: Resources) -> Any:
    return ops.Amounts(
        cpu=amount(of.cpu),
        memory_mb=amount(of.memory),
        disk_mb=amount(of.disk),
        gpu=amount(of.gpu),
    )
