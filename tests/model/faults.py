"""Mistakes to plant in the real code, one rule broken each, and bounds within which each shows.

A search that finds nothing proves something only if it finds these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from msgspec.structs import replace

from peloton.runtime.core.journal import chain, fencing, register, rounds, segments
from peloton.runtime.core.journal.fencing import ProtocolCoroutine
from peloton.runtime.core.journal.register import OwnedShard, RoundPlan
from peloton.runtime.core.journal.rounds import Refusals
from peloton.runtime.core.journal.segments import SegmentList, SegmentPart
from peloton.runtime.core.journal.statements import (
    Advance,
    Applied,
    Bump,
    ConditionalWrite,
    DeleteSegment,
    FrameRow,
    InsertRow,
    MoveFloor,
    NotApplied,
    OtherRefused,
    PlainWrite,
    ReadRegister,
    SegmentStart,
    Statement,
    StatementReply,
)
from peloton.runtime.ports import Committed, Damaged, Fenced, JournalBroken, ShardId, Unclear
from peloton.runtime.simulation.memory_rows import MemoryRows
from tests.model.protocol import Bounds

ENDED, BEGUN = segments.ended, register._begun
FINISH, DECIDE, WRITE_PARTS = fencing.finish, fencing._decide, fencing._write_parts
REFUSALS = rounds.refusals
PLAIN, CONDITIONAL = MemoryRows._plain, MemoryRows._conditional
Writes = Sequence[Advance]
Members = Sequence[tuple[OwnedShard, RoundPlan]]


# ---- claims ----------------------------------------------------------------------------------


def claim_without_op(
    shard: ShardId, *, op: bytes, owner: str
) -> ProtocolCoroutine[OwnedShard | Fenced]:
    """Reads after the bump, and does not ask whose bump it was."""
    row = yield from fencing._register(shard)
    yield (Bump(shard, row.epoch, op, owner),)
    after = yield from fencing._register(shard)
    return OwnedShard(shard, after) if after.epoch == row.epoch + 1 else Fenced("")


def claim_reads_first(
    shard: ShardId, *, op: bytes, owner: str
) -> ProtocolCoroutine[OwnedShard | Fenced]:
    """Bumps, and goes on with what it read before the bump."""
    row = yield from fencing._register(shard)
    (reply,) = yield (Bump(shard, row.epoch, op, owner),)
    if not isinstance(reply, Applied):
        return Fenced("")
    return OwnedShard(shard, replace(row, epoch=row.epoch + 1, op=op))


def op_without_process(process: bytes, count: int) -> bytes:
    """Two processes use one name."""
    return count.to_bytes(24, "big")


def trouble_is_damage(owned: OwnedShard, text: str) -> ProtocolCoroutine[None]:
    """Calls what it cannot read damaged, without a second look at the epoch."""
    raise Damaged(text)
    yield ()


def lowest_epoch(found: tuple[object, ...], *, epoch: int, tail: range) -> list[list[FrameRow]]:
    """Of two rows at a position takes the older epoch's."""
    rows = [row for row in found if isinstance(row, FrameRow) and row.position in tail]
    best = {row.position: row for row in sorted(rows, key=lambda row: -row.epoch)}
    return [[best[at]] for at in sorted(best)]


class BlindWalk(chain.Walk):
    """Does not follow the chain, so that holes go unnoticed."""

    def step(self, row: FrameRow, body: bytes) -> None:
        self.position, self.value = row.position, row.chain

    def finish(self, last_position: int, last_chain: bytes) -> None:
        """Anything will do."""


# ---- conditional writes ----------------------------------------------------------------------


def believes_a_read(members: Members) -> ProtocolCoroutine[Refusals]:
    """After a timeout looks, sees nothing, and reports a failure."""
    yield from fencing.write_frames(members)
    ((owned, plan),) = members
    (reply,) = yield (rounds.advance(owned, plan),)
    if not isinstance(reply, Applied) and (yield from fencing._register(owned.shard)).op != plan.op:
        return {owned.shard: Fenced("a read says that it failed", definite=True)}
    register.frame_done(owned, plan)
    return {}


