"""The frames of one round: committed all together by one conditional write, or none of them.

The write moves the registers of all shards that have a frame (`WriteTogether`; of one alone it is
an `Advance`). It applies if for each of them the epoch and the op are those that its owner expects,
so it applies at most once. After a time-out the **identical** write is sent again, with the same
company; else half a round could be committed:
 1. we send "the registers of A and B move" and get a time-out; B is claimed by another daemon
 2. we send "the register of A moves": it is applied, and B's frame of the same round is lost

What the registers in a refusal tell (each pair is read in the same moment):
 - one has our op in our epoch: an earlier copy was applied, so the whole round is committed
 - one still has the op we expected, and another a higher epoch: no copy was applied so far, and
   none will be, for that epoch never returns
 - all have higher epochs: if a copy was in doubt before, it may have been applied before the first
   of them began; the next owners know. If none was, none ever will be
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import NamedTuple

from peloton.runtime.core.journal import fencing, register
from peloton.runtime.core.journal.fencing import ProtocolCoroutine
from peloton.runtime.core.journal.register import OpNames, OwnedShard, RoundPlan
from peloton.runtime.core.journal.segments import Segments
from peloton.runtime.core.journal.statements import (
    Advance,
    Applied,
    NoneApplied,
    NotApplied,
    StatementReply,
    WriteTogether,
)
from peloton.runtime.ports import (
    ROUND_SHARDS_MAX,
    Fenced,
    JournalBroken,
    JournalRefused,
    RoundRefused,
    ShardId,
    Unclear,
    Work,
)

Refusals = dict[ShardId, Fenced | RoundRefused]
"""Whose frames are not committed, or in doubt for good; empty if all are committed."""


class PlannedRound(NamedTuple):
    """The works of a round, planned: what is to be written, and what never can be."""

    plans: dict[ShardId, tuple[OwnedShard, RoundPlan]]
    fenced: dict[ShardId, Fenced]  # which are not owned here under this epoch
    frames: dict[ShardId, tuple[OwnedShard, RoundPlan]]  # of the plans those with a frame
    refusals: Refusals | None  # of all frames, because one of them is fenced; None: not decided


def plan(
    works: Sequence[Work],
    *,
    owned_shards: Mapping[ShardId, OwnedShard],
    pending: Container[ShardId],
    ops: OpNames,
    names: Segments | None = None,
) -> PlannedRound:
    """Plan the works of one round, one for each shard.

    `pending`: shards with a work that is not settled. Raises JournalRefused for these, for two
    works of one shard, and if more shards have a frame than fit one conditional write.
    """
    framed = [work.shard for work in works if work.frame is not None]
    if len(framed) > ROUND_SHARDS_MAX:
        text = f"a round of {len(framed)} shards with a frame, limit {ROUND_SHARDS_MAX}"
        raise JournalRefused(text)
    plans: dict[ShardId, tuple[OwnedShard, RoundPlan]] = {}
    fenced: dict[ShardId, Fenced] = {}
    for work in works:
        shard = work.shard
        if shard in plans or shard in fenced:
            raise JournalRefused(f"{shard} is duplicate in one round")
        if shard in pending:
            raise JournalRefused(f"{shard}: settle what is pending first")
        owned = owned_shards.get(shard)
        if owned is None or owned.epoch != work.epoch:
            text = f"{shard}: not owned here under epoch {work.epoch}"
            fenced[shard] = Fenced(text, definite=True)
        else:
            plans[shard] = owned, register.plan(owned, work, ops=ops, names=names)
    frames = {shard: plans[shard] for shard in framed if shard in plans}
    lost = {shard: fenced[shard] for shard in framed if shard in fenced}
    refusals = with_the_others(lost, framed) if lost else None
    return PlannedRound(plans, fenced, frames, refusals)


def commit_frames(members: Sequence[tuple[OwnedShard, RoundPlan]]) -> ProtocolCoroutine[Refusals]:
    """Write the rows first, then one conditional write; in doubt repeat the identical one."""
    yield from fencing.write_frames(members)
    writes = tuple(advance(owned, plan) for owned, plan in members)
    statement = WriteTogether(writes) if len(writes) > 1 else writes[0]
    doubted = False
    while True:
        (reply,) = yield (statement,)
        refused = refusals(writes, reply, doubted=doubted)
        if refused is not None:
            for owned, plan in members:
                if owned.shard not in refused:
                    register.frame_done(owned, plan)
            return refused
        doubted = True
        yield Unclear(fencing.text_of(reply))


def advance(owned: OwnedShard, plan: RoundPlan) -> Advance:
    """Return the statement by which the plan's frame moves the register of its shard."""
    position = plan.frame_rows[0].position
    return Advance(
        owned.shard, owned.epoch, plan.op_before, plan.op, position, plan.chain, plan.segments
    )


def refusals(writes: Sequence[Advance], reply: StatementReply, *, doubted: bool) -> Refusals | None:
    """Return whose frames are refused according to a reply; None if it leaves the outcome unknown.

    `doubted`: the outcome of an earlier copy is unknown. Raises JournalBroken.
    """
    if isinstance(reply, Applied):
        return {}
    if not isinstance(reply, NotApplied | NoneApplied):
        return None
    registers = reply.registers if isinstance(reply, NoneApplied) else (reply,)
    pairs = list(zip(writes, registers, strict=True))
    fenced: dict[ShardId, int] = {}
    for write, found in pairs:
        if found.epoch is None:
            raise JournalBroken(f"{write.shard}: the register is gone, or this is another keyspace")
        if found.epoch > write.epoch:
            fenced[write.shard] = found.epoch
        elif found.epoch < write.epoch or found.op not in (write.op, write.expected):
            raise JournalBroken(f"{write.shard}: the store lost acknowledged writes of our epoch")
    ours = {found.op == write.op for write, found in pairs if write.shard not in fenced}
    if ours == {True, False}:
        raise JournalBroken(f"{writes[0].shard}: the store applied a part of one conditional write")
    if ours == {False} and not fenced:
        return None  # refused, though all its conditions are true
    definite = ours == {False} or not (ours or doubted)
    refused = {
        shard: Fenced(f"{shard}: epoch {epoch} has begun", definite=definite)
        for shard, epoch in fenced.items()
    }
    if ours == {True}:
        return {**refused}
    return with_the_others(refused, [write.shard for write in writes])


def with_the_others(fenced: dict[ShardId, Fenced], shards: Iterable[ShardId]) -> Refusals:
    """Return the refusals of a round: the fenced shards, and all others for their sake."""
    text = "; ".join(one.text for one in fenced.values())
    return {
        shard: fenced.get(shard) or RoundRefused(f"{shard}: its round was refused: {text}")
        for shard in shards
    }
