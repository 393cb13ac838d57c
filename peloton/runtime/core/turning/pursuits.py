"""The pursuit of goals in a shard, and the steps that are made up for after a rest.

While goals rest, the kinds with `Kind.at_rest` decide and journal the messages they get, and begin
nothing by themselves: they take no step towards a goal, and get no deadline. Once goals are pursued
again, every entity that has a step to take takes it, and deadlines are set as if there had been no
rest. Which turns were left out is not recorded, because an earlier owner may have left them out:
every entity of the shard is asked.
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
    """The pursuits of one shard."""

    def __init__(self, population: Population) -> None:
        self.resting = False
        self._population = population
        self._at_rest: dict[str, Kind] = {}

    def of(self, kind: Kind) -> Kind:
        """Return the kind for an entity's turns while goals rest: its own, or as at rest."""
        if kind.at_rest is None:
            return kind
        found = self._at_rest.get(kind.name)
        if found is None:
            found = self._at_rest[kind.name] = replace(kind, pursue=_pursuing(kind.at_rest))
        return found

    def leaves_out(self, key: Key) -> bool:
        """Return whether deadlines of this entity, or of this crowd's members, are left out."""
        return self.resting and self._population.kind(key).at_rest is not None

    def mail(self, at: Callable[[Kind, Envelope], At]) -> Iterator[Envelope]:
        """Yield the mail for entities that have a step to take, crowds first.

        Parents are asked last, as parents whose children changed: to ask the index of one twice
        would count twice.
        """
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
        """Yield the keys of all cells and crowds whose kinds know a rest."""
        for key in (*self._population.crowds, *self._population.cells):
            if self._population.kind(key).at_rest is not None:
                yield key


def _has_step(kind: Kind, state: Any, at: At) -> bool:
    """Return whether a step is to be taken. Most entities have none, and are spared a turn."""
    return not isinstance(attempt_pursue(kind, state, at), Rest)


def _pursuing(at_rest: Pursuing | Rest) -> Pursuing:
    return (lambda state, at: at_rest) if isinstance(at_rest, Rest) else at_rest