def op_not_looked_at(writes: Writes, reply: StatementReply, *, doubted: bool) -> Refusals | None:
    """Takes every refusal for a failure, its own success before it included."""
    if isinstance(reply, NotApplied):
        return {writes[0].shard: Fenced("", definite=True)}
    return REFUSALS(writes, reply, doubted=doubted)


def retries_in_secret(writes: Writes, reply: StatementReply, *, doubted: bool) -> Refusals | None:
    """Sends again, as a driver of its own accord would: a refusal looks like that of one copy."""
    return REFUSALS(writes, reply, doubted=False)


def another_op(members: Members) -> ProtocolCoroutine[Refusals]:
    """Sends again under a new name."""
    yield from fencing.write_frames(members)
    ((owned, plan),) = members
    write = rounds.advance(owned, plan)
    refused = None
    while refused is None:
        (reply,) = yield (write,)
        refused = REFUSALS([write], reply, doubted=True)
        if refused is None:
            yield Unclear("")
            write = replace(write, op=write.op[:-1] + b"~")
    if not refused:
        register.frame_done(owned, plan)
    return refused


def applied_with_another(owned: OwnedShard, write: MoveFloor) -> ProtocolCoroutine[Fenced | None]:
    """Takes its floor for moved because its own condition held."""
    talk = DECIDE(owned, write)
    said = next(talk)
    while True:
        replies = yield said
        if replies and isinstance(replies[0], OtherRefused):
            return None
        try:
            said = talk.send(replies) if replies else next(talk)
        except StopIteration as end:
            answer: Fenced | None = end.value
            return answer


# ---- order within a round --------------------------------------------------------------------


def not_all_durable(statements: Iterable[Statement]) -> ProtocolCoroutine[None]:
    """Sends every row once, acknowledged or not."""
    said = tuple(statements)
    if said:
        yield said


def commit_first(members: Members) -> ProtocolCoroutine[Refusals]:
    """Commits a frame before its rows are written."""
    ((owned, plan),) = members
    (reply,) = yield (rounds.advance(owned, plan),)
    refused = REFUSALS([rounds.advance(owned, plan)], reply, doubted=False)
    assert refused is not None, "nothing is lost within its bounds"
    if not refused:
        register.frame_done(owned, plan)
        yield from fencing.write_frames(members)
    return refused


def _floor(owned: OwnedShard, plan: RoundPlan) -> ProtocolCoroutine[Fenced | None]:
    assert plan.work.floor is not None
    position = plan.work.floor.position
    move = MoveFloor(owned.shard, owned.epoch, plan.op, plan.floor_op, position)
    return (yield from DECIDE(owned, move))


def floor_before_parts(owned: OwnedShard, plan: RoundPlan) -> ProtocolCoroutine[Committed | Fenced]:
    """Moves the floor to a checkpoint that is not yet written."""
    if plan.work.floor is None:
        return (yield from FINISH(owned, plan))
    yield from fencing._write(InsertRow(owned.shard, row) for row in plan.work.ended)
    fenced = yield from _floor(owned, plan)
    yield from fencing._write_parts(owned, plan)
    register.floor_done(owned, plan)
    return fenced or Committed()


def floor_before_ended(owned: OwnedShard, plan: RoundPlan) -> ProtocolCoroutine[Committed | Fenced]:
    """Moves the floor past ends whose final states are not yet written."""
    if plan.work.floor is None:
        return (yield from FINISH(owned, plan))
    yield from fencing._write_parts(owned, plan)
    fenced = yield from _floor(owned, plan)
    yield from fencing._write(InsertRow(owned.shard, row) for row in plan.work.ended)
    register.floor_done(owned, plan)
    return fenced or Committed()


