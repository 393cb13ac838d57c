"""What has happened in a storm so far: durable states, and what clients were told.

States are folded from the frames as the store has them, so they are what was acknowledged, whatever
a daemon believes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from peloton.runtime.core.entities.records import RECORDS
from peloton.runtime.kinds import Kind
from peloton.runtime.simulation.checkers import DecodedFrame
from peloton.runtime.vocabulary import Fact, Key, kind_of

_RECORDS = frozenset(RECORDS.values())


class ToldMessage:
    """A message that a client sent, again and again until it was answered."""

    __slots__ = ("begun_s", "client", "ended_s", "key", "message", "reply", "tries")

    def __init__(self, client: str, key: Key, *, message: Any, begun_s: float) -> None:
        self.client, self.key, self.message, self.begun_s = client, key, message, begun_s
        self.reply: Any = None  # also `Refused`, or `DeadLettered`
        self.ended_s: float | None = None
        """None: there is no answer yet, and it may have had its effect or not."""
        self.tries = 0


class JournaledFact(NamedTuple):
    """A fact with the actor that it is of, and the reason."""

    at_s: float
    key: Key
    fact: Fact
    because: str


class KindHistory:
    """The history of one storm, for rules: functions of it that raise AssertionError."""

    def __init__(self, kinds: Mapping[str, Kind]) -> None:
        self._kinds = kinds
        self.now_s = 0.0
        self.states: dict[Key, Any] = {}
        self.told: list[ToldMessage] = []
        self.facts: list[JournaledFact] = []
        """All that was journaled; of one actor in its order."""
        self.news: list[JournaledFact] = []
        """Of `facts` those of the last frame, for rules that are asked after each."""
        self.calls: dict[tuple[Key, str], Any] = {}
        """What the simulated cluster has answered to which call of an actor."""

    def of_kind(self, name: str) -> dict[str, Any]:
        """Return the states of a kind's actors by name."""
        return {
            key.partition("/")[2]: state
            for key, state in self.states.items()
            if kind_of(key) == name
        }

    def add(self, frame: DecodedFrame) -> None:
        """Fold the facts of a committed frame."""
        begun = len(self.facts)
        self.now_s = max(self.now_s, frame.at)
        for entry in frame.entries:
            kind = self._kinds.get(kind_of(entry.key))
            for fact in entry.facts if kind is not None else ():
                if type(fact) in _RECORDS:
                    continue
                assert kind is not None
                state = kind.evolve[type(fact)](self.states.get(entry.key), fact)
                if state is None:
                    del self.states[entry.key]
                else:
                    self.states[entry.key] = state
                self.facts.append(JournaledFact(frame.at, entry.key, fact, entry.because))
        self.news = self.facts[begun:]
