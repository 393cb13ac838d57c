"""Rows that no condition of the store guards: written by the owner only, and read back.

A frame is guarded by its register. Ended rows and parts of a checkpoint are plain writes, so the
protocol itself has to know that they are ours to write, and that they are there.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from peloton.runtime.adapters.fenced_rows import FencedRows
from peloton.runtime.core.journal import fencing, segments
from peloton.runtime.core.journal.register import OwnedShard
from peloton.runtime.core.journal.statements import (
    DeleteSegment,
    FrameRow,
    InsertRow,
    NotApplied,
    PartRow,
    ReadBucket,
    ReadSegment,
    RegisterRow,
    RowsFound,
    Statement,
    StatementFailed,
    StatementReply,
    WriteStored,
)
from peloton.runtime.ports import (
    CheckpointPart,
    Claimed,
    Committed,
    Cut,
    Damaged,
    EndedRow,
    Fenced,
    Floor,
    Frame,
    JournalBroken,
    JournalRefused,
    Overtaken,
    ShardId,
    Unclear,
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


def test_a_checkpoint_without_one_of_its_parts_is_refused() -> None:
    rows = with_a_frame(MemoryRows())
    journal, epoch = owner(rows, 2)
    gap = (PARTS[0], CheckpointPart(1, 2, b"c", last=True))
    with pytest.raises(JournalRefused, match="part 2 of checkpoint 1, not 1"):
        journal.commit([Work(SHARD, epoch, parts=gap)])


@pytest.mark.parametrize(
    ("reply", "ends"),
    [
        (NotApplied(4, b"ours"), None),  # by an earlier copy of it
        (NotApplied(4, b"another"), JournalBroken),
        (NotApplied(3, b"before"), JournalBroken),
        (NotApplied(), JournalBroken),
        (NotApplied(5, b"theirs"), Fenced),
    ],
)
def test_what_a_refusal_of_a_write_that_is_no_frame_tells(
    reply: NotApplied, ends: type | None
) -> None:
    """In our epoch the register has an op of ours, or the store lost what it acknowledged."""
    owned = OwnedShard(SHARD, RegisterRow(4, b"before", "", 0, b"", 0, 0))
    release = fencing.release(owned, b"ours")
    next(release)
    with pytest.raises((StopIteration, JournalBroken)) as caught:
        release.send((reply,))
    found = getattr(caught.value, "value", caught.value)
    assert found is None if ends is None else isinstance(found, ends)


# ---- what a recovery reads ----


class Holed(MemoryRows):
    """Has lost the frames, once it is told to."""

    lost = False

    def run(self, statements: Sequence[Statement]) -> list[StatementReply]:
        return [
            RowsFound()
            if self.lost and isinstance(each, ReadSegment)
            else super(Holed, self).run([each])[0]
            for each in statements
        ]


@pytest.mark.parametrize(("overtaken", "raised"), [(False, Damaged), (True, Overtaken)])
def test_a_gap_is_damage_only_while_the_shard_is_ours(
    overtaken: bool, raised: type[Exception]
) -> None:
    """The next owner may have cut what we were about to read."""
    rows = Holed()
    with_a_frame(rows)
    late = FencedRows(rows, process=bytes([2]) * 16)
    assert isinstance(late.claim(SHARD, "late"), Claimed)
    assert [*late.read_checkpoint(SHARD)] == []
    rows.lost = True
    if overtaken:
        assert isinstance(FencedRows(rows, process=bytes(16)).claim(SHARD, "heir"), Claimed)
    with pytest.raises(raised):
        [*late.read_tail(SHARD)]


def test_of_the_frames_at_a_position_ours_is_the_highest_epoch_up_to_our_claim() -> None:
    def row(epoch: int, position: int = 1) -> FrameRow:
        return FrameRow(position, epoch, 0, 1, b"op", b"", b"", b"%d" % epoch, b"segment")

    found = (row(2), row(9), row(5), row(3), row(5, position=2), row(5, position=3))
    picked = fencing.pick_frames(found, epoch=5, tail=range(1, 3))
    assert [[each.body for each in rows] for rows in picked] == [[b"5"], [b"5"]]


def test_a_tail_is_read_behind_its_checkpoint_only() -> None:
    """The chain of its first frame is in there."""
    rows = with_a_frame(MemoryRows())
    journal, epoch = owner(rows, 2)
    assert journal.commit([Work(SHARD, epoch, parts=PARTS, floor=Floor(1))]) == [Committed()]
    assert isinstance(journal.claim(SHARD, "again"), Claimed)
    with pytest.raises(JournalRefused, match="read the checkpoint first"):
        [*journal.read_tail(SHARD)]


class Undeleted(MemoryRows):
    """Answers no delete."""

    def run(self, statements: Sequence[Statement]) -> list[StatementReply]:
        return [
            StatementFailed("no answer")
            if isinstance(each, DeleteSegment)
            else super(Undeleted, self).run([each])[0]
            for each in statements
        ]


def test_a_segment_whose_delete_is_unclear_is_not_taken_for_cut(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It would leave the list, and nobody would find it again."""
    monkeypatch.setattr(segments, "SEGMENT_FRAMES", 1)
    journal, epoch = owner(Undeleted())
    for position in range(1, 6):
        assert journal.commit([Work(SHARD, epoch, Frame(position, b"x"))]) == [Committed()]
        if position in (3, 5):
            part = CheckpointPart(position, 0, b"state", last=True)
            work = Work(SHARD, epoch, parts=(part,), floor=Floor(position))
            assert journal.commit([work]) == [Committed()]
    owned = journal._owned[SHARD]
    (answer,) = journal.commit([Work(SHARD, epoch, cut=Cut())])
    assert isinstance(answer, Unclear)
    assert (owned.cut_next, owned.cut_to) == (0, 0)
