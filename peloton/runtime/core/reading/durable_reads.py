"""Answers that any thread may read: from durable states, without a turn of the shard.

The shard's thread publishes here the states of a frame once the frame is durable, and before
anything of the frame is acknowledged. So what a reader finds is never ahead of the journal, and
never behind an acknowledgement. Only queries whose answers depend on states alone are answered
(`Kind.depends`); for all others `answer` returns None, and the query goes to the shard.

    OWN_STATE     the state of the entity: the answer is made of it on the reader's thread
    KIND_STATES   the states of all entities of the kind here: the shard's last answer is kept until
                  a frame changes one of them
    listings      read while the summaries are not being changed (`Views.read`)

A reader takes no lock, so it may only read values that are never changed in place, each by one
operation that is atomic among threads: `dict.get`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from peloton.runtime.core.ended.retention import RetainedEnded
from peloton.runtime.core.entities.population import Population
from peloton.runtime.core.reading.listing import ListViews
from peloton.runtime.core.reading.views import Views
from peloton.runtime.core.turning.supervision import attempt_query
from peloton.runtime.kinds import Kind
from peloton.runtime.vocabulary import KIND_STATES, OWN_STATE, At, Key, Query, kind_of

COLD_STATES_MAX = 256
"""Cold or ended entities of a shard whose states are kept after a query has unpacked them."""
ANSWERS_MAX = 1024
"""Kept answers of a kind in a shard; at the limit all of them are dropped."""

Answers = dict[tuple[Key, Query], Any]


class DurableReads:
    """The published states of one shard, for as long as it is owned."""

    def __init__(self, kinds: Mapping[str, Kind], views: Views) -> None:
        self._kinds = kinds
        self._views = views
        self._read_kinds = {kind.name for kind in kinds.values() if kind.depends}
        self._states: dict[Key, Any] = {}
        self._cold: dict[Key, None] = {}  # of these, entities that are cold or not in memory
        self._answers: dict[str, Answers] = {}  # by kind
        self._next: dict[Key, Any] = {}  # of frames that are not durable yet
        self.ended: Mapping[str, RetainedEnded] = {}
        """What is retained in memory of ended entities, by kind; replaced as a whole each time."""

    # ---- any thread ----

    def answer(self, key: Key, query: Query) -> Any:
        """Return the answer; None if the shard has to give it."""
        if isinstance(query, ListViews):
            return self._views.read(query)
        kind = self._kinds.get(kind_of(key))
        depends = kind.depends(query) if kind is not None and kind.depends is not None else ""
        if kind is None or not depends:
            return None
        if depends == KIND_STATES:
            answers = self._answers.get(kind.name)
            return answers.get((key, query)) if answers is not None else None
        state = self._states.get(key)
        if state is None:
            return None
        return attempt_query(kind.inspect[type(query)], state, query, At(now=0.0, key=key))

    # ---- the shard's thread ----

    def touch(self, touched: Iterable[Key], population: Population) -> None:
        """Note the new states of these entities in the frame that was made."""
        for key in touched:
            if kind_of(key) in self._read_kinds:
                self._next[key] = population.cells.get(key)

    def commit(self) -> None:
        """Publish the states of the frame that has become durable."""
        for key, state in self._next.items():
            self._answers.pop(kind_of(key), None)
            self._cold.pop(key, None)
            if state is None:
                self._states.pop(key, None)
            else:
                self._states[key] = state
        self._next = {}

    def drop(self, keys: Iterable[Key]) -> None:
        """Drop the states of entities that were packed or evicted."""
        for key in keys:
            self._states.pop(key, None)
            self._cold.pop(key, None)

    def keep(self, kind: Kind, key: Key, *, query: Query, state: Any, answer: Any) -> None:
        """Keep what the next reader needs of a query that was answered from durable states."""
        depends = kind.depends(query) if kind.depends is not None else ""
        if not depends or state is None:
            return
        if depends == KIND_STATES:
            answers = self._answers.setdefault(kind.name, {})
            if len(answers) >= ANSWERS_MAX:
                answers = self._answers[kind.name] = {}
            answers[key, query] = answer
        elif depends == OWN_STATE and key not in self._states:
            self._states[key] = state
            self._cold[key] = None
            if len(self._cold) > COLD_STATES_MAX:
                self.drop([next(iter(self._cold))])


class Undurable:
    """The changes of frames that are not durable: a query that would show one has to wait."""

    def __init__(self, population: Population) -> None:
        self._population = population
        self._in_flight: Mapping[Key, None] = {}
        self._open: Mapping[Key, None] = {}
        self._indexes: frozenset[Key] | None = None  # that these entities see; made when needed

    def open(self, changed: Mapping[Key, None]) -> None:
        """Set what has changed since the last frame was closed."""
        self._open, self._indexes = changed, None

    def framed(self) -> None:
        """Move the changes of the closed frame to those in flight."""
        self._in_flight, self._open, self._indexes = self._open, {}, None

    def committed(self) -> None:
        """Forget the changes of the frame in flight, which is durable."""
        self._in_flight, self._indexes = {}, None

    def shown_by(self, key: Key) -> bool:
        """Return whether the entity, or the index it sees, is among the changes."""
        if not self._in_flight and not self._open:
            return False
        if key in self._in_flight or key in self._open:
            return True
        see = self._population.index_key
        if self._indexes is None:
            changed = (*self._in_flight, *self._open)
            self._indexes = frozenset(see(each) for each in changed)
        return see(key) in self._indexes