def cut_first(owned: OwnedShard, plan: RoundPlan) -> ProtocolCoroutine[Committed | Fenced]:
    """Cuts what the new floor allows before the floor is known to have moved."""
    if plan.work.floor is not None:
        doomed = segments.ended(owned.segments, after=0, upto=plan.work.floor.position)
        yield from fencing._write(
            DeleteSegment(owned.shard, one.segment, one.last) for one in doomed
        )
    return (yield from FINISH(owned, plan))


def missing_is_lost(owned: OwnedShard, plan: RoundPlan) -> ProtocolCoroutine[Fenced | None]:
    """Calls its parts lost, though a younger owner may have swept them, and stops its process.

    The model found this one in the code.
    """
    talk = WRITE_PARTS(owned, plan)
    replies: tuple[StatementReply, ...] | None = None
    while True:
        try:
            said = next(talk) if replies is None else talk.send(replies)
        except StopIteration as end:
            answer: Fenced | None = end.value
            return answer
        if isinstance(said, tuple) and isinstance(said[0], ReadRegister):
            raise JournalBroken("parts of a checkpoint are lost")
        replies = yield said


def drops_the_floor(
    owned: OwnedShard, left: tuple[tuple[int, int], ...]
) -> ProtocolCoroutine[list[Any]]:
    """Deletes what an owner before it left, without a look at what the register names."""
    return [(*key, 0) for key in left]
    yield ()


# ---- segments ------------------------------------------------------------------------------


def cuts_the_whole(listed: SegmentList, *, after: int, upto: int) -> list[SegmentPart]:
    """Deletes all of the shard in a segment, to which its process may write again."""
    return [one._replace(last=2**62) for one in ENDED(listed, after=after, upto=upto)]


def cuts_what_began_below(listed: SegmentList, *, after: int, upto: int) -> list[SegmentPart]:
    """Deletes a segment that begins below the floor, and holds frames above it."""
    return [
        SegmentPart(one.segment, one.first, 2**62) for one in listed if after < one.first <= upto
    ]


def segment_not_listed(owned: OwnedShard, rows: tuple[FrameRow, ...]) -> SegmentList | None:
    """Moves to another segment, and does not tell the register."""
    return BEGUN(owned, rows) if not owned.segments else None


def segment_listed_late(owned: OwnedShard, rows: tuple[FrameRow, ...]) -> SegmentList | None:
    """Lists a segment from the position after its first frame."""
    begun = BEGUN(owned, rows)
    return begun and (*begun[:-1], begun[-1]._replace(first=begun[-1].first + 1))


def lists_the_last_only(listed: SegmentList, start: SegmentStart, *, cut_to: int) -> SegmentList:
    """Forgets the segments of the tail."""
    return (start,)


def lists_by_the_floor(listed: SegmentList, start: SegmentStart, *, cut_to: int) -> SegmentList:
    """Forgets one segment more than were cut."""
    cut = sum(1 for one in listed if one.first <= cut_to + 1)
    return (*listed[cut:], start)


# ---- the store -------------------------------------------------------------------------------


def rows_without_epoch(rows: MemoryRows, ask: PlainWrite) -> None:
    """One row per position: a late one of an older epoch overwrites what was committed."""
    if isinstance(ask, InsertRow) and isinstance(ask.row, FrameRow):
        segment = rows.journal.get((ask.shard, ask.row.segment), {})
        for key in [key for key in segment if key[0] == ask.row.position]:
            del segment[key]
    PLAIN(rows, ask)


def commit_without_op(rows: MemoryRows, ask: ConditionalWrite) -> StatementReply:
    """A commit looks at the epoch only, so that a repeated one applies twice."""
    if isinstance(ask, Advance):
        ask = replace(ask, expected=rows.registers[ask.shard].op)
    return CONDITIONAL(rows, ask)


def floor_without_op(rows: MemoryRows, ask: ConditionalWrite) -> StatementReply:
    """A floor looks at the epoch only, so that a repeated one falls back."""
    if isinstance(ask, MoveFloor):
        ask = replace(ask, expected=rows.registers[ask.shard].op)
    return CONDITIONAL(rows, ask)


