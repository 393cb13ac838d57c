"""Constraints evaluated for all hosts at once, with four truth values.

Turns the tree of a constraint into one array of truths. Match, mismatch and not applicable are
the original's; unknown means that the inventory does not report which tasks run on a host, so
that a condition on tasks is never silently ignored. Must not depend on free resources.

Placing a member adds its own labels to the tasks of its host, so the truth of a condition on tasks
depends on how many members went there before: `allowance` says how many may follow each other.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from peloton.actors.resources import COUNT_MAX
from peloton.placement.conditions import (
    MATCH,
    MISMATCH,
    NOT_APPLICABLE,
    UNKNOWN,
    depends_on_tasks,
    leaves,
)
from peloton.placement.index import HostIndex
from peloton.placement.labels import Ints
from peloton.placement.messages import Constraint, Label, Shape, port_label

Truths = npt.NDArray[np.int8]


class _Asked(NamedTuple):
    """Which hosts are asked about, and what was placed on each of them before."""

    hosts: HostIndex
    rows: Ints | None  # None: every row
    own: tuple[Label, ...]  # labels of those placed before
    before: Ints
    possible: bool = False  # whether conditions on tasks count as met

    def counts(self, leaf: Constraint) -> Ints:
        """How often each host has the label of a leaf."""
        if leaf.kind == "host":
            return self._of(self.hosts.host_counts(leaf.label))
        counts = self._of(self.hosts.task_counts(leaf.label))
        own = self.own.count(leaf.label)
        return counts + own * self.before if own else counts

    def unknown(self) -> npt.NDArray[np.bool_]:
        """Hosts whose tasks are not reported."""
        knows = self.hosts.knows_tasks
        return ~(knows if self.rows is None else knows[self.rows])

    def _of(self, column: Ints) -> Ints:
        return column if self.rows is None else column[self.rows]


def truths(constraint: Constraint | None, index: HostIndex) -> Truths:
    """The truth for the next member on each host, without regard to its own labels."""
    if constraint is None:
        return np.full(index.size, NOT_APPLICABLE, np.int8)
    return _truths(constraint, _Asked(index, None, (), np.zeros(index.size, np.int64)))


def possible(constraint: Constraint | None, index: HostIndex) -> npt.NDArray[np.bool_]:
    """Hosts that meet a constraint with some tasks on them, whichever these are."""
    if constraint is None:
        return np.ones(index.size, np.bool_)
    asked = _Asked(index, None, (), np.zeros(index.size, np.int64), possible=True)
    found: npt.NDArray[np.bool_] = _truths(constraint, asked) >= MATCH
    return found


def allowance(shape: Shape, index: HostIndex, *, rows: Ints | None = None) -> Ints:
    """How many members may be placed on each host one after another before one mismatches."""
    size = index.size if rows is None else len(rows)
    limits = np.full(size, COUNT_MAX, np.int64)
    asked = _Asked(index, rows, shape.all_labels, np.zeros(size, np.int64))
    if depends_on_tasks(shape.constraint):
        assert shape.constraint is not None
        for before in _turning_points(shape.constraint, asked):
            fails = _truths(shape.constraint, asked._replace(before=before)) < MATCH
            limits[fails] = np.minimum(limits[fails], before[fails])
    for port in shape.fixed_ports:
        taken = index.task_counts(port_label(port))
        np.minimum(limits, (taken if rows is None else taken[rows]) == 0, out=limits)
    if shape.apart is not None:
        limits[asked.unknown()] = 0  # nobody can tell whether one is there
    return limits


def _turning_points(constraint: Constraint, asked: _Asked) -> Iterator[Ints]:
    """The numbers of members at which the truth of a leaf may change; between them none does."""
    yield asked.before
    for leaf in leaves(constraint):
        own = asked.own.count(leaf.label) if leaf.kind == "task" else 0
        if own:
            missing = leaf.requirement - asked.counts(leaf)
            reached = -(-missing // own)  # the first number with count >= requirement
            yield np.maximum(reached, 0)
            yield np.maximum(missing // own + 1, 0)  # the first with count > requirement


def _truths(constraint: Constraint, asked: _Asked) -> Truths:
    """The truth on each host after `before` members with the labels `own` were placed there."""
    if constraint.form == "label":
        return _leaf(constraint, asked)
    if constraint.form not in ("and", "or"):
        return np.full(len(asked.before), MISMATCH, np.int8)
    result = np.full(len(asked.before), NOT_APPLICABLE, np.int8)
    if constraint.form == "and":
        for member in constraint.members:
            result = np.minimum(result, _truths(member, asked))
        return result
    result[:] = -1
    for member in constraint.members:
        truth = _truths(member, asked)
        truth[truth == NOT_APPLICABLE] = -1
        result = np.maximum(result, truth)
    result[result == -1] = NOT_APPLICABLE
    return result


def _leaf(leaf: Constraint, asked: _Asked) -> Truths:
    if leaf.kind not in ("host", "task"):
        return np.full(len(asked.before), MISMATCH, np.int8)
    if leaf.kind == "task" and asked.possible:
        return np.full(len(asked.before), MATCH, np.int8)
    counts = asked.counts(leaf)
    if leaf.condition == "less":
        holds = counts < leaf.requirement
    elif leaf.condition == "equal":
        holds = counts == leaf.requirement
    elif leaf.condition == "greater":
        holds = counts > leaf.requirement
    else:
        return np.full(len(asked.before), MISMATCH, np.int8)
    truth: Truths = np.where(holds, MATCH, MISMATCH).astype(np.int8)
    if leaf.kind == "task":
        truth[asked.unknown()] = UNKNOWN
    return truth
