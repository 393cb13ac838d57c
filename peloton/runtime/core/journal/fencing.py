"""The fencing protocol: turns a claim or a round's plan into statements, and judges each answer.

Each function is a *protocol coroutine*: a generator that yields statements and is sent their
replies. When an outcome is unknown it yields `Unclear`; its driver may suspend it there, and when
resumed it sends the *identical* statement again. The coroutines do no I/O, measure no time and
never give up by themselves: the driver does.

Why only the identical statement settles an unknown outcome (the interleaving that loses a frame):
 1. owner A sends "position 7 is X, if op is p" and gets a timeout; the statement is in transit
 2. A reads the register, sees position 6, concludes that X failed, and reports so to the client
 3. the statement arrives: X is committed, though reported as failed; had A reused position 7 for
    another frame Y, the journal would now hold X while A acts on Y
With the identical statement the outcomes differ: applied, or refused with our own op (an earlier
copy was applied), or refused by a higher epoch (we are fenced). For the same reason the driver
below us must never repeat a conditional statement by itself: our success would look like 3.

Why a claim reads after its bump, and compares `op`:
 1. A and B both read epoch 4 and send "epoch 5, if epoch is 4"; both time out
 2. B's is applied. Both read epoch 5; without comparing `op` both go on: two owners in one epoch
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import TypeVar

from msgspec import Struct

from peloton.runtime.core.journal import chain, register, segments
from peloton.runtime.core.journal.register import OwnedShard, RoundPlan
from peloton.runtime.core.journal.statements import (
    Applied,
    Bump,
    DeleteBucket,
    DeleteSegment,
    FrameRow,
    Free,
    InsertRow,
    MoveFloor,
    NotApplied,
    OtherRefused,
    PartRow,
    ReadBucket,
    ReadRegister,
    ReadSegment,
    RegisterRow,
    RowsFound,
    Statement,
    StatementFailed,
    StatementReply,
    WriteStored,
)
from peloton.runtime.ports import (
    BUCKET_PARTS,
    Committed,
    Damaged,
    Fenced,
    Frame,
    JournalBroken,
    JournalRefused,
    Overtaken,
    ShardId,
    Unclear,
)

CUT_SEGMENTS_MAX = 8
"""Segments cut in one round."""

T = TypeVar("T")


class FoundItems(Struct, frozen=True, gc=False):
    """A part of what a reading coroutine finds, yielded as it is found."""

    items: tuple[bytes | Frame, ...]


StatementBatch = tuple[Statement, ...] | Unclear
ProtocolCoroutine = Generator[StatementBatch, tuple[StatementReply, ...], T]
ReadCoroutine = Generator[StatementBatch | FoundItems, tuple[StatementReply, ...], None]


# ---- the three ways to send a statement ------------------------------------------------------


def _write(statements: Iterable[Statement]) -> ProtocolCoroutine[None]:
    """Write plain rows: send the same bytes again until every one is acknowledged."""
    left = tuple(statements)
    while left:
        replies = yield left
        pairs = zip(left, replies, strict=True)
        unclear = [(write, reply) for write, reply in pairs if not isinstance(reply, WriteStored)]
        left = tuple(write for write, _ in unclear)
        if unclear:
            yield Unclear(text_of(unclear[0][1]))


def _read(statement: Statement) -> ProtocolCoroutine[tuple[object, ...]]:
    while True:
        (reply,) = yield (statement,)
        if isinstance(reply, RowsFound):
            return reply.rows
        yield Unclear(text_of(reply))


def _decide(owned: OwnedShard, write: MoveFloor | Free) -> ProtocolCoroutine[Fenced | None]:
    """Perform an owner's write other than a frame; return Fenced if the shard is not ours.

    A floor may travel together with those of other shards (`core/journal/joint.py`). That only adds
    to its condition, so all of this holds as for one alone, and a copy that was refused because of
    another shard is sent again, in other company or none.
    """
    while True:
        (reply,) = yield (write,)
        if isinstance(reply, Applied):
            return None
        if isinstance(reply, OtherRefused):
            continue
        if not isinstance(reply, NotApplied):
            yield Unclear(text_of(reply))
        elif reply.epoch is None:
            raise JournalBroken(f"{owned.shard}: the register is gone, or this is another keyspace")
        elif reply.op == write.op:
            return None  # an earlier copy of this very write was applied
        elif reply.epoch > owned.epoch:
            return Fenced(f"{owned.shard}: epoch {reply.epoch} has begun")
        else:
            raise JournalBroken(f"{owned.shard}: the store lost acknowledged writes of our epoch")


def text_of(reply: StatementReply) -> str:
    """Return why a reply leaves the outcome unknown."""
    return reply.text if isinstance(reply, StatementFailed) else f"unexpected answer: {reply!r}"


def _register(shard: ShardId) -> ProtocolCoroutine[RegisterRow]:
    rows = yield from _read(ReadRegister(shard))
    if not rows or not isinstance(rows[0], RegisterRow):
        raise JournalRefused(f"{shard} was never bootstrapped")
    return rows[0]


def write_frames(members: Sequence[tuple[OwnedShard, RoundPlan]]) -> ProtocolCoroutine[None]:
    """Write the rows of the frames of one round. None of them counts before its register has moved.

    Segments that their registers will not list any more are deleted first: nobody would find them
    again.
    """
    yield from _write(_frame_writes(members))


def _frame_writes(members: Sequence[tuple[OwnedShard, RoundPlan]]) -> Iterator[Statement]:
    for owned, plan in members:
        for row in plan.frame_rows:
            yield InsertRow(owned.shard, row)
        for one in plan.unlisted:
            yield DeleteSegment(owned.shard, one.segment, one.last)


# ---- coroutines of the owner -----------------------------------------------------------------


def claim(
    shard: ShardId, *, op: bytes, owner: str, above: int = 0
) -> ProtocolCoroutine[OwnedShard | Fenced]:
    """Claim: read, bump, read again. The old op is no condition: a busy owner could starve us."""
    row = yield from _register(shard)
    bump = Bump(shard, row.epoch, op, owner, above)
    while True:
        (reply,) = yield (bump,)
        if isinstance(reply, Applied):
            break
        if not isinstance(reply, NotApplied):
            yield Unclear(text_of(reply))
        elif reply.op == op:
            break
        elif reply.epoch is None:
            raise JournalRefused(f"{shard} was never bootstrapped")
        else:
            return Fenced(f"{shard}: another claimer was first", definite=True)
    row = yield from _register(shard)
    if row.epoch != bump.next_epoch or row.op != op:
        return Fenced(f"{shard}: another claimer followed at once", definite=True)
    return OwnedShard(shard, row)


def finish(owned: OwnedShard, plan: RoundPlan) -> ProtocolCoroutine[Committed | Fenced]:
    """Write what follows the frame of one shard: ended rows, checkpoint parts, floor, cut."""
    work, shard, more = plan.work, owned.shard, False
    fenced: Fenced | None = None
    if work.ended or work.cut is not None:
        fenced = yield from _still_ours(owned)
    if fenced is None:
        yield from _write(InsertRow(shard, row) for row in plan.work.ended)
        fenced = yield from _write_parts(owned, plan)
    if fenced is None and work.floor is not None:
        floor = MoveFloor(shard, owned.epoch, plan.op, plan.floor_op, work.floor.position)
        fenced = yield from _decide(owned, floor)
        if fenced is None:
            register.floor_done(owned, plan)
            owned.cut_next = 0
    if fenced is None and work.cut is not None:
        more = yield from _cut(owned, work.cut.abandoned)
    return fenced if fenced is not None else Committed(more, owned.is_scattered())


def release(owned: OwnedShard, op: bytes) -> ProtocolCoroutine[Fenced | None]:
    """Clear the owner's name in the register; the epoch stays."""
    return (yield from _decide(owned, Free(owned.shard, owned.epoch, owned.op, op)))


