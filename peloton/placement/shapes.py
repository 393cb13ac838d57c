"""The shapes that a placer has met, with all that follows from a shape alone.

Each shape has a small number, so that equal members are found without comparing shapes, and
proposals can name their shape. The number of shapes is limited: the oldest is forgotten, and gets a
new number when it comes again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from peloton.actors.resources import EPSILON
from peloton.placement.conditions import shape_depends_on_tasks
from peloton.placement.messages import Constraint, Label, Shape
from peloton.placement.needs import GPU, ORDERED, SLACK, Need, need_of
from peloton.placement.sorted_rows import Search
from peloton.placement.strategies import Strategy

SHAPES_MAX = 1024
"""Shapes whose need is cached; the oldest is evicted."""


class KnownShape(NamedTuple):
    """What is cached about a shape."""

    number: int
    need: Need
    strategy: Strategy | None
    hosts: object  # identifies the hosts that take it now, if they have enough free
    plain: bool  # whether it has no conditions
    of_tasks: bool  # whether those depend on more than the labels of hosts
    search: Search | None  # if a few members may be looked up in a kept order
    required: tuple[tuple[str, Label], ...]  # each is on every host that takes it, by its kind


class KnownShapes:
    """The shapes of one placer."""

    def __init__(self, strategies: Mapping[str, Strategy], most: int = SHAPES_MAX) -> None:
        self._strategies = {**strategies}
        self.failures: dict[str, str] = {}  # of strategies that are used no more: why
        self._most = most
        self._shapes: dict[Shape, KnownShape] = {}
        self._by_number: dict[int, KnownShape] = {}
        self._numbers = 0

    def of(self, shape: Shape) -> KnownShape:
        """Return what is known about a shape, which is numbered at the first call."""
        known = self._shapes.get(shape)
        if known is None:
            need = need_of(shape)
            strategy = self._strategies.get(shape.strategy)
            of_tasks = bool(shape.ports) or shape_depends_on_tasks(shape)
            self._numbers += 1
            known = KnownShape(
                self._numbers,
                need,
                strategy,
                hosts_name(shape),
                not (of_tasks or shape.constraint),
                of_tasks,
                _search(need, strategy),
                tuple(_required(shape.constraint)),
            )
            if len(self._shapes) >= self._most:
                oldest = self._shapes.pop(next(iter(self._shapes)))
                del self._by_number[oldest.number]
            self._shapes[shape] = self._by_number[known.number] = known
        return known

    def give_up(self, strategy: Strategy, why: str) -> None:
        """Remove a strategy that has failed from all shapes."""
        name = strategy.name
        self.failures[name] = f"placement strategy {name!r} failed: {why}"
        self._strategies.pop(name, None)
        for shape, known in self._shapes.items():
            if shape.strategy == name:
                without = known._replace(strategy=None, search=None)
                self._shapes[shape] = self._by_number[known.number] = without

    def numbered(self, number: int) -> KnownShape | None:
        """Return the shape of this number, or None once it is forgotten."""
        return self._by_number.get(number)


def hosts_name(shape: Shape) -> object:
    """Return a value that is equal for shapes that the same hosts take, if these have enough
    free."""
    of_tasks = shape.apart, shape.fixed_ports, shape.ports
    return shape.constraint, shape.resources.gpu > 0, of_tasks


def _search(need: Need, strategy: Strategy | None) -> Search | None:
    """Return what to search for in a kept order, or None if an order cannot serve the shape.

    It cannot without a strategy that has an order, where amounts are so small that the epsilon
    decides, for members kept apart of which one host takes several at a time, and for those that
    run on slack.
    """
    if strategy is None or strategy.sign == 0:
        return None
    epsilon_decides = need.nothing or 0 < need.amounts[GPU] < EPSILON
    if (
        need.amounts[SLACK]
        or epsilon_decides
        or (need.shape.apart is not None and strategy.each_max > 1)
    ):
        return None
    return Search(need.amounts[:ORDERED], need.least[:ORDERED], strategy.each_max)


def _required(constraint: Constraint | None) -> Iterator[tuple[str, Label]]:
    """Yield the labels that a host, or a task on it, must have or the constraint is not met."""
    if constraint is None:
        return
    if constraint.form == "and":
        for member in constraint.members:
            yield from _required(member)
    elif constraint.form == "label" and constraint.kind in ("host", "task"):
        least = {"greater": constraint.requirement + 1, "equal": constraint.requirement}
        if least.get(constraint.condition, 0) > 0:
            yield constraint.kind, constraint.label
