"""What hosts lack, told to people: which resource and by how much, which label nobody has.

Turns the hosts that failed each check into counts, a line of text, and whether waiting can help at
all. It must not judge a host: `reasons.py` has done so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from peloton.actors.resources import EPSILON, amount
from peloton.placement.constraints import MATCH, asks_tasks, truths
from peloton.placement.index import PORTS, Flags, HostIndex, Need
from peloton.placement.messages import Constraint
from peloton.placement.reasons import (
    HOST_LIMIT,
    INSUFFICIENT,
    MISMATCH_CONSTRAINTS,
    MISMATCH_STATUS,
    NO_OFFER,
    SCARCE,
    UNKNOWN_TASKS,
)

LEAVES_TOLD_MAX = 3
"""Conditions of a constraint that are named: more would bury the rest of the line."""

RESOURCE_UNITS = (("cpu", ""), ("memory", " MB"), ("disk", " MB"), ("gpu", ""))
"""Each resource and the unit behind its amounts."""

NEVER_FITS = "it can never fit this cluster as it is"

_OTHERS = {
    SCARCE: "kept for tasks that want a gpu",
    UNKNOWN_TASKS: "not known by the labels of their tasks",
    HOST_LIMIT: "with their share of these instances already",
}


class Unschedulable(NamedTuple):
    """Why no host would do: hosts by reason, for people, and whether waiting alone cannot help."""

    reasons: tuple[tuple[str, int], ...]
    text: str
    never: bool


def unschedulable_reason(
    index: HostIndex, need: Need, *, failed: Mapping[str, Flags], could: Flags
) -> Unschedulable:
    """The counts and the line. `could`: hosts that would do if they were empty."""
    counts = tuple((reason, int(np.count_nonzero(hosts))) for reason, hosts in failed.items())
    total = int(np.count_nonzero(index.has_host))
    if not total:
        return Unschedulable(counts, "no host: the placer knows no hosts yet", False)
    never = not could.any()
    parts = [*_parts(index, need, failed=failed, total=total)]
    if never:
        parts += _never(index, need, told=MISMATCH_CONSTRAINTS in failed)
    text = f"no host fits: {', '.join(parts)}"
    return Unschedulable(counts, f"{text}: {NEVER_FITS}" if never else text, never)


def _never(index: HostIndex, need: Need, *, told: bool) -> Iterator[str]:
    """What the parts cannot tell one by one: each may be had, and yet not together.

    `told`: the parts speak of the constraint. They do not where all hosts lack room as well.
    """
    unmet = [leaf for leaf in _of_hosts(need.shape.constraint) if not _anywhere(index, leaf)]
    if unmet and not told:
        yield f"no host is as wanted: {_texts(unmet)}"
    enough = index.capacity >= np.array(need.least[:PORTS])[:, None]
    enough &= index.has_host
    if not enough.any(axis=1).all():
        return  # some resource is more than any host has, and that is told
    if not enough.all(axis=0).any():
        yield "no single host is large enough for all of it"
    elif not unmet:
        yield "the hosts that are large enough may not be used for it"


def _parts(
    index: HostIndex, need: Need, *, failed: Mapping[str, Flags], total: int
) -> Iterator[str]:
    for reason, hosts in failed.items():
        if reason == MISMATCH_STATUS:
            yield from _status(index, hosts, total=total)
        elif reason == NO_OFFER and need.nothing:
            yield f"{_these(hosts, total, verbs=('have', 'has'))} no room of any kind left"
        elif reason == MISMATCH_CONSTRAINTS:
            yield from _constraints(index, need, hosts=hosts, total=total)
        elif reason in _OTHERS:
            yield f"{_these(hosts, total)} {_OTHERS[reason]}"
        if reason == INSUFFICIENT or (reason == NO_OFFER and INSUFFICIENT not in failed):
            # Who has nothing left lacks whatever is wanted, so both are told as one.
            nothing = np.zeros(index.size, np.bool_)
            lacking = failed.get(NO_OFFER, nothing) | failed.get(INSUFFICIENT, nothing)
            yield from _room(index, need, hosts=lacking, total=total)


def _status(index: HostIndex, hosts: Flags, *, total: int) -> Iterator[str]:
    down, refused = hosts & ~index.up, hosts & index.up
    if down.any():
        yield f"{_these(down, total)} not up"
    if refused.any():
        yield f"{_these(refused, total, verbs=('have', 'has'))} just refused"


def _room(index: HostIndex, need: Need, *, hosts: Flags, total: int) -> Iterator[str]:
    """Each resource that some of these hosts lack, with the most that one of them has."""
    for at, (name, unit) in enumerate(RESOURCE_UNITS):
        lacking = hosts & (index.room[at] < need.least[at])
        if not lacking.any() or need.amounts[at] < EPSILON:
            continue
        wants, largest = need.amounts[at], int(index.capacity[at][index.has_host].max())
        if largest < need.least[at]:
            has = f"the largest has {_number(largest)}{unit} in all"
        else:
            free = max(int(index.room[at][lacking].max()), 0)
            has = f"the best has {_number(free)}{unit} free, {_number(wants - free)}{unit} short"
        who = _these(lacking, total, verbs=("lack", "lacks"))
        yield f"{who} {name} (wants {_number(wants)}{unit}, {has})"
    lacking = hosts & (index.room[PORTS] < need.amounts[PORTS])
    if need.amounts[PORTS] and lacking.any():
        free, who = (
            int(index.room[PORTS][lacking].max()),
            _these(lacking, total, verbs=("lack", "lacks")),
        )
        yield f"{who} ports (wants {need.amounts[PORTS]}, the best has {free} free)"


def _constraints(index: HostIndex, need: Need, *, hosts: Flags, total: int) -> Iterator[str]:
    constraint = need.shape.constraint
    if constraint is None:
        yield f"{_these(hosts, total)} exclusive to others"
        return
    mismatch = hosts & (truths(constraint, index) < MATCH)
    shut = hosts & ~mismatch
    if shut.any():
        yield f"{_these(shut, total)} exclusive to others, or full of such tasks"
    if not mismatch.any():
        return
    known = _of_hosts(constraint)
    unmet = [leaf for leaf in known if not _anywhere(index, leaf)]
    named = unmet or known
    told = _texts(named)
    nobody = "; no host is so" if unmet else ""
    wanted = f" (wants {told}{nobody})" if told else ""
    yield f"{_these(mismatch, total, verbs=('do', 'does'))} not meet the constraint{wanted}"


def _of_hosts(constraint: Constraint | None) -> list[Constraint]:
    """All that must hold of a host at once: an "or" is one condition, however many would do."""
    if constraint is None:
        return []
    if constraint.form == "and":
        return [one for member in constraint.members for one in _of_hosts(member)]
    return [] if asks_tasks(constraint) else [constraint]


def _anywhere(index: HostIndex, leaf: Constraint) -> bool:
    return bool((index.has_host & (truths(leaf, index) >= MATCH)).any())


def _texts(conditions: list[Constraint]) -> str:
    told = " and ".join(_text(leaf) for leaf in conditions[:LEAVES_TOLD_MAX])
    rest = len(conditions) - LEAVES_TOLD_MAX
    return f"{told} and {rest} more" if rest > 0 else told


def _text(leaf: Constraint) -> str:
    """A condition on a host as people say it."""
    if leaf.form != "label":
        within = f" {leaf.form} ".join(_text(member) for member in leaf.members)
        return f"({within})"
    label, number = f"{leaf.label.key}={leaf.label.value}", leaf.requirement
    if (leaf.condition, number) == ("greater", 0):
        return label
    if (leaf.condition, number) in (("less", 1), ("equal", 0)):
        return f"no {label}"
    words = {"less": "fewer than", "equal": "exactly", "greater": "more than"}
    return f"{words.get(leaf.condition, leaf.condition)} {number} times {label}"


def _these(hosts: Flags, total: int, *, verbs: tuple[str, str] = ("are", "is")) -> str:
    """So many of all hosts, with the verb that goes with them."""
    count = int(np.count_nonzero(hosts))
    return f"{count} of {total} hosts {verbs[count == 1]}"


def _number(millionths: int) -> str:
    return f"{amount(millionths):.10g}"
