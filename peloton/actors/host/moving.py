"""How a host changes its pool without taking any runs along: it drains, moves, and comes back.

The move is a maintenance that ends by itself. The first inventory decides, once the host is down,
whether it may join the pool; if not, the host comes back as it was. An operator who starts or
completes a maintenance meanwhile ends the move.
"""

from __future__ import annotations

from peloton.actors.host import facts as f
from peloton.actors.host import machine_messages as mm
from peloton.actors.host import messages as m
from peloton.actors.host.inventory.messages import POOLS_OWNER, WRONG_SOURCE, MoveHostPool
from peloton.actors.host.maintenance import begin, no_host
from peloton.actors.host.stages import Maintenance
from peloton.actors.host.state import Host
from peloton.actors.host.use import awaits_backend
from peloton.placement.conditions import DEFAULT_HOST_POOL
from peloton.runtime.vocabulary import At, Decision, Refused, Send

MOVED = "the host has drained, and changes its pool"


def move(host: Host, message: mm.MoveToPool, at: At) -> Decision:
    """Drain, in order to join another pool."""
    if host.removed:
        return no_host(message, at)
    if host.moving == message.destination:
        return Decision(reply=m.MaintenanceSet(int(host.maintenance)), because="moving already")
    if host.maintenance != Maintenance.NONE:
        return _refused(mm.IN_MAINTENANCE, "host is in maintenance")
    current = host.pool or DEFAULT_HOST_POOL
    if current != message.source:
        return _refused(WRONG_SOURCE, f"the host is in {current}")
    begun = begin(host, at)
    facts = (*begun.facts, f.HostMoving(message.destination))
    return Decision(facts, begun.sends, begun.reply, because="it is to change its pool")


def _refused(code: str, text: str) -> Decision:
    return Decision(reply=Refused(code, text, again=True), because=text)


def take_down(host: Host, at: At) -> Decision | None:
    """Go down once no task waits for word of a run, and the backend has put the machine out of use;
    the pools' owner is asked to take a host that moves."""
    if host.runs or awaits_backend(host):
        return None
    asked = (_request(host),) if host.moving else ()
    because = MOVED if host.moving else "down for maintenance"
    return Decision((f.HostTakenDown(),), asked, because=because)


def move_owed(host: Host) -> tuple[Send, ...]:
    """Return the repeated request of a host that is down and moves, until it is told its pool."""
    if not host.moving or host.maintenance != Maintenance.DOWN or host.removed:
        return ()
    return (_request(host),)


def _request(host: Host) -> Send:
    return Send(POOLS_OWNER, MoveHostPool(host.pool or DEFAULT_HOST_POOL, host.moving))


def not_moved(host: Host, message: mm.PoolMoveRefused, at: At) -> Decision:
    """Come back as a member of the old pool."""
    if host.moving != message.destination or host.maintenance != Maintenance.DOWN:
        return Decision(because="the refusal of another move")
    return Decision(facts=(f.MaintenanceCompleted(),), because=message.text)


def arrived(host: Host, pool: str) -> tuple[f.MaintenanceCompleted, ...]:
    """Return the fact that ends the move of a host that belongs to this pool now."""
    done = bool(host.moving) and host.moving == pool and host.maintenance == Maintenance.DOWN
    return (f.MaintenanceCompleted(),) if done else ()
