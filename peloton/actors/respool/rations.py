"""What of a pool some of its tasks may hold in all, whatever else is free.

Turns the shape of a task into the rations that it counts in, and the config of a pool into how much
each of them is. Controllers have a part of the reservation, so that jobs which wait for their
workers cannot fill the pool. Tasks that may not be preempted have the reservation, of the kinds of
which the pool reserves any unless somebody says otherwise: what is borrowed must be given back when
its owner needs it. Must not know who waits.
"""

from __future__ import annotations

import enum

from peloton.actors.resources import Resources
from peloton.actors.respool.lot.messages import LotShape
from peloton.actors.respool.messages import PoolConfig, Within
from peloton.actors.respool.node import MILLIONTHS_MAX


class Ration(enum.IntEnum):
    """For whom a part of a pool is; NONE is all of it, for everybody."""

    NONE = 0
    CONTROLLERS = 1
    NON_PREEMPTIBLE = 2


RATIONS = (Ration.CONTROLLERS, Ration.NON_PREEMPTIBLE)


def rations_of(shape: LotShape) -> tuple[Ration, ...]:
    """The rations in which such tasks count; a revocable one runs on what others do not use."""
    if shape.on_slack:
        return ()  # the limit of its lane is its own
    if shape.preemptible or shape.revocable:
        return (Ration.CONTROLLERS,) if shape.controller else ()
    return RATIONS if shape.controller else (Ration.NON_PREEMPTIBLE,)


def ration(config: PoolConfig, of: Ration, *, within: Within) -> Resources | None:
    """How much of a pool it is; None: no less than all. `within`: what the cluster says of tasks
    that may not be preempted."""
    if of == Ration.NON_PREEMPTIBLE:
        return _reserved(config.reservation, config.within or within)
    percent = config.controller_percent
    return None if percent is None else config.reservation.percent(percent)


def _reserved(reservation: Resources, within: Within) -> Resources | None:
    if within == Within.ALWAYS:
        return reservation
    if within == Within.RESERVED and any(reservation.amounts()):
        return Resources(*(amount or MILLIONTHS_MAX for amount in reservation.amounts()))
    return None
