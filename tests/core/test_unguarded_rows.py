"""Rows that no condition of the store guards: written by the owner only, and read back.

A frame is guarded by its register. Ended rows and parts of a checkpoint are plain writes, so the
protocol itself has to know that they are ours to write, and that they are there.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from peloton.runtime.adapters.fenced_rows import FencedRows
from peloton.runtime.core.statements import (
    InsertRow,
    PartRow,
    ReadBucket,
    RowsFound,
    Statement,
    StatementReply,
    WriteStored,
)
from peloton.runtime.ports import (
    CheckpointPart,
    Claimed,
    Committed,
    Cut,
    EndedRow,
    Fenced,
    Floor,
    Frame,
    JournalBroken,
    JournalRefused,
    ShardId,
    Work,
)
from peloton.runtime.simulation.memory_rows import MemoryRows

SHARD = ShardId("g", 0)
ROW = EndedRow("kind", "key", 1, b"end")
PARTS = (CheckpointPart(1, 0, b"a", last=False), CheckpointPart(1, 1, b"b", last=True))


class Forgetful(MemoryRows):
    """Acknowledges the last part of a checkpoint, and forgets it."""

    def run(self, statements: Sequence[Statement]) -> list[StatementReply]:
        return [
            WriteStored() if self._is_last_part(each) else super(Forgetful, self).run([each])[0]
            for each in statements
        ]

    def _is_last_part(self, each: Statement) -> bool:
        return isinstance(each, InsertRow) and isinstance(each.row, PartRow) and each.row.parts > 0


def owner(rows: MemoryRows, number: int = 1) -> tuple[FencedRows, int]:
    """A process that has claimed the shard and recovered it; its epoch."""
    journal = FencedRows(rows, process=bytes([number]) * 16)
    journal.bootstrap({"g": 1})
    claimed = journal.claim(SHARD, str(number))
    assert isinstance(claimed, Claimed)
    assert [*journal.read_checkpoint(SHARD)] == []
    [*journal.read_tail(SHARD)]
    return journal, claimed.epoch


def with_a_frame(rows: MemoryRows) -> MemoryRows:
    journal, epoch = owner(rows)
    assert journal.commit([Work(SHARD, epoch, Frame(1, b"x"))]) == [Committed()]
    return rows


def test_who_was_overtaken_since_its_recovery_writes_no_ended_row() -> None:
    """The next owner may have deleted the entity, or let it live on."""
    rows = with_a_frame(MemoryRows())
    late, epoch = owner(rows, 2)
    heir, _ = owner(rows, 3)
    (answer,) = late.commit([Work(SHARD, epoch, ended=(ROW,))])
    assert isinstance(answer, Fenced) and answer.definite
    assert heir.read_ended(SHARD, kind="kind", key="key") is None


def test_the_owner_writes_them_with_its_first_work() -> None:
    rows = with_a_frame(MemoryRows())
    journal, epoch = owner(rows, 2)
    assert journal.commit([Work(SHARD, epoch, ended=(ROW,))]) == [Committed()]
    found = journal.read_ended(SHARD, kind="kind", key="key")
    assert found is not None and found.body == b"end"


@pytest.mark.parametrize("at_once", [True, False])
def test_the_floor_does_not_move_to_a_checkpoint_whose_last_part_is_lost(at_once: bool) -> None:
    rows = with_a_frame(Forgetful())
    journal, epoch = owner(rows, 2)
    floor = Floor(1) if at_once else None
    with pytest.raises(JournalBroken):
        journal.commit([Work(SHARD, epoch, parts=PARTS, floor=floor)])
    with pytest.raises(JournalRefused):
        journal.commit([Work(SHARD, epoch, floor=Floor(1))])
    claimed = FencedRows(rows, process=bytes(16)).claim(SHARD, "heir")
    assert isinstance(claimed, Claimed) and claimed.floor == 0


def test_no_cut_drops_the_floor_or_the_checkpoint_before_it() -> None:
    """Whatever its caller takes for abandoned: the one before is what is left if the floor's is
    damaged."""
    rows = with_a_frame(MemoryRows())
    journal, first = owner(rows, 2)
    for position in (2, 3):
        part = CheckpointPart(position, 0, b"state", last=True)
        work = Work(SHARD, first, Frame(position, b"x"), parts=(part,), floor=Floor(position))
        assert journal.commit([work]) == [Committed()]
    heir = FencedRows(rows, process=bytes(16))
    claimed = heir.claim(SHARD, "heir")
    assert isinstance(claimed, Claimed) and [*heir.read_checkpoint(SHARD)] == [b"state"]
    more = True
    while more:
        work = Work(SHARD, claimed.epoch, cut=Cut(((2, first), (3, first))))
        (answer,) = heir.commit([work])
        assert isinstance(answer, Committed)
        more = answer.more_to_cut
    for position in (2, 3):
        (reply,) = rows.run([ReadBucket(SHARD, position, first, 0)])
        assert isinstance(reply, RowsFound) and len(reply.rows) == 2, position
