"""Constraints, and whether they are met, of one host as of all at once.

Turns the tree of a constraint into a function to one of four truth values, by how often its labels
are found; who evaluates it says where they are counted, and whether counts are numbers or arrays
of them (`constraints.py`). A host asks how many runs it may accept one after another. It must not
know free resources, nor how a host keeps its counts.
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
    """The conditions of a constraint: its parts that have no members."""
    if constraint.form in ("and", "or"):
        for member in constraint.members:
            yield from leaves(member)
    else:
        yield constraint


def depends_on_tasks(constraint: Constraint | None) -> bool:
    """Whether it depends on the tasks of a host, which change with every placement."""
    return constraint is not None and any(leaf.kind == "task" for leaf in leaves(constraint))


def shape_depends_on_tasks(shape: Shape) -> bool:
    """Whether it depends on other tasks than by the resources that they leave."""
    return bool(shape.fixed_ports or shape.apart) or depends_on_tasks(shape.constraint)


def opens_exclusive(constraint: Constraint | None) -> bool:
    """Whether it names the attribute of exclusive hosts, which accept only such constraints."""
    return constraint is not None and any(
        leaf.kind == "host" and leaf.label.key == EXCLUSIVE for leaf in leaves(constraint)
    )


def opens_pools(constraint: Constraint | None) -> bool:
    """Whether it names the pool of the host, so that hosts of each pool may be open to it."""
    return constraint is not None and any(
        leaf.kind == "host" and leaf.label.key == HOST_POOL for leaf in leaves(constraint)
    )


def pool_of(labels: tuple[Label, ...]) -> str:
    """The pool that a host with these labels belongs to."""
    return next((one.value for one in labels if one.key == HOST_POOL), DEFAULT_HOST_POOL)


def closed_to(constraint: Constraint | None, labels: tuple[Label, ...]) -> bool:
    """Whether a host is in a pool that a task with this constraint may not use."""
    return pool_of(labels) not in BATCH_HOST_POOLS and not opens_pools(constraint)


def truth_of(
    constraint: Constraint,
    leaf: Callable[[Constraint], TruthOf],
    *,
    least: Callable[[Any, Any], Any] = min,
    most: Callable[[Any, Any], Any] = max,
) -> TruthOf:
    """The truth of a constraint, by that of its leaves; `least` and `most` of two truths."""
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
    """The truth of a leaf whose label is found so often at a place, before members of labels `own`
    came."""
    holds, requirement = COMPARED[leaf.condition], leaf.requirement
    each = own.count(leaf.label) if leaf.kind == "task" else 0
    if not each:
        return lambda place, _before: MATCH * holds(count(place), requirement)
    return lambda place, before: MATCH * holds(count(place) + each * before, requirement)


def changes_for_others(constraint: Constraint, own: tuple[Label, ...]) -> bool:
    """Whether members with labels `own` change the truth for those that follow them."""
    return any(leaf.kind == "task" and leaf.label in own for leaf in leaves(constraint))


def one_after_another(truth: TruthOf, place: Any, *, most: int) -> int:
    """How many members a place takes before one mismatches, `most` at most."""
    taken = 0
    while taken < most and truth(place, taken) >= MATCH:
        taken += 1
    return taken


def host_count(label: Label, *, host: Key, labels: tuple[Label, ...]) -> int:
    """How often a host has this label; every host has its name as a label, and no other one."""
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
    """How many runs with the labels `own` a host may accept one after another; `most` at most."""

    def count(leaf: Constraint) -> int:
        if leaf.kind == "host":
            return host_count(leaf.label, host=host[0], labels=host[1])
        return running.get(leaf.label, 0)

    truth = truth_of(constraint, lambda leaf: leaf_of(leaf, lambda _: count(leaf), own=own))
    if most > 1 and changes_for_others(constraint, own):
        return one_after_another(truth, None, most=most)
    return most if truth(None, 0) >= MATCH else 0


def condition_text(constraint: Constraint) -> str:
    """A constraint as text for people."""
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