def _still_ours(owned: OwnedShard) -> ProtocolCoroutine[Fenced | None]:
    """Read the epoch once after loading, before the first row that no condition guards."""
    if not owned.still_ours:
        row = yield from _register(owned.shard)
        if row.epoch != owned.epoch:
            return Fenced(f"{owned.shard}: epoch {row.epoch} has begun", definite=True)
        owned.still_ours = True
    return None


def _write_parts(owned: OwnedShard, plan: RoundPlan) -> ProtocolCoroutine[Fenced | None]:
    """Write checkpoint rows; read back and compare every bucket that is full, and the last.

    Missing parts are a loss of the store only if the shard is still ours: a younger owner drops
    checkpoints that nobody will finish, and this may be one.
    """
    yield from _write(InsertRow(owned.shard, row) for row in plan.part_rows)
    for row in plan.part_rows:
        bucket, at = divmod(row.number, BUCKET_PARTS)
        if row.parts or at == BUCKET_PARTS - 1:
            read = ReadBucket(owned.shard, row.position, row.epoch, bucket)
            rows = _bucket((yield from _read(read)), bucket)
            if rows is None or len(rows) != at + 1:
                owner = yield from _register(owned.shard)
                if owner.epoch != owned.epoch:
                    return Fenced(f"{owned.shard}: epoch {owner.epoch} has begun")
                raise JournalBroken(f"{owned.shard}: parts of checkpoint {row.position} are lost")
    register.parts_done(owned, plan)
    return None


