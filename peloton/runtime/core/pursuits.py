"""Whether the entities of a shard pursue their goals, and whose turn was left out meanwhile.

While goals rest, the kinds that know a rest (`Kind.at_rest`) decide and journal what they are told,
and begin nothing by themselves: no step towards a goal is taken, and no deadline of theirs comes.
Once they go on, all that was left out is made up for at once: those entities pursue their goals,
and their deadlines are set as if there had been no rest. It must not decide when goals rest, and
journals nothing: where somebody before us may have left turns out, every entity pursues its goal.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from peloton.runtime.core.envelope import Envelope
from peloton.runtime.core.population import Population
from peloton.runtime.vocabulary import Key, Kind, Pursue, Pursuing, Rest

PURSUE = Pursue()


class Pursuits:
    """Those of one shard."""

    def __init__(self, population: Population) -> None:
        self.resting = False
        self._population = population
        self._left_out: dict[Key, None] = {}
        self._at_rest: dict[str, Kind] = {}

    def of(self, kind: Kind, key: Key) -> Kind:
        """The kind with which this entity has a turn while goals rest: its own, or as at rest."""
        if kind.at_rest is None:
            return kind
        self._left_out[key] = None
        found = self._at_rest.get(kind.name)
        if found is None:
            found = self._at_rest[kind.name] = replace(kind, pursue=_pursuing(kind.at_rest))
        return found

    def leaves_out(self, key: Key) -> bool:
        """Whether a deadline of this entity, or of members of this crowd, does not come now."""
        if not self.resting or self._population.kind(key).at_rest is None:
            return False
        self._left_out[key] = None
        return True

    def go_on(self, *, everybody: bool) -> list[Key]:
        """Rest no more. Returns who has turns and deadlines to make up for, crowds first."""
        self.resting = False
        keys, self._left_out = self._left_out, {}
        if everybody:
            keys = dict.fromkeys(self._all())
        crowds = self._population.crowds
        return sorted(keys, key=lambda each: each not in crowds)

    def mail_to(self, key: Key) -> Envelope | None:
        """What has it pursue its goal; None where that is to be asked of it last of all."""
        crowd = self._population.crowds.get(key)
        if crowd is not None:
            return Envelope(key, PURSUE, crowd.present)
        kind = self._population.kind(key)
        if key not in self._population.cells:
            return None
        if kind.index is not None or kind.follows is not None:
            self._population.dirty[key] = None
            return None
        return Envelope(key, PURSUE)

    def _all(self) -> Iterator[Key]:
        for key in (*self._population.crowds, *self._population.cells):
            if self._population.kind(key).at_rest is not None:
                yield key


def _pursuing(at_rest: Pursuing | Rest) -> Pursuing:
    return (lambda state, at: at_rest) if isinstance(at_rest, Rest) else at_rest
