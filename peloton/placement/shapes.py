"""The shapes that a placer has met, with all that follows from a shape alone.

Turns shapes into small numbers, so that alike members are found without comparing shapes, and
proposals can name theirs. Bounded: the oldest shape is forgotten, and gets a new number when it
comes again. It must not hold anything about hosts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from peloton.actors.resources import EPSILON
from peloton.placement.conditions import shape_depends_on_tasks
from peloton.placement.messages import Shape
from peloton.placement.needs import GPU, PORTS, Need, need_of
from peloton.placement.order import Search
from peloton.placement.orders import OrderName
from peloton.placement.reasons import open_key
from peloton.placement.strategies import Strategy

SHAPES_MAX = 1024
"""Shapes whose need is cached; the oldest is evicted."""


class KnownShape(NamedTuple):
    """What is cached about a shape."""

    number: int
    need: Need
    strategy: Strategy | None
    order: OrderName | None  # of the kept order of the hosts open to it
    search: Search | None  # if a few members may be looked up in a kept order


class KnownShapes:
    """The shapes of one placer."""

    def __init__(self, strategies: Mapping[str, Strategy], most: int = SHAPES_MAX) -> None:
        self._strategies = strategies
        self._most = most
        self._shapes: dict[Shape, KnownShape] = {}
        self._by_number: dict[int, KnownShape] = {}
        self._numbers = 0

    def of(self, shape: Shape) -> KnownShape:
        """What is known about a shape, which has a number from now on."""
        known = self._shapes.get(shape)
        if known is None:
            need = need_of(shape)
            strategy = self._strategies.get(shape.strategy)
            self._numbers += 1
            known = KnownShape(
                self._numbers, need, strategy, _order(shape, strategy), _search(need, strategy)
            )
            if len(self._shapes) >= self._most:
                oldest = self._shapes.pop(next(iter(self._shapes)))
                del self._by_number[oldest.number]
            self._shapes[shape] = self._by_number[known.number] = known
        return known

    def numbered(self, number: int) -> KnownShape | None:
        """The shape of this number; None once it is forgotten."""
        return self._by_number.get(number)


def _order(shape: Shape, strategy: Strategy | None) -> OrderName | None:
    return None if strategy is None else (strategy.sign, open_key(shape))


def _search(need: Need, strategy: Strategy | None) -> Search | None:
    """What to search for in a kept order; None if the answer depends on more than the order holds:
    ports, tasks of hosts, or amounts so small that the epsilon decides.
    """
    if strategy is None or strategy.sign == 0:
        return None
    epsilon_decides = need.nothing or 0 < need.amounts[GPU] < EPSILON
    if epsilon_decides or need.amounts[PORTS] or shape_depends_on_tasks(need.shape):
        return None
    return Search(need.amounts[:4], need.least[:4])
