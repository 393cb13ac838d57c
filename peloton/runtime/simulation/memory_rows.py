"""Rows in memory, without faults: the simplest store that the fencing protocol can run on.

It must be as strict as a real store, or bugs would be hidden: a refusal carries the columns of its
condition only, a plain insert overwrites, a read finds losers' rows too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from peloton.runtime.core.journal.chain import GENESIS
from peloton.runtime.core.journal.statements import (
    Advance,
    Applied,
    Bump,
    ConditionalWrite,
    CreateCluster,
    CreateRegister,
    DeleteBucket,
    DeleteSegment,
    FrameRow,
    GrowCluster,
    MoveFloor,
    NameCluster,
    NoneApplied,
    NotApplied,
    OwnerWrite,
    PartRow,
    PlainWrite,
    ReadBucket,
    ReadCluster,
    ReadEnded,
    ReadName,
    ReadRegister,
    ReadSegment,
    ReadStatement,
    RegisterRow,
    RowsFound,
    Statement,
    StatementReply,
    WriteStored,
    WriteTogether,
)
from peloton.runtime.ports import (
    BUCKET_PARTS,
    ClusterRecord,
    EndedRow,
    ShardId,
)


class MemoryRows:
    """The tables of the schema, as dictionaries by primary key."""

    def __init__(self) -> None:
        self.cluster: ClusterRecord | None = None
        self.name = ""
        self.registers: dict[ShardId, RegisterRow] = {}
        self.journal: dict[tuple[ShardId, bytes], dict[tuple[int, int, int], FrameRow]] = {}
        self.checkpoint: dict[tuple[ShardId, int, int, int], dict[int, PartRow]] = {}
        self.ended: dict[tuple[ShardId, str, str], dict[int, EndedRow]] = {}

    def run(self, statements: Sequence[Statement]) -> list[StatementReply]:
        return [self._run(statement) for statement in statements]

    def _run(self, statement: Statement) -> StatementReply:
        if isinstance(statement, ConditionalWrite):
            return self._conditional(statement)
        if isinstance(statement, PlainWrite):
            self._plain(statement)
            return WriteStored()
        return RowsFound(tuple(self._read(statement)))

    def _conditional(self, statement: ConditionalWrite) -> StatementReply:
        if isinstance(statement, CreateCluster):
            return self._create_cluster(statement)
        if isinstance(statement, GrowCluster):
            return self._grow_cluster(statement)
        if isinstance(statement, NameCluster):
            return self._name_cluster(statement)
        if isinstance(statement, WriteTogether):
            return self._together(statement)
        row = self.registers.get(statement.shard)
        if isinstance(statement, CreateRegister):
            if row is not None:
                return NotApplied()
            new = RegisterRow(statement.epoch, statement.op, "", 0, GENESIS, 0, 0)
            self.registers[statement.shard] = new
            return Applied()
        if row is None:
            return NotApplied()
        fits = (
            row.op != statement.op if isinstance(statement, Bump) else row.op == statement.expected
        )
        if row.epoch != statement.epoch or not fits:
            return NotApplied(row.epoch, row.op)
        self.registers[statement.shard] = _moved(row, statement)
        return Applied()

    def _together(self, statement: WriteTogether) -> StatementReply:
        registers = self.registers
        before = {each.shard: registers.get(each.shard) for each in statement.writes}
        replies = [self._conditional(write) for write in statement.writes]
        if all(isinstance(reply, Applied) for reply in replies):
            return Applied()
        registers.update({shard: row for shard, row in before.items() if row is not None})
        return NoneApplied(
            tuple(NotApplied(row.epoch, row.op) if row else NotApplied() for row in before.values())
        )

    def _create_cluster(self, statement: CreateCluster) -> StatementReply:
        if self.cluster is not None:
            return NotApplied()
        self.cluster = statement.record
        return Applied()

    def _grow_cluster(self, statement: GrowCluster) -> StatementReply:
        if self.cluster is None or self.cluster.shards != statement.before:
            return NotApplied()
        self.cluster = msgspec.structs.replace(self.cluster, shards=dict(statement.after))
        return Applied()

    def _name_cluster(self, statement: NameCluster) -> StatementReply:
        if self.name:
            return NotApplied()
        self.name = statement.name
        return Applied()

    def _plain(self, statement: PlainWrite) -> None:
        if isinstance(statement, DeleteSegment):
            self._cut(statement)
        elif isinstance(statement, DeleteBucket):
            self.checkpoint.pop(
                (statement.shard, statement.position, statement.epoch, statement.bucket), None
            )
        elif isinstance(statement.row, FrameRow):
            frame = statement.row
            rows = self.journal.setdefault((statement.shard, frame.segment), {})
            rows[frame.position, -frame.epoch, frame.part] = frame
        elif isinstance(statement.row, PartRow):
            part = statement.row
            bucket = part.number // BUCKET_PARTS
            key = (statement.shard, part.position, part.epoch, bucket)
            self.checkpoint.setdefault(key, {})[part.number] = part
        else:
            ended = statement.row
            key_rows = self.ended.setdefault((statement.shard, ended.kind, ended.key), {})
            key_rows[ended.position] = ended

    def _cut(self, statement: DeleteSegment) -> None:
        where = (statement.shard, statement.segment)
        left = {
            key: row for key, row in self.journal.pop(where, {}).items() if key[0] > statement.upto
        }
        if left:
            self.journal[where] = left

    def _read(self, statement: ReadStatement) -> Iterator[object]:
        if isinstance(statement, ReadCluster):
            yield from [] if self.cluster is None else [self.cluster]
        elif isinstance(statement, ReadName):
            yield from [self.name] if self.name else []
        elif isinstance(statement, ReadRegister):
            yield from (
                [self.registers[statement.shard]] if statement.shard in self.registers else []
            )
        elif isinstance(statement, ReadSegment):
            frames = self.journal.get((statement.shard, statement.segment), {})
            keys = (key for key in frames if statement.first <= key[0] <= statement.last)
            yield from (frames[key] for key in sorted(keys))
        elif isinstance(statement, ReadBucket):
            parts = self.checkpoint.get(
                (statement.shard, statement.position, statement.epoch, statement.bucket), {}
            )
            yield from (parts[number] for number in sorted(parts))
        elif isinstance(statement, ReadEnded):
            ended = self.ended.get((statement.shard, statement.kind, statement.key), {})
            yield from [ended[max(ended)]] if ended else []

    def close(self) -> None:
        """Release nothing: the tables stay, as a server's would."""


def _moved(row: RegisterRow, statement: Bump | OwnerWrite) -> RegisterRow:
    replace = msgspec.structs.replace
    if isinstance(statement, Bump):
        return replace(row, epoch=statement.next_epoch, op=statement.op, owner=statement.owner)
    if isinstance(statement, Advance):
        row = replace(
            row, op=statement.op, last_position=statement.position, last_chain=statement.chain
        )
        begun = statement.segments
        return row if begun is None else replace(row, segments=begun)
    if isinstance(statement, MoveFloor):
        return replace(row, op=statement.op, floor=statement.floor, floor_epoch=statement.epoch)
    return replace(row, op=statement.op, owner="")
