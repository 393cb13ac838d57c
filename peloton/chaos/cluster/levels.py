"""The feature level of a storm: 0, that of this version, or raised amid the storm.

Turns a seed into a level at the start and an operator's action. The operator raises the level as
`peloton features raise` does, and tries again for as long as the store or a member refuses. It must
not raise the level past what all members know.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from peloton.actors.job.slice.rollout_messages import LEVEL_ADDING
from peloton.actors.task.messages import LEVEL_CHANGES, LEVEL_SERVICES
from peloton.runtime.adapters.fenced_rows import FencedRows
from peloton.runtime.ports import JournalRefused, Unreachable
from peloton.runtime.shells.features import raise_level
from peloton.runtime.simulation.plan import StormAction
from peloton.runtime.simulation.storms import Storm
from peloton.runtime.simulation.world import World

RAISE = "raise level"
RAISE_AGAIN_S = 1.0
OLDER_SHARE = 0.25
RAISED_UNTIL = 0.8
"""Raised within so much of a storm: what comes after it is to be played at the new level."""


def start_at(world: World, level: int) -> None:
    """The cluster has this level before its first daemon starts."""
    _operator(world).raise_level(level)


def raise_amid(storm: Storm, action: StormAction) -> None:
    """An operator raises the level to what all members know."""
    world = storm.world
    journal = _operator(world)

    def attempt() -> None:
        try:
            level = raise_level(journal, world.ensemble.members, known=world.codec.known_level)
        except (Unreachable, JournalRefused):
            world.later.at(world.now + RAISE_AGAIN_S, attempt)
        else:
            storm.strike(action.name, f"to {level}")

    attempt()


def drawn(seed: int, *, storm_s: float) -> tuple[int, list[StormAction]]:
    """Level and actions, from a generator of its own: seeds at level 0 keep their storms."""
    chance = random.Random(f"{seed} level")
    how = chance.choice((0, LEVEL_CHANGES, RAISE))
    if how != RAISE:
        return int(how), []
    at_s = round(chance.uniform(0.0, RAISED_UNTIL * storm_s), 3)
    return 0, [StormAction(at_s=at_s, name=RAISE)]


def newest(seed: int, level: int) -> int:
    """The level of a storm that needs this one: of those with services most are at the newest."""
    if level != LEVEL_SERVICES:
        return level
    older = random.Random(f"{seed} older level").random() < OLDER_SHARE
    return level if older else LEVEL_ADDING


def _operator(world: World) -> FencedRows:
    return FencedRows(world.store.rows("operator"), process=world.draw_process())


WORK: dict[str, Callable[[Storm, StormAction], None]] = {RAISE: raise_amid}
