"""The owner's copy of its shard's register, and the plan of one round's writes.

An `OwnedShard` is made by a claim and lives until the shard is fenced or dropped. A `RoundPlan`
turns the work of one round into rows, **once**: a repeat is sent byte for byte, because one that
differs in anything is a different write, and of two different writes nobody could tell which one
the store applied. The answers are judged by `fencing`.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Mapping

from msgspec import Struct

from peloton.runtime.core.journal import chain, segments
from peloton.runtime.core.journal.segments import (
    TAIL_SEGMENTS_MAX,
    SegmentList,
    SegmentPart,
    Segments,
)
from peloton.runtime.core.journal.statements import FrameRow, PartRow, RegisterRow, SegmentStart
from peloton.runtime.ports import (
    CHECKPOINT_PART_BYTES_MAX,
    FRAME_BYTES_MAX,
    FRAME_PART_BYTES_MAX,
    JOURNAL_FORMAT,
    CheckpointPart,
    Claimed,
    ClusterRecord,
    Frame,
    JournalRefused,
    Overtaken,
    ShardId,
    Work,
)

RECENT_CHAINS_MAX = 1024
"""Frames that may be committed between a checkpoint's cut and its first part."""


UNLISTED_SEGMENTS_MAX = 8
"""Segments that are deleted with a frame, at most. It begins one, so the list gets shorter."""


class OpNames:
    """Names for this process's conditional writes, each unique."""

    def __init__(self, process: bytes) -> None:
        self.process = process
        self._counts = itertools.count(1)  # its `next` is atomic between threads

    def next(self) -> bytes:
        return chain.op_name(self.process, next(self._counts))


class Writing(Struct, frozen=True, gc=False):
    """The checkpoint being written, with its number of rows (the manifest is one of them)."""

    position: int
    rows: int
    complete: bool
    manifest: chain.Manifest


class OwnedShard:
    """A claimed shard: its register as `start` at the claim, and as our writes changed it."""

    def __init__(self, shard: ShardId, start: RegisterRow) -> None:
        self.shard = shard
        self.epoch = start.epoch
        self.op = start.op
        self.last_position = start.last_position
        self.chain = start.last_chain
        self.segments = start.segments
        self.damage = start.damage
        self.floor = (start.floor, start.floor_epoch, 0)
        """Position, epoch and number of rows; the last 0 until read or written."""
        self.manifest: chain.Manifest | None = None
        if start.floor == 0:
            self.manifest = chain.Manifest(chain.GENESIS, (0, 0, 0))
        self.oldest: tuple[int, int, int] | None = None
        """The checkpoint before the previous one, which a cut drops, if known."""
        self.writing: Writing | None = None
        self.begun = 0
        """Position of the last checkpoint begun in this epoch."""
        self.dropped: set[tuple[int, int]] = set()
        """Checkpoints (position, epoch) that we deleted."""
        self.given_up: list[tuple[int, int, int]] = []
        self.chains: OrderedDict[int, bytes] = OrderedDict()
        self.chains[start.last_position] = start.last_chain
        self.still_ours = False
        """A read of the epoch (or a commit) after loading confirmed that we are the owner."""
        self.cut_next = 0
        """Listed segments that end at or before this position were cut under this floor."""
        self.cut_to = 0
        """Listed segments that end at or before this position were cut, acknowledged."""

    def claimed(self) -> Claimed:
        scattered = self.is_scattered()
        return Claimed(self.epoch, self.last_position, *self.floor[:2], scattered)

    def is_younger(self, epoch: int) -> bool:
        """Return whether this claim is younger than that of `epoch`; 0 is any epoch."""
        return epoch not in (0, self.epoch)

    def checkpoint_read(self, manifest: chain.Manifest, rows: int) -> None:
        """Record that the checkpoint at the floor was read to its end."""
        if self.manifest is None:
            self.manifest = manifest
            self.floor = (*self.floor[:2], rows)

    def appended(self, position: int, *, op: bytes, value: bytes) -> None:
        self.op, self.last_position, self.chain = op, position, value
        self.still_ours = True
        self.chains[position] = value
        if len(self.chains) > RECENT_CHAINS_MAX:
            self.chains.popitem(last=False)

    def is_scattered(self) -> bool:
        """Return whether the tail is in more segments than recovery should have to read."""
        tail = range(self.floor[0] + 1, self.last_position + 1)
        return (
            len(self.segments) > TAIL_SEGMENTS_MAX
            and sum(1 for _ in segments.parts(self.segments, tail)) > TAIL_SEGMENTS_MAX
        )

    def floored(self, op: bytes, written: Writing) -> None:
        """Record that the floor has moved: what was the previous generation can be cut."""
        if self.manifest is not None:
            self.oldest = self.manifest.previous
        self.op = op
        self.still_ours = True
        self.floor = (written.position, self.epoch, written.rows)
        self.manifest = written.manifest
        self.writing = None


