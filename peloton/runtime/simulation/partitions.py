"""Faults that keep a daemon of a fleet from most others, for longer than a session.

Turns a fault's name into partitions of a world's network, and ends them. Partitions of two daemons
are in `shocks.py`.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from functools import partial

from peloton.runtime.simulation.scenario import StormAction
from peloton.runtime.simulation.storms import MomentaryFault, Storm, drawn_moments

FLAP_S = 3.0
SHARE = 0.1
Pair = tuple[str, str]


def _part(storm: Storm, pairs: Iterable[Pair], *, one_way: bool = False) -> None:
    for one, other in pairs:
        storm.world.network.part(one, other, one_way=one_way)


def _mend(storm: Storm, pairs: Iterable[Pair]) -> None:
    for one, other in pairs:
        storm.world.network.mend(one, other)


def _alone(storm: Storm, action: StormAction) -> list[Pair]:
    """Return one daemon paired with each of the others."""
    chosen = storm.daemon(action.which)
    if chosen is None:
        return []
    others = (each for each in storm.world.daemons.values() if each is not chosen)
    return [(chosen.address, each.address) for each in others]


def isolate(storm: Storm, action: StormAction) -> None:
    """Cut a daemon off from all others, in both directions or in one; it reaches all else."""
    pairs = _alone(storm, action)
    if not pairs:
        return
    storm.strike(action.name, f"{pairs[0][0]} for {action.for_s:.1f} s")
    if action.name == "daemon unreached":
        _part(storm, [(other, one) for one, other in pairs], one_way=True)
    else:
        _part(storm, pairs)
    storm.later(action.for_s, partial(_mend, storm, pairs))


def split(storm: Storm, action: StormAction) -> None:
    """Split the fleet into two parts that do not reach each other."""
    addresses = [each.address for each in storm.world.daemons.values()]
    if len(addresses) < 2:
        return
    at = 1 + action.which % (len(addresses) - 1)
    pairs = [(one, other) for one in addresses[:at] for other in addresses[at:]]
    storm.strike(action.name, f"{at} of {len(addresses)} for {action.for_s:.1f} s")
    _part(storm, pairs)
    storm.later(action.for_s, partial(_mend, storm, pairs))


def flap_links(storm: Storm, action: StormAction) -> None:
    """Let the links of a daemon come and go, each for seconds."""
    pairs = _alone(storm, action)
    if not pairs:
        return
    storm.strike(action.name, f"{pairs[0][0]} for {action.for_s:.1f} s")
    for number in range(int(action.for_s / FLAP_S)):
        change = _mend if number % 2 else _part
        storm.later(number * FLAP_S, partial(change, storm, pairs))
    storm.later(action.for_s, partial(_mend, storm, pairs))


FAULTS = (
    MomentaryFault("F8", "daemon isolated", "it reaches no other", isolate, 2, (12.0, 40.0)),
    MomentaryFault("F8", "daemon unreached", "no other reaches it", isolate, 2, (12.0, 40.0)),
    MomentaryFault("F8", "fleet split", "two parts reach no other", split, 2, (12.0, 40.0)),
    MomentaryFault("F8", "links flap", "a daemon's links come and go", flap_links, 1, (12.0, 40.0)),
)


def drawn(seed: int, *, storm_s: float) -> list[StormAction]:
    """Return the actions of a storm, from a generator of their own."""
    chance = random.Random(f"{seed} partitions")
    some = [fault for fault in FAULTS if chance.random() < SHARE]
    return [action for fault in some for action in drawn_moments(chance, fault, storm_s=storm_s)]
