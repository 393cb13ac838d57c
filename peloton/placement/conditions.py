"""Placement constraints, evaluated for one host or for all hosts at once.

A constraint is compiled into a function that returns one of four truth values, given how often its
labels occur. The caller decides where labels are counted, and whether a count is a number or an
array of them (`constraints.py`). A host uses the same functions to decide how many runs it may
accept one after another.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from functools import reduce
from typing import Any

from peloton.placement.messages import Constraint, Label, Shape
from peloton.runtime.vocabulary import Key

HOSTNAME = "hostname"
EXCLUSIVE = "peloton/exclusive"
HOST_POOL = "host_pool"
"""The key of the label that says to which pool of hosts a host belongs; every host has it."""
HOST_IP = "host_ip"
"""The key of the label with the address of a host, where its backend knows one."""
DEFAULT_HOST_POOL = "default"
BATCH_HOST_POOLS = (DEFAULT_HOST_POOL, "shared", "batch_reserved")
"""Pools that are open to all batch tasks. Hosts of any other one are only for tasks whose
constraint names `HOST_POOL`."""

# Ordered so that the least decides an "and". In an "or" the greatest decides, with not applicable
# below a mismatch.
MISMATCH, UNKNOWN, MATCH, NOT_APPLICABLE = range(4)
FORMS = NOT_APPLICABLE + 1

COMPARED: Mapping[str, Callable[[Any, Any], Any]] = {
    "less": operator.lt,
    "equal": operator.eq,
    "greater": operator.gt,
}
"""What the conditions of a leaf mean."""

TruthOf = Callable[[Any, Any], Any]
"""The truth at a place after so many members with labels of their own were placed there; where
either is an array, it is the array of the truths."""


def leaves(constraint: Constraint) -> Iterator[Constraint]:
    """Yield the conditions of a constraint: its parts that have no members."""
    if constraint.form in ("and", "or"):
        for member in constraint.members:
            yield from leaves(member)
    else:
        yield constraint


def depends_on_tasks(constraint: Constraint | None) -> bool:
    """Return whether a constraint counts labels of tasks, which change with every placement."""
    return constraint is not None and any(leaf.kind == "task" for leaf in leaves(constraint))


def shape_depends_on_tasks(shape: Shape) -> bool:
    """Return whether the other tasks on a host decide about a shape, apart from the resources
    that they leave."""
    return bool(shape.fixed_ports or shape.apart) or depends_on_tasks(shape.constraint)


def opens_exclusive(constraint: Constraint | None) -> bool:
    """Return whether a constraint names the attribute of exclusive hosts, which accept only such
    tasks."""
    return constraint is not None and any(
        leaf.kind == "host" and leaf.label.key == EXCLUSIVE for leaf in leaves(constraint)
    )


def opens_pools(constraint: Constraint | None) -> bool:
    """Return whether a constraint names a host pool, so that hosts of any pool may be open to
    it."""
    return constraint is not None and any(
        leaf.kind == "host" and leaf.label.key == HOST_POOL for leaf in leaves(constraint)
    )


def pool_of(labels: tuple[Label, ...]) -> str:
    """Return the host pool that a host with these labels belongs to."""
    return next((one.value for one in labels if one.key == HOST_POOL), DEFAULT_HOST_POOL)


def closed_to(constraint: Constraint | None, labels: tuple[Label, ...]) -> bool:
    """Return whether a host with these labels is in a pool that a task with this constraint may
    not use."""
    return pool_of(labels) not in BATCH_HOST_POOLS and not opens_pools(constraint)


def truth_of(
    constraint: Constraint,
    leaf: Callable[[Constraint], TruthOf],
    *,
    least: Callable[[Any, Any], Any] = min,
    most: Callable[[Any, Any], Any] = max,
) -> TruthOf:
    """Return the truth of a constraint from that of its leaves.

    `least` and `most` return the lesser and the greater of two truths.
    """
    if constraint.form == "label":
        known = constraint.kind in ("host", "task") and constraint.condition in COMPARED
        return leaf(constraint) if known else lambda _place, _before: MISMATCH
    if constraint.form not in ("and", "or"):
        return lambda _place, _before: MISMATCH
    of = [truth_of(member, leaf, least=least, most=most) for member in constraint.members]
    if constraint.form == "and":
        return lambda place, before: reduce(
            least, [each(place, before) for each in of], NOT_APPLICABLE
        )

    def any_of(place: Any, before: Any) -> Any:
        found = [(each(place, before) + 1) % FORMS for each in of]  # not applicable is the least
        return (reduce(most, found, 0) - 1) % FORMS

    return any_of


def leaf_of(leaf: Constraint, count: Callable[[Any], Any], *, own: tuple[Label, ...]) -> TruthOf:
    """Return the truth of a leaf, as a function of a place and of how many members with the labels
    `own` were put there before.

    `count` returns how often the leaf's label occurs at the place without them.
    """
    holds, requirement = COMPARED[leaf.condition], leaf.requirement
    each = own.count(leaf.label) if leaf.kind == "task" else 0
    if not each:
        return lambda place, _before: MATCH * holds(count(place), requirement)
    return lambda place, before: MATCH * holds(count(place) + each * before, requirement)


def changes_for_others(constraint: Constraint, own: tuple[Label, ...]) -> bool:
    """Return whether placing a member with the labels `own` changes the truth for the members
    after it."""
    return any(leaf.kind == "task" and leaf.label in own for leaf in leaves(constraint))


def one_after_another(truth: TruthOf, place: Any, *, most: int) -> int:
    """Return how many members, `most` at most, a place takes before one mismatches."""
    taken = 0
    while taken < most and truth(place, taken) >= MATCH:
        taken += 1
    return taken


def host_count(label: Label, *, host: Key, labels: tuple[Label, ...]) -> int:
    """Return how often a host has a label. Every host has its own name, and no other, as a
    label."""
    if label.key == HOSTNAME:
        return int(host.partition("/")[2] == label.value)
    if label.key == HOST_POOL:
        return int(pool_of(labels) == label.value)
    return labels.count(label)


def accepts(
    constraint: Constraint,
    own: tuple[Label, ...],
    *,
    host: tuple[Key, tuple[Label, ...]],
    running: Mapping[Label, int],
    most: int,
) -> int:
    """Return how many runs with the labels `own`, `most` at most, a host may accept one after
    another."""

    def count(leaf: Constraint) -> int:
        if leaf.kind == "host":
            return host_count(leaf.label, host=host[0], labels=host[1])
        return running.get(leaf.label, 0)

    truth = truth_of(constraint, lambda leaf: leaf_of(leaf, lambda _: count(leaf), own=own))
    if most > 1 and changes_for_others(constraint, own):
        return one_after_another(truth, None, most=most)
    return most if truth(None, 0) >= MATCH else 0


def condition_text(constraint: Constraint) -> str:
    """Return a constraint as text for people."""
    if constraint.form != "label":
        within = f" {constraint.form} ".join(
            condition_text(member) for member in constraint.members
        )
        return f"({within})"
    label, number = f"{constraint.label.key}={constraint.label.value}", constraint.requirement
    if constraint.kind == "task":
        label = f"task with {label}"
    if (constraint.condition, number) == ("greater", 0):
        return f"a {label}" if constraint.kind == "task" else label
    if (constraint.condition, number) in (("less", 1), ("equal", 0)):
        return f"no {label}"
    names = {"less": "fewer than", "equal": "exactly", "greater": "more than"}
    return f"{names.get(constraint.condition, constraint.condition)} {number} times {label}"
