"""What a package declares of storms over its kinds: what clients do, and what must hold.

Without anything but the kinds a storm sends messages with drawn values, and the rules are those of
every kind: no turn raises, each state is what its facts make it, nothing acknowledged is lost.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from peloton.chaos.kinds.history import KindHistory
from peloton.runtime.simulation.drawn_values import drawn_value
from peloton.runtime.simulation.storms import Fault
from peloton.runtime.vocabulary import Key, Message, key
from peloton.sdk.kit import ActorKind, CallAnswered
from peloton.sdk.kit.calls import MakeCall

NAMES = ("a", "b", "c")
KindRule = Callable[[KindHistory], None]


class StormCommand(NamedTuple):
    """A message of a client to an actor."""

    key: Key
    message: Message


@dataclass(frozen=True)
class KindStorms:
    """Storms over some kinds.

    `command` draws what a client does next; without it messages are drawn by their fields. `always`
    are rules that hold after each frame, `at_end` those that hold once no fault strikes and all is
    at rest. `answer` plays the cluster for calls of actors: a function of (actor, call, history,
    chance) → CallAnswered, or None while it has no answer. `faults` are rows of one's own beside
    those of any fleet. `may_fail`: turns may raise, as of a kind that is made to.
    """

    kinds: Sequence[ActorKind]
    command: Callable[[random.Random], StormCommand] | None = None
    always: Sequence[KindRule] = ()
    at_end: Sequence[KindRule] = ()
    answer: Callable[[Key, MakeCall, KindHistory, random.Random], CallAnswered | None] | None = None
    faults: Mapping[str, Fault] = field(default_factory=dict)
    commands_max: int = 40
    may_fail: bool = False

    def drawn_command(self, chance: random.Random) -> StormCommand:
        """Return what a client does next."""
        if self.command is not None:
            return self.command(chance)
        kind = chance.choice([kind for kind in self.kinds if kind.messages])
        message = chance.choice([*kind.messages])
        return StormCommand(key(kind.name, chance.choice(NAMES)), drawn_value(message, chance))
