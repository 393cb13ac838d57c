"""Whether a host grants a launch: the checks that settle what placers have proposed.

Two placers may propose one host at the same time, so nothing that was decided on their views may be
taken for granted here.
"""

from __future__ import annotations

from typing import NamedTuple

from peloton.actors.host import messages as m
from peloton.actors.host.devices import (
    NO_DEVICE,
    Devices,
    devices_wanted,
    free_devices,
    with_devices,
)
from peloton.actors.host.holds.task_holds import alive, members_held, room_beside
from peloton.actors.host.ledger import pick_ports
from peloton.actors.host.run_spec import RunSpec
from peloton.actors.host.stages import Maintenance
from peloton.actors.host.state import Host, ports_given
from peloton.actors.host.volumes import with_volumes
from peloton.actors.resources import Resources
from peloton.placement.conditions import accepts, closed_to, condition_text
from peloton.runtime.vocabulary import At, Bits

HELD = "host is held for another caller"
NO_PORT = "no free port on the host"

Ports = tuple[tuple[int, ...], ...]
"""The numbers of each member, in the order of the spec's ports."""


class Granted(NamedTuple):
    """Members that may run here, and why the others may not."""

    members: Bits
    ports: Ports
    reason: str
    devices: Devices = ()


def granted(host: Host, launch: m.Launch, *, members: Bits, at: At) -> Granted:
    """Return the lowest members that the host accepts now."""
    spec = launch.spec
    assert spec is not None
    if not host.grants:
        because = host.maintenance if host.maintenance != Maintenance.NONE else host.state
        return Granted(Bits(), (), f"host is {because.name.lower()}")
    if host.hold is not None:
        return Granted(Bits(), (), HELD)
    members, room, reason = _beside_holds(host, members, at)
    count, why = _by_room(host, spec, members=members, room=room, at=at)
    reason = why or reason
    if closed_to(spec.constraint, host.all_labels):
        return Granted(Bits(), (), f"the host is in the pool {host.pool}, which is not for it")
    count, reason = _by_constraint(host, spec, count=count, at=at, reason=reason)
    count, reason = _apart(host, launch, count=count, at=at, reason=reason)
    some = members.lowest(count) if count else Bits()
    ports: Ports = ()
    if some and spec.ports:
        taken = ports_given(host)
        with_ports, ports = _with_ports(host, spec, members=some, taken=taken)
        if with_ports != some:
            fixed = [port.number for port in spec.ports if port.number in taken]
            reason = f"port {fixed[0]} is taken on the host" if fixed else NO_PORT
        some = with_ports
    if not devices_wanted(spec.resources):
        return Granted(some, ports, reason)
    with_gpus, devices = with_devices(free_devices(host), some, need=spec.resources)
    # The lowest members have them, as they have the first ports.
    reason = reason if with_gpus == some else NO_DEVICE
    return Granted(with_gpus, ports[: len(with_gpus)], reason, devices)


def _by_room(
    host: Host, spec: RunSpec, *, members: Bits, room: Resources, at: At
) -> tuple[int, str]:
    """Return for how many of the members there is room, and why not for more."""
    if spec.volume is not None:
        assert at.sender is not None
        return with_volumes(host, spec, members=members, crowd=at.sender, room=room)
    fits = spec.resources.fits(room)
    if fits >= len(members):
        return len(members), ""
    short = ", ".join(spec.resources.short_of(room - spec.resources.times(fits)))
    return fits, f"insufficient resources on the host: {short}"


def _beside_holds(host: Host, members: Bits, at: At) -> tuple[Bits, Resources, str]:
    """Return which members may have room, how much in all, and why the others may not.

    On a host that is held for tasks only these get any, and none gets what another one needs.
    """
    holds = alive(host, at.now) if host.task_holds else ()
    if not holds:
        return members, host.unused, ""
    assert at.sender is not None
    some = members & members_held(holds, at.sender)
    others = (one for one in holds if one.crowd != at.sender or one.member not in some)
    return some, room_beside(host, others), "" if some == members else HELD


def _by_constraint(
    host: Host, spec: RunSpec, *, count: int, at: At, reason: str
) -> tuple[int, str]:
    """Return how many of `count` runs the constraint allows one after another."""
    if spec.constraint is None or not count:
        return count, reason
    found = accepts(
        spec.constraint,
        spec.all_labels,
        host=(at.key, host.all_labels),
        running=host.running,
        most=count,
    )
    if found == count:
        return count, reason
    return (
        found,
        f"the host does not meet the constraint: requires {condition_text(spec.constraint)}",
    )


def _apart(host: Host, launch: m.Launch, *, count: int, at: At, reason: str) -> tuple[int, str]:
    """Return how many of `count` runs may join those of their job, which are to be kept apart."""
    spec = launch.spec
    if spec is None or spec.apart is None or not count:
        return count, reason
    here = host.running.get(spec.apart, 0)
    room = max(0, launch.shares + 1 - here)
    if room >= count:
        return count, reason
    return room, f"spread: {here + room} of the job's instances are on the host"


def _with_ports(host: Host, spec: RunSpec, *, members: Bits, taken: set[int]) -> tuple[Bits, Ports]:
    """Return the members for which there are ports; these are added to `taken`."""
    found, ports = [], []
    for member in members:
        picked = pick_ports(spec.ports, taken, span=host.ports)
        if picked:
            found.append(member)
            ports.append(picked)
    return Bits.of(*found), tuple(ports)
