"""Constraints evaluated for one host, as the host itself does before it grants.

Turns the tree of a constraint into one of four truth values, and those into how many runs a host
may accept one after another. `constraints.py` does the same for all hosts at once; both
must agree. It must not know free resources, nor how a host keeps its counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

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

Counter = Callable[[Constraint], int]
"""How often the label of a leaf is found."""


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


def truth(constraint: Constraint, count: Counter) -> int:
    """The truth of a constraint, by the counts of its leaves."""
    if constraint.form == "label":
        return _leaf(constraint, count)
    found = [truth(member, count) for member in constraint.members]
    if constraint.form == "and":
        return min(found, default=NOT_APPLICABLE)
    if constraint.form == "or":
        known = [each for each in found if each != NOT_APPLICABLE]
        return max(known, default=NOT_APPLICABLE)
    return MISMATCH


def _leaf(leaf: Constraint, count: Counter) -> int:
    if leaf.kind not in ("host", "task"):
        return MISMATCH
    number = count(leaf)
    holds = {
        "less": number < leaf.requirement,
        "equal": number == leaf.requirement,
        "greater": number > leaf.requirement,
    }
    return MATCH if holds.get(leaf.condition, False) else MISMATCH


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
        return running.get(leaf.label, 0) + accepted * own.count(leaf.label)

    accepted = 0
    changes = any(leaf.kind == "task" and leaf.label in own for leaf in leaves(constraint))
    while accepted < most and truth(constraint, count) >= MATCH:
        if not changes:
            return most
        accepted += 1
    return accepted


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
