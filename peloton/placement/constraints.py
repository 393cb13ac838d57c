"""Constraints evaluated for all hosts at once, with four truth values.

Turns the tree of a constraint into one array of truths. Match, mismatch and not applicable are
the original's; unknown means that the inventory does not report which tasks run on a host, so
that a condition on tasks is never silently ignored. Must not depend on free resources.

Placing a member adds its own labels to the tasks of its host, so the truth of a condition on tasks
depends on how many members went there before: `allowance` says how many may follow each other.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from peloton.actors.resources import COUNT_MAX
from peloton.placement.index import EXCLUSIVE, HostIndex
from peloton.placement.labels import Ints
from peloton.placement.messages import Constraint, Label, Shape

Truths = npt.NDArray[np.int8]

# Ordered so that the least decides an "and". In an "or" the greatest decides, with not applicable
# below a mismatch.
MISMATCH, UNKNOWN, MATCH, NOT_APPLICABLE = range(4)


def leaves(constraint: Constraint) -> Iterator[Constraint]:
    """The conditions of a constraint: its parts that have no members."""
    if constraint.form in ("and", "or"):
        for member in constraint.members:
            yield from leaves(member)
    else:
        yield constraint


def depends_on_tasks(constraint: Constraint | None) -> bool:
    """Whether it depends on the tasks of a host, which change with every placement."""
    return constraint is not None and any(leaf.kind == "task" for leaf in leaves(constraint))


def opens_exclusive(constraint: Constraint | None) -> bool:
    """Whether it names the attribute of exclusive hosts, which accept only such constraints."""
    return constraint is not None and any(
        leaf.kind == "host" and leaf.label.key == EXCLUSIVE for leaf in leaves(constraint)
    )


def truths(constraint: Constraint | None, index: HostIndex) -> Truths:
    """The truth for the next member on each host, without regard to its own labels."""
    if constraint is None:
        return np.full(index.size, NOT_APPLICABLE, np.int8)
    return _truths(constraint, index, own=(), before=np.zeros(index.size, np.int64))


def allowance(shape: Shape, index: HostIndex) -> Ints:
    """How many members may be placed on each host one after another before one mismatches."""
    limits = np.full(index.size, COUNT_MAX, np.int64)
    if shape.constraint is None:
        return limits
    for before in _turning_points(shape, index):
        truth = _truths(shape.constraint, index, own=shape.labels, before=before)
        fails = truth < MATCH
        limits[fails] = np.minimum(limits[fails], before[fails])
    return limits


def _turning_points(shape: Shape, index: HostIndex) -> Iterator[Ints]:
    """The numbers of members at which the truth of a leaf may change; between them none does."""
    yield np.zeros(index.size, np.int64)
    if shape.constraint is None:
        return
    for leaf in leaves(shape.constraint):
        own = shape.labels.count(leaf.label) if leaf.kind == "task" else 0
        if own:
            missing = leaf.requirement - index.task_counts(leaf.label)
            reached = -(-missing // own)  # the first number with count >= requirement
            yield np.maximum(reached, 0)
            yield np.maximum(missing // own + 1, 0)  # the first with count > requirement


def _truths(
    constraint: Constraint, index: HostIndex, *, own: tuple[Label, ...], before: Ints
) -> Truths:
    """The truth on each host after `before` members with the labels `own` were placed there."""
    if constraint.form == "label":
        return _leaf(constraint, index, own=own, before=before)
    if constraint.form not in ("and", "or"):
        return np.full(index.size, MISMATCH, np.int8)
    result = np.full(index.size, NOT_APPLICABLE, np.int8)
    if constraint.form == "and":
        for member in constraint.members:
            result = np.minimum(result, _truths(member, index, own=own, before=before))
        return result
    result[:] = -1
    for member in constraint.members:
        truth = _truths(member, index, own=own, before=before)
        truth[truth == NOT_APPLICABLE] = -1
        result = np.maximum(result, truth)
    result[result == -1] = NOT_APPLICABLE
    return result


def _leaf(leaf: Constraint, index: HostIndex, *, own: tuple[Label, ...], before: Ints) -> Truths:
    if leaf.kind == "host":
        counts = index.host_counts(leaf.label)
    elif leaf.kind == "task":
        counts = index.task_counts(leaf.label) + own.count(leaf.label) * before
    else:
        return np.full(index.size, MISMATCH, np.int8)
    if leaf.condition == "less":
        holds = counts < leaf.requirement
    elif leaf.condition == "equal":
        holds = counts == leaf.requirement
    elif leaf.condition == "greater":
        holds = counts > leaf.requirement
    else:
        return np.full(index.size, MISMATCH, np.int8)
    truth: Truths = np.where(holds, MATCH, MISMATCH).astype(np.int8)
    if leaf.kind == "task":
        truth[~index.knows_tasks] = UNKNOWN
    return truth