def owned_shard(owned_shards: Mapping[ShardId, OwnedShard], shard: ShardId) -> OwnedShard:
    """Return the owned shard to be read. Raises Overtaken if the shard is no longer ours."""
    owned = owned_shards.get(shard)
    if owned is None:
        raise Overtaken(f"{shard} is not owned here")
    return owned


class RoundPlan(Struct, gc=False):
    """The writes of one shard in one round, fixed before the first is sent."""

    work: Work
    op_before: bytes
    op: bytes
    chain: bytes
    frame_rows: tuple[FrameRow, ...]
    part_rows: tuple[PartRow, ...]
    written: Writing | None
    floor_op: bytes
    segments: SegmentList | None = None
    """The list with the frame's segment, if that is not the one before."""
    unlisted: tuple[SegmentPart, ...] = ()
    """To delete before the list without them is written: nobody would find them after."""

    @property
    def last_op(self) -> bytes:
        """The register's op after all of the plan is done."""
        return self.floor_op if self.work.floor is not None else self.op


def plan(
    owned: OwnedShard, work: Work, *, ops: OpNames, names: Segments | None = None
) -> RoundPlan:
    """Check the work against the owned shard, and fix its bytes. Raises Refused on a wrong caller.

    `names` is given by a store whose frames have segments.
    """
    op, value, last = owned.op, owned.chain, owned.last_position
    rows: tuple[FrameRow, ...] = ()
    if work.frame is not None:
        op, value, rows = _frame_rows(owned, work.frame, ops=ops, names=names)
        last = work.frame.position
    for row in work.ended:
        if not 0 < row.position <= last:
            raise JournalRefused(f"ended {row.kind} {row.key} at {row.position}, beyond {last}")
    writing = owned.writing
    part_rows: tuple[PartRow, ...] = ()
    if work.parts:
        writing, part_rows = _part_rows(owned, work, chains={**owned.chains, last: value})
    if work.cut is not None and owned.manifest is None:
        raise JournalRefused("read the checkpoint at the floor before cutting")
    floor_op = b""
    if work.floor is not None:
        if writing is None or not writing.complete or writing.position != work.floor.position:
            raise JournalRefused(f"floor {work.floor.position}: its checkpoint is not complete")
        floor_op = ops.next()
    begun = _begun(owned, rows)
    unlisted = tuple(one for one in _uncut(owned) if one.last <= begun[0].first) if begun else ()
    return RoundPlan(work, owned.op, op, value, rows, part_rows, writing, floor_op, begun, unlisted)


def _begun(owned: OwnedShard, rows: tuple[FrameRow, ...]) -> SegmentList | None:
    """Return the list of segments if the frame of these rows begins one, else None.

    An owner does not know what earlier owners cut. If it listed all of that until it has cut it
    again, the list would grow with each owner that begins one segment and ends.
    """
    if not rows or not rows[0].segment:
        return None
    if owned.segments and owned.segments[-1].segment == rows[0].segment:
        return None
    start = SegmentStart(rows[0].position, rows[0].segment)
    uncut = _uncut(owned)
    cut_to = uncut[-1].last - 1 if uncut else owned.cut_to
    return segments.extended(owned.segments, start, cut_to=cut_to)


def _uncut(owned: OwnedShard) -> list[SegmentPart]:
    """Return some of the oldest segments that could be cut and were not cut by us."""
    below = owned.manifest.previous[0] if owned.manifest is not None else 0
    return segments.ended(owned.segments, after=owned.cut_to, upto=below)[:UNLISTED_SEGMENTS_MAX]


def _frame_rows(
    owned: OwnedShard, frame: Frame, *, ops: OpNames, names: Segments | None
) -> tuple[bytes, bytes, tuple[FrameRow, ...]]:
    if frame.position != owned.last_position + 1:
        raise JournalRefused(f"frame {frame.position} after {owned.last_position}")
    if len(frame.body) > FRAME_BYTES_MAX:
        raise JournalRefused(f"frame of {len(frame.body)} bytes, limit {FRAME_BYTES_MAX}")
    op = ops.next()
    value = chain.link(owned.chain, (owned.shard, frame.position), op=op, body=frame.body)
    step = FRAME_PART_BYTES_MAX
    name = names.next(len(frame.body)) if names is not None else b""
    pieces = [frame.body[at : at + step] for at in range(0, len(frame.body), step)] or [b""]
    rows = tuple(
        FrameRow(
            frame.position, owned.epoch, part, len(pieces), op, owned.chain, value, piece, name
        )
        for part, piece in enumerate(pieces)
    )
    return op, value, rows


