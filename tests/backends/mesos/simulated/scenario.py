"""What happens in one play of a simulated cluster: drawn from a seed, act by act.

An act may be left out, and the others stay as they are.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import NamedTuple

STORM_S = 240.0
KINDS = ("keeper", "keeper", "command", "group", "custom")


class Act(NamedTuple):
    """One thing that is done; each one makes of `which` and `much` what it needs."""

    at: float
    name: str
    which: int
    much: float


ORDERS = {"start": 30, "kill": 9}
TROUBLES = {
    "stream ends": 3,
    "overtaken": 2,
    "taken back": 2,
    "daemon begins anew": 1,
    "host moves": 2,
    "report lost": 3,
    "order lost": 3,
    "rescinds": 3,
    "executor dies": 3,
    "agent away": 4,
    "agent cut": 2,
    "agent long away": 2,
    "agent renewed": 1,
    "agent removed": 1,
    "agent beside": 1,
    "master fails over": 1,
    "keeper cannot start": 1,
    "link breaks": 5,
    "others take": 3,
}
OF_AGENTS = ("agent away", "agent cut", "agent renewed", "agent beside", "master fails over")
TAKEOVERS = ("overtaken", "daemon begins anew")


class Scenario(NamedTuple):
    """A seed, and what it has drawn."""

    seed: int
    acts: tuple[Act, ...]


def drawn(seed: int) -> Scenario:
    """Some seeds have few troubles and some all: what one hides another one shows."""
    chance = random.Random(f"{seed} plan")
    share = chance.choice((0.15, 0.4, 0.8))
    troubles = {name: some for name, some in TROUBLES.items() if chance.random() < share and some}
    weights = {**ORDERS, **troubles}
    if chance.random() < 0.3:  # who has what, and who knows it, changes all the time
        weights |= dict.fromkeys((*OF_AGENTS, *TAKEOVERS), 4)
    names, counts = [*weights], [*weights.values()]
    acts: list[Act] = []
    at = 5.0
    for _ in range(chance.randint(15, 90)):
        at += chance.choice((0.0, 0.3, 2.0, 15.0)) * chance.random()
        name = chance.choices(names, counts)[0]
        acts.append(Act(min(at, STORM_S), name, chance.randrange(1 << 16), chance.random()))
    return Scenario(seed, tuple(sorted(acts)))


def without(scenario: Scenario, left_out: Iterable[Act]) -> Scenario:
    """The same without these acts."""
    gone = {*left_out}
    return scenario._replace(acts=tuple(act for act in scenario.acts if act not in gone))
