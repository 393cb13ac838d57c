"""The statements of port `Rows` as CQL: one text each, its values, and its answer.

Turns a statement into what a prepared one is bound with, and the rows that come back into a
`Reply`. The texts are the whole of what is ever said to the tables. It must not send anything, and
an answer whose shape is not the expected one must not be guessed at: it is in doubt.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from typing import Any

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
    Failed,
    Found,
    FrameRow,
    Free,
    GrowCluster,
    InsertRow,
    MoveFloor,
    NameCluster,
    NotApplied,
    PartRow,
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
from peloton.runtime.ports import BUCKET_PARTS, SEGMENT_FRAMES, Cluster, EndedRow, ShardId

SHARD = "shard_group = ? AND shard_number = ?"
OURS = f"WHERE {SHARD} IF epoch = ? AND op = ?"
SEGMENT = f"FROM journal WHERE {SHARD} AND segment = ?"
BUCKET = f"FROM checkpoint WHERE {SHARD} AND position = ? AND epoch = ? AND bucket = ?"

CQL: dict[type, str] = {
    CreateCluster: "INSERT INTO cluster (one, cluster_id, format, shards) VALUES (0, ?, ?, ?)"
    " IF NOT EXISTS",
    GrowCluster: "UPDATE cluster SET shards = ? WHERE one = 0 IF shards = ?",
    ReadCluster: "SELECT cluster_id, format, shards FROM cluster WHERE one = 0",
    NameCluster: "INSERT INTO cluster (one, shards) VALUES (1, ?) IF NOT EXISTS",
    ReadName: "SELECT shards FROM cluster WHERE one = 1",
    CreateRegister: "INSERT INTO register (shard_group, shard_number, epoch, op, owner,"
    " last_position, last_chain, floor, floor_epoch) VALUES (?, ?, 0, ?, '', 0, ?, 0, 0)"
    " IF NOT EXISTS",
    ReadRegister: "SELECT epoch, op, owner, last_position, last_chain, floor, floor_epoch"
    f" FROM register WHERE {SHARD}",
    # `op != ?` is always true of a new op: it is there so that a refusal carries the op that is.
    Bump: f"UPDATE register SET epoch = ?, op = ?, owner = ? WHERE {SHARD}"
    " IF epoch = ? AND op != ?",
    Advance: f"UPDATE register SET last_position = ?, last_chain = ?, op = ? {OURS}",
    MoveFloor: f"UPDATE register SET floor = ?, floor_epoch = ?, op = ? {OURS}",
    Free: f"UPDATE register SET owner = '', op = ? {OURS}",
    FrameRow: "INSERT INTO journal (shard_group, shard_number, segment, position, epoch, part,"
    " parts, op, prev_chain, chain, body) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    PartRow: "INSERT INTO checkpoint (shard_group, shard_number, position, epoch, bucket, part,"
    " parts, body, digest) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
    EndedRow: "INSERT INTO ended (shard_group, shard_number, kind, key, position, deleted, body)"
    " VALUES (?, ?, ?, ?, ?, ?, ?)",
    ReadSegment: f"SELECT position, epoch, part, parts, op, prev_chain, chain, body {SEGMENT}",
    ReadBucket: f"SELECT position, epoch, part, parts, body, digest {BUCKET}",
    ReadEnded: f"SELECT position, deleted, body FROM ended WHERE {SHARD} AND kind = ? AND key = ?"
    " LIMIT 1",
    DeleteSegment: f"DELETE {SEGMENT}",
    DeleteBucket: f"DELETE {BUCKET}",
}
CONDITIONALS = (
    CreateCluster, GrowCluster, NameCluster, CreateRegister, Bump, Advance, MoveFloor, Free
)  # fmt: skip
LINEARIZABLE = (ReadCluster, ReadName, ReadRegister)
"""Reads of what is written conditionally: at any other level they may miss a write under way."""
LARGE = (ReadSegment, ReadBucket)
APPLIED = "[applied]"


def text_of(statement: Statement) -> type:
    """The key of its text in `CQL`."""
    return type(statement.row) if isinstance(statement, InsertRow) else type(statement)


def values(ask: Statement) -> Sequence[Any]:
    """What the text is bound with."""
    if isinstance(ask, InsertRow):
        return _row(ask.shard, ask.row)
    if isinstance(ask, CreateCluster):
        record = ask.record
        shards = json.dumps(record.shards, sort_keys=True)
        return (uuid.UUID(bytes=record.cluster_id), record.format, shards)
    if isinstance(ask, GrowCluster):
        return tuple(json.dumps(each, sort_keys=True) for each in (ask.after, ask.before))
    if isinstance(ask, NameCluster):
        return (json.dumps({"name": ask.name}),)
    if isinstance(ask, ReadCluster | ReadName):
        return ()
    shard = (ask.shard.group, ask.shard.number)
    if isinstance(ask, CreateRegister):
        return (*shard, ask.op, GENESIS)
    if isinstance(ask, Bump):
        return (ask.epoch + 1, ask.op, ask.owner, *shard, ask.epoch, ask.op)
    if isinstance(ask, Advance):
        return (ask.position, ask.chain, ask.op, *shard, ask.epoch, ask.expected)
    if isinstance(ask, MoveFloor):
        return (ask.floor, ask.epoch, ask.op, *shard, ask.epoch, ask.expected)
    if isinstance(ask, Free):
        return (ask.op, *shard, ask.epoch, ask.expected)
    if isinstance(ask, (ReadSegment, DeleteSegment)):
        return (*shard, ask.segment)
    if isinstance(ask, (ReadBucket, DeleteBucket)):
        return (*shard, ask.position, ask.epoch, ask.bucket)
    if isinstance(ask, ReadEnded):
        return (*shard, ask.kind, ask.key)
    return shard


def _row(shard: ShardId, row: FrameRow | PartRow | EndedRow) -> Sequence[Any]:
    if isinstance(row, FrameRow):
        return (
            *shard, (row.position - 1) // SEGMENT_FRAMES, row.position, row.epoch, row.part,
            row.parts, row.op, row.prev_chain, row.chain, row.body,
        )  # fmt: skip
    if isinstance(row, PartRow):
        return (
            *shard, row.position, row.epoch, row.number // BUCKET_PARTS, row.number, row.parts,
            row.body, row.digest,
        )  # fmt: skip
    return (*shard, row.kind, row.key, row.position, row.deleted, row.body)


def size_bytes(ask: Statement) -> int:
    """About how much of the wire it takes, to bound what is under way at once."""
    return 256 + (len(ask.row.body) if isinstance(ask, InsertRow) else 0)


def verdict(ask: Conditional, rows: Sequence[dict[str, Any]]) -> Reply:
    """What one row with `[applied]` says. The server names the columns of the condition only."""
    if len(rows) != 1 or not isinstance(rows[0].get(APPLIED), bool):
        return Failed(f"an answer to {type(ask).__name__} of another shape: {rows!r}")
    row = rows[0]
    if row[APPLIED]:
        return Applied()
    if isinstance(ask, (CreateCluster, GrowCluster, NameCluster, CreateRegister)):
        return NotApplied()
    epoch, op = row.get("epoch"), row.get("op")
    if (epoch is None) != (op is None):
        return Failed(f"an answer to {type(ask).__name__} with half of its columns: {row!r}")
    return NotApplied(epoch, op)


def found(ask: Read, rows: Sequence[tuple[Any, ...]]) -> Found:
    """Rows as values, in the order the store keeps them in."""
    if isinstance(ask, ReadCluster):
        return Found(tuple(Cluster(row[0].bytes, row[1], json.loads(row[2])) for row in rows))
    if isinstance(ask, ReadName):
        return Found(tuple(json.loads(row[0])["name"] for row in rows))
    if isinstance(ask, ReadRegister):
        # A row whose epoch is empty is none: what a refused write of ours may leave behind.
        return Found(tuple(RegisterRow(*row) for row in rows if row[0] is not None))
    if isinstance(ask, ReadSegment):
        return Found(tuple(FrameRow(*row) for row in rows))
    if isinstance(ask, ReadBucket):
        return Found(tuple(PartRow(*row) for row in rows))
    return Found(tuple(EndedRow(ask.kind, ask.key, row[0], row[2], row[1]) for row in rows))
