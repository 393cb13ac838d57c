"""Rows in memory, free of faults: the plainest store that the fencing protocol can run on.

It must not be kinder than a real one where that would hide a mistake: a refusal carries the
columns of its condition only, a plain insert overwrites, a read finds losers' rows too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from peloton.runtime.core.chain import GENESIS
from peloton.runtime.core.statements import (
    Advance,
    Applied,
    Bump,
    Conditional,
    CreateCluster,
    CreateRegister,
    DeleteBucket,
    DeleteSegment,
    Done,
    Found,
    FrameRow,
    Free,
    GrowCluster,
    InsertRow,
    MoveFloor,
    NameCluster,
    NotApplied,
    PartRow,
    Plain,
    Read,
    ReadBucket,
    ReadCluster,
    ReadEnded,
    ReadName,
    ReadRegister,
    ReadSegment,
    RegisterRow,
    Reply,
    Statement,
)
from peloton.runtime.ports import (
    BUCKET_PARTS,
    SEGMENT_FRAMES,
    Cluster,
    EndedRow,
    ShardId,
    Sizes,
)

CONDITIONAL = (
    CreateCluster, GrowCluster, NameCluster, CreateRegister, Bump, Advance, MoveFloor, Free
)  # fmt: skip
PLAIN = (InsertRow, DeleteSegment, DeleteBucket)


class MemoryRows:
    """The tables of the schema, as dictionaries by primary key."""

    def __init__(self) -> None:
        self.cluster: Cluster | None = None
        self.name = ""
        self.registers: dict[ShardId, RegisterRow] = {}
        self.journal: dict[tuple[ShardId, int], dict[tuple[int, int, int], FrameRow]] = {}
        self.checkpoint: dict[tuple[ShardId, int, int, int], dict[int, PartRow]] = {}
        self.ended: dict[tuple[ShardId, str, str], dict[int, EndedRow]] = {}

    def run(self, statements: Sequence[Statement]) -> list[Reply]:
        return [self._run(statement) for statement in statements]

    def _run(self, statement: Statement) -> Reply:
        if isinstance(statement, CONDITIONAL):
            return self._conditional(statement)
        if isinstance(statement, PLAIN):
            self._plain(statement)
            return Done()
        return Found(tuple(self._read(statement)))

    def _conditional(self, ask: Conditional) -> Reply:
        if isinstance(ask, CreateCluster):
            return self._create_cluster(ask)
        if isinstance(ask, GrowCluster):
            return self._grow_cluster(ask)
        if isinstance(ask, NameCluster):
            return self._name_cluster(ask)
        row = self.registers.get(ask.shard)
        if isinstance(ask, CreateRegister):
            if row is not None:
                return NotApplied()
            self.registers[ask.shard] = RegisterRow(0, ask.op, "", 0, GENESIS, 0, 0)
            return Applied()
        if row is None:
            return NotApplied()
        fits = row.op != ask.op if isinstance(ask, Bump) else row.op == ask.expected
        if row.epoch != ask.epoch or not fits:
            return NotApplied(row.epoch, row.op)
        self.registers[ask.shard] = _moved(row, ask)
        return Applied()

    def _create_cluster(self, ask: CreateCluster) -> Reply:
        if self.cluster is not None:
            return NotApplied()
        self.cluster = ask.record
        return Applied()

    def _grow_cluster(self, ask: GrowCluster) -> Reply:
        if self.cluster is None or self.cluster.shards != ask.before:
            return NotApplied()
        self.cluster = msgspec.structs.replace(self.cluster, shards=dict(ask.after))
        return Applied()

    def _name_cluster(self, ask: NameCluster) -> Reply:
        if self.name:
            return NotApplied()
        self.name = ask.name
        return Applied()

    def _plain(self, ask: Plain) -> None:
        if isinstance(ask, DeleteSegment):
            self.journal.pop((ask.shard, ask.segment), None)
        elif isinstance(ask, DeleteBucket):
            self.checkpoint.pop((ask.shard, ask.position, ask.epoch, ask.bucket), None)
        elif isinstance(ask.row, FrameRow):
            frame = ask.row
            segment = (frame.position - 1) // SEGMENT_FRAMES
            rows = self.journal.setdefault((ask.shard, segment), {})
            rows[frame.position, -frame.epoch, frame.part] = frame
        elif isinstance(ask.row, PartRow):
            part = ask.row
            bucket = part.number // BUCKET_PARTS
            key = (ask.shard, part.position, part.epoch, bucket)
            self.checkpoint.setdefault(key, {})[part.number] = part
        else:
            ended = ask.row
            key_rows = self.ended.setdefault((ask.shard, ended.kind, ended.key), {})
            key_rows[ended.position] = ended

    def _read(self, ask: Read) -> Iterator[object]:
        if isinstance(ask, ReadCluster):
            yield from [] if self.cluster is None else [self.cluster]
        elif isinstance(ask, ReadName):
            yield from [self.name] if self.name else []
        elif isinstance(ask, ReadRegister):
            yield from [self.registers[ask.shard]] if ask.shard in self.registers else []
        elif isinstance(ask, ReadSegment):
            frames = self.journal.get((ask.shard, ask.segment), {})
            yield from (frames[key] for key in sorted(frames))
        elif isinstance(ask, ReadBucket):
            parts = self.checkpoint.get((ask.shard, ask.position, ask.epoch, ask.bucket), {})
            yield from (parts[number] for number in sorted(parts))
        elif isinstance(ask, ReadEnded):
            ended = self.ended.get((ask.shard, ask.kind, ask.key), {})
            yield from [ended[max(ended)]] if ended else []

    def sizes(self, shard: ShardId) -> Sizes:
        frames = [r for key, rows in self.journal.items() if key[0] == shard for r in rows.values()]
        parts = [
            r for key, rows in self.checkpoint.items() if key[0] == shard for r in rows.values()
        ]
        ended = [r for key, rows in self.ended.items() if key[0] == shard for r in rows.values()]
        return Sizes(
            len(frames), sum(len(row.body) for row in frames),
            len(parts), sum(len(row.body) for row in parts),
            len(ended), sum(len(row.body) for row in ended),
        )  # fmt: skip

    def close(self) -> None:
        """Nothing to let go of; the tables stay, as a server's would."""


def _moved(row: RegisterRow, ask: Bump | Advance | MoveFloor | Free) -> RegisterRow:
    replace = msgspec.structs.replace
    if isinstance(ask, Bump):
        return replace(row, epoch=ask.epoch + 1, op=ask.op, owner=ask.owner)
    if isinstance(ask, Advance):
        return replace(row, op=ask.op, last_position=ask.position, last_chain=ask.chain)
    if isinstance(ask, MoveFloor):
        return replace(row, op=ask.op, floor=ask.floor, floor_epoch=ask.epoch)
    return replace(row, op=ask.op, owner="")
