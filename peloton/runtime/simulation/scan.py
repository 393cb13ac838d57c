"""All committed frames of a simulated store: read without a claim, kept, and read again.

Turns changes of the registers into committed frames, each checked once when it appears (R3: one
committer; R4: no gap, an unbroken chain), and the rows of a store into a shard as its next owner
would recover it. A scan writes nothing: it must leave no trace in the history.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from peloton.runtime.adapters.fenced_rows import read_items
from peloton.runtime.core.entities.codec import Codec
from peloton.runtime.core.journal import chain, fencing, segments
from peloton.runtime.core.journal.register import OwnedShard
from peloton.runtime.core.journal.statements import (
    FrameRow,
    ReadBucket,
    ReadEnded,
    ReadRegister,
    ReadSegment,
    RegisterRow,
    RowsFound,
    Statement,
    StatementReply,
)
from peloton.runtime.core.recovery import restore
from peloton.runtime.core.shard import Shard
from peloton.runtime.core.sharding import Sharding
from peloton.runtime.kinds import Kind
from peloton.runtime.ports import Damaged, Frame, ShardId
from peloton.runtime.simulation.store import SimulatedStore

PROCESS_BYTES = chain.OP_BYTES - 8
"""An op's name begins with the process that sent it: the owner, if the op was applied."""


class Contradiction(AssertionError):
    """Something that must never happen has happened. The text begins with the rule."""


class CommittedFrame(NamedTuple):
    """A frame as it was when its register advanced past it."""

    position: int
    epoch: int
    op: bytes
    chain: bytes
    body: bytes


class Scan:
    """All journals of one store, from their first frame on."""

    def __init__(self, store: SimulatedStore) -> None:
        self.frames: dict[ShardId, list[CommittedFrame]] = {}
        self.owners: dict[tuple[ShardId, int], bytes] = {}
        self._store = store
        self._rows: dict[ShardId, RegisterRow] = {}
        self.moved: list[ShardId] = []  # whose registers had changed at the last poll

    # ---- at every step ----

    def poll(self) -> list[tuple[ShardId, CommittedFrame]]:
        """Return the frames committed since the last poll, by shard. Raises `Contradiction`."""
        found: list[tuple[ShardId, CommittedFrame]] = []
        known = self._rows
        self.moved = []
        for shard, row in self._store.registers.registers.items():
            before = known.get(shard)
            if row is not before:
                known[shard] = row
                self.moved.append(shard)
                found += [(shard, frame) for frame in self._moved(shard, before, row=row)]
        return found

    def _moved(
        self, shard: ShardId, before: RegisterRow | None, *, row: RegisterRow
    ) -> list[CommittedFrame]:
        if before is not None and row.epoch < before.epoch:
            raise Contradiction(f"R3 {shard}: epoch {row.epoch} after {before.epoch}")
        if before is not None and row.last_position < before.last_position:
            text = f"position {row.last_position} after {before.last_position}"
            raise Contradiction(f"R4 {shard}: {text}")
        if before is not None and row.floor < before.floor:
            raise Contradiction(f"R4 {shard}: floor {row.floor} after {before.floor}")
        if row.floor > row.last_position:
            raise Contradiction(f"R4 {shard}: floor {row.floor} beyond {row.last_position}")
        if row.epoch:
            self._owned(shard, row.epoch, op=row.op)
        frames = self.frames.setdefault(shard, [])
        begun = len(frames)
        walk = chain.Walk(shard, floor=begun, note=frames[-1].chain if frames else chain.GENESIS)
        for committed in self._read(walk, row):
            if frames and committed.epoch < frames[-1].epoch:
                text = f"position {committed.position} is of epoch {committed.epoch}"
                raise Contradiction(f"R3 {shard}: {text}, after one of {frames[-1].epoch}")
            self._owned(shard, committed.epoch, op=committed.op)
            frames.append(committed)
        try:
            walk.finish(row.last_position, row.last_chain)
        except chain.Mismatch as mismatch:
            raise Contradiction(f"R4 {mismatch}") from mismatch
        return frames[begun:]

    def _owned(self, shard: ShardId, epoch: int, *, op: bytes) -> None:
        process = op[:PROCESS_BYTES]
        first = self.owners.setdefault((shard, epoch), process)
        if first != process:
            text = f"epoch {epoch} has two owners, {first.hex()} and {process.hex()}"
            raise Contradiction(f"R3 {shard}: {text}")

    def _read(self, walk: chain.Walk, row: RegisterRow) -> Iterator[CommittedFrame]:
        """Yield the frames after the last that is known, as a reader of the rows finds them."""
        tail = range(walk.position + 1, row.last_position + 1)
        if not tail:
            return
        rows: list[object] = []
        for part in segments.parts(row.segments, tail):
            rows += self._store.cells.read(ReadSegment(walk.shard, *part))
        for parts in fencing.pick_frames(tuple(rows), epoch=row.epoch, tail=tail):
            body, first = _body(parts), parts[0]
            try:
                walk.step(first, body)
            except chain.Mismatch as mismatch:
                raise Contradiction(f"R4 {mismatch}") from mismatch
            yield CommittedFrame(first.position, first.epoch, first.op, first.chain, body)

    # ---- at quiet points ----

    def reread(self, shard: ShardId) -> int:
        """Check that the committed rows still there are unchanged; return the number of frames."""
        row, frames = self._store.registers.registers[shard], self.frames.get(shard, [])
        found: dict[int, list[FrameRow]] = {}
        for part in segments.parts(row.segments, range(1, row.last_position + 1)):
            for each in self._store.cells.read(ReadSegment(shard, *part)):
                if not isinstance(each, FrameRow) or each.position > len(frames):
                    continue
                if each.epoch == frames[each.position - 1].epoch:
                    found.setdefault(each.position, []).append(each)
        for position, parts in found.items():
            known = frames[position - 1]
            parts.sort(key=lambda each: each.part)
            if (parts[0].chain, _body(parts)) != (known.chain, known.body):
                raise Contradiction(f"R4 {shard}: frame {position} is not what it was")
        missing = [at for at in range(row.floor + 1, len(frames) + 1) if at not in found]
        if missing:
            raise Contradiction(f"R4 {shard}: committed frames {missing[:5]} are gone")
        return len(found)


