"""Shrinks a failing scenario: fewer faults, actions, limits, daemons; still the same failure.

Turns a scenario and "does it fail in the same way?" into the smallest scenario found within a
number of tries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from msgspec.structs import replace

from peloton.runtime.simulation.scenario import P, StormAction

T = TypeVar("T")

TRIES_MAX = 200


def shrunk(
    scenario: P,
    fails: Callable[[P], bool],
    *,
    more: Callable[[P], Iterator[P]] = lambda scenario: iter(()),
    tries: int = TRIES_MAX,
) -> P:
    """Return the smallest scenario found that `fails`; `more` are further ways to make one smaller.

    After each step that still fails everything is tried again: what was needed before may be
    needless now.
    """
    left = tries
    while True:
        for smaller in _smaller(scenario, more):
            if left == 0:
                return scenario
            left -= 1
            if fails(smaller):
                scenario = smaller
                break
        else:
            return scenario


def _smaller(scenario: P, more: Callable[[P], Iterator[P]]) -> Iterator[P]:
    """Yield smaller scenarios, large steps first: each of them that succeeds saves many small
    ones."""
    for faults in _fewer(tuple(scenario.faults)):
        yield replace(scenario, faults={name: scenario.faults[name] for name in faults})
    for actions in _fewer(scenario.actions):
        yield replace(scenario, actions=actions)
    for names in _fewer(tuple(scenario.limits)):
        yield replace(scenario, limits={name: scenario.limits[name] for name in names})
    if scenario.furnish_s_max:
        yield replace(scenario, furnish_s_max=0.0)
    for daemons in _lower(scenario.daemons, 1):
        yield replace(scenario, daemons=daemons)
    yield from more(scenario)
    for group, size in scenario.sizes.items():
        for fewer in _lower(size, 1):
            yield replace(scenario, sizes={**scenario.sizes, group: fewer})
    for storm_s in (0.0, scenario.storm_s / 2):
        if storm_s < scenario.storm_s - 1.0:
            yield replace(scenario, storm_s=storm_s)
    for at, action in enumerate(scenario.actions):
        for lesser in _lesser(action):
            yield replace(
                scenario, actions=(*scenario.actions[:at], lesser, *scenario.actions[at + 1 :])
            )


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
