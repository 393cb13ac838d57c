"""Whether the entities of a shard pursue their goals, and who has a step to make up for.

While goals rest, the kinds that know a rest (`Kind.at_rest`) decide and journal what they are told,
and begin nothing by themselves: no step towards a goal is taken, and no deadline of theirs comes.
Once they go on, all that was left out is made up for at once: whoever has a step to take takes it,
and deadlines are set as if there had been no rest. Nobody writes down whose turns were left out, as
that may have been an owner before us, which rested as long as it did not know whether it might go
on: everybody in the shard is asked. It must not decide when goals rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from msgspec.structs import replace

from peloton.runtime.core.entities.population import Population
from peloton.runtime.core.turning.envelope import Envelope
from peloton.runtime.core.turning.supervision import attempt_pursue
from peloton.runtime.kinds import Kind, Pursuing
from peloton.runtime.vocabulary import At, Key, Pursue, Rest

PURSUE = Pursue()


class Pursuits:
    """Those of one shard."""

    def __init__(self, population: Population) -> None:
        self.resting = False
        self._population = population
        self._at_rest: dict[str, Kind] = {}

    def of(self, kind: Kind) -> Kind:
        """The kind with which an entity has a turn while goals rest: its own, or as at rest."""
        if kind.at_rest is None:
            return kind
        found = self._at_rest.get(kind.name)
        if found is None:
            found = self._at_rest[kind.name] = replace(kind, pursue=_pursuing(kind.at_rest))
        return found

    def leaves_out(self, key: Key) -> bool:
        """Whether a deadline of this entity, or of members of this crowd, does not come now."""
        return self.resting and self._population.kind(key).at_rest is not None

    def mail(self, at: Callable[[Kind, Envelope], At]) -> Iterator[Envelope]:
        """What has those pursue their goals that have a step to take, crowds first. Parents are
        asked last of all, as whoever changed: to ask the index of one twice would count twice."""
        for key, crowd in self._population.crowds.items():
            kind, raw = self._population.kind(key), 0
            if kind.at_rest is None:
                continue
            for state, members in crowd.classes.items():
                if _has_step(kind, state, at(kind, Envelope(key, PURSUE, members))):
                    raw |= members
            if raw:
                yield Envelope(key, PURSUE, raw)
        for key, state in self._population.cells.items():
            kind, mail = self._population.kind(key), Envelope(key, PURSUE)
            if kind.at_rest is None:
                continue
            if kind.index is not None or kind.follows is not None:
                self._population.dirty[key] = None
            elif _has_step(kind, state, at(kind, mail)):
                yield mail

    def all(self) -> Iterator[Key]:
        """Everybody who rests while goals do."""
        for key in (*self._population.crowds, *self._population.cells):
            if self._population.kind(key).at_rest is not None:
                yield key


def _has_step(kind: Kind, state: Any, at: At) -> bool:
    """Most have none. Finding that out here, first, spares them a turn."""
    return not isinstance(attempt_pursue(kind, state, at), Rest)


def _pursuing(at_rest: Pursuing | Rest) -> Pursuing:
    return (lambda state, at: at_rest) if isinstance(at_rest, Rest) else at_rest
