"""The writes of shards within a round of the SQLite journal, inside its transaction.

The conditional update comes first: its result shows whether the rest may be written. Begin, commit
and rollback belong to the journal.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import NoReturn

from peloton.runtime.adapters import sqlite_schema as sql
from peloton.runtime.core.journal import register, rounds
from peloton.runtime.core.journal.register import OwnedShard, RoundPlan
from peloton.runtime.core.journal.statements import FrameRow
from peloton.runtime.ports import (
    Answer,
    Committed,
    Fenced,
    JournalBroken,
    ShardId,
)

CUT_FRAMES_PER_ROUND = 256
CUT_PARTS_PER_ROUND = 4
VACUUM_PAGES_PER_ROUND = 256
FREE_PAGES_KEPT = 1024


class Superseded(Exception):
    """The register has a newer epoch than the work's."""


RoundAnswers = Mapping[ShardId, Answer]


class WritesTogether:
    """Works that are written all or none: those of a round with a frame, or a single other one."""

    def __init__(self, plans: dict[ShardId, tuple[OwnedShard, RoundPlan]]) -> None:
        self.plans = plans
        self.answers: RoundAnswers | None = None
        """Once it is decided; kept until each shard has asked."""

    def committed(self, answers: RoundAnswers) -> list[tuple[OwnedShard, RoundPlan]]:
        """Return the plans that are in the file according to these answers."""
        return [it for shard, it in self.plans.items() if isinstance(answers[shard], Committed)]

    def decided(self, answers: RoundAnswers) -> int:
        """Record the answers to decided works; return the bytes that were written."""
        self.answers = answers
        done = self.committed(answers)
        for owned, plan in done:
            record_committed(owned, plan)
        return sum(size_bytes(plan) for _, plan in done)


def write_together(db: sqlite3.Connection, together: WritesTogether) -> RoundAnswers | None:
    """Write all plans; return None if a shard is fenced, and the transaction is to be
    rolled back."""
    try:
        return {
            shard: Committed(write(db, owned, plan=plan))
            for shard, (owned, plan) in together.plans.items()
        }
    except Superseded:
        return None


def refusals(db: sqlite3.Connection, together: WritesTogether, *, repeated: bool) -> RoundAnswers:
    """Return the answers if a shard is fenced. `repeated`: an earlier commit is unclear."""
    epochs = {shard: _epoch(db, shard) for shard in together.plans}
    over = [one for one, (owned, _) in together.plans.items() if epochs[one] > owned.epoch]
    # A register that is still ours shows that no earlier commit was done.
    definite = not repeated or len(over) < len(together.plans)
    fenced = {
        shard: Fenced(f"{shard}: epoch {epochs[shard]} has begun", definite=definite)
        for shard in over
    }
    return rounds.with_the_others(fenced, together.plans)


def _epoch(db: sqlite3.Connection, shard: ShardId) -> int:
    (epoch, *_) = db.execute(sql.READ_REGISTER, shard).fetchone()
    return int(epoch)


def found_committed(db: sqlite3.Connection, together: WritesTogether) -> RoundAnswers | None:
    """Return the answers if the op of any register shows the works in the file; else None."""
    answers: dict[ShardId, Answer] = {}
    committed = False
    for shard, (owned, plan) in together.plans.items():
        found = db.execute(sql.READ_REGISTER, shard).fetchone()
        if found is None:
            raise JournalBroken(f"{shard}: the register is missing")
        if found[0] != owned.epoch:
            answers[shard] = Fenced(f"{shard}: epoch {found[0]} has begun")
        else:
            committed = committed or found[1] == plan.last_op != plan.op_before
            answers[shard] = Committed(more_to_cut=plan.work.cut is not None)
    return answers if committed else None


