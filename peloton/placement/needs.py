"""The need of one member, in the forms that placers compute with."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from peloton.actors.resources import EPSILON, Resources
from peloton.placement.labels import Ints
from peloton.placement.messages import Label, Shape

CPU, MEMORY, DISK, GPU, SLACK, PORTS = range(6)
FREE_COLUMNS = 6
AMOUNTS_MAX = 1 << 61
ORDERED = 4
"""The first columns, which kept orders sort by. A shape that needs slack has no kept order."""


class Need(NamedTuple):
    """What one member takes of each resource and of ports, and the least that is enough."""

    shape: Shape
    amounts: tuple[int, ...]  # by column
    least: tuple[int, ...]
    taken: tuple[tuple[int, int], ...]  # the amounts that are not zero, by column
    vector: Ints  # amounts, as a column to multiply with counts
    nothing: bool  # within the epsilon of zero: such a member would fit a host with nothing free
    lasting: tuple[int, ...]  # `least` without ports, and without slack, which hosts may have later
    labels: tuple[Label, ...]  # by which others know that such a member is on a host


def need_of(shape: Shape) -> Need:
    """Return the need of one member of `shape`."""
    of = shape.resources
    amounts, least = (*of.amounts(), shape.ports), _least(of)
    return Need(
        shape=shape,
        amounts=amounts,
        least=(*least, shape.ports),
        lasting=(*least[:SLACK], -AMOUNTS_MAX),
        taken=tuple((column, amount) for column, amount in enumerate(amounts) if amount),
        vector=np.array(amounts, np.int64).reshape(FREE_COLUMNS, 1),
        nothing=max(amounts[:PORTS]) < EPSILON,
        labels=shape.all_labels,
    )


def _least(of: Resources) -> list[int]:
    """Return the least amounts that are enough.

    Cpu is not checked for a member that runs on slack, nor slack for another one.
    """
    least = [each + 1 - EPSILON for each in of.amounts()]
    if not of.slack:
        least[SLACK] = -AMOUNTS_MAX
    elif not of.cpu:
        least[CPU] = -AMOUNTS_MAX
    return least
