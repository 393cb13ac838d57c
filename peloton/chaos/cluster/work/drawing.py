"""Draws the actions of a scenario that have a generator of their own.

A module that adds work to storms draws it separately, so that older seeds keep all else as it was.
The order in which chance is asked is part of every seed, so it must never change.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from peloton.runtime.simulation.scenario import StormAction


class ActionDraw(NamedTuple):
    """A draw for a part of the seeds: how many actions, of which names and counts.

    `generator` is added to the seed. `share` of the seeds have any.
    """

    generator: str
    share: float
    actions: tuple[int, int]
    name: Callable[[random.Random], str]
    count: Callable[[random.Random], int] = lambda chance: 0


def any_of(work: Iterable[str]) -> Callable[[random.Random], str]:
    """Return a draw of one of these names, each as often as another."""
    names = [*work]
    return lambda chance: chance.choice(names)


def by_weight(weights: Mapping[str, int]) -> Callable[[random.Random], str]:
    """Return a draw of one of these names, each as often as its weight."""
    return lambda chance: chance.choices([*weights], [*weights.values()])[0]


def drawn_apart(seed: int, what: ActionDraw, *, storm_s: float) -> list[StormAction]:
    """Return the actions of a seed; none for most seeds."""
    chance = random.Random(f"{seed} {what.generator}")
    if chance.random() >= what.share:
        return []
    return [
        StormAction(
            at_s=round(chance.uniform(0.0, storm_s), 3),
            name=what.name(chance),
            which=chance.randrange(1000),
            other=chance.randrange(1000),
            count=what.count(chance),
        )
        for _ in range(chance.randint(*what.actions))
    ]


def drawn_from(tables: Iterable[ActionDraw], *, seed: int, storm_s: float) -> list[StormAction]:
    """Return the actions of a seed from all of these, each with a generator of its own."""
    return [action for what in tables for action in drawn_apart(seed, what, storm_s=storm_s)]
