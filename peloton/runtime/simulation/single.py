"""Faults of single messages and single shards, beside those of whole frames and processes.

Turns a fault's name into its effect on a world, like `shocks.py`. A frame between daemons has the
mail of many shards, and a process many shards; here each message and each shard has a fate of its
own, as in a fleet of one shard for each process. Drawn separately from all other faults, so that
older seeds keep their storms.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from msgspec.structs import replace

from peloton.runtime.core.journal.statements import (
    Advance,
    Statement,
    StatementReply,
    single_writes,
)
from peloton.runtime.simulation.daemon import SimulatedDaemon
from peloton.runtime.simulation.storms import STRENGTHS, Fault, LastingFault, Storm

SHARE = 0.15
"""The share of storms that have each of these faults."""
DROPPED_SHARE = 0.1
"""Of the frames of a storm at full strength, those behind which their shard ends."""


def _sends(field: str, most: float) -> Callable[[Storm, float], None]:
    def begin(storm: Storm, strength: float) -> None:
        sends = storm.world.sends
        sends.faults = replace(sends.faults, **{field: most * strength})

    return begin


def drop_shards(storm: Storm, strength: float) -> None:
    """End shards right behind a frame: it is committed, and nothing of it was sent."""

    def replied(daemon: SimulatedDaemon, sent: list[tuple[Statement, StatementReply]]) -> None:
        for statement in (each for together, _ in sent for each in single_writes(together)):
            if not storm.raging or not isinstance(statement, Advance):
                continue
            if storm.chance.random() < DROPPED_SHARE * strength and daemon.drop(statement.shard):
                storm.strike(DROPPED, f"{statement.shard} at {daemon.name}")

    storm.world.on_replies.append(replied)


DROPPED = "shards dropped"
FAULTS: tuple[Fault, ...] = (
    LastingFault(
        "F20", "sends lost", "a message between shards is lost", _sends("drop", 0.4),
        lambda storm: storm.world.sends.struck["drop"],
    ),
    LastingFault(
        "F20", "sends repeated", "a message between shards comes twice", _sends("repeat", 0.3),
        lambda storm: storm.world.sends.struck["repeat"],
    ),
    LastingFault(
        "F20", "sends late", "every message between shards is late", _sends("delay_s", 2.0),
        lambda storm: storm.world.sends.struck["delay"],
    ),
    LastingFault(
        "F2", DROPPED, "a single shard ends behind a frame, and begins again", drop_shards,
        lambda storm: 0,  # counted as they strike
    ),
)  # fmt: skip


def drawn(seed: int) -> dict[str, float]:
    """Return the strengths of those faults that a seed has, from a generator of their own."""
    chance = random.Random(f"{seed} single")
    return {fault.name: chance.choice(STRENGTHS) for fault in FAULTS if chance.random() < SHARE}
