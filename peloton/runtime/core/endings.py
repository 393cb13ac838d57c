"""Entities that do not act any more: how they leave memory, and how they come back.

Turns "settled, and owing nothing" into a row of `ended`; the entity leaves memory once that row
is safe. A row that was loaded answers queries as it stands; only when a message has to be decided
does the entity live again, and its next fact carries its whole state (`Revived`), so that
recovery needs no row. It must never drop an entity whose row might not be there.
"""

from __future__ import annotations

from typing import Any

import msgspec

from peloton.runtime.core.answered import RequestLog
from peloton.runtime.core.codec import Codec, Entry, encode
from peloton.runtime.core.crowd import Crowd
from peloton.runtime.core.records import SHARD_KEY, EntitiesEvicted, RequestAnswered
from peloton.runtime.core.reports import Reports
from peloton.runtime.core.supervision import Failure, attempt, attempt_test
from peloton.runtime.core.turns import Turns
from peloton.runtime.ports import EndedRow
from peloton.runtime.vocabulary import Key, Kind, never_ends

ENDED_ROWS_PER_ROUND = 512

_Row = tuple[bytes, bytes, list[RequestAnswered]]
_Opened = tuple[Any, Crowd | None, list[RequestAnswered]]


class Endings:
    """The endings of one shard."""

    def __init__(
        self,
        turns: Turns,
        codec: Codec,
        *,
        request_log: RequestLog,
        rows_per_round: int = ENDED_ROWS_PER_ROUND,
    ) -> None:
        self._rows_per_round = rows_per_round
        self.full = 0  # rounds that left rows to the next, for figures
        self._turns = turns
        self._codec = codec
        self._answered = request_log
        self._held: dict[Key, tuple[bytes, _Opened]] = {}  # loaded rows that nobody has woken
        self._kept: dict[str, dict[Key, None]] = {}  # ended, but still welcome in memory
        self._deleted: dict[Key, None] = {}
        self._writing: dict[Key, Any] = {}  # rows of the bundle in flight, with their states
        self._deleting: dict[Key, None] = {}  # whose rows "deleted" are in the bundle in flight
        self._before_cut: dict[Key, None] = {}  # whose rows "deleted" the floor waits for
        self.floor_may_move = True
        self._left: list[Key] = []  # out of memory, and no frame says so yet
        self.known_absent: dict[Key, None] = {}
        self.waiting: dict[Key, None] = {}

    # ---- leaving ----

    def look(self, key: Key) -> None:
        """The entity was touched: note it when it has ended, or is gone."""
        population = self._turns.population
        kind = population.kind(key)
        if kind.ended is never_ends:
            return
        state = population.cells.get(key)
        if state is None:
            self._kept.get(kind.name, {}).pop(key, None)
            if key in self._turns.touched:
                self._deleted[key] = None
            return
        ended = attempt(self._has_ended, kind, key, state=state)
        if isinstance(ended, Failure):
            self._turns.record_failure(key, "whether it has ended", failure=ended)
        elif ended:
            self._note(kind, key)
        else:
            self._kept.get(kind.name, {}).pop(key, None)

    def rows(self, position: int, reports: Reports) -> tuple[EndedRow, ...]:
        """Rows for what had ended as of `position`, the last frame that is safe.

        An entity that has yet to say its last word stays; it is looked at again when that is seen.
        """
        rows = self._deletions(position)
        waiting, self.waiting = self.waiting, {}
        for key in waiting:
            full = len(rows) >= self._rows_per_round
            if full or key in self._turns.touched:
                self.waiting[key] = None
                self.full += full
            elif key not in reports.due and attempt_test(self._may_leave, key, reports):
                rows.append(self._row(key, position))
        return tuple(rows)

    def cut(self) -> None:
        """A checkpoint was cut: what was deleted up to there stands in no frame after it."""
        self._before_cut = dict(self._deleted)

    def committed(self) -> list[Key]:
        """The rows of the last bundle are safe: what has not changed since leaves memory.

        Returns who did.
        """
        population = self._turns.population
        left = []
        for key, (state, facts) in self._writing.items():
            if population.cells.get(key) == state and self._crowd_facts(key) == facts:
                self.leave(key)
                self._left.append(key)
                left.append(key)
        self._writing, self._deleting = {}, {}
        return left

    def leave(self, key: Key) -> None:
        """The entity goes out of memory, with all that is kept about it."""
        population = self._turns.population
        kind = population.kind(key)
        for name in (key, *((kind.follows(key),) if kind.follows is not None else ())):
            self._turns.wheel.drop(name)
            self._turns.alarms.drop(name)
            self._turns.resolver.owed_sends.forget(name)
        if key in population.cells:
            population.drop(key)
        self._turns.revived.pop(key, None)
        self._answered.forget(key)

    def left(self) -> Entry | None:
        """What the frame has to say first: who left memory since the last one."""
        if not self._left:
            return None
        keys, self._left = tuple(self._left), []
        return Entry(SHARD_KEY, (EntitiesEvicted(keys),))

    def gone(self, key: Key) -> None:
        """Recovery: the entity was deleted, and the row that says so may be missing."""
        if self._turns.population.kind(key).ended is not never_ends:
            self._deleted[key] = None

    def there(self, key: Key) -> None:
        """Recovery: it lives again, or has left with a row of its own: that row is no deletion."""
        self._deleted.pop(key, None)

    @property
    def busy(self) -> bool:
        """Whether rows are to be written."""
        return bool(self.waiting or self._deleted)

    def forgotten(self, key: Key) -> None:
        """Recovery let go of an entity: the next frame says so."""
        self._left.append(key)

    # ---- coming back ----

    def hold(self, key: Key, body: bytes) -> None:
        """A row was loaded; raises when it cannot be read."""
        self._held[key] = body, self._open(body)

    def knows(self, key: Key) -> bool:
        """Whether it is known what a load of this key would bring.

        Of one that was deleted the row that says so is not safe yet: an older one would be found,
        and the entity would live again.
        """
        known = key in self._held or key in self.known_absent
        return known or key in self._deleted or key in self._deleting

    def peek(self, key: Key) -> tuple[Any, Crowd | None] | None:
        """State and crowd of a loaded row, for a query; the row is let go."""
        held = self._held.pop(key, None)
        return None if held is None else held[1][:2]

    def revive(self, key: Key) -> None:
        """A message has to be decided: the entity of a loaded row lives again."""
        held = self._held.pop(key, None)
        if held is None:
            return
        body, (state, crowd, answers) = held
        population = self._turns.population
        if crowd is not None:
            population.crowds[crowd.key] = crowd
        population.put(key, state)
        population.since.pop(key, None)
        self._turns.time_cell(key, population.kind(key), old=state, new=state)
        self._turns.revived[key] = body
        for fact in answers:
            self._answered.remember(key, fact)
        self.look(key)

    def fold(self, body: bytes) -> None:
        """Recovery: the entity was revived by this frame."""
        state, crowd, answers = self._open(body)
        if crowd is not None:
            self._turns.population.crowds[crowd.key] = crowd
        key = self._codec.decode_entity(_open_row(body)[0])[0]
        self.there(key)
        self._turns.population.cells[key] = state
        self._turns.population.since.pop(key, None)
        for fact in answers:
            self._answered.remember(key, fact)

    # ---- inside ----

    def _deletions(self, position: int) -> list[EndedRow]:
        """Rows "deleted", at most half of a round, so that what has ended has its share.

        Of those deleted before a cut the checkpoint does not say so: once the floor has passed
        their frames, and before their rows are written, a crash would leave nothing but an older
        row of each, and it would live again. So the floor waits for them; for rows of this very
        round, too, which is one round longer than it must.
        """
        self.floor_may_move = not self._before_cut
        rows: list[EndedRow] = []
        later: dict[Key, None] = {}
        for key in self._deleted:
            if key in self._turns.touched:
                later[key] = None  # the next frame says anew what became of it
            elif len(rows) >= (self._rows_per_round + 1) // 2:
                later[key] = None
                self.full += 1
                continue
            elif key not in self._turns.population.cells:
                kind = self._turns.population.kind(key)
                rows.append(EndedRow(kind.name, key, position, b"", deleted=True))
                self._deleting[key] = None
            self._before_cut.pop(key, None)
        self._deleted = later
        return rows

    def _note(self, kind: Kind, key: Key) -> None:
        if kind.keep == 0:
            self.waiting[key] = None
            return
        kept = self._kept.setdefault(kind.name, {})
        kept[key] = None
        if len(kept) > kind.keep:
            oldest = next(iter(kept))
            del kept[oldest]
            self.waiting[oldest] = None

    def _has_ended(self, kind: Kind, key: Key, *, state: Any) -> bool:
        return bool(kind.ended(state, self._turns.population.index_for(kind, key)))

    def _may_leave(self, key: Key, reports: Reports) -> bool:
        population = self._turns.population
        kind = population.kind(key)
        state = population.cells.get(key)
        if state is None or not self._has_ended(kind, key, state=state):
            return False
        if key in population.dirty:
            return False  # its children have changed, and it has not yet looked what to report
        if kind.owed(state) or reports.pending.from_key(key):
            return False
        if kind.follows is None:
            return True
        crowd = population.crowd(kind.follows(key))
        return not any(crowd.kind.owed(each) for each in crowd.classes)

    def _row(self, key: Key, position: int) -> EndedRow:
        population = self._turns.population
        kind = population.kind(key)
        state = population.cells[key]
        crowd = population.crowds.get(kind.follows(key)) if kind.follows is not None else None
        body = encode(
            (
                self._codec.encode_cell(key, state),
                self._codec.encode_crowd(crowd) if crowd is not None else b"",
                [*self._answered.by_cell.get(key, {}).values()],
            )
        )
        self._writing[key] = (state, self._crowd_facts(key))
        return EndedRow(kind.name, key, position, body)

    def _crowd_facts(self, key: Key) -> Any:
        kind = self._turns.population.kind(key)
        if kind.follows is None:
            return None
        crowd = self._turns.population.crowds.get(kind.follows(key))
        return None if crowd is None else dict(crowd.classes)

    def _open(self, body: bytes) -> _Opened:
        return open_row(self._codec, body)


def open_row(codec: Codec, body: bytes) -> _Opened:
    """State, crowd and remembered answers of a row of `ended` that is not deleted."""
    cell, crowd, answers = _open_row(body)
    _, (state, _) = codec.decode_entity(cell)
    return state, codec.decode_entity(crowd)[1] if crowd else None, answers


def _open_row(body: bytes) -> _Row:
    row: _Row = msgspec.msgpack.decode(body, type=_Row)
    return row
