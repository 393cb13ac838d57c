"""The statements of port `Rows` as CQL: one text each, its values, and its answer.

Turns a statement into what a prepared one is bound with, and the rows that come back into a
`StatementReply`. A result of unexpected shape makes its statement unclear. No other text is ever
sent to the tables.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Hashable, Sequence
from typing import Any

from msgspec.structs import replace

from peloton.runtime.core.ended.gathering import bucket_of
from peloton.runtime.core.journal import segments
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
    Free,
    GrowCluster,
    InsertRow,
    MoveFloor,
    NameCluster,
    NoneApplied,
    NotApplied,
    PartRow,
    ReadBucket,
    ReadCluster,
    ReadEnded,
    ReadName,
    ReadRegister,
    ReadSegment,
    ReadStatement,
    RegisterRow,
    RegisterWrite,
    RowsFound,
    Statement,
    StatementFailed,
    StatementReply,
    WriteTogether,
)
from peloton.runtime.ports import BUCKET_PARTS, ClusterRecord, EndedRow, ShardId

SHARD_CONDITION = "shard_group = ? AND shard_number = ?"
REGISTER = f"WHERE part = ? AND {SHARD_CONDITION}"
OURS = f"{REGISTER} IF epoch = ? AND op = ?"
REGISTERS_PART = 1
"""All registers lie in one partition, so that one conditional write can move many of them. It is
bound, not written into the text: the driver finds the partition's servers by the bound values."""
SEGMENT = f"FROM frames WHERE segment = ? AND {SHARD_CONDITION}"
BUCKET = f"FROM checkpoint WHERE {SHARD_CONDITION} AND position = ? AND epoch = ? AND bucket = ?"


class AdvanceInto:
    """The key in `CQL` of an `Advance` that writes the first frame of a segment."""


