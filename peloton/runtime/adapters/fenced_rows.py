"""Journal over any store of rows: drives the protocol coroutines of `core/journal/fencing.py`.

All coroutines run concurrently: one for the frames of a round (`core/journal/rounds.py`), then one
for each shard with what follows its frame. One whose reply is unclear becomes pending, and `settle`
continues it; any shard of a round continues the frames of all, and the outcome stays with the round
until the others ask. The coroutines judge the replies.

One thread commits and others claim, so a shard may be claimed again while the last coroutine of the
earlier claim is still running. Its outcome belongs to that earlier claim: it must neither become
pending under the younger `OwnedShard`, which would have to settle a foreign write, nor drop that
one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from msgspec.structs import replace

from peloton.runtime.core.journal import fencing, register, rounds
from peloton.runtime.core.journal.fencing import (
    FoundItems,
    ProtocolCoroutine,
    ReadCoroutine,
    StatementBatch,
)
from peloton.runtime.core.journal.joint import JointStep
from peloton.runtime.core.journal.register import OpNames, OwnedShard, RoundPlan
from peloton.runtime.core.journal.rounds import Refusals
from peloton.runtime.core.journal.segments import Segments
from peloton.runtime.core.journal.statements import (
    FEATURES,
    Bump,
    CreateCluster,
    CreateRegister,
    GrowCluster,
    NameCluster,
    ReadCluster,
    ReadEnded,
    ReadName,
    ReadRegister,
    RegisterRow,
    Rows,
    RowsFound,
    Statement,
    StatementFailed,
    StatementReply,
)
from peloton.runtime.ports import (
    JOURNAL_FORMAT,
    Answer,
    Claimed,
    ClusterRecord,
    Committed,
    EndedRow,
    Fenced,
    Frame,
    RoundRefused,
    ShardId,
    Unclear,
    Unreachable,
    Work,
)

CommitCoroutine = ProtocolCoroutine[Committed | Fenced]
T = TypeVar("T")
RunStatements = Callable[[Sequence[Statement]], Sequence[StatementReply]]
"""`Rows.run`, of rows that may be read only."""


class FrameRound:
    """The frames of one round, in flight until `refusals` is known."""

    def __init__(self, members: Sequence[tuple[OwnedShard, RoundPlan]]) -> None:
        self.refusals: Refusals | None = None
        self._coroutine = rounds.commit_frames(members)

    def step(self, replies: tuple[StatementReply, ...] | None) -> StatementBatch:
        """Return the statements to send next; none once the frames are decided."""
        try:
            return next(self._coroutine) if replies is None else self._coroutine.send(replies)
        except StopIteration as end:
            self.refusals = end.value
            return ()


class PendingWork(NamedTuple):
    """The work of one shard, and the claim under which it runs."""

    owned: OwnedShard
    frames: FrameRound | None
    """The round its frame is in."""
    rest: CommitCoroutine
    """What follows the frame."""

    def step(self, replies: tuple[StatementReply, ...] | None) -> StatementBatch | Answer:
        """Return the statements to send next, or the answer once the frame is decided."""
        refusals = self.frames.refusals if self.frames is not None else None
        if refusals and self.owned.shard in refusals:
            return refusals[self.owned.shard]
        try:
            return next(self.rest) if replies is None else self.rest.send(replies)
        except StopIteration as end:
            answer: Committed | Fenced = end.value
            return answer


BOOTSTRAP_SHARDS_AT_ONCE = 4
"""They lie in one partition, where conditional writes at the same time hinder each other."""
NO_RECORD = "there is no cluster record: no daemon has ever used this journal"


class FencedRows:
    """A Journal over a store of rows; `process` is 16 bytes, drawn at start and never reused."""

    def __init__(self, rows: Rows, *, process: bytes) -> None:
        self.rows = rows
        self._ops = OpNames(process)
        self._segments = Segments(process)
        self._owned: dict[ShardId, OwnedShard] = {}
        self._pending: dict[ShardId, PendingWork] = {}
        self._lock = threading.Lock()  # guards the two dicts; never held during a statement

    def bootstrap(
        self, groups: Mapping[str, int], *, name: str = "", level: int = 0
    ) -> ClusterRecord:
        if level and read_record(self.rows) is None:
            # First: a crash in between would leave a new cluster at level 0. Never raised here: of
            # two daemons that begin at once, one may know less than the other.
            self._run(CreateRegister(FEATURES, self._ops.next(), level))
        self._run(CreateCluster(ClusterRecord(self._ops.process, JOURNAL_FORMAT, dict(groups))))
        record = register.same_cluster(self._record(), groups, name=name)
        while register.grown(record, groups) != record.shards:
            # Not applied: another daemon of our version added them, or one of a still later one.
            self._run(GrowCluster(record.shards, register.grown(record, groups)))
            record = register.same_cluster(self._record(), groups, name=name)
        if name and not record.name:  # the first name counts
            self._run(NameCluster(name))
            record = register.same_cluster(self._record(), groups, name=name)
        shards = [ShardId(group, n) for group, count in groups.items() for n in range(count)]
        for at in range(0, len(shards), BOOTSTRAP_SHARDS_AT_ONCE):
            some = shards[at : at + BOOTSTRAP_SHARDS_AT_ONCE]
            for reply in self.rows.run([CreateRegister(one, self._ops.next()) for one in some]):
                _not_failed(reply)
        return record

    def _record(self) -> ClusterRecord:
        record = read_record(self.rows)
        if record is None:
            raise Unreachable("the cluster record was written and is missing")
        return record

    def level(self) -> int:
        return read_level(self.rows)

    def raise_level(self, level: int) -> int:
        self._run(CreateRegister(FEATURES, self._ops.next()))
        now = self.level()
        while now < level:
            # Not applied: another daemon raised it, or an earlier copy of this statement did.
            self._run(Bump(FEATURES, now, self._ops.next(), ""))
            now = self.level()
        return now

    def probe(self) -> None:
        # Beside the registers of all shards: what hinders their writes hinders this one.
        self._run(CreateRegister(FEATURES, self._ops.next()))

    def claim(self, shard: ShardId, owner: str, *, above: int = 0) -> Claimed | Fenced | Unclear:
        self.drop(shard)
        claim = fencing.claim(shard, op=self._ops.next(), owner=owner, above=above)
        found = run_once(self.rows.run, claim)
        if not isinstance(found, OwnedShard):
            return found
        with self._lock:
            self._owned[shard] = found
            self._pending.pop(shard, None)
        return found.claimed()

    def commit(self, works: Sequence[Work]) -> list[Answer]:
        with self._lock:
            owned_shards, pending = {**self._owned}, {*self._pending}
        planned = rounds.plan(
            works, owned_shards=owned_shards, pending=pending, ops=self._ops, names=self._segments
        )
        framed = planned.frames
        frames = FrameRound([*framed.values()])
        frames.refusals = planned.refusals
        started = {
            shard: PendingWork(
                owned, frames if shard in framed else None, fencing.finish(owned, plan)
            )
            for shard, (owned, plan) in planned.plans.items()
        }
        answers = {**planned.fenced, **self._drive(started)}
        return [answers[work.shard] for work in works]

    def settle(self, shards: Sequence[ShardId]) -> list[Answer]:
        with self._lock:
            pending = {shard: self._pending.pop(shard, None) for shard in shards}
        answers = self._drive({shard: work for shard, work in pending.items() if work is not None})
        return [answers[shard] if shard in answers else _nothing(shard) for shard in shards]

    def _drive(self, works: dict[ShardId, PendingWork]) -> dict[ShardId, Answer]:
        """Run all coroutines step by step; the statements of one step go to the store together."""
        answers: dict[ShardId, Answer] = {}
        replies: dict[Hashable, tuple[StatementReply, ...]] = {}
        while works:
            asks: dict[Hashable, tuple[Statement, ...]] = {}
            said: dict[FrameRound, StatementBatch] = {}
            for frames in dict.fromkeys(work.frames for work in works.values()):
                if frames is not None and frames.refusals is None:
                    said[frames] = frames.step(replies.get(frames))
            for shard, work in list(works.items()):
                ask = said.get(work.frames) if work.frames is not None else None
                if work.frames is not None and isinstance(ask, tuple) and ask:
                    asks[work.frames] = ask
                    continue
                step = ask or work.step(replies.get(shard))
                if isinstance(step, tuple):
                    asks[shard] = step
                    continue
                del works[shard]
                if isinstance(step, Unclear):
                    self._keep_pending(work)
                answers[shard] = self._ended(work.owned, step)
            joint = JointStep(asks)
            replies = joint.replies(self.rows.run(joint.statements))
        return answers

    def _keep_pending(self, work: PendingWork) -> None:
        shard = work.owned.shard
        with self._lock:
            if self._owned.get(shard) is work.owned:
                self._pending[shard] = work

    def _ended(self, owned: OwnedShard, answer: Answer) -> Answer:
        if isinstance(answer, Fenced | RoundRefused):
            with self._lock:
                if self._owned.get(owned.shard) is owned:
                    del self._owned[owned.shard]
        return answer

    def release(self, shard: ShardId, epoch: int = 0) -> None:
        owned, pending = self._let_go(shard, epoch)
        # While a write is unclear no other may follow it: if it was done, a later statement would
        # look as if the store had lost it. The next owner bumps the epoch anyway.
        if owned is not None and pending is None:
            run_once(self.rows.run, fencing.release(owned, self._ops.next()))

    def drop(self, shard: ShardId, epoch: int = 0) -> None:
        self._let_go(shard, epoch)

    def _let_go(self, shard: ShardId, epoch: int) -> tuple[OwnedShard | None, PendingWork | None]:
        """Remove and return the shard's claim and pending work, unless the claim is younger."""
        with self._lock:
            owned = self._owned.get(shard)
            if owned is not None and owned.is_younger(epoch):
                return None, None
            return self._owned.pop(shard, None), self._pending.pop(shard, None)

    def read_checkpoint(self, shard: ShardId) -> Iterator[bytes]:
        owned = register.owned_shard(self._owned, shard)
        return read_items(self.rows.run, fencing.load_checkpoint(owned), kind=bytes)

    def read_tail(self, shard: ShardId) -> Iterator[Frame]:
        owned = register.owned_shard(self._owned, shard)
        return read_items(self.rows.run, fencing.load_tail(owned), kind=Frame)

    def read_ended(self, shard: ShardId, *, kind: str, key: str) -> EndedRow | None:
        return read_final_state(self.rows, ReadEnded(shard, kind, key))

    def close(self) -> None:
        self._owned.clear()
        self._pending.clear()
        self.rows.close()

    def _run(self, statement: Statement) -> StatementReply:
        return _run(self.rows, statement)


