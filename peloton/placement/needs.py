"""What one member needs, in the forms that placers compute with.

Turns a shape into amounts by column. It must not hold anything about hosts.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from peloton.actors.resources import EPSILON
from peloton.placement.labels import Ints
from peloton.placement.messages import Label, Shape

CPU, MEMORY, DISK, GPU, PORTS = range(5)


class Need(NamedTuple):
    """What one member takes of each resource and of ports, and the least that is enough."""

    shape: Shape
    amounts: tuple[int, int, int, int, int]
    least: tuple[int, int, int, int, int]
    taken: tuple[tuple[int, int], ...]  # the amounts that are not zero, by column
    vector: Ints  # amounts, as a column to multiply with counts
    nothing: bool  # within the epsilon of zero: such a member would fit a host with nothing free
    labels: tuple[Label, ...]  # by which others know that such a member is on a host


def need_of(shape: Shape) -> Need:
    """The need of one member of `shape`."""
    of = shape.resources
    amounts = (of.cpu, of.memory, of.disk, of.gpu, shape.ports)
    slack = EPSILON - 1
    return Need(
        shape=shape,
        amounts=amounts,
        least=(of.cpu - slack, of.memory - slack, of.disk - slack, of.gpu - slack, shape.ports),
        taken=tuple((column, amount) for column, amount in enumerate(amounts) if amount),
        vector=np.array(amounts, np.int64).reshape(5, 1),
        nothing=max(amounts[:PORTS]) < EPSILON,
        labels=shape.all_labels,
    )
