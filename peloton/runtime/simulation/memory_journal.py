"""Journal in memory: the reference for all other journals, and the one of simulations.

A `MemoryStore` outlives the journals on it, as a disk outlives processes; each `MemoryJournal` is
one process's view. Every step of the port calls a hook before and after, so that a simulation can
lose a reply (raise `AnswerLost`) or end the process (raise anything else) at each of them. It must
not be optimized: it does what the port demands, in as little code as possible.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple, NoReturn, TypeVar

import msgspec

from peloton.runtime.core.journal import chain, register, rounds
from peloton.runtime.core.journal.register import OwnedShard, RoundPlan
from peloton.runtime.core.journal.rounds import Refusals
from peloton.runtime.ports import (
    JOURNAL_FORMAT,
    Answer,
    Claimed,
    ClusterRecord,
    Committed,
    Damaged,
    EndedRow,
    Fenced,
    Frame,
    JournalRefused,
    Overtaken,
    ShardId,
    Sizes,
    Unclear,
    Unreachable,
    Work,
)
from peloton.runtime.simulation import shard_files
from peloton.runtime.simulation.shard_files import MemoryRound, ShardFiles, StepSuperseded


class StoreCall(NamedTuple):
    """A step of a port call. Names: claim, append, ended, parts, floor, cut, release,
    read_checkpoint, read_tail, read_ended. The frames of a round are appended in one step: its
    shards' calls before come first, their calls after last."""

    name: str
    shard: ShardId
    moment: Literal["before", "after"]


class AnswerLost(Exception):
    """Raised by a hook: the reply of the step was lost, before it was done or after."""


class MemoryStore:
    """What survives when every process is gone."""

    def __init__(self) -> None:
        self.cluster: ClusterRecord | None = None
        self.shards: dict[ShardId, ShardFiles] = {}


T = TypeVar("T")
StoreStep = tuple[str, Callable[[], None]]


class UnfinishedWork(NamedTuple):
    """The round of a shard's frame, and the steps that follow it."""

    frames: MemoryRound | None
    steps: deque[StoreStep]