class Maker:
    """Makes shards as recovery does: from a checkpoint and its tail, or from the first frame."""

    def __init__(
        self, store: SimulatedStore, kinds: Mapping[str, Kind], *, sharding: Sharding
    ) -> None:
        self._store = store
        self._kinds = kinds
        self._sharding = sharding
        self._codec = Codec(kinds)

    def recovered(self, shard: ShardId) -> Shard:
        """Return the shard as its next owner would recover it now."""
        row = self._store.registers.registers[shard]
        owned = OwnedShard(shard, row)
        try:
            parts = [*read_items(self._run, fencing.load_checkpoint(owned), kind=bytes)]
            frames = [*read_items(self._run, fencing.load_tail(owned), kind=Frame)]
        except Damaged as damage:
            raise Contradiction(f"R4 {damage}") from damage
        core = self._empty(shard, row.epoch)
        restore(core, parts, frames=frames, floor=row.floor)
        return core

    def replayed(self, shard: ShardId, frames: list[CommittedFrame]) -> Shard:
        """Return the shard made from all its frames since the first."""
        core = self._empty(shard, frames[-1].epoch if frames else 0)
        tail = (Frame(frame.position, frame.body) for frame in frames)
        restore(core, (), frames=tail, floor=0)
        return core

    def _empty(self, shard: ShardId, epoch: int) -> Shard:
        core = Shard(shard, self._kinds, sharding=self._sharding, codec=self._codec)
        core.epoch = epoch
        return core

    def _run(self, statements: Sequence[Statement]) -> list[StatementReply]:
        """Return the rows as they are, without faults."""
        return [RowsFound(self._rows(each)) for each in statements]

    def _rows(self, statement: Statement) -> tuple[object, ...]:
        if isinstance(statement, ReadRegister):
            return (self._store.registers.registers[statement.shard],)
        assert isinstance(statement, (ReadSegment, ReadBucket, ReadEnded))
        return tuple(self._store.cells.read(statement))


def _body(parts: list[FrameRow]) -> bytes:
    if [part.part for part in parts] != list(range(parts[0].parts)):
        raise Contradiction(f"R4 frame {parts[0].position} is not whole")
    return b"".join(part.body for part in parts)