# ---- cutting ---------------------------------------------------------------------------------


def _cut(owned: OwnedShard, abandoned: tuple[tuple[int, int], ...]) -> ProtocolCoroutine[bool]:
    """Cut segments below the previous checkpoint, or drop a checkpoint; return if more is left.

    A cut waits until the floor is *known* to have moved: below a floor whose move is unclear it
    could delete what the register still names.
    """
    assert owned.manifest is not None
    below = owned.manifest.previous[0]
    piece = segments.ended(owned.segments, after=owned.cut_next, upto=below)[:CUT_SEGMENTS_MAX]
    if piece:
        yield from _write(DeleteSegment(owned.shard, one.segment, one.last) for one in piece)
        owned.cut_next = piece[-1].last - 1
        owned.cut_to = max(owned.cut_to, owned.cut_next)
        return True
    obsolete = yield from _obsolete(owned, abandoned)
    if obsolete:
        yield from _drop_checkpoint(owned, obsolete[0])
        owned.dropped.add(obsolete[0][:2])
    return len(obsolete) > 1


def _obsolete(
    owned: OwnedShard, abandoned: tuple[tuple[int, int], ...]
) -> ProtocolCoroutine[list[tuple[int, int, int]]]:
    """Return checkpoints that are neither the floor, nor the previous one, nor being written."""
    assert owned.manifest is not None
    previous = owned.manifest.previous
    if owned.oldest is None:
        owned.oldest = (0, 0, 0)
        if previous[0]:
            read = ReadBucket(owned.shard, previous[0], previous[1], 0)
            rows = _bucket((yield from _read(read)), 0)
            if rows:
                owned.oldest = chain.unpack_manifest(rows[0].body).previous
    unnamed = [(*key, 0) for key in abandoned if key[1] < owned.epoch]
    kept = {owned.floor[:2], previous[:2], *owned.dropped}
    candidates = [owned.oldest, *owned.given_up, *unnamed]
    return [one for one in candidates if one[0] and one[:2] not in kept]