CQL: dict[type, str] = {
    CreateCluster: "INSERT INTO cluster (one, cluster_id, format, shards) VALUES (0, ?, ?, ?)"
    " IF NOT EXISTS",
    GrowCluster: "UPDATE cluster SET shards = ? WHERE one = 0 IF shards = ?",
    ReadCluster: "SELECT cluster_id, format, shards FROM cluster WHERE one = 0",
    NameCluster: "INSERT INTO cluster (one, shards) VALUES (1, ?) IF NOT EXISTS",
    ReadName: "SELECT shards FROM cluster WHERE one = 1",
    CreateRegister: "INSERT INTO shard_registers (part, shard_group, shard_number, epoch, op,"
    " owner, last_position, last_chain, floor, floor_epoch) VALUES (?, ?, ?, ?, ?, '', 0, ?, 0, 0)"
    " IF NOT EXISTS",
    ReadRegister: "SELECT epoch, op, owner, last_position, last_chain, floor, floor_epoch, segments"
    f" FROM shard_registers {REGISTER}",
    # `op != ?` is always true of a new op: with it a refusal carries the current op.
    Bump: f"UPDATE shard_registers SET epoch = ?, op = ?, owner = ? {REGISTER}"
    " IF epoch = ? AND op != ?",
    Advance: f"UPDATE shard_registers SET last_position = ?, last_chain = ?, op = ? {OURS}",
    AdvanceInto: "UPDATE shard_registers SET last_position = ?, last_chain = ?, op = ?,"
    f" segments = ? {OURS}",
    MoveFloor: f"UPDATE shard_registers SET floor = ?, floor_epoch = ?, op = ? {OURS}",
    Free: f"UPDATE shard_registers SET owner = '', op = ? {OURS}",
    FrameRow: "INSERT INTO frames (segment, shard_group, shard_number, position, epoch, part,"
    " parts, op, prev_chain, chain, body) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    PartRow: "INSERT INTO checkpoint (shard_group, shard_number, position, epoch, bucket, part,"
    " parts, body, digest) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
    EndedRow: "INSERT INTO ended_states (shard_group, shard_number, bucket, kind, key, position,"
    " deleted, body) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
    ReadSegment: f"SELECT position, epoch, part, parts, op, prev_chain, chain, body {SEGMENT}"
    " AND position >= ? AND position <= ?",
    ReadBucket: f"SELECT position, epoch, part, parts, body, digest {BUCKET}",
    ReadEnded: f"SELECT position, deleted, body FROM ended_states WHERE {SHARD_CONDITION}"
    " AND bucket = ? AND kind = ? AND key = ? LIMIT 1",
    DeleteSegment: f"DELETE {SEGMENT} AND position <= ?",
    DeleteBucket: f"DELETE {BUCKET}",
}
LINEARIZABLE = (ReadCluster, ReadName, ReadRegister)
"""Reads of what is written conditionally: at any other level they may miss a write under way."""
LARGE = (ReadSegment, ReadBucket)
APPLIED = "[applied]"


def text_of(statement: Statement) -> type:
    """Return the key of the statement's text in `CQL`."""
    if isinstance(statement, Advance) and statement.segments is not None:
        return AdvanceInto
    return type(statement.row) if isinstance(statement, InsertRow) else type(statement)


def values(statement: Statement) -> Sequence[Any]:
    """Return the values to bind to the statement's text."""
    if isinstance(statement, InsertRow):
        return _row(statement.shard, statement.row)
    if isinstance(statement, CreateCluster):
        record = statement.record
        shards = json.dumps(record.shards, sort_keys=True)
        return (uuid.UUID(bytes=record.cluster_id), record.format, shards)
    if isinstance(statement, GrowCluster):
        return tuple(
            json.dumps(each, sort_keys=True) for each in (statement.after, statement.before)
        )
    if isinstance(statement, NameCluster):
        return (json.dumps({"name": statement.name}),)
    if isinstance(statement, ReadCluster | ReadName):
        return ()
    assert not isinstance(statement, WriteTogether), "each of its writes is bound by itself"
    shard = (statement.shard.group, statement.shard.number)
    if isinstance(statement, ReadRegister):
        return (REGISTERS_PART, *shard)
    if isinstance(statement, RegisterWrite):
        return _register_values(statement, (REGISTERS_PART, *shard))
    if isinstance(statement, ReadSegment):
        return (statement.segment, *shard, statement.first, statement.last)
    if isinstance(statement, DeleteSegment):
        return (statement.segment, *shard, statement.upto)
    if isinstance(statement, (ReadBucket, DeleteBucket)):
        return (*shard, statement.position, statement.epoch, statement.bucket)
    if isinstance(statement, ReadEnded):
        return (*shard, bucket_of(statement.key), statement.kind, statement.key)
    return shard


def _register_values(statement: RegisterWrite, shard: tuple[int, str, int]) -> Sequence[Any]:
    if isinstance(statement, CreateRegister):
        return (*shard, statement.epoch, statement.op, GENESIS)
    if isinstance(statement, Bump):
        return (
            statement.next_epoch,
            statement.op,
            statement.owner,
            *shard,
            statement.epoch,
            statement.op,
        )
    if isinstance(statement, Advance):
        begun = () if statement.segments is None else (segments.pack(statement.segments),)
        return (
            statement.position,
            statement.chain,
            statement.op,
            *begun,
            *shard,
            statement.epoch,
            statement.expected,
        )
    if isinstance(statement, MoveFloor):
        return (
            statement.floor,
            statement.epoch,
            statement.op,
            *shard,
            statement.epoch,
            statement.expected,
        )
    return (statement.op, *shard, statement.epoch, statement.expected)


def _row(shard: ShardId, row: FrameRow | PartRow | EndedRow) -> Sequence[Any]:
    if isinstance(row, FrameRow):
        return (
            row.segment, *shard, row.position, row.epoch, row.part,
            row.parts, row.op, row.prev_chain, row.chain, row.body,
        )  # fmt: skip
    if isinstance(row, PartRow):
        return (
            *shard, row.position, row.epoch, row.number // BUCKET_PARTS, row.number, row.parts,
            row.body, row.digest,
        )  # fmt: skip
    return (
        *shard, bucket_of(row.key), row.kind, row.key, row.position, row.deleted, row.body,
    )  # fmt: skip


def partition_of(statement: Statement) -> Hashable:
    """Return the partition of a row that may share a request; None if it is sent alone."""
    row = statement.row if isinstance(statement, InsertRow) else None
    if isinstance(row, FrameRow):
        return row.segment
    if isinstance(row, EndedRow):
        assert isinstance(statement, InsertRow)
        return (statement.shard, bucket_of(row.key))
    return None


def size_bytes(statement: Statement) -> int:
    """Return the approximate size on the wire, which bounds the bytes in flight."""
    if isinstance(statement, WriteTogether):
        return 256 * len(statement.writes)
    return 256 + (len(statement.row.body) if isinstance(statement, InsertRow) else 0)


def verdict(statement: ConditionalWrite, rows: Sequence[dict[str, Any]]) -> StatementReply:
    """Interpret a result row with `[applied]`, which has the columns of the condition only."""
    if isinstance(statement, WriteTogether):
        return _together(statement, rows)
    if len(rows) != 1 or not isinstance(rows[0].get(APPLIED), bool):
        return StatementFailed(
            f"a reply to {type(statement).__name__} of unexpected shape: {rows!r}"
        )
    row = rows[0]
    if row[APPLIED]:
        return Applied()
    if isinstance(statement, (CreateCluster, GrowCluster, NameCluster, CreateRegister)):
        return NotApplied()
    epoch, op = row.get("epoch"), row.get("op")
    if (epoch is None) != (op is None):
        return StatementFailed(
            f"a reply to {type(statement).__name__} with half of its columns: {row!r}"
        )
    return NotApplied(epoch, op)


def _together(statement: WriteTogether, rows: Sequence[dict[str, Any]]) -> StatementReply:
    """Interpret the result of a batch: a refusal has a row for each register, with its key."""
    applied = {row.get(APPLIED) for row in rows}
    if applied == {True} and len(rows) == 1:
        return Applied()
    if applied != {False}:
        return StatementFailed(f"a reply to WriteTogether of unexpected shape: {rows!r}")
    registers = {(row.get("shard_group"), row.get("shard_number")): row for row in rows}
    none: dict[str, Any] = {}
    each = [registers.get(tuple(write.shard), none) for write in statement.writes]
    if not any(each) or any((row.get("epoch") is None) != (row.get("op") is None) for row in each):
        return StatementFailed(f"a reply to WriteTogether without its columns: {rows!r}")
    return NoneApplied(tuple(NotApplied(row.get("epoch"), row.get("op")) for row in each))


def found(statement: ReadStatement, rows: Sequence[tuple[Any, ...]]) -> RowsFound:
    """Return rows as values, in the order of the store."""
    if isinstance(statement, ReadCluster):
        return RowsFound(
            tuple(ClusterRecord(row[0].bytes, row[1], json.loads(row[2])) for row in rows)
        )
    if isinstance(statement, ReadName):
        return RowsFound(tuple(json.loads(row[0])["name"] for row in rows))
    if isinstance(statement, ReadRegister):
        # A row without an epoch does not count: a refused write of ours may leave one behind.
        return RowsFound(tuple(_register(row) for row in rows if row[0] is not None))
    if isinstance(statement, ReadSegment):
        return RowsFound(tuple(FrameRow(*(*row, statement.segment)) for row in rows))
    if isinstance(statement, ReadBucket):
        return RowsFound(tuple(PartRow(*row) for row in rows))
    return RowsFound(
        tuple(EndedRow(statement.kind, statement.key, row[0], row[2], row[1]) for row in rows)
    )


def _register(row: tuple[Any, ...]) -> RegisterRow:
    """Return a register; a damaged one as such: an exception would end more than its shard."""
    try:
        return RegisterRow(*(*row[:-1], segments.unpack(row[-1])))
    except segments.Undecodable as error:
        return replace(RegisterRow(*row[:-1]), damage=str(error))
