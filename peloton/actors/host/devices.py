"""Which gpus of a host a run gets: whole devices, by index.

Turns (host, need) into the lowest indices that no run holds. Must not share a device: a need that
is no whole number takes the next whole one.
"""

from __future__ import annotations

from collections.abc import Sequence

from peloton.actors.host.state import Host
from peloton.actors.resources import EPSILON, UNIT, Resources
from peloton.runtime.vocabulary import Bits

NO_DEVICE = "no free gpu on the host"

Devices = tuple[tuple[int, ...], ...]
"""The indices of each member."""


def devices_wanted(need: Resources) -> int:
    """How many devices a run takes."""
    return 0 if need.gpu < EPSILON else -(-(need.gpu - EPSILON + 1) // UNIT)


def free_devices(host: Host) -> list[int]:
    """The indices that no run holds, ascending. One that is held and not there any more (the
    machine has fewer now) is not missed until its run ends, but is not free then."""
    taken = {device for _, some in host.runs.sets() for device in some.devices}
    return [device for device in range(host.capacity.gpu // UNIT) if device not in taken]


def with_devices(free: list[int], members: Bits, *, need: Resources) -> tuple[Bits, Devices]:
    """The lowest of the members for which there are devices, which are taken from `free`."""
    wanted, found, devices = devices_wanted(need), list[int](), list[tuple[int, ...]]()
    for member in members:
        if len(free) < wanted:
            break
        found.append(member)
        devices.append(tuple(free[:wanted]))
        del free[:wanted]
    return Bits.of(*found), tuple(devices)


def devices_told(
    host: Host, need: Resources, *, devices: Sequence[int] = ()
) -> tuple[int, ...] | None:
    """The devices that the backend lets a run see: none at all where it asks for none on a host
    that has some. None: the backend hides nothing."""
    if devices:
        return tuple(devices)
    if not host.capacity.gpu or devices_wanted(need):
        return None
    return ()
