"""Which gpus of a host a run gets: whole devices, the lowest free indices.

A device is never shared: a need that is no whole number is rounded up.
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
    """Return how many devices a run takes."""
    return 0 if need.gpu < EPSILON else -(-(need.gpu - EPSILON + 1) // UNIT)


def free_devices(host: Host) -> list[int]:
    """Return the indices that no run holds, ascending.

    If the machine has fewer devices now, a run keeps a missing one until it ends; then it is not
    free.
    """
    taken = {device for _, some in host.runs.sets() for device in some.devices}
    return [device for device in range(host.capacity.gpu // UNIT) if device not in taken]


def with_devices(free: list[int], members: Bits, *, need: Resources) -> tuple[Bits, Devices]:
    """Take devices from `free` for the lowest of the members that get them."""
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
    """Return the devices that the backend lets a run see, or None to hide nothing.

    A run that needs none sees none on a host that has some.
    """
    if devices:
        return tuple(devices)
    if not host.capacity.gpu or devices_wanted(need):
        return None
    return ()
