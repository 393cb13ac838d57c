"""Faults of rows, clocks and answers: rows that flicker or rot, clocks that drift, late answers.

Turns a fault's name into its effect on a world, like `shocks.py`. Drawn separately from all other
faults, so that older seeds keep their storms.
"""

from __future__ import annotations

import random
from functools import partial
from typing import Any

from peloton.runtime.shells.journal import JournalShell
from peloton.runtime.shells.shell_messages import Commit, Ref, Settle, send
from peloton.runtime.simulation.daemon import SimulatedDaemon
from peloton.runtime.simulation.scenario import StormAction
from peloton.runtime.simulation.shocks import weaken
from peloton.runtime.simulation.storms import (
    Fault,
    LastingFault,
    MomentaryFault,
    Storm,
    drawn_faults,
)

SHARE = 0.12
"""The share of storms that have each of these faults."""
DRIFT_MAX = 0.1
ANSWER_S_MAX = 3.0
SET_RIGHT_S = 9.0
FOUND_S = 2.0
"""In s: after a row has rotted its owner dies, so that somebody reads it."""
FLICKER, ROT, DRIFT, ANSWERS = "rows flicker", "bit rot", "clocks drift", "answers late"


def flicker(storm: Storm, strength: float) -> None:
    """Let rows that are on their way show in some reads; there are more of them, too."""
    late = max(storm.world.store.faults.reorder_plain, 0.1 * strength)
    weaken(storm, "store", flicker=0.5, reorder_plain=late)


def rot(storm: Storm, action: StormAction) -> None:
    """Let a row rot. Its shard's owner dies, and nobody can recover the shard."""
    world = storm.world
    registers = world.store.registers.registers
    text = world.store.reads.rot(world.store.cells, registers, chance=storm.chance)
    if not text:
        return
    storm.strike(action.name, text)
    rotten = next(reversed(world.store.reads.rotten))[0].shard

    def found() -> None:
        for daemon in [*world.living()]:
            if rotten in daemon.shards():
                world.kill(daemon)

    storm.later(FOUND_S, found)


def drift(storm: Storm, strength: float) -> None:
    """Let the clock of each process run too fast or too slow by up to a tenth.

    Now and then all are set right, which takes those back that were too fast.
    """
    world = storm.world
    world.drift = DRIFT_MAX * strength
    for daemon in world.daemons.values():
        world.let_drift(daemon)

    def set_right() -> None:
        for daemon in world.daemons.values():
            if daemon.process is not None:
                world.let_drift(daemon)
                daemon.process.clock.skew_s = 0.0
        storm.later(SET_RIGHT_S, set_right)

    storm.later(SET_RIGHT_S, set_right)


class _LateRef:
    """The address of a shell, whose mail takes a while. It ends with the process of its sender."""

    def __init__(self, storm: Storm, ref: Ref, *, daemon: SimulatedDaemon, after_s: float) -> None:
        self._storm = storm
        self._ref = ref
        self._daemon = daemon
        self._life = daemon.lives
        self._after_s = after_s

    def tell(self, message: Any) -> None:
        """Send the message later."""
        world = self._storm.world
        world.later.at(world.now + self._after_s, partial(self._deliver, message))

    def _deliver(self, message: Any) -> None:
        if self._daemon.alive and self._daemon.lives == self._life:
            send(self._ref, message)


def late_answers(storm: Storm, strength: float) -> None:
    """Delay the store's answers by seconds."""

    def answers_late(daemon: SimulatedDaemon, shell: JournalShell) -> None:
        handle = shell.handle

        def later(message: Any) -> None:
            if storm.raging and isinstance(message, Commit | Settle):
                after_s = storm.chance.random() * strength * ANSWER_S_MAX
                sender = _LateRef(storm, message.sender, daemon=daemon, after_s=after_s)
                message = message._replace(sender=sender)
                storm.struck[ANSWERS] += 1
            handle(message)

        shell.handle = later  # type: ignore[method-assign]

    lives: dict[str, int] = {}

    def replied(daemon: SimulatedDaemon, _: object) -> None:
        if lives.get(daemon.name) == daemon.lives or daemon.process is None:
            return
        lives[daemon.name] = daemon.lives
        for shell in daemon.process.by_class.get(JournalShell, []):
            assert isinstance(shell, JournalShell)
            answers_late(daemon, shell)

    storm.world.on_replies.append(replied)


FAULTS: tuple[Fault, ...] = (
    LastingFault(
        "F13", FLICKER, "a write that is on its way shows in some reads", flicker,
        lambda storm: storm.world.store.struck["flicker"],
    ),
    LastingFault("F18", DRIFT, "each clock is too fast or too slow", drift, lambda storm: 1),
    LastingFault(
        "F16", ANSWERS, "the store has done it, the answer takes seconds", late_answers,
        lambda storm: 0,  # counted as they strike
    ),
    MomentaryFault("F17", ROT, "a row is not what was written, until a repair", rot, 2),
)  # fmt: skip


def drawn(seed: int, *, storm_s: float) -> tuple[dict[str, float], list[StormAction]]:
    """Return the faults of a seed, from a generator of their own."""
    chance = random.Random(f"{seed} decay")
    # Lazily: whether a storm has a fault is drawn right before how it has it.
    some = (fault for fault in FAULTS if chance.random() < SHARE)
    return drawn_faults(chance, some, storm_s=storm_s)