def write(db: sqlite3.Connection, owned: OwnedShard, *, plan: RoundPlan) -> bool:
    """Write the plan; return True if there is more to cut. Raises Superseded, JournalBroken."""
    work, shard = plan.work, owned.shard
    if work.frame is not None:
        key = (*shard, owned.epoch, plan.op_before)
        values = (work.frame.position, plan.chain, plan.op, *key)
        _expect_one(db, owned, update=sql.ADVANCE, values=values)
        db.executemany(sql.INSERT_FRAME, [(*shard, *_frame(row)) for row in plan.frame_rows])
    elif db.execute(sql.READ_REGISTER, shard).fetchone()[:2] != (owned.epoch, owned.op):
        _refused(db, owned)
    if work.ended:
        db.executemany(
            sql.INSERT_ENDED,
            [(*shard, e.kind, e.key, e.position, int(e.deleted), e.body) for e in work.ended],
        )
    if plan.part_rows:
        db.executemany(
            sql.INSERT_PART,
            [
                (*shard, p.position, p.epoch, p.number, p.parts, p.body, p.digest)
                for p in plan.part_rows
            ],
        )
    if work.floor is not None:
        moved = (work.floor.position, owned.epoch, plan.floor_op)
        condition = (*shard, owned.epoch, plan.op)
        _expect_one(db, owned, update=sql.MOVE_FLOOR, values=(*moved, *condition))
    return work.cut is not None and _cut(db, owned, plan=plan)


def record_committed(owned: OwnedShard, plan: RoundPlan) -> None:
    """Record that the plan's transaction is committed."""
    register.frame_done(owned, plan)
    register.parts_done(owned, plan)
    register.floor_done(owned, plan)


def size_bytes(plan: RoundPlan) -> int:
    bodies = [row.body for row in plan.frame_rows] + [row.body for row in plan.part_rows]
    return sum(map(len, bodies)) + sum(len(row.body) for row in plan.work.ended)


def _frame(row: FrameRow) -> tuple[object, ...]:
    return (
        row.position, row.part, row.epoch, row.parts, row.op, row.prev_chain, row.chain, row.body
    )  # fmt: skip


def _expect_one(
    db: sqlite3.Connection, owned: OwnedShard, *, update: str, values: tuple[object, ...]
) -> None:
    if db.execute(update, values).rowcount != 1:
        _refused(db, owned)


def _refused(db: sqlite3.Connection, owned: OwnedShard) -> NoReturn:
    found = db.execute(sql.READ_REGISTER, owned.shard).fetchone()
    if found is None:
        raise JournalBroken(f"{owned.shard}: the register is missing")
    if found[0] > owned.epoch:
        raise Superseded(f"{owned.shard}: epoch {found[0]} has begun")
    raise JournalBroken(f"{owned.shard}: the file lost acknowledged writes of our epoch")


def _cut(db: sqlite3.Connection, owned: OwnedShard, *, plan: RoundPlan) -> bool:
    """Cut a piece: some frames up to the previous checkpoint, and then parts of one older than it.

    Inside the transaction the floor of this very plan is already moved, so it counts.
    """
    moved = plan.written if plan.work.floor is not None else None
    manifest = moved.manifest if moved is not None else owned.manifest
    assert manifest is not None
    upto = manifest.previous[0]
    (first,) = db.execute(sql.FIRST_FRAME, owned.shard).fetchone()
    if first is not None and first <= upto:
        piece = min(upto, first + CUT_FRAMES_PER_ROUND - 1)
        db.execute(sql.CUT_FRAMES, (*owned.shard, piece))
        return True
    # With a floor moved here, the shard's floor is that manifest's previous one.
    kept = {manifest.previous[:2], owned.floor[:2]}
    if plan.written is not None:
        kept.add((plan.written.position, owned.epoch))
    obsolete = _obsolete(db, owned.shard, kept=kept)
    if obsolete is None:
        return False
    key = (*owned.shard, *obsolete)
    db.execute(sql.CUT_PARTS, (*key, *key, CUT_PARTS_PER_ROUND))
    return True


def _obsolete(
    db: sqlite3.Connection, shard: ShardId, *, kept: set[tuple[int, int]]
) -> tuple[int, int] | None:
    """Return the oldest checkpoint that is not needed."""
    at = (0, 0)
    while True:
        found: tuple[int, int] | None = db.execute(sql.NEXT_CHECKPOINT, (*shard, *at)).fetchone()
        if found is None or found not in kept:
            return found
        at = found


def vacuum(db: sqlite3.Connection) -> None:
    """Shrink the file a little if much of it is free; the remaining free pages are reused."""
    (free,) = db.execute("PRAGMA freelist_count").fetchone()
    (pages,) = db.execute("PRAGMA page_count").fetchone()
    if free > max(FREE_PAGES_KEPT, pages // 4):
        db.execute(f"PRAGMA incremental_vacuum({VACUUM_PAGES_PER_ROUND})").fetchall()
