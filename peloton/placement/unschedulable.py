"""Explains to people why no host fits: which resource is missing, which label no host has.

From the hosts that failed each check it makes counts, a text, and whether waiting can help at all;
`reasons.py` makes the checks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from peloton.actors.resources import EPSILON, amount
from peloton.placement.conditions import MATCH, condition_text, depends_on_tasks
from peloton.placement.constraints import truths
from peloton.placement.index import Flags, HostIndex
from peloton.placement.messages import Constraint, port_label
from peloton.placement.needs import PORTS, Need
from peloton.placement.reasons import (
    HOST_LIMIT,
    INSUFFICIENT,
    MISMATCH_CONSTRAINTS,
    MISMATCH_STATUS,
    NO_OFFER,
    PORT_TAKEN,
    QUARANTINED,
    SCARCE,
    UNKNOWN_TASKS,
)
from peloton.runtime.vocabulary import Key

CONDITIONS_SHOWN_MAX = 3
"""Conditions of a constraint that are named; more would hide the rest of the text."""

RESOURCE_UNITS = (("cpu", ""), ("memory", " MB"), ("disk", " MB"), ("gpu", ""), ("slack", ""))
"""Each resource and the unit behind its amounts."""

NEVER_FITS = "it can never fit on the hosts of this cluster"

_OTHERS = {
    SCARCE: "kept for tasks with gpus",
    UNKNOWN_TASKS: "without known task labels",
    HOST_LIMIT: "at their limit of these instances",
    QUARANTINED: "quarantined after failures of several jobs",
}


class Unschedulable(NamedTuple):
    """Why no host fits: hosts by reason, a text, and whether waiting alone can `never` help.

    `reserve`: members that have waited for long, each with the host that is to be held for it.
    """

    reasons: tuple[tuple[str, int], ...]
    text: str
    never: bool
    reserve: tuple[tuple[int, Key], ...] = ()


def unschedulable_reason(
    index: HostIndex, need: Need, *, failed: Mapping[str, Flags], fit_if_empty: Flags
) -> Unschedulable:
    """Return the counts and the text.

    `fit_if_empty`: hosts that would fit if they were empty.
    """
    counts = tuple((reason, int(np.count_nonzero(hosts))) for reason, hosts in failed.items())
    total = int(np.count_nonzero(index.has_host))
    if not total:
        return Unschedulable(counts, "no host: the placer knows no hosts yet", False)
    never = not fit_if_empty.any()
    parts = [*_parts(index, need, failed=failed, total=total)]
    if never:
        parts += _never(index, need, explained=MISMATCH_CONSTRAINTS in failed)
    text = f"no host fits: {', '.join(parts)}"
    return Unschedulable(counts, f"{text}: {NEVER_FITS}" if never else text, never)


def _never(index: HostIndex, need: Need, *, explained: bool) -> Iterator[str]:
    """Yield texts about what single checks do not show: each may pass on some host, but not all on
    one.

    `explained`: whether the constraint is explained already. It is not where all hosts lack
    resources too.
    """
    unmet = [leaf for leaf in _of_hosts(need.shape.constraint) if not _anywhere(index, leaf)]
    if unmet and not explained:
        yield f"no host matches {_texts(unmet)}"
    enough = index.capacity >= np.array(need.lasting)[:, None]
    enough &= index.has_host
    if not enough.any(axis=1).all():
        return  # one resource is more than any host has, and that is explained already
    if not enough.all(axis=0).any():
        yield "no single host is large enough for all of it"
    elif not unmet:
        yield "the hosts that are large enough are not open to it"


def _parts(
    index: HostIndex, need: Need, *, failed: Mapping[str, Flags], total: int
) -> Iterator[str]:
    for reason, hosts in failed.items():
        if reason == MISMATCH_STATUS:
            yield from _status(index, hosts, total=total)
        elif reason == NO_OFFER and need.nothing:
            yield f"{_hosts_text(hosts, total, verbs=('have', 'has'))} no free resources"
        elif reason == MISMATCH_CONSTRAINTS:
            yield from _constraints(index, need, hosts=hosts, total=total)
        elif reason == PORT_TAKEN:
            yield from _ports_taken(index, need, hosts=hosts, total=total)
        elif reason in _OTHERS:
            yield f"{_hosts_text(hosts, total)} {_OTHERS[reason]}"
        if reason == INSUFFICIENT or (reason == NO_OFFER and INSUFFICIENT not in failed):
            # A host with nothing free lacks whatever is requested, so both are counted together.
            nothing = np.zeros(index.size, np.bool_)
            lacking = failed.get(NO_OFFER, nothing) | failed.get(INSUFFICIENT, nothing)
            yield from _resources(index, need, hosts=lacking, total=total)


def _status(index: HostIndex, hosts: Flags, *, total: int) -> Iterator[str]:
    down, refused = hosts & ~index.up, hosts & index.up
    if down.any():
        yield f"{_hosts_text(down, total)} not up"
    if refused.any():
        yield f"{_hosts_text(refused, total, verbs=('have', 'has'))} just refused"


def _resources(index: HostIndex, need: Need, *, hosts: Flags, total: int) -> Iterator[str]:
    """Yield a text for each resource that some of these hosts lack, with the most that one of
    them has."""
    for at, (name, unit) in enumerate(RESOURCE_UNITS):
        lacking = hosts & (index.free[at] < need.least[at])
        if not lacking.any() or need.amounts[at] < EPSILON:
            continue
        largest = int(index.capacity[at][index.has_host].max())
        if largest < need.least[at]:
            has = f"the largest host has {_number(largest)}{unit}"
        else:
            free = max(int(index.free[at][lacking].max()), 0)
            has = f"at most {_number(free)}{unit} free"
        who = _hosts_text(lacking, total, verbs=("lack", "lacks"))
        yield f"{who} {name} (requested {_number(need.amounts[at])}{unit}, {has})"
    lacking = hosts & (index.free[PORTS] < need.amounts[PORTS])
    if need.amounts[PORTS] and lacking.any():
        free, who = (
            int(index.free[PORTS][lacking].max()),
            _hosts_text(lacking, total, verbs=("lack", "lacks")),
        )
        yield f"{who} ports (requested {need.amounts[PORTS]}, at most {free} free)"


def lacks_text(index: HostIndex, need: Need, *, row: int) -> str:
    """Return what one host lacks for a member, as a half sentence that begins with the host."""
    names = [*RESOURCE_UNITS, ("ports", "")]
    lacking = [
        f"{name} (requested {_of(need.amounts[at], at)}{unit}, {_of(free, at)}{unit} free)"
        for at, (name, unit) in enumerate(names)
        if need.amounts[at] and (free := max(int(index.free[at, row]), 0)) < need.least[at]
    ]
    return f"lacks {', '.join(lacking)}" if lacking else "has nothing free for it"


def _of(number: int, column: int) -> str:
    return str(number) if column == PORTS else _number(number)


def _constraints(index: HostIndex, need: Need, *, hosts: Flags, total: int) -> Iterator[str]:
    constraint = need.shape.constraint
    if constraint is None:
        yield f"{_hosts_text(hosts, total)} exclusive to other tasks"
        return
    mismatch = hosts & (truths(constraint, index) < MATCH)
    closed = hosts & ~mismatch
    if closed.any():
        yield f"{_hosts_text(closed, total)} exclusive to other tasks, or at a constraint's limit"
    if not mismatch.any():
        return
    known = _of_hosts(constraint)
    of_host = np.zeros(index.size, np.bool_)
    for condition in known:
        of_host |= mismatch & (truths(condition, index) < MATCH)
    if of_host.any():
        unmet = [leaf for leaf in known if not _anywhere(index, leaf)]
        none = "; no host matches" if unmet else ""
        required = f" (requires {_texts(unmet or known)}{none})"
        who = _hosts_text(of_host, total, verbs=("do", "does"))
        yield f"{who} not meet the constraint{required}"
    yield from _of_tasks(index, constraint, hosts=mismatch & ~of_host, total=total)


def _of_tasks(
    index: HostIndex, constraint: Constraint, *, hosts: Flags, total: int
) -> Iterator[str]:
    """Yield the conditions on tasks that these hosts do not meet; each host is counted once."""
    for condition in _all_of(constraint):
        if not depends_on_tasks(condition):
            continue
        unmet = hosts & (truths(condition, index) < MATCH)
        if not unmet.any():
            continue
        hosts = hosts & ~unmet
        who = _hosts_text(unmet, total, verbs=("have", "has"))
        number, label = condition.requirement, f"{condition.label.key}={condition.label.value}"
        if condition.form != "label":
            who = _hosts_text(unmet, total, verbs=("do", "does"))
            yield f"{who} not meet {condition_text(condition)}"
        elif (condition.condition, number) in (("less", 1), ("equal", 0)):
            yield f"{who} a task with {label}"
        elif (condition.condition, number) == ("greater", 0):
            yield f"{who} no task with {label}"
        else:
            names = {"less": "fewer than", "equal": "exactly", "greater": "more than"}
            yield f"{who} not {names[condition.condition]} {number} tasks with {label}"


def _ports_taken(index: HostIndex, need: Need, *, hosts: Flags, total: int) -> Iterator[str]:
    for port in need.shape.fixed_ports:
        taken = hosts & (index.task_counts(port_label(port)) > 0)
        if taken.any():
            yield f"port {port} is taken on {int(np.count_nonzero(taken))} of {total} hosts"


def _all_of(constraint: Constraint) -> list[Constraint]:
    """Return the conditions that must all hold; an "or" is one condition."""
    if constraint.form == "and":
        return [one for member in constraint.members for one in _all_of(member)]
    return [constraint]


def _of_hosts(constraint: Constraint | None) -> list[Constraint]:
    """Return the conditions that depend on the host alone."""
    if constraint is None:
        return []
    return [condition for condition in _all_of(constraint) if not depends_on_tasks(condition)]


def _anywhere(index: HostIndex, leaf: Constraint) -> bool:
    return bool((index.has_host & (truths(leaf, index) >= MATCH)).any())


def _texts(conditions: list[Constraint]) -> str:
    shown = " and ".join(condition_text(leaf) for leaf in conditions[:CONDITIONS_SHOWN_MAX])
    rest = len(conditions) - CONDITIONS_SHOWN_MAX
    return f"{shown} and {rest} more" if rest > 0 else shown


def _hosts_text(hosts: Flags, total: int, *, verbs: tuple[str, str] = ("are", "is")) -> str:
    """Return a text such as "3 of 5 hosts are", with the verb in the right number."""
    count = int(np.count_nonzero(hosts))
    return f"{count} of {total} hosts {verbs[count == 1]}"


def _number(millionths: int) -> str:
    return f"{amount(millionths):.10g}"
