"""Recovery: rebuilds a shard from its checkpoint and tail.

Turns checkpoint parts and frames into the committed state, derives the indexes, and lets every cell
and crowd resend once what it owes. A fact that does not fold raises `Unrecoverable`, which names
shard, position, key and fact; the shard stops rather than skip it. Recovery decides nothing: all
decisions are in the frames.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from peloton.runtime.core.checkpoint import ENTITY, CheckpointItem, read_parts
from peloton.runtime.core.entities.codec import Entry
from peloton.runtime.core.entities.crowd import ClassChange, Crowd, values_for
from peloton.runtime.core.entities.records import (
    RECORDS,
    CheckpointCut,
    EntitiesEvicted,
    EpochSeen,
    RequestAnswered,
    Revived,
)
from peloton.runtime.core.shard import Shard
from peloton.runtime.core.turning.story import StoryLine
from peloton.runtime.core.turning.supervision import attempt_at
from peloton.runtime.core.turning.turn import fold_facts
from peloton.runtime.ports import Frame, ShardId
from peloton.runtime.vocabulary import Fact, Key

_RECORDS = frozenset(RECORDS.values())


class Unrecoverable(Exception):
    """The content of a shard's journal does not fold; the text says where.

    `stage` is one of the stages of `_Where`; `position` is that of a frame in the tail, else 0;
    `reason` is the error without where it happened.
    """

    def __init__(self, where: _Where, error: Exception) -> None:
        self.stage, self.key = where.stage, where.key
        self.position = where.number if where.stage == TAIL else 0
        self.reason = f"{type(error).__name__}: {error}"
        super().__init__(f"{where.text()}: {self.reason}")


CHECKPOINT, TAIL, DERIVED = "checkpoint at position", "position", "recovered up to position"


class _Where:
    """The progress of a recovery, for its error text."""

    __slots__ = ("fact", "key", "number", "piece", "shard", "stage")

    def __init__(self, shard: ShardId) -> None:
        self.shard = shard
        self.stage = ""
        self.number = 0
        self.piece: int | None = None
        self.key = ""
        self.fact = ""

    def at(self, stage: str, number: int, *, piece: int | None = None) -> None:
        """Begin another frame, another piece of the checkpoint, or the stage after both."""
        self.stage, self.number, self.piece, self.key, self.fact = stage, number, piece, "", ""

    def each(self, facts: Iterable[Fact]) -> Iterator[Fact]:
        """Yield the same facts, and note which one is being folded."""
        for fact in facts:
            self.fact = type(fact).__name__
            yield fact

    def text(self) -> str:
        """Return shard, position, key and fact, as far as they are known."""
        where = [f"{self.shard.group}-{self.shard.number}", f"{self.stage} {self.number}"]
        if self.piece is not None:
            where.append(f"piece {self.piece}")
        return ", ".join([*where, *filter(None, (self.key, self.fact and f"fact {self.fact}"))])

    def failed(self, error: Exception) -> Unrecoverable:
        """Return the exception to raise in place of `error`."""
        return Unrecoverable(self, error)


def restore(shard: Shard, parts: Iterable[bytes], *, frames: Iterable[Frame], floor: int) -> None:
    """Fill an empty shard; afterwards it is ready to take mail. Raises `Unrecoverable`."""
    where = _Where(shard.id)
    shard.position = floor
    shard.changes.begin(floor)
    for number, piece in enumerate(read_parts(_count_bytes(shard, parts))):
        where.at(CHECKPOINT, floor, piece=number)
        attempt_at(where.failed, _restore_piece, shard, piece, where=where)
    for frame in frames:
        shard.checkpointer.tail_bytes += len(frame.body)
        where.at(TAIL, frame.position)
        attempt_at(where.failed, _fold_frame, shard, frame, where=where)
    where.at(DERIVED, shard.position)
    attempt_at(where.failed, _derive, shard, where=where)


def _count_bytes(shard: Shard, parts: Iterable[bytes]) -> Iterator[bytes]:
    for part in parts:
        shard.checkpointer.last_bytes += len(part)
        yield part


def _restore_piece(shard: Shard, piece: CheckpointItem, *, where: _Where) -> None:
    if piece.form != ENTITY:
        entry = shard.codec.decode_entry(piece.body)
        where.key = entry.key
        for fact in where.each(entry.facts):
            _fold_record(shard, entry.key, fact=fact)
        return
    key, entity = shard.codec.decode_entity(piece.body)
    where.key = key
    population = shard.population
    if isinstance(entity, Crowd):
        population.crowds[key] = entity
        return
    state, since = entity
    population.cells[key] = state
    if since:
        population.since[key] = since


def _fold_frame(shard: Shard, frame: Frame, *, where: _Where) -> None:
    now, entries = shard.codec.decode_frame(frame.body)
    shard.turns.now = max(shard.turns.now, now)
    shard.position = frame.position
    # Divided evenly: the sizes of single entries are not known, and only the sum is bounded.
    size = len(frame.body) // max(1, len(entries))
    lines = tuple(_line(entry, now, size=size) for entry in entries if _facts_of_kind(entry))
    _restore_lines(shard, frame.position, lines=lines)
    for entry in entries:
        where.key = entry.key
        own = _facts_of_kind(entry)
        if len(own) != len(entry.facts):
            for record in where.each(each for each in entry.facts if type(each) in _RECORDS):
                _fold_record(shard, entry.key, fact=record)
        if own:
            _fold_entry(shard, entry, facts=own, now=now, where=where)


def _facts_of_kind(entry: Entry) -> tuple[Fact, ...]:
    """Return the facts of an entry without those of the runtime."""
    return tuple(fact for fact in entry.facts if type(fact) not in _RECORDS)


def _line(entry: Entry, now: float, *, size: int) -> StoryLine:
    facts = _facts_of_kind(entry)
    return StoryLine(
        now, entry.key, entry.members, entry.cause, facts, entry.because, size, entry.who
    )


def _restore_lines(shard: Shard, position: int, *, lines: tuple[StoryLine, ...]) -> None:
    """Restore story and change feed, as far back as the tail reaches."""
    for line in lines:
        shard.turns.story.add(line)
    shard.changes.add(position, lines)


def _fold_entry(
    shard: Shard, entry: Entry, *, facts: tuple[Fact, ...], now: float, where: _Where
) -> None:
    kind = shard.population.kind(entry.key)
    if kind.crowd is not None:
        _fold_members(shard, entry, facts=facts, now=now, where=where)
        return
    if entry.members:
        raise ValueError(f"facts of members, but {kind.name} is no crowd")
    old = shard.population.cells.get(entry.key)
    new = fold_facts(kind, old, facts=where.each(facts))
    _restore_cell(shard, entry.key, old=old, new=new, now=now)


def _fold_members(
    shard: Shard, entry: Entry, *, facts: tuple[Fact, ...], now: float, where: _Where
) -> None:
    population = shard.population
    kind, crowd = population.kind(entry.key), population.crowd(entry.key)
    for state, raw in crowd.split(entry.members):
        values = values_for(raw, entry.members, values=entry.values)
        new = fold_facts(kind, state, facts=where.each(facts))
        crowd.apply(raw, ClassChange(state, new, facts=facts, values=values), now)
    if crowd.classes:
        population.crowds[entry.key] = crowd
    else:
        population.crowds.pop(entry.key, None)


def _restore_cell(shard: Shard, key: Key, *, old: object, new: object, now: float) -> None:
    population = shard.population
    kind = population.kind(key)
    if new is None:
        population.cells.pop(key, None)
        population.since.pop(key, None)
        shard.endings.note_deleted(key)
        return
    population.cells[key] = new
    shard.endings.note_not_deleted(key)
    after = kind.deadline(new)
    before = kind.deadline(old) if old is not None else None
    if after is None:
        population.since.pop(key, None)
    elif before is None or before[0] != after[0] or key not in population.since:
        population.since[key] = now


def _fold_record(shard: Shard, key: Key, *, fact: object) -> None:
    if isinstance(fact, RequestAnswered):
        shard.request_log.remember(key, fact)
    elif isinstance(fact, Revived):
        shard.endings.fold(fact.body)
    elif isinstance(fact, EntitiesEvicted):
        for name in fact.keys:
            _evict(shard, Key(name))
    elif isinstance(fact, EpochSeen):
        shard.epoch_filter.fold(fact)
    elif isinstance(fact, CheckpointCut):
        shard.turns.now = max(shard.turns.now, fact.at)
    else:
        shard.deferred.fold(key, fact)


def _evict(shard: Shard, key: Key) -> None:
    kind = shard.population.kind(key)
    state = shard.population.cells.pop(key, None)
    shard.population.since.pop(key, None)
    shard.endings.note_not_deleted(key)
    if kind.follows is not None:
        shard.population.crowds.pop(kind.follows(key), None)
    # The remembered replies of an ended entity are in its row. An unfinished one was dropped
    # without a row: its replies stay, or a late copy of a refused request would be carried out.
    if state is None or not _unfinished(shard, key, state=state):
        shard.request_log.forget(key)


def _drop_unfinished(shard: Shard) -> None:
    """Drop requests in pieces whose last piece never arrived: they were never acknowledged."""
    cells = shard.population.cells
    for key in [key for key, state in cells.items() if _unfinished(shard, key, state=state)]:
        del cells[key]
        shard.population.since.pop(key, None)
        # Journaled, or the next recovery would fold the old pieces under those sent anew.
        shard.endings.note_evicted(key)


def _unfinished(shard: Shard, key: Key, *, state: object) -> bool:
    return shard.population.kind(key).unfinished(state)


def _derive(shard: Shard, *, where: _Where) -> None:
    population, turns = shard.population, shard.turns
    _drop_unfinished(shard)
    population.rebuild()
    for key, state in population.cells.items():
        where.key = key
        turns.time_cell(key, population.kind(key), old=state, new=state)
        turns.resolver.recover(key)
        shard.endings.check(key)
        turns.touched[key] = None
    for crowd in population.crowds.values():
        where.key = crowd.key
        crowd.rebuild_deadlines()
        turns.time_crowd(crowd)
        turns.resolver.recover(crowd.key)
    where.key = ""
    shard.idleness.touch(turns.touched, turns.now)
    shard.views.touch(turns)
    shard.views.commit()
    shard.reads.touch(turns.touched, population)
    shard.reads.commit()
    turns.touched = {}
    shard.resend_everything_owed()
