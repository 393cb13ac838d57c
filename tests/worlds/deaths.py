"""Deaths of a daemon's process at chosen calls of the store. It must not draw any."""

from __future__ import annotations

import itertools

from peloton.runtime.simulation.daemon import Moment, PortCall
from peloton.runtime.simulation.world import World


def dies_at(world: World, name: str, *, moment: Moment, count: int) -> list[PortCall]:
    """The process dies at the so-manieth of these calls; the list has it once it did."""
    counted, died = itertools.count(1), list[PortCall]()

    def strikes(call: PortCall) -> bool:
        if (call.port, call.name, call.moment) != ("store", name, moment):
            return False
        if died or next(counted) != count:
            return False
        died.append(call)
        return True

    world.on_call = strikes
    return died