def read_record(rows: Rows) -> ClusterRecord | None:
    """Return the cluster record with name and level; None if no daemon has used the journal.

    Writes nothing. Raises Unreachable, or JournalRefused if it has another format.
    """
    record = _one(rows, ReadCluster())
    if not isinstance(record, ClusterRecord):
        return None
    register.check_format(record.format)
    return replace(record, name=str(_one(rows, ReadName()) or ""), level=read_level(rows))


def read_level(rows: Rows) -> int:
    """Return the feature level of a cluster. Raises Unreachable."""
    row = _one(rows, ReadRegister(FEATURES))
    return row.epoch if isinstance(row, RegisterRow) else 0


def read_final_state(rows: Rows, read: ReadEnded) -> EndedRow | None:
    """Return an entity's final state; None without one, or if deleted. Raises Unreachable."""
    row = _one(rows, read)
    return row if isinstance(row, EndedRow) and not row.deleted else None


def run_once(run: RunStatements, coroutine: ProtocolCoroutine[T]) -> T | Unclear:
    """Run a protocol coroutine, sending nothing again; return its result, or Unclear."""
    ask = next(coroutine)
    while not isinstance(ask, Unclear):
        try:
            ask = coroutine.send(tuple(run(ask)))
        except StopIteration as end:
            found: T = end.value
            return found
    return ask


def read_items(run: RunStatements, reading: ReadCoroutine, *, kind: type[T]) -> Iterator[T]:
    """Yield the items of this kind that a reading coroutine finds. Raises Unreachable."""
    replies: tuple[StatementReply, ...] | None = None
    while True:
        try:
            ask = next(reading) if replies is None else reading.send(replies)
        except StopIteration:
            return
        replies = None
        if isinstance(ask, FoundItems):
            yield from (item for item in ask.items if isinstance(item, kind))
        elif isinstance(ask, Unclear):
            raise Unreachable(ask.text)
        else:
            replies = tuple(run(ask))


def _one(rows: Rows, read: Statement) -> object:
    found = _run(rows, read)
    return found.rows[0] if isinstance(found, RowsFound) and found.rows else None


def _run(rows: Rows, statement: Statement) -> StatementReply:
    (reply,) = rows.run([statement])
    return _not_failed(reply)


def _nothing(shard: ShardId) -> Fenced:
    return Fenced(f"{shard}: nothing is pending, the shard is not ours")


def _not_failed(reply: StatementReply) -> StatementReply:
    if isinstance(reply, StatementFailed):
        raise Unreachable(reply.text)
    return reply