def _drop_checkpoint(owned: OwnedShard, obsolete: tuple[int, int, int]) -> ProtocolCoroutine[None]:
    """Delete from the last bucket down, so that what a crash leaves can be counted from 0."""
    position, epoch, rows = obsolete
    buckets = -(-rows // BUCKET_PARTS)
    while not rows and (yield from _read(ReadBucket(owned.shard, position, epoch, buckets))):
        buckets += 1
    for bucket in reversed(range(buckets)):
        yield from _write([DeleteBucket(owned.shard, position, epoch, bucket)])


# ---- loading ---------------------------------------------------------------------------------


def load_checkpoint(owned: OwnedShard) -> ReadCoroutine:
    """Load the parts of the checkpoint that the register names, bucket by bucket."""
    position, epoch, _ = owned.floor
    manifest, bucket, total = None, 0, 0
    while position and not total:
        read = ReadBucket(owned.shard, position, epoch, bucket)
        rows = _bucket((yield from _read(read)), bucket)
        if not rows or not (rows[-1].parts or len(rows) == BUCKET_PARTS):
            yield from _raise_damage(owned, f"{owned.shard}: checkpoint {position} is incomplete")
            return
        if manifest is None:
            manifest = chain.unpack_manifest(rows[0].body)
        first = 1 if bucket == 0 else 0
        yield FoundItems(tuple(row.body for row in rows[first:]))
        bucket, total = bucket + 1, rows[-1].parts
    if manifest is not None:
        owned.checkpoint_read(manifest, total)


def _bucket(found: tuple[object, ...], bucket: int) -> list[PartRow] | None:
    """Return the bucket's rows if they are intact and without a gap, else None."""
    rows = [row for row in found if isinstance(row, PartRow)]
    for at, row in enumerate(rows):
        if row.number != bucket * BUCKET_PARTS + at or not chain.intact(row):
            return None
    if rows and rows[-1].parts not in (0, rows[-1].number + 1):
        return None
    return rows


def load_tail(owned: OwnedShard) -> ReadCoroutine:
    """Load the frames after the floor, up to the last that is known to be committed."""
    if owned.manifest is None:
        raise JournalRefused(f"{owned.shard}: read the checkpoint first")
    if owned.damage:
        yield from _raise_damage(owned, f"{owned.shard}: {owned.damage}")
    floor, last_position, last_chain = owned.floor[0], owned.last_position, owned.chain
    walk = chain.Walk(owned.shard, floor=floor, note=owned.manifest.chain)
    try:
        for part in segments.parts(owned.segments, range(floor + 1, last_position + 1)):
            found = yield from _read(ReadSegment(owned.shard, *part))
            tail = range(part.first, part.last + 1)
            picked = pick_frames(found, epoch=owned.epoch, tail=tail)
            yield FoundItems(tuple(_frames(walk, picked)))
        walk.finish(last_position, last_chain)
    except chain.Mismatch as mismatch:
        yield from _raise_damage(owned, str(mismatch))


def pick_frames(found: tuple[object, ...], *, epoch: int, tail: range) -> list[list[FrameRow]]:
    """Return, for each position in the tail, the rows of the highest epoch not above ours.

    Rows of lower epochs were not committed: a later owner began with a last position at or beyond
    what was committed, and writes only after it. So one epoch is right, and the chain proves it.
    """
    best: dict[int, list[FrameRow]] = {}
    for row in found:
        if not isinstance(row, FrameRow) or row.epoch > epoch or row.position not in tail:
            continue
        rows = best.get(row.position)
        if rows is None or row.epoch > rows[0].epoch:
            best[row.position] = [row]
        elif row.epoch == rows[0].epoch:
            rows.append(row)
    return [sorted(best[at], key=lambda row: row.part) for at in sorted(best)]


def _frames(walk: chain.Walk, picked: list[list[FrameRow]]) -> Iterable[Frame]:
    for rows in picked:
        if [row.part for row in rows] != list(range(rows[0].parts)):
            raise chain.Mismatch(f"{walk.shard}: frame {rows[0].position} is incomplete")
        body = b"".join(row.body for row in rows)
        walk.step(rows[0], body)
        yield Frame(rows[0].position, body)


def _raise_damage(owned: OwnedShard, text: str) -> ProtocolCoroutine[None]:
    """Raise Damaged if we are still the owner; else Overtaken.

    1. we claim epoch 5 and begin to read; the process is paused
    2. B claims epoch 6, moves the floor, cuts what we were about to read
    3. we resume and find a gap: the shard is healthy, but not ours
    """
    row = yield from _register(owned.shard)
    if row.epoch != owned.epoch:
        raise Overtaken(f"{text}, but epoch {row.epoch} has begun")
    raise Damaged(text)
