"""One turn: a message is decided, facts are folded, the goal is pursued until it rests.

Turns a state and a message into a `TurnOutcome`. Nothing is kept, so that a turn that raises has
no effect. Only the index of the pools, which is derived, is changed by the steps of its kind; what
a step says is said again until its receivers have it, or the turn's notes are kept. The same
function serves a cell and a class of a crowd.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from peloton.runtime.kinds import Kind
from peloton.runtime.vocabulary import At, Decision, Fact, Message, Pursue, Rest, Send

PURSUE_STEPS_MAX = 8
NOTHING_YET = Decision()
"""A turn without a message decides nothing before it pursues the goal."""


class UnknownMessage(Exception):
    """A kind has no row for a message of this class."""


class Unsettled(Exception):
    """A goal was pursued for `PURSUE_STEPS_MAX` steps without reaching a `Rest`."""


class TurnOutcome(msgspec.Struct, frozen=True, gc=False):
    """The result of a turn: the new state (None: deleted), facts, sends, reply and notes."""

    state: Any
    facts: tuple[Fact, ...]
    sends: tuple[Send, ...]
    reply: Any
    because: str
    notes: Any = None


def take_turn(kind: Kind, state: Any, *, message: Message, at: At) -> TurnOutcome:
    """Decide `message` in `state`, then pursue the goal. Raises what the behaviour raises."""
    if type(message) is Pursue:
        return _pursued(kind, state, decided=NOTHING_YET, at=at, first=message.step)
    decide = kind.decide.get(type(message))
    if decide is None:
        raise UnknownMessage(f"{kind.name} has no row in `decide` for {message!r}")
    if state is not None:
        decision = decide(state, message, at)
    elif absent := kind.absent.get(type(message)):
        decision = absent(message, at)
    else:
        decision = Decision(because=f"no such {kind.name}")
    for fact in decision.facts:
        state = kind.evolve[type(fact)](state, fact)
    if decision.notes is not None:
        at = msgspec.structs.replace(at, notes=decision.notes)
    return _pursued(kind, state, decided=decision, at=at)


def _pursued(
    kind: Kind, state: Any, *, decided: Decision, at: At, first: Any = None
) -> TurnOutcome:
    facts, sends, reply = decided.facts, decided.sends, decided.reply
    because, notes = decided.because, decided.notes
    if state is None:
        return TurnOutcome(state, facts, sends, reply, because, notes)
    step = kind.pursue(state, at) if first is None else first
    steps: list[str] = []
    while not isinstance(step, Rest):
        for fact in step.facts:
            state = kind.evolve[type(fact)](state, fact)
        facts += step.facts
        sends += step.sends
        because = because or step.because
        notes = step.notes if step.notes is not None else notes
        steps.append(step.because)
        # A step without facts leaves the state as it was, so the next call would return it again.
        if not step.facts or state is None:
            break
        if len(steps) == PURSUE_STEPS_MAX:
            raise Unsettled(f"{kind.name} did not settle after {PURSUE_STEPS_MAX} steps: {steps}")
        if step.notes is not None:
            at = msgspec.structs.replace(at, notes=step.notes)
        step = kind.pursue(state, at)
    return TurnOutcome(state, facts, sends, reply, because, notes)


def fold_facts(kind: Kind, state: Any, *, facts: Iterable[Fact]) -> Any:
    """Return the state after journaled facts. Raises what `evolve` raises."""
    for fact in facts:
        state = kind.evolve[type(fact)](state, fact)
    return state
