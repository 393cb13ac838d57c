"""Ended entities: how they leave memory, and how they come back.

An entity that has ended and owes nothing gets a row in the `ended` table, and is evicted from
memory once that row is durable. A loaded row answers queries as it is. Only when a message has to
be decided is the entity revived, and its next fact comes with its whole state (`Revived`), so that
recovery needs no row. It must never evict an entity whose row may not be durable.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from itertools import islice
from typing import Any, NamedTuple

from peloton.runtime.core.ended.ended_rows import EndedEntity, open_row, parts_of, seal
from peloton.runtime.core.ended.gathering import Gathering
from peloton.runtime.core.ended.parting import Partings
from peloton.runtime.core.ended.retention import Retained, RetainedEnded
from peloton.runtime.core.entities.codec import Codec, Entry
from peloton.runtime.core.entities.crowd import Crowd
from peloton.runtime.core.entities.encoding import encode
from peloton.runtime.core.entities.records import SHARD_KEY, EntitiesEvicted
from peloton.runtime.core.turning.replies import RequestLog
from peloton.runtime.core.turning.reports import Reports
from peloton.runtime.core.turning.supervision import Failure, attempt, attempt_test
from peloton.runtime.core.turning.turns import Turns
from peloton.runtime.kinds import Kind, never_ends
from peloton.runtime.ports import EndedRow
from peloton.runtime.vocabulary import Key

ENDED_ROWS_PER_ROUND = 512


class EndingBounds(NamedTuple):
    """The rows that one round may write, and the entities that are gathered before."""

    rows_per_round: int = ENDED_ROWS_PER_ROUND
    gathered: int = 1


class Endings:
    """The endings of one shard."""

    def __init__(
        self,
        turns: Turns,
        codec: Codec,
        *,
        request_log: RequestLog,
        bounds: EndingBounds,
    ) -> None:
        self._rows_per_round = bounds.rows_per_round
        self.full = 0  # entities left to the next round, for metrics
        self._turns = turns
        self._codec = codec
        self._request_log = request_log
        self._loaded: dict[Key, tuple[bytes, EndedEntity]] = {}  # rows read and not revived
        self._kept: dict[str, Retained] = {}  # by kind: ended, and cached
        # To be written as deleted. An ordered dict, because each round takes some from the front: a
        # plain dict would walk over all that were ever taken there.
        self._deleted: OrderedDict[Key, None] = OrderedDict()
        self._writing: dict[Key, Any] = {}  # rows in flight, with their states
        self._deleting: dict[Key, None] = {}  # in flight as deleted
        self._before_cut: dict[Key, None] = {}  # deletions that the floor waits for
        self.floor_may_move = True
        self._evicted: list[Key] = []  # out of memory, and not journaled as such yet
        self._to_check: dict[Key, None] = {}  # touched in this frame
        self.known_absent: dict[Key, None] = {}  # loads of this round that found no row
        self.waiting = Gathering(bounds.gathered)  # ended, and waiting for a row
        self.partings = Partings(turns)

    # ---- leaving ----

    def touched(self, kind: Kind, key: Key) -> None:
        """Note a touched entity. Whether it has ended is asked once, when the frame is closed.

        A deletion is noted at once: a message in the same frame must not load its older row.
        """
        if kind.ended is never_ends:
            return
        if key in self._turns.population.cells:
            self._to_check[key] = None
        else:
            self.check(key)

    def check(self, key: Key) -> None:
        """Note the entity if it has ended or was deleted."""
        population = self._turns.population
        kind = population.kind(key)
        if kind.ended is never_ends:
            return
        state = population.cells.get(key)
        if state is None:
            self._forget_kept(kind, key)
            if key in self._turns.touched:
                self._deleted[key] = None
            return
        ended = attempt(self._has_ended, kind, key, state=state)
        if type(ended) is Failure:
            self._turns.record_failure(key, "whether it has ended", failure=ended)
        elif ended:
            self._note(kind, key)
        else:
            self._forget_kept(kind, key)

    def rows(self, position: int, reports: Reports) -> tuple[EndedRow, ...]:
        """Return rows for what had ended as of `position`, the last frame that is durable.

        An entity whose last report is not seen yet stays; it is checked again when that is seen.
        A round looks at no more entities than it may write rows: the others wait where they are.
        """
        checks, self._to_check = self._to_check, {}
        for key in checks:
            self.check(key)
        self._let_go()
        if not self.busy:
            self.floor_may_move = not self._before_cut
            return ()
        rows = self._deletions(position)
        room = self._rows_per_round - len(rows)
        now = self._turns.now
        taken = self.waiting.take(room, now=now)
        self.full += len(self.waiting) if self.waiting.is_due(now) else 0
        for key in taken:
            if key in self._turns.touched:
                self._wait(key)
            elif key not in reports.due and attempt_test(self._may_leave, key, reports):
                rows.append(self._row(key, position))
        return tuple(rows)

    def cut(self) -> None:
        """Note that a checkpoint was cut: no frame after it holds the deletions up to here."""
        self._before_cut = dict(self._deleted)

    def committed(self) -> list[Key]:
        """Evict the unchanged entities whose rows are durable now; return their keys."""
        population = self._turns.population
        evicted = []
        for key, (state, classes) in self._writing.items():
            if population.cells.get(key) == state and self._crowd_classes(key) == classes:
                self.evict(key)
                self._evicted.append(key)
                evicted.append(key)
        self._writing, self._deleting = {}, {}
        return evicted

    def evict(self, key: Key) -> None:
        """Remove the entity from memory, with all that the shard keeps about it."""
        population = self._turns.population
        kind = population.kind(key)
        for name in (key, *((kind.follows(key),) if kind.follows is not None else ())):
            self._turns.wheel.drop(name)
            self._turns.alarms.drop(name)
            self._turns.calendar.drop(name)
            self._turns.resolver.owed_sends.forget(name)
        if key in population.cells:
            population.drop(key)
        self._turns.revived.pop(key, None)
        self._to_check.pop(key, None)  # else it would count as deleted
        if kind.name in self._kept:
            self._kept[kind.name].discard(key)
        self._request_log.forget(key)

    def evicted_entry(self) -> Entry | None:
        """Return the first entry of the next frame: the entities evicted since the last one."""
        if not self._evicted:
            return None
        keys, self._evicted = tuple(self._evicted), []
        return Entry(SHARD_KEY, (EntitiesEvicted(keys),))

    def note_deleted(self, key: Key) -> None:
        """Note in recovery that the entity was deleted, and its row "deleted" may be missing."""
        if self._turns.population.kind(key).ended is not never_ends:
            self._deleted[key] = None

    def note_not_deleted(self, key: Key) -> None:
        """Note in recovery that the entity exists again, or was evicted: no deletion is written."""
        self._deleted.pop(key, None)

    @property
    def busy(self) -> bool:
        """Whether rows are to be written."""
        return bool(self._deleted) or self.waiting.is_due(self._turns.now)

    def wait_for(self, touched: dict[Key, None]) -> bool:
        """Return whether no row can be written before a frame with these entities."""
        return not self.waiting.is_due(self._turns.now) or self.waiting.only(touched)

    @property
    def next_s(self) -> float | None:
        """When the next entity is too old to stay or to wait, in seconds since the epoch."""
        found = self.waiting.next_s, *(kept.next_s for kept in self._kept.values())
        return min((at for at in found if at is not None), default=None)

    def retained(self) -> dict[str, RetainedEnded]:
        """Return what is kept in memory although it has ended, by kind."""
        return {name: kept.figures for name, kept in self._kept.items()}

    def note_evicted(self, key: Key) -> None:
        """Note that recovery dropped an entity: the next frame journals it as evicted."""
        self._evicted.append(key)

    # ---- coming back ----

    def keep_loaded(self, key: Key, body: bytes) -> None:
        """Keep a row that was loaded. Raises if the row cannot be decoded."""
        self._loaded[key] = body, open_row(self._codec, body, key=key)

    def knows(self, key: Key) -> bool:
        """Return whether the result of a load of this key is known already.

        That is so for a deleted entity whose row "deleted" is not durable yet: a load would find an
        older row, and the entity would exist again.
        """
        known = key in self._loaded or key in self.known_absent
        return known or key in self._deleted or key in self._deleting

    def peek(self, key: Key) -> tuple[Any, Crowd | None] | None:
        """Return state and crowd of a loaded row, for a query; the row is dropped."""
        loaded = self._loaded.pop(key, None)
        return None if loaded is None else loaded[1][:2]

    def revive(self, key: Key) -> None:
        """Put the entity of a loaded row back into memory, because a message has to be decided."""
        loaded = self._loaded.pop(key, None) if self._loaded else None
        if loaded is None:
            return
        body, (state, crowd, answers) = loaded
        population = self._turns.population
        if crowd is not None:
            population.crowds[crowd.key] = crowd
        population.put(key, state)
        population.since.pop(key, None)
        self._turns.time_cell(key, population.kind(key), old=state, new=state)
        self._turns.revived[key] = body
        for fact in answers:
            self._request_log.remember(key, fact)
        self.check(key)

    def fold(self, body: bytes) -> None:
        """Revive the entity in recovery, as this frame did."""
        state, crowd, answers = self._open(body)
        if crowd is not None:
            self._turns.population.crowds[crowd.key] = crowd
        key = self._codec.decode_entity(parts_of(body)[0])[0]
        self.note_not_deleted(key)
        self._turns.population.cells[key] = state
        self._turns.population.since.pop(key, None)
        for fact in answers:
            self._request_log.remember(key, fact)

    # ---- inside ----

    def _deletions(self, position: int) -> list[EndedRow]:
        """Return rows "deleted", at most half of a round: ended entities get the other half.

        A checkpoint does not hold what was deleted before its cut. Once the floor has passed
        those frames, and before these rows are written, a crash would leave only an older row of
        each, and the entity would exist again. So the floor waits for them; also for the rows of
        this very round, which is one round longer than needed.
        """
        self.floor_may_move = not self._before_cut
        rows: list[EndedRow] = []
        room = (self._rows_per_round + 1) // 2
        self.full += max(0, len(self._deleted) - room)
        for key in [*islice(self._deleted, room)]:
            self._before_cut.pop(key, None)
            if key in self._turns.touched:
                self._deleted.move_to_end(key)  # the frame being made may have created it anew
                continue
            del self._deleted[key]
            if key not in self._turns.population.cells:
                kind = self._turns.population.kind(key)
                rows.append(EndedRow(kind.name, key, position, b"", deleted=True))
                self._deleting[key] = None
        return rows

    def _note(self, kind: Kind, key: Key) -> None:
        if self.partings.is_over(kind, key):
            self.partings.forget(key)
            if kind.name in self._kept:
                self._kept[kind.name].let_go(key, now=self._turns.now)
            self._wait(key)
        if key in self.waiting or key in self.partings:
            return
        retention = kind.retention
        if retention is None or retention.count == 0:
            self._leave(key)
            return
        kept = self._kept.get(kind.name)
        if kept is None:
            kept = self._kept[kind.name] = Retained(retention)
        if key not in kept:
            size = 0 if retention.size == math.inf else self._bytes_of(key)
            ended_at = attempt(retention.ended_at, self._turns.population.cells[key])
            if isinstance(ended_at, Failure):
                ended_at = 0.0  # it counts from now on
            kept.add(key, now=self._turns.now, size=size, ended_at=ended_at)
            self._let_go()

    def _wait(self, key: Key) -> None:
        if key not in self.waiting:
            size = self._bytes_of(key) if self.waiting.least > 1 else 0
            self.waiting.add(key, now=self._turns.now, size=size)

    def _bytes_of(self, key: Key) -> int:
        """Return the size of the row that an ended entity would have."""
        population = self._turns.population
        kind = population.kind(key)
        if key not in population.cells:
            return 0
        crowd = population.crowds.get(kind.follows(key)) if kind.follows is not None else None
        size = len(self._codec.encode_cell(key, population.cells[key]))
        return size + (len(self._codec.encode_crowd(crowd)) if crowd is not None else 0)

    def _let_go(self) -> None:
        """Evict the entities beyond the bounds of their kinds."""
        for kept in self._kept.values():
            for key in kept.leaving(self._turns.now, self._rows_per_round):
                self._leave(key)

    def _leave(self, key: Key) -> None:
        if self.partings.may_leave(self._turns.population.kind(key), key):
            self._wait(key)

    def _forget_kept(self, kind: Kind, key: Key) -> None:
        self.partings.forget(key)
        if kind.name in self._kept:
            self._kept[kind.name].discard(key)

    def _has_ended(self, kind: Kind, key: Key, *, state: Any) -> bool:
        return bool(kind.ended(state, self._turns.population.index_for(kind, key)))

    def _may_leave(self, key: Key, reports: Reports) -> bool:
        population = self._turns.population
        kind = population.kind(key)
        state = population.cells.get(key)
        if state is None or not self._has_ended(kind, key, state=state):
            return False
        if key in population.dirty:
            return False  # its children changed, and it has yet to be pursued and to report
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
                [*self._request_log.by_cell.get(key, {}).values()],
            )
        )
        self._writing[key] = (state, self._crowd_classes(key))
        return EndedRow(kind.name, key, position, seal(body))

    def _crowd_classes(self, key: Key) -> Any:
        kind = self._turns.population.kind(key)
        if kind.follows is None:
            return None
        crowd = self._turns.population.crowds.get(kind.follows(key))
        return None if crowd is None else dict(crowd.classes)

    def _open(self, body: bytes) -> EndedEntity:
        return open_row(self._codec, body)