def _part_rows(
    owned: OwnedShard, work: Work, *, chains: dict[int, bytes]
) -> tuple[Writing | None, tuple[PartRow, ...]]:
    writing, rows = owned.writing, []
    for part in work.parts:
        if part.position != work.parts[0].position:
            raise JournalRefused("one round holds parts of one checkpoint")
        if part.number == 0:
            writing, row = _begin(owned, part, value=chains.get(part.position))
            rows.append(row)
        writing, row = _add_part(owned, part, writing=writing)
        rows.append(row)
    return writing, tuple(rows)


def _begin(
    owned: OwnedShard, part: CheckpointPart, *, value: bytes | None
) -> tuple[Writing, PartRow]:
    """Put the manifest in front of the caller's first part."""
    begun = max(owned.begun, owned.floor[0])
    if part.position <= begun:
        raise JournalRefused(f"checkpoint {part.position} after {begun} was begun")
    if value is None:
        raise JournalRefused(f"checkpoint {part.position} is not at a recent position")
    if owned.manifest is None:
        raise JournalRefused("read the checkpoint at the floor before the next one is begun")
    manifest = chain.Manifest(value, owned.floor)
    key = (part.position, owned.epoch, 0)
    return (
        Writing(part.position, 1, False, manifest),
        chain.part_row(key, parts=0, body=chain.pack_manifest(manifest)),
    )


def _add_part(
    owned: OwnedShard, part: CheckpointPart, *, writing: Writing | None
) -> tuple[Writing, PartRow]:
    if len(part.body) > CHECKPOINT_PART_BYTES_MAX:
        raise JournalRefused(f"part of {len(part.body)} bytes, limit {CHECKPOINT_PART_BYTES_MAX}")
    if writing is None or writing.position != part.position or writing.complete:
        raise JournalRefused(
            f"part {part.number} of checkpoint {part.position}, which is not begun"
        )
    if part.number != writing.rows - 1:
        raise JournalRefused(
            f"part {part.number} of checkpoint {part.position}, not {writing.rows - 1}"
        )
    rows = writing.rows + 1
    key = (part.position, owned.epoch, rows - 1)
    row = chain.part_row(key, parts=rows if part.last else 0, body=part.body)
    return Writing(part.position, rows, part.last, writing.manifest), row


def parts_done(owned: OwnedShard, done: RoundPlan) -> None:
    """Record that the rows of the plan's checkpoint parts are in the store."""
    if not done.part_rows:
        return
    before = owned.writing
    if before is not None and done.written is not None and before.position != done.written.position:
        owned.given_up.append((before.position, owned.epoch, before.rows))
    owned.writing = done.written
    if done.written is not None:
        owned.begun = done.written.position


def frame_done(owned: OwnedShard, done: RoundPlan) -> None:
    """Record that the frame of the plan is committed."""
    if done.segments is not None:
        owned.segments = done.segments
    if done.work.frame is not None:
        owned.appended(done.work.frame.position, op=done.op, value=done.chain)


def floor_done(owned: OwnedShard, done: RoundPlan) -> None:
    """Record that the register names the plan's checkpoint."""
    if done.written is not None and done.floor_op not in (b"", owned.op):
        owned.floored(done.floor_op, done.written)


def same_cluster(
    record: ClusterRecord, groups: Mapping[str, int], *, name: str = ""
) -> ClusterRecord:
    """Return the record if it matches this configuration. Raises Refused."""
    if name and record.name and record.name != name:
        raise JournalRefused(
            f"the journal belongs to cluster {record.name!r}, this daemon is of cluster {name!r}: "
            "each cluster needs a journal of its own"
        )
    if any(record.shards.get(group, count) != count for group, count in groups.items()):
        raise JournalRefused(
            f"shard counts never change: the journal has {record.shards}, asked for {dict(groups)}"
            ": set `shards` to the journal's"
        )
    return record


def check_format(found: int) -> None:
    """Raise JournalRefused if a journal has another format than this version's."""
    if found > JOURNAL_FORMAT:
        text = f"the journal has format {found}, this program has {JOURNAL_FORMAT}"
        raise JournalRefused(f"{text}. Use the version that wrote it, or a later one")
    if found < JOURNAL_FORMAT:
        raise JournalRefused(
            f"the journal has format {found}, of version 0.1.0 or one between; this version reads "
            f"format {JOURNAL_FORMAT} alone, and has changed nothing. Start the version that wrote "
            "it, note its pools and jobs (`peloton respool dump`, `peloton job query`, `peloton "
            "job get`), and create them with this version in a new data folder or keyspace"
        )


def grown(record: ClusterRecord, groups: Mapping[str, int]) -> dict[str, int]:
    """Return the record's shards together with groups that a later version brings.

    Groups of the record that are not asked for stay: an earlier version does not know them.
    """
    return {**record.shards, **groups}
