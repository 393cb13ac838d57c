"""The store of a cluster of one daemon: an embedded database, as SQLite is, with its faults.

Turns the steps of a `MemoryJournal` into what its disk holds, and shows that as registers and rows,
so that the same checks read it. A round is written all or not at all. What a process was told is
synced; of what it was not told yet, because it died or had no answer, a kill keeps all, and a power
cut all or nothing. Until that is decided nobody may count on it, so checks do not see it. The
witness beside the journal is not simulated. It must not lose what was acknowledged.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import NoReturn

from msgspec.structs import replace

from peloton.runtime.core.journal.segments import SegmentStart
from peloton.runtime.core.journal.statements import (
    FrameRow,
    ReadBucket,
    ReadEnded,
    ReadSegment,
    RegisterRow,
)
from peloton.runtime.ports import BUCKET_PARTS, ShardId, Sizes
from peloton.runtime.shells.shell import Clock
from peloton.runtime.simulation.cells import Cell, Partition, PlainRow, RowKey, row_key
from peloton.runtime.simulation.memory_journal import (
    AnswerLost,
    MemoryJournal,
    MemoryStore,
    StoreCall,
)
from peloton.runtime.simulation.quorum_reads import PlainRead
from peloton.runtime.simulation.shard_files import ShardFiles
from peloton.runtime.simulation.store import SimulatedStore

READS = ("read_checkpoint", "read_tail", "read_ended")
LOST = 0.5
"""Share of the power cuts in which nothing is left of what was not synced."""
NO_SEGMENT = (SegmentStart(1, b""),)
"""An embedded journal has no segments; readers get one that holds everything."""


class EmbeddedStore(SimulatedStore):
    """One database of one process at a time."""

    def __init__(self, chance: random.Random, clock: Clock) -> None:
        super().__init__(chance, clock)
        self.disk = MemoryStore()
        self.registers = _Registers(self)  # type: ignore[assignment]
        self.cells = _Rows(self)  # type: ignore[assignment]
        self._unsynced: dict[ShardId, ShardFiles] = {}  # as they were before
        self._appending: dict[ShardId, None] = {}  # of the round that is being appended

    def journal(
        self, member: str, *, process: bytes, moment: Callable[[str, str], None]
    ) -> MemoryJournal:
        """The journal of a new process. What the last one wrote without being told so is there.

        `moment` is called at both sides of each step; the process may die there.
        """
        self._unsynced, self._appending = {}, {}
        return MemoryJournal(
            self.disk, process=process, hook=lambda call: self._at(member, call, moment=moment)
        )

    def files(self) -> dict[ShardId, ShardFiles]:
        """What is surely kept of each shard."""
        return {**self.disk.shards, **self._unsynced}

    def power_cut(self) -> None:
        """The machine loses its memory."""
        self.uses += 1
        self.struck["power_cut"] += 1
        if self.chance.random() < LOST:
            self.disk.shards.update(self._unsynced)
        self._unsynced, self._appending = {}, {}

    @property
    def on_its_way(self) -> int:
        """How many shards have writes that nobody was told of."""
        return len(self._unsynced)

    def _at(self, member: str, call: StoreCall, *, moment: Callable[[str, str], None]) -> None:
        self.uses += 1
        moment(call.name, call.moment)
        before = call.moment == "before"
        if before and member in self._cut:
            self.struck["cut"] += 1
            self._fail("disk I/O error")
        if before and self._draws.strikes("unavailable", self.faults.unavailable):
            self._fail("database is locked")
        if not before and self._draws.strikes("lose_reply", self.faults.lose_reply):
            self._fail("disk I/O error, though it was done")
        if before and call.name not in READS:
            self._unsynced.setdefault(call.shard, _copy(self.disk.shards[call.shard]))
        if call.name == "append" and before:
            self._appending[call.shard] = None
        elif not before:
            self._appending.pop(call.shard, None)
            if call.name not in READS and not self._appending:
                # There is one log: what the process is told now has all that was written before it.
                self._unsynced = {}

    def _fail(self, text: str) -> NoReturn:
        """No shard of a round is told what became of it where one step of it fails."""
        self._appending = {}
        raise AnswerLost(text)


class _Registers:
    """The registers, as a reader of rows sees them."""

    def __init__(self, store: EmbeddedStore) -> None:
        self._store = store
        self._shown: dict[ShardId, tuple[RegisterRow, RegisterRow]] = {}

    @property
    def registers(self) -> dict[ShardId, RegisterRow]:
        """By shard; the same object as long as it is the same row."""
        found: dict[ShardId, RegisterRow] = {}
        for shard, files in self._store.files().items():
            known = self._shown.get(shard)
            if known is None or known[0] is not files.register:
                shown = replace(files.register, segments=NO_SEGMENT)
                known = self._shown[shard] = (files.register, shown)
            found[shard] = known[1]
        return found


class _Rows:
    """The plain rows, as a reader of partitions sees them."""

    def __init__(self, store: EmbeddedStore) -> None:
        self._store = store

    @property
    def rows(self) -> dict[Partition, dict[RowKey, Cell]]:
        """All of them, by partition and key."""
        found: dict[Partition, dict[RowKey, Cell]] = {}
        for shard, files in self._store.files().items():
            for where, row in _partitions(shard, files):
                found.setdefault(where, {})[row_key(row)] = Cell(0, row)
        return found

    def read(self, statement: PlainRead) -> Iterator[PlainRow]:
        """As of the cells of a fleet's store."""
        files = self._store.files()[statement.shard]
        if isinstance(statement, ReadSegment):
            for position in range(statement.first, statement.last + 1):
                yield from files.frames.get(position, ())
        elif isinstance(statement, ReadBucket):
            rows = files.checkpoints.get((statement.position, statement.epoch), [])
            yield from (row for row in rows if row.number // BUCKET_PARTS == statement.bucket)
        elif isinstance(statement, ReadEnded):
            ended = files.ended.get((statement.kind, statement.key), {})
            yield from [ended[max(ended)]] if ended else []

    def sizes(self, shard: ShardId) -> Sizes:
        """Rows and bytes of the shard."""
        return MemoryJournal(self._store.disk, process=bytes(16)).sizes(shard)


def _partitions(shard: ShardId, files: ShardFiles) -> Iterator[tuple[Partition, PlainRow]]:
    frames: list[FrameRow] = [row for rows in files.frames.values() for row in rows]
    yield from ((Partition("journal", shard, (b"",)), row) for row in frames)
    for key, parts in files.checkpoints.items():
        for part in parts:
            bucket = part.number // BUCKET_PARTS
            yield Partition("checkpoint", shard, (*key, bucket)), part
    for (kind, name), rows in files.ended.items():
        yield from ((Partition("ended", shard, (kind, name)), row) for row in rows.values())


def _copy(files: ShardFiles) -> ShardFiles:
    """As it is now, whatever is written to it later."""
    twin = ShardFiles()
    twin.register = files.register
    twin.frames = dict(files.frames)
    twin.checkpoints = {key: list(rows) for key, rows in files.checkpoints.items()}
    twin.ended = {key: dict(rows) for key, rows in files.ended.items()}
    return twin
