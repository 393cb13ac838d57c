"""How the first inventory decides which host pools there are, and which host is in which.

Orders of operators become facts, and these become orders to hosts, which are repeated until the
host has answered. Each order has a version, of which a host obeys the newest only. A pool that is
dropped vanishes at once; its hosts are told so a few at a time. Hosts report their pools to placers
as labels.
"""

from __future__ import annotations

import re
from typing import Any

from peloton.actors.host.inventory import facts as f
from peloton.actors.host.inventory import messages as m
from peloton.actors.host.inventory.state import Inventory
from peloton.actors.host.machine_messages import PoolMoveRefused
from peloton.actors.host.messages import SetHostPool
from peloton.placement.conditions import DEFAULT_HOST_POOL
from peloton.runtime.vocabulary import SENDER, WAITING, At, Decision, Fact, Refused, Rest, Send

POOL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}", re.ASCII)
UNTOLD_MAX = 100
"""Hosts of a dropped pool that are moved at a time; each step looks at every member of a pool."""


def make(inventory: Inventory, message: m.MakeHostPool, at: At) -> Decision:
    """Make a new pool, without hosts."""
    if not POOL_NAME.fullmatch(message.name):
        text = "a name has 1 to 63 letters, digits, '-', '_' and '.', and begins with no mark"
        return Decision(reply=Refused(m.BAD_POOL, text, "name"))
    if message.name == DEFAULT_HOST_POOL or message.name in inventory.pools:
        return Decision(reply=Refused(m.POOL_EXISTS, "host pool already exists", again=True))
    if message.name in inventory.dropped:
        text = "a host pool of that name is being deleted: its hosts have still to leave"
        return Decision(reply=Refused(m.POOL_EXISTS, text, again=True))
    if len(inventory.pools) >= m.HOST_POOLS_MAX:
        text = f"there are {m.HOST_POOLS_MAX} host pools already"
        return Decision(reply=Refused(m.BAD_POOL, text, again=True))
    return Decision(facts=(f.HostPoolMade(message.name),), reply=m.HostPoolChanged())


def drop(inventory: Inventory, message: m.DropHostPool, at: At) -> Decision:
    """Remove a pool; `empty` moves its hosts."""
    if message.name == DEFAULT_HOST_POOL:
        return Decision(reply=Refused(m.BAD_POOL, "default pool can not be deleted", "name"))
    if message.name not in inventory.pools:
        return Decision(reply=Refused(m.NO_POOL, "host pool not found", again=True))
    return Decision(facts=(f.HostPoolDropped(message.name),), reply=m.HostPoolChanged())


def assign(inventory: Inventory, message: m.AssignHost, at: At) -> Decision:
    """Move a host from `source`, which must be its pool, to an existing pool."""
    current = inventory.pool_of(message.host)
    if message.source != current:
        text = f"source pool mismatch: the host is in {current}"
        return Decision(reply=Refused(m.WRONG_SOURCE, text, "sourcePool", again=True))
    if message.destination != DEFAULT_HOST_POOL and message.destination not in inventory.pools:
        text = f"invalid dest pool: {message.destination}"
        return Decision(reply=Refused(m.NO_POOL, text, "destinationPool", again=True))
    if message.destination == current:
        return Decision(reply=m.HostPoolChanged(), because="the host is there")
    version = inventory.version + 1
    return Decision(
        facts=(f.HostAssigned(message.host, message.destination),),
        sends=(Send(message.host, SetHostPool(message.destination, version)),),
        reply=m.HostPoolChanged(version),
    )


def move_host(inventory: Inventory, message: m.MoveHostPool, at: At) -> Decision:
    """Move a host that is down from `source`, as `assign` does; it is told the result either
    way."""
    assert at.sender is not None
    current = inventory.pool_of(at.sender)
    if current == message.destination:
        known = SetHostPool(current, inventory.untold.get(at.sender, inventory.version))
        return Decision(sends=(Send(SENDER, known),), because="the host is there")
    order = m.AssignHost(at.sender, message.source, message.destination)
    found = assign(inventory, order, at)
    if isinstance(found.reply, Refused):
        refused = PoolMoveRefused(message.destination, found.reply.text)
        return Decision(sends=(Send(SENDER, refused),), because=found.reply.text)
    return Decision(facts=found.facts, sends=found.sends, because="a host moves")


def seen(inventory: Inventory, message: m.HostPoolSeen, at: At) -> Decision:
    """Record that the host knows its pool, unless there is a newer order."""
    assert at.sender is not None
    if inventory.untold.get(at.sender) != message.version:
        return Decision(because="an older order, or a repeat")
    return Decision(facts=(f.HostTold(at.sender),))


def empty(inventory: Inventory) -> Decision | Rest:
    """Move the next hosts of a dropped pool to the default one."""
    room = UNTOLD_MAX - len(inventory.untold)
    if room <= 0:
        return WAITING
    name = inventory.dropped[0]
    some = [host for host, pool in sorted(inventory.members.items()) if pool == name][:room]
    facts: tuple[Fact, ...] = tuple(f.HostAssigned(host, DEFAULT_HOST_POOL) for host in some)
    sends = tuple(
        Send(host, SetHostPool(DEFAULT_HOST_POOL, version))
        for version, host in enumerate(some, inventory.version + 1)
    )
    if len(some) < room:
        facts = (*facts, f.HostPoolEmptied(name))
    return Decision(facts=facts, sends=sends, because="a pool of hosts was deleted")


def owed(inventory: Inventory) -> tuple[Send, ...]:
    """Return the orders to the hosts that may not know their pool."""
    return tuple(
        Send(host, SetHostPool(inventory.pool_of(host), version))
        for host, version in sorted(inventory.untold.items())
    )


def get_host_pools(inventory: Inventory, query: m.GetHostPools, at: At) -> m.HostPools:
    """Return which pools there are, and the hosts that are not in the default one."""
    members = (
        (host, pool)
        for host, pool in sorted(inventory.members.items())
        if pool not in inventory.dropped
    )
    return m.HostPools((DEFAULT_HOST_POOL, *inventory.pools), tuple(members))


def not_there(message: Any, at: At) -> Decision:
    """Answer that there is no inventory yet."""
    text = "the cluster is still starting"
    return Decision(reply=Refused(m.NO_POOL, text, again=True), because=text)