def commit_without_epoch(rows: MemoryRows, ask: ConditionalWrite) -> StatementReply:
    """No condition at all: an owner that was overtaken goes on."""
    if isinstance(ask, Advance):
        now = rows.registers[ask.shard]
        ask = replace(ask, epoch=now.epoch, expected=now.op)
    return CONDITIONAL(rows, ask)


class Fault(NamedTuple):
    """`broken` takes the place of `name` in `where`, and shows within the bounds."""

    where: Any
    name: str
    broken: Callable[..., Any]
    bounds: Any


TAKEOVER = Bounds(troubles=0)
DOUBT = Bounds()
FLOOR = Bounds(checkpoints=1)
FLOORS = Bounds(owners=1, checkpoints=2)
TOGETHER = Bounds(owners=1, epochs=1, checkpoints=2, cuts=1, troubles=0, refusals=1)
ALONE = Bounds(owners=1, checkpoints=1, sweeps=1, troubles=0)
AGAIN = Bounds(owners=1, segment_writes=100)
SHARED = Bounds(owners=1, frames=3, checkpoints=2, cuts=1, troubles=0, segment_writes=100)
BACK = Bounds(epochs=3, frames=3, checkpoints=2, cuts=1, troubles=0, segment_writes=100)
OVERTAKEN = Bounds(epochs=3, checkpoints=2, cuts=1, troubles=0)

FAULTS = (
    Fault(fencing, "claim", claim_without_op, DOUBT),
    Fault(fencing, "claim", claim_reads_first, TAKEOVER),
    Fault(chain, "op_name", op_without_process, TAKEOVER),
    Fault(fencing, "_raise_damage", trouble_is_damage, OVERTAKEN),
    Fault(chain, "Walk", BlindWalk, OVERTAKEN),
    Fault(fencing, "pick_frames", lowest_epoch, AGAIN),
    Fault(rounds, "commit_frames", believes_a_read, DOUBT),
    Fault(rounds, "refusals", op_not_looked_at, DOUBT),
    Fault(rounds, "refusals", retries_in_secret, DOUBT),
    Fault(rounds, "commit_frames", another_op, DOUBT),
    Fault(fencing, "_decide", applied_with_another, TOGETHER),
    Fault(fencing, "_write", not_all_durable, DOUBT),
    Fault(rounds, "commit_frames", commit_first, TAKEOVER),
    Fault(fencing, "finish", floor_before_parts, FLOOR),
    Fault(fencing, "finish", floor_before_ended, FLOOR),
    Fault(fencing, "finish", cut_first, FLOOR),
    Fault(fencing, "_write_parts", missing_is_lost, FLOOR._replace(sweeps=1, troubles=0)),
    Fault(fencing, "_obsolete", drops_the_floor, ALONE),
    Fault(segments, "ended", cuts_the_whole, BACK),
    Fault(segments, "ended", cuts_what_began_below, SHARED),
    Fault(register, "_begun", segment_not_listed, TAKEOVER),
    Fault(register, "_begun", segment_listed_late, TAKEOVER),
    Fault(segments, "extended", lists_the_last_only, TAKEOVER),
    Fault(segments, "extended", lists_by_the_floor, FLOORS._replace(frames=3, cuts=1)),
    Fault(MemoryRows, "_plain", rows_without_epoch, AGAIN),
    Fault(MemoryRows, "_conditional", commit_without_op, DOUBT),
    Fault(MemoryRows, "_conditional", floor_without_op, FLOORS),
    Fault(MemoryRows, "_conditional", commit_without_epoch, TAKEOVER),
)


@contextmanager
def planted(fault: Fault) -> Iterator[None]:
    """The code with the mistake in it."""
    right = getattr(fault.where, fault.name)
    setattr(fault.where, fault.name, fault.broken)
    try:
        yield
    finally:
        setattr(fault.where, fault.name, right)
