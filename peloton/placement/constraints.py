"""Constraints evaluated for all hosts at once, with four truth values.

Match, mismatch and not applicable are the original's. Unknown means that the inventory does not
report which tasks run on a host, so that a condition on tasks is never silently ignored.

Placing a member adds its own labels to the tasks of its host, so the truth of a condition on tasks
depends on how many members went there before: `allowance` returns how many may follow each other.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from peloton.actors.resources import COUNT_MAX
from peloton.placement.conditions import (
    MATCH,
    NOT_APPLICABLE,
    UNKNOWN,
    TruthOf,
    depends_on_tasks,
    leaf_of,
    leaves,
    truth_of,
)
from peloton.placement.index import HostIndex
from peloton.placement.labels import Ints
from peloton.placement.messages import Constraint, Label, Shape, port_label

Truths = npt.NDArray[np.int8]


class _Asked(NamedTuple):
    """The hosts that a constraint is evaluated for, and the labels of the members that are
    placed there first."""

    hosts: HostIndex
    rows: Ints | None  # None: every row
    own: tuple[Label, ...] = ()
    possible: bool = False  # whether conditions on tasks count as met

    def truth(self, constraint: Constraint, before: Ints) -> Truths:
        """Return the truth on each host once `before` members were placed there."""
        of = truth_of(constraint, self._leaf, least=np.minimum, most=np.maximum)
        found: Truths = np.empty(len(before), np.int8)
        found[:] = of(None, before)
        return found

    def counts(self, leaf: Constraint) -> Ints:
        """Return how often each host has the label of a leaf."""
        of_host = leaf.kind == "host"
        hosts = self.hosts
        column = hosts.host_counts(leaf.label) if of_host else hosts.task_counts(leaf.label)
        return column if self.rows is None else column[self.rows]

    def unknown(self) -> npt.NDArray[np.bool_]:
        knows = self.hosts.knows_tasks
        return ~(knows if self.rows is None else knows[self.rows])

    def _leaf(self, leaf: Constraint) -> TruthOf:
        if leaf.kind == "task" and self.possible:
            return lambda _place, _before: MATCH
        of = leaf_of(leaf, lambda _: self.counts(leaf), own=self.own)
        if leaf.kind == "host":
            return of
        return lambda place, before: np.where(self.unknown(), UNKNOWN, of(place, before))


def truths(constraint: Constraint | None, index: HostIndex) -> Truths:
    """Return the truth for the next member on each host, without regard to its own labels."""
    if constraint is None:
        return np.full(index.size, NOT_APPLICABLE, np.int8)
    return _Asked(index, None).truth(constraint, np.zeros(index.size, np.int64))


def possible(constraint: Constraint | None, index: HostIndex) -> npt.NDArray[np.bool_]:
    """Return which hosts could meet a constraint, whatever tasks may run on them."""
    if constraint is None:
        return np.ones(index.size, np.bool_)
    asked, nobody = _Asked(index, None, possible=True), np.zeros(index.size, np.int64)
    found: npt.NDArray[np.bool_] = asked.truth(constraint, nobody) >= MATCH
    return found


def allowance(shape: Shape, index: HostIndex, *, rows: Ints | None = None) -> Ints:
    """Return how many members may be placed on each host one after another before one
    mismatches."""
    size = index.size if rows is None else len(rows)
    limits = np.full(size, COUNT_MAX, np.int64)
    asked = _Asked(index, rows, shape.all_labels)
    if depends_on_tasks(shape.constraint):
        assert shape.constraint is not None
        for before in _turning_points(shape.constraint, asked, size=size):
            fails = asked.truth(shape.constraint, before) < MATCH
            limits[fails] = np.minimum(limits[fails], before[fails])
    for port in shape.fixed_ports:
        taken = index.task_counts(port_label(port))
        np.minimum(limits, (taken if rows is None else taken[rows]) == 0, out=limits)
    if shape.apart is not None:
        limits[asked.unknown()] = 0  # nobody can tell whether one is there
    return limits


def _turning_points(constraint: Constraint, asked: _Asked, *, size: int) -> Iterator[Ints]:
    """Yield the numbers of members at which the truth of a leaf may change; it is constant
    between them."""
    yield np.zeros(size, np.int64)
    for leaf in leaves(constraint):
        own = asked.own.count(leaf.label) if leaf.kind == "task" else 0
        if own:
            missing = leaf.requirement - asked.counts(leaf)
            reached = -(-missing // own)  # the first number with count >= requirement
            yield np.maximum(reached, 0)
            yield np.maximum(missing // own + 1, 0)  # the first with count > requirement
