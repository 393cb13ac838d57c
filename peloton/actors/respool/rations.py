"""Rations: the part of a pool that some of its tasks may hold in all, whatever else is free.

The shape of a task determines the rations that it counts in, and the config of a pool how much each
of them is. Controllers have a part of the reservation, so that jobs which wait for their workers
cannot fill the pool. Tasks that may not be preempted have the reservation, of the kinds of which
the pool reserves any unless its config says otherwise: what is borrowed must be given back when its
owner needs it.
"""

from __future__ import annotations

import enum

from peloton.actors.resources import Resources
from peloton.actors.respool.lot.messages import LotShape
from peloton.actors.respool.messages import MILLIONTHS_MAX, PoolConfig, Within


class Ration(enum.IntEnum):
    """The tasks that a part of a pool is for; NONE is the whole pool, for all tasks."""

    NONE = 0
    CONTROLLERS = 1
    NON_PREEMPTIBLE = 2


RATIONS = (Ration.CONTROLLERS, Ration.NON_PREEMPTIBLE)


def rations_of(shape: LotShape) -> tuple[Ration, ...]:
    """Return the rations in which such tasks count.

    A revocable task counts in none: it runs on what others do not use.
    """
    if shape.on_slack:
        return ()  # the limit of its lane is its own
    if shape.preemptible or shape.revocable:
        return (Ration.CONTROLLERS,) if shape.controller else ()
    return RATIONS if shape.controller else (Ration.NON_PREEMPTIBLE,)


def ration(config: PoolConfig, of: Ration, *, within: Within) -> Resources | None:
    """Return how much of a pool a ration is; None: all of it.

    `within`: what the cluster says of tasks that may not be preempted.
    """
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
