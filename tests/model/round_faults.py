"""Mistakes to plant in what makes a round whole, and bounds within which each shows.

The tests of the model and `script/model` use it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from peloton.runtime.adapters import fenced_rows
from peloton.runtime.core.journal import fencing, register, rounds
from peloton.runtime.core.journal.fencing import ProtocolCoroutine
from peloton.runtime.core.journal.register import OwnedShard, RoundPlan
from peloton.runtime.core.journal.rounds import Refusals
from peloton.runtime.core.journal.statements import (
    Advance,
    Applied,
    NoneApplied,
    NotApplied,
    StatementReply,
    WriteTogether,
)
from peloton.runtime.ports import Answer, Fenced, RoundRefused, ShardId, Unclear
from peloton.runtime.simulation.memory_rows import MemoryRows
from tests.model.faults import Fault
from tests.model.rounds import Bounds

COMMIT_FRAMES, REFUSALS = rounds.commit_frames, rounds.refusals
PENDING_STEP = fenced_rows.PendingWork.step
Members = Sequence[tuple[OwnedShard, RoundPlan]]


def settles_in_other_company(members: Members) -> ProtocolCoroutine[Refusals]:
    """In doubt sends the register of each shard alone."""
    talk = COMMIT_FRAMES(members)
    said = next(talk)
    while not isinstance(said, Unclear) or len(members) == 1:
        try:
            said = talk.send((yield said)) if not isinstance(said, Unclear) else next(talk)
        except StopIteration as end:
            refusals: Refusals = end.value
            return refusals
    yield said
    refused: Refusals = {}
    for member in members:
        refused |= yield from COMMIT_FRAMES([member])
    return refused


def goes_on_alone(members: Members) -> ProtocolCoroutine[Refusals]:
    """Sends the others of a refused round again, without the one that is fenced."""
    refused = yield from COMMIT_FRAMES(members)
    for owned, plan in members:
        if isinstance(refused.get(owned.shard), RoundRefused):
            del refused[owned.shard]
            refused |= yield from COMMIT_FRAMES([(owned, plan)])
    return refused


def each_by_itself(members: Members) -> ProtocolCoroutine[Refusals]:
    """Sends the registers of a round as writes of their own."""
    yield from fencing.write_frames(members)
    left, refused = {owned.shard: (owned, plan) for owned, plan in members}, {}
    while left:
        writes = [rounds.advance(owned, plan) for owned, plan in left.values()]
        replies = yield tuple(writes)
        for write, reply in zip(writes, replies, strict=True):
            found = REFUSALS([write], reply, doubted=True)
            if found is not None:
                owned, plan = left.pop(write.shard)
                refused |= found
                if not found:
                    register.frame_done(owned, plan)
        if left:
            yield Unclear("")
    return refused


def own_op_not_looked_at(
    writes: Sequence[Advance], reply: StatementReply, *, doubted: bool
) -> Refusals | None:
    """Takes a refusal that shows our op beside a fenced shard for one of the whole round."""
    found = REFUSALS(writes, reply, doubted=doubted)
    if not found or not isinstance(reply, NoneApplied):
        return found
    fenced = {shard: one for shard, one in found.items() if isinstance(one, Fenced)}
    return rounds.with_the_others(fenced, [write.shard for write in writes])


def forgets_its_doubt(
    writes: Sequence[Advance], reply: StatementReply, *, doubted: bool
) -> Refusals | None:
    """Takes every copy for the first."""
    return REFUSALS(writes, reply, doubted=False)


def only_the_fenced(fenced: dict[ShardId, Fenced], shards: Iterable[ShardId]) -> Refusals:
    """Tells the others of a refused round that they are committed."""
    return {**fenced}


class GoesWithoutTheStray(fenced_rows.FrameRound):
    """Sends the frames of those that are held, though one of the round is not."""

    def __setattr__(self, name: str, value: object) -> None:
        if name != "refusals" or not value or hasattr(self, "sent"):
            super().__setattr__(name, value)

    def step(self, replies: tuple[StatementReply, ...] | None) -> fencing.StatementBatch:
        self.sent = True
        return super().step(replies)


def outcome_not_looked_at(
    work: fenced_rows.PendingWork, replies: tuple[StatementReply, ...] | None
) -> fencing.StatementBatch | Answer:
    """Goes on with what follows a frame once its round is decided, in whatever way."""
    return PENDING_STEP(work._replace(frames=None), replies)


def applies_a_part(rows: MemoryRows, statement: WriteTogether) -> StatementReply:
    """A store that applies each write of several whose own condition is true."""
    replies = [rows._conditional(write) for write in statement.writes]
    if all(isinstance(reply, Applied) for reply in replies):
        return Applied()
    found = [rows.registers[write.shard] for write in statement.writes]
    return NoneApplied(tuple(NotApplied(row.epoch, row.op) for row in found))


DOUBT = Bounds()
TAKEOVER = Bounds(troubles=0)
ROUND_FAULTS = (
    Fault(rounds, "commit_frames", settles_in_other_company, DOUBT),
    Fault(rounds, "commit_frames", goes_on_alone, TAKEOVER),
    Fault(rounds, "commit_frames", each_by_itself, TAKEOVER),
    Fault(rounds, "refusals", own_op_not_looked_at, DOUBT),
    Fault(rounds, "refusals", forgets_its_doubt, DOUBT),
    Fault(rounds, "with_the_others", only_the_fenced, TAKEOVER),
    Fault(fenced_rows, "FrameRound", GoesWithoutTheStray, Bounds(troubles=0, strays=1)),
    Fault(fenced_rows.PendingWork, "step", outcome_not_looked_at, TAKEOVER),
    Fault(MemoryRows, "_together", applies_a_part, TAKEOVER),
)
