"""Shrinks a failing plan: fewer faults, actions, limits, daemons; still the same failure.

Turns a plan and "does it fail in the same way?" into the smallest plan found within a number of
tries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from msgspec.structs import replace

from peloton.runtime.simulation.plan import P, StormAction

T = TypeVar("T")

TRIES_MAX = 200


def shrunk(
    plan: P,
    fails: Callable[[P], bool],
    *,
    more: Callable[[P], Iterator[P]] = lambda plan: iter(()),
    tries: int = TRIES_MAX,
) -> P:
    """Return the smallest plan found that `fails`; `more` are further ways to make one smaller.

    After each step that still fails everything is tried again: what was needed before may be
    needless now.
    """
    left = tries
    while True:
        for smaller in _smaller(plan, more):
            if left == 0:
                return plan
            left -= 1
            if fails(smaller):
                plan = smaller
                break
        else:
            return plan


def _smaller(plan: P, more: Callable[[P], Iterator[P]]) -> Iterator[P]:
    """Yield smaller plans, large steps first: each of them that succeeds saves many small ones."""
    for faults in _fewer(tuple(plan.faults)):
        yield replace(plan, faults={name: plan.faults[name] for name in faults})
    for actions in _fewer(plan.actions):
        yield replace(plan, actions=actions)
    for names in _fewer(tuple(plan.limits)):
        yield replace(plan, limits={name: plan.limits[name] for name in names})
    if plan.furnish_s_max:
        yield replace(plan, furnish_s_max=0.0)
    for daemons in _lower(plan.daemons, 1):
        yield replace(plan, daemons=daemons)
    yield from more(plan)
    for group, size in plan.sizes.items():
        for fewer in _lower(size, 1):
            yield replace(plan, sizes={**plan.sizes, group: fewer})
    for storm_s in (0.0, plan.storm_s / 2):
        if storm_s < plan.storm_s - 1.0:
            yield replace(plan, storm_s=storm_s)
    for at, action in enumerate(plan.actions):
        for lesser in _lesser(action):
            yield replace(plan, actions=(*plan.actions[:at], lesser, *plan.actions[at + 1 :]))


def _fewer(some: tuple[T, ...]) -> Iterator[tuple[T, ...]]:
    """Yield the items without a half, without a quarter, ..., at last without each single one."""
    if len(some) > 1:
        yield ()
    size = len(some) // 2
    while size > 1:
        for at in range(0, len(some), size):
            yield some[:at] + some[at + size :]
        size //= 2
    for at in range(len(some)):
        yield some[:at] + some[at + 1 :]


def _lower(number: int, least: int) -> Iterator[int]:
    if number > least:
        yield least
    if number - 1 > least:
        yield (number + least) // 2
        yield number - 1


def _lesser(action: StormAction) -> Iterator[StormAction]:
    for count in _lower(action.count, 1):
        yield replace(action, count=count)