class MemoryJournal:
    """One process's journal on a store; `process` is 16 bytes and never used twice."""

    def __init__(
        self,
        store: MemoryStore,
        *,
        process: bytes,
        hook: Callable[[StoreCall], None] | None = None,
    ) -> None:
        self.store = store
        self.hook = hook
        self._ops = register.OpNames(process)
        self._owned: dict[ShardId, OwnedShard] = {}
        self._pending: dict[ShardId, UnfinishedWork] = {}

    # ---- life of a shard ----

    def bootstrap(
        self, groups: Mapping[str, int], *, name: str = "", level: int = 0
    ) -> ClusterRecord:
        if self.store.cluster is None:
            self.store.cluster = ClusterRecord(
                self._ops.process, JOURNAL_FORMAT, dict(groups), level=level
            )
        record = self.store.cluster
        register.check_format(record.format)
        record = register.same_cluster(record, groups, name=name)
        self.store.cluster = msgspec.structs.replace(
            record, shards=register.grown(record, groups), name=record.name or name
        )
        for group, count in groups.items():
            for number in range(count):
                self.store.shards.setdefault(ShardId(group, number), ShardFiles())
        return self.store.cluster

    def level(self) -> int:
        return self.store.cluster.level if self.store.cluster is not None else 0

    def raise_level(self, level: int) -> int:
        assert self.store.cluster is not None
        level = max(level, self.level())
        self.store.cluster = msgspec.structs.replace(self.store.cluster, level=level)
        return level

    def probe(self) -> None:
        self.raise_level(0)

    def claim(self, shard: ShardId, owner: str, *, above: int = 0) -> Claimed | Fenced | Unclear:
        self.drop(shard)
        files = self._files(shard)
        op = self._ops.next()
        try:
            bump = functools.partial(shard_files.bump, files, op, owner=owner, above=above)
            self._step(shard, ("claim", bump))
        except AnswerLost as lost:
            return Unclear(str(lost))
        owned = self._owned[shard] = OwnedShard(shard, files.register)
        return owned.claimed()

    def release(self, shard: ShardId, epoch: int = 0) -> None:
        owned, files = self._owned.get(shard), self._files(shard)
        if owned is not None and owned.is_younger(epoch):
            return
        in_doubt = shard in self._pending
        self.drop(shard)
        if owned is None or in_doubt:
            return

        def free() -> None:
            row = files.register
            if (row.epoch, row.op) == (owned.epoch, owned.op):
                files.register = msgspec.structs.replace(row, owner="", op=self._ops.next())

        try:
            self._step(shard, ("release", free))
        except AnswerLost:
            pass  # a hint only: the next owner bumps the epoch anyway

    def drop(self, shard: ShardId, epoch: int = 0) -> None:
        owned = self._owned.get(shard)
        if owned is not None and owned.is_younger(epoch):
            return
        self._owned.pop(shard, None)
        self._pending.pop(shard, None)

    def close(self) -> None:
        self._owned.clear()
        self._pending.clear()

    # ---- writing ----

    def commit(self, works: Sequence[Work]) -> list[Answer]:
        planned = rounds.plan(works, owned_shards=self._owned, pending=self._pending, ops=self._ops)
        framed = planned.frames
        frames = MemoryRound([(self._files(one), *framed[one]) for one in framed])
        frames.refusals = planned.refusals
        for shard, (owned, plan) in planned.plans.items():
            steps = deque(self._steps(owned, plan))
            self._pending[shard] = UnfinishedWork(frames if shard in framed else None, steps)
        answers = {**planned.fenced, **self._run(list(planned.plans))}
        return [answers[work.shard] for work in works]

    def settle(self, shards: Sequence[ShardId]) -> list[Answer]:
        answers = self._run([shard for shard in shards if shard in self._pending])
        none = Fenced("nothing is pending, the shard is not ours")
        return [answers.get(shard, none) for shard in shards]

    def _run(self, shards: Sequence[ShardId]) -> dict[ShardId, Answer]:
        """Decide the frames of each round that these shards are in, then finish their works."""
        doubts: dict[MemoryRound, Unclear] = {}
        for frames in dict.fromkeys(self._pending[shard].frames for shard in shards):
            if frames is not None and frames.refusals is None:
                try:
                    frames.refusals = self._append(frames)
                except AnswerLost as lost:
                    doubts[frames] = Unclear(str(lost))
        answers: dict[ShardId, Answer] = {}
        for shard in shards:
            frames = self._pending[shard].frames
            doubt = doubts.get(frames) if frames is not None else None
            answers[shard] = doubt or self._finish(shard)
        return answers

    def _append(self, frames: MemoryRound) -> Refusals:
        for _, owned, _ in frames.members:
            self._call(StoreCall("append", owned.shard, "before"))
        refusals = frames.append()
        for _, owned, _ in frames.members:
            self._call(StoreCall("append", owned.shard, "after"))
        return refusals

    def _steps(self, owned: OwnedShard, plan: RoundPlan) -> Iterator[StoreStep]:
        files, work = self._files(owned.shard), plan.work
        if work.ended:
            yield "ended", lambda: shard_files.end(files, owned, plan=plan)
        if work.parts:
            yield "parts", lambda: shard_files.write_parts(files, owned, plan=plan)
        if work.floor is not None:
            yield "floor", lambda: shard_files.move_floor(files, owned, plan=plan)
        if work.cut is not None:
            yield "cut", lambda: shard_files.cut(files, owned)

    def _finish(self, shard: ShardId) -> Answer:
        frames, steps = self._pending[shard]
        refusals = frames.refusals if frames is not None else None
        if refusals and shard in refusals:
            self.drop(shard)
            return refusals[shard]
        while steps:
            try:
                self._step(shard, steps[0])
            except StepSuperseded:
                self.drop(shard)
                return Fenced(f"{shard}: overtaken at {steps[0][0]}")
            except AnswerLost as lost:
                return Unclear(str(lost))
            steps.popleft()
        del self._pending[shard]
        return Committed()

    def _step(self, shard: ShardId, step: StoreStep) -> None:
        name, do = step
        self._call(StoreCall(name, shard, "before"))
        do()
        self._call(StoreCall(name, shard, "after"))

    def _call(self, call: StoreCall) -> None:
        if self.hook is not None:
            self.hook(call)

    # ---- reading ----

    def read_checkpoint(self, shard: ShardId) -> Iterator[bytes]:
        owned, files = register.owned_shard(self._owned, shard), self._files(shard)
        position, key = owned.floor[0], owned.floor[:2]
        if position == 0:
            return
        rows = self._read(shard, "read_checkpoint", read=lambda: files.checkpoints.get(key))
        if not rows or rows[-1].parts != len(rows) or not all(map(chain.intact, rows)):
            self._raise_damage(owned, f"{shard}: checkpoint {position} is not what was written")
        owned.checkpoint_read(chain.unpack_manifest(rows[0].body), len(rows))
        yield from [row.body for row in rows[1:]]

    def read_tail(self, shard: ShardId) -> Iterator[Frame]:
        owned, files = register.owned_shard(self._owned, shard), self._files(shard)
        if owned.manifest is None:
            raise JournalRefused(f"{shard}: read the checkpoint first")
        floor, last_position, last_chain = owned.floor[0], owned.last_position, owned.chain
        walk = chain.Walk(shard, floor=floor, note=owned.manifest.chain)
        frames = self._read(shard, "read_tail", read=lambda: dict(files.frames))
        try:
            for position in range(floor + 1, last_position + 1):
                rows = frames.get(position)
                if rows is None:
                    raise chain.Mismatch(f"{shard}: no frame at position {position}")
                body = b"".join(row.body for row in rows)
                walk.step(rows[0], body)
                yield Frame(position, body)
            walk.finish(last_position, last_chain)
        except chain.Mismatch as mismatch:
            self._raise_damage(owned, str(mismatch))

    def read_ended(self, shard: ShardId, *, kind: str, key: str) -> EndedRow | None:
        rows = self._read(
            shard, "read_ended", read=lambda: self._files(shard).ended.get((kind, key), {})
        )
        newest = rows[max(rows)] if rows else None
        return None if newest is None or newest.deleted else newest

    def sizes(self, shard: ShardId) -> Sizes:
        files = self._files(shard)
        frames = [row for rows in files.frames.values() for row in rows]
        parts = [row for rows in files.checkpoints.values() for row in rows]
        ended = [row for rows in files.ended.values() for row in rows.values()]
        return Sizes(
            len(frames), sum(len(row.body) for row in frames),
            len(parts), sum(len(row.body) for row in parts),
            len(ended), sum(len(row.body) for row in ended),
        )  # fmt: skip

    def _read(self, shard: ShardId, name: str, *, read: Callable[[], T]) -> T:
        try:
            self._call(StoreCall(name, shard, "before"))
            found = read()
            self._call(StoreCall(name, shard, "after"))
        except AnswerLost as lost:
            raise Unreachable(str(lost)) from lost
        return found

    def _files(self, shard: ShardId) -> ShardFiles:
        files = self.store.shards.get(shard)
        if files is None:
            raise JournalRefused(f"{shard} was never bootstrapped")
        return files

    def _raise_damage(self, owned: OwnedShard, text: str) -> NoReturn:
        if self._files(owned.shard).register.epoch != owned.epoch:
            raise Overtaken(text)
        raise Damaged(text)
