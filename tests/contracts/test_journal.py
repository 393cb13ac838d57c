"""The journal's contract, one suite over every adapter, however it stores things."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from peloton.runtime.adapters.fenced_rows import FencedRows
from peloton.runtime.core.journal.statements import Statement, StatementReply
from peloton.runtime.ports import (
    BUCKET_PARTS,
    FRAME_PART_BYTES_MAX,
    Answer,
    CheckpointPart,
    Claimed,
    Committed,
    Cut,
    Damaged,
    EndedRow,
    Fenced,
    Floor,
    Frame,
    Journal,
    JournalRefused,
    Overtaken,
    ShardId,
    Work,
)
from peloton.runtime.simulation.memory_rows import MemoryRows
from tests.contracts.journals import GROUPS, OTHER, SHARD, JournalRig, claim


def one(journal: Journal, work: Work) -> Answer:
    (answer,) = journal.commit([work])
    return answer


def append(journal: Journal, epoch: int, *positions: int, shard: ShardId = SHARD) -> None:
    for position in positions:
        assert one(journal, Work(shard, epoch, Frame(position, b"frame %d" % position))) == (
            Committed()
        )


def tail(journal: Journal, shard: ShardId = SHARD) -> list[bytes]:
    list(journal.read_checkpoint(shard))
    return [frame.body for frame in journal.read_tail(shard)]


def checkpoint(position: int, *bodies: bytes) -> tuple[CheckpointPart, ...]:
    last = len(bodies) - 1
    return tuple(CheckpointPart(position, n, body, n == last) for n, body in enumerate(bodies))


def move_floor(journal: Journal, epoch: int, position: int, *bodies: bytes) -> None:
    parts = checkpoint(position, *(bodies or (b"state %d" % position,)))
    assert one(journal, Work(SHARD, epoch, parts=parts, floor=Floor(position))) == Committed()


def cut_all(journal: Journal, epoch: int, *abandoned: tuple[int, int]) -> None:
    for _ in range(1000):
        answer = one(journal, Work(SHARD, epoch, cut=Cut(abandoned)))
        assert isinstance(answer, Committed)
        if not answer.more_to_cut:
            return
    raise AssertionError("the cut never ends")


# ---- bootstrap and claim ---------------------------------------------------------------------


def test_bootstrap_again_returns_the_record_that_is_there(rig: JournalRig) -> None:
    first, second = rig.open(), rig.open()
    assert first.bootstrap(GROUPS) == second.bootstrap(GROUPS)
    assert second.bootstrap(GROUPS).shards == GROUPS


def test_bootstrap_keeps_what_was_journaled(rig: JournalRig) -> None:
    journal = rig.open()
    append(journal, claim(journal).epoch, 1)
    other = rig.open()
    other.bootstrap(GROUPS)
    assert claim(other).last_position == 1


def test_a_new_group_is_added_to_a_living_cluster(rig: JournalRig) -> None:
    """A later version brings a group: its daemon adds it, and the others go on without it."""
    old, new = rig.open(), rig.open()
    epoch = claim(old).epoch
    append(old, epoch, 1)
    assert new.bootstrap({**GROUPS, "c": 2}).shards == {**GROUPS, "c": 2}
    assert claim(new, ShardId("c", 1)) == Claimed(1, 0, 0, 0)
    append(old, epoch, 2)
    again = rig.open()
    assert again.bootstrap(GROUPS).shards == {**GROUPS, "c": 2}, "what it does not know, it keeps"
    assert claim(again).last_position == 2
    assert rig.open().bootstrap({**GROUPS, "c": 2, "d": 1}).shards["d"] == 1
    with pytest.raises(JournalRefused):
        rig.open().bootstrap({"c": 3})


def test_a_claim_is_above_an_epoch_that_was_obeyed_outside(rig: JournalRig) -> None:
    journal = rig.open()
    append(journal, claim(journal).epoch, 1)
    above = journal.claim(SHARD, "somebody", above=7)
    assert isinstance(above, Claimed) and (above.epoch, above.last_position) == (8, 1)
    append(journal, 8, 2)
    below = rig.open().claim(SHARD, "somebody", above=5)
    assert isinstance(below, Claimed) and (below.epoch, below.last_position) == (9, 2)


@pytest.mark.parametrize("groups", [{"a": 3, "b": 1}, {"a": 1}, {"a": 3, "c": 1}])
def test_changed_shard_counts_are_refused(rig: JournalRig, groups: dict[str, int]) -> None:
    with pytest.raises(JournalRefused):
        rig.open().bootstrap(groups)


def test_a_record_without_a_name_takes_the_first_one_and_refuses_any_other(rig: JournalRig) -> None:
    assert rig.open().bootstrap(GROUPS).name == ""
    named = rig.open().bootstrap(GROUPS, name="west")
    assert named.name == "west" and rig.open().bootstrap(GROUPS, name="west") == named
    assert rig.open().bootstrap(GROUPS) == named, "who gives no name is not asked for it"
    with pytest.raises(JournalRefused, match="'west'.*'east'"):
        rig.open().bootstrap(GROUPS, name="east")


def test_who_is_refused_for_shard_counts_names_nothing(rig: JournalRig) -> None:
    with pytest.raises(JournalRefused, match="shard counts"):
        rig.open().bootstrap({"a": 9}, name="east")
    assert rig.open().bootstrap(GROUPS, name="west").name == "west"


def test_the_feature_level_only_rises_and_every_process_sees_it(rig: JournalRig) -> None:
    first, second = rig.open(), rig.open()
    assert first.level() == second.bootstrap(GROUPS).level == 0
    assert first.raise_level(2) == 2
    assert second.raise_level(1) == 2, "it never falls"
    assert second.raise_level(2) == second.level() == 2
    assert rig.open().bootstrap(GROUPS).level == 2
    assert claim(first).epoch == 1, "it is no shard's affair"


def test_only_a_new_cluster_begins_at_the_level_of_its_first_process(
    new_rig: JournalRig,
) -> None:
    first = new_rig.open()
    assert first.bootstrap(GROUPS, level=3).level == first.level() == 3
    assert new_rig.open().bootstrap(GROUPS, level=5).level == 3, "an operator raises it"


class Interrupted(MemoryRows):
    """Another process uses the store after the first read."""

    def __init__(self, other: Callable[[MemoryRows], object]) -> None:
        super().__init__()
        self._other: Callable[[MemoryRows], object] | None = other

    def run(self, statements: Sequence[Statement]) -> list[StatementReply]:
        replies = super().run(statements)
        other, self._other = self._other, None
        if other is not None:
            other(self)
        return replies


def test_of_two_processes_that_begin_a_cluster_at_once_the_level_of_one_counts() -> None:
    """Not the higher one of that which began later, and knows more."""

    def begin(rows: MemoryRows) -> None:
        assert FencedRows(rows, process=b"a" * 16).bootstrap(GROUPS, level=3).level == 3

    late = FencedRows(Interrupted(begin), process=b"b" * 16)
    assert late.bootstrap(GROUPS, level=5).level == late.level() == 3


def test_a_shard_nobody_bootstrapped_is_refused(rig: JournalRig) -> None:
    with pytest.raises(JournalRefused):
        rig.open().claim(ShardId("nowhere", 0), "somebody")


def test_a_claim_bumps_the_epoch_and_of_its_shard_only(rig: JournalRig) -> None:
    first, second = rig.open(), rig.open()
    assert claim(first) == Claimed(1, 0, 0, 0)
    assert claim(second).epoch == 2
    assert claim(second).epoch == 3
    assert claim(second, OTHER).epoch == 1


# ---- frames ----------------------------------------------------------------------------------


def test_frames_are_read_in_order_by_the_next_owner(rig: JournalRig) -> None:
    journal = rig.open()
    append(journal, claim(journal).epoch, 1, 2, 3)
    heir = rig.open()
    assert claim(heir).last_position == 3
    assert tail(heir) == [b"frame 1", b"frame 2", b"frame 3"]


def test_the_owner_may_read_its_own_tail_at_any_time(rig: JournalRig) -> None:
    journal = rig.open()
    epoch = claim(journal).epoch
    append(journal, epoch, 1, 2)
    assert tail(journal) == [b"frame 1", b"frame 2"]
    move_floor(journal, epoch, 1)
    append(journal, epoch, 3)
    assert tail(journal) == [b"frame 2", b"frame 3"]


@pytest.mark.parametrize("size", [0, 1, FRAME_PART_BYTES_MAX, FRAME_PART_BYTES_MAX * 3 + 5])
def test_a_body_of_any_size_comes_back_whole(rig: JournalRig, size: int) -> None:
    journal = rig.open()
    body = bytes(n % 251 for n in range(size))
    assert one(journal, Work(SHARD, claim(journal).epoch, Frame(1, body))) == Committed()
    heir = rig.open()
    claim(heir)
    assert tail(heir) == [body]


@pytest.mark.parametrize("position", [0, 1, 2, 4])
def test_a_position_is_the_last_plus_one_and_never_used_again(
    rig: JournalRig, position: int
) -> None:
    journal = rig.open()
    epoch = claim(journal).epoch
    append(journal, epoch, 1, 2)
    with pytest.raises(JournalRefused):
        journal.commit([Work(SHARD, epoch, Frame(position, b"again"))])
    append(journal, epoch, 3)


def test_the_committed_prefix_never_changes(rig: JournalRig) -> None:
    seen: list[bytes] = []
    last = 0
    for _ in range(4):
        journal = rig.open()
        epoch = claim(journal).epoch
        now = tail(journal)
        assert now[: len(seen)] == seen
        seen = now
        append(journal, epoch, last + 1, last + 2)
        last += 2
    assert len(seen) == 6


def test_a_journal_opened_again_knows_nothing_of_our_claim(rig: JournalRig) -> None:
    journal = rig.open()
    epoch = claim(journal).epoch
    append(journal, epoch, 1)
    journal.close()
    again = rig.open()
    assert isinstance(one(again, Work(SHARD, epoch, Frame(2, b""))), Fenced)
    assert claim(again).epoch == epoch + 1
    assert tail(again) == [b"frame 1"]


def test_a_release_leaves_the_epoch(rig: JournalRig) -> None:
    journal = rig.open()
    epoch = claim(journal).epoch
    append(journal, epoch, 1)
    journal.release(SHARD)
    assert isinstance(one(journal, Work(SHARD, epoch, Frame(2, b""))), Fenced)
    assert claim(rig.open()).epoch == epoch + 1


@pytest.mark.parametrize("end", ["release", "drop"])
def test_an_end_told_late_leaves_a_younger_claim_alone(rig: JournalRig, end: str) -> None:
    journal = rig.open()
    old = claim(journal).epoch
    epoch = claim(journal).epoch
    getattr(journal, end)(SHARD, old)
    append(journal, epoch, 1)
    getattr(journal, end)(SHARD, epoch)
    assert isinstance(one(journal, Work(SHARD, epoch, Frame(2, b""))), Fenced)


# ---- fences ----------------------------------------------------------------------------------

ALL_WORK = {
    "frame": Work(SHARD, 1, frame=Frame(3, b"late")),
    "floor": Work(SHARD, 1, parts=checkpoint(2, b"late"), floor=Floor(2)),
    "ended": Work(SHARD, 1, ended=(EndedRow("k", "late", 2, b""),)),
    "parts": Work(SHARD, 1, parts=checkpoint(2, b"late")),
    "cut": Work(SHARD, 1, cut=Cut()),
    "all": Work(
        SHARD, 1, Frame(3, b"late"), (EndedRow("k", "late", 3, b""),), checkpoint(2, b"late"),
        Floor(2), Cut(),
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", ALL_WORK)
def test_an_old_owner_changes_nothing(rig: JournalRig, kind: str) -> None:
    old, new = rig.open(), rig.open()
    append(old, claim(old).epoch, 1, 2)
    epoch = claim(new).epoch
    answer = one(old, ALL_WORK[kind])
    if kind in ("frame", "floor", "all") or rig.fences_plain_rows:
        assert isinstance(answer, Fenced)
        if kind in ("frame", "all"):
            assert answer.definite, "the frame is not written, and never will be"
    append(new, epoch, 3)
    assert tail(new) == [b"frame 1", b"frame 2", b"frame 3"]
    heir = rig.open()
    assert claim(heir) == Claimed(epoch + 1, 3, 0, 0)
    assert list(heir.read_checkpoint(SHARD)) == []
    assert tail(heir) == [b"frame 1", b"frame 2", b"frame 3"]


def test_once_fenced_a_shard_is_forgotten(rig: JournalRig) -> None:
    old, new = rig.open(), rig.open()
    epoch = claim(old).epoch
    claim(new)
    assert isinstance(one(old, Work(SHARD, epoch, Frame(1, b""))), Fenced)
    assert isinstance(one(old, Work(SHARD, epoch, ended=(EndedRow("k", "x", 1, b""),))), Fenced)
    assert isinstance(old.settle([SHARD])[0], Fenced)


def test_a_shard_comes_once_in_a_round(rig: JournalRig) -> None:
    journal = rig.open()
    epoch = claim(journal).epoch
    with pytest.raises(JournalRefused):
        journal.commit([Work(SHARD, epoch, Frame(1, b"")), Work(SHARD, epoch, Frame(1, b""))])


# ---- damage ----------------------------------------------------------------------------------


@pytest.mark.parametrize("position", [1, 2, 3])
def test_a_frame_that_was_tampered_with_halts_the_shard(rig: JournalRig, position: int) -> None:
    journal = rig.open()
    append(journal, claim(journal).epoch, 1, 2, 3)
    rig.tamper(SHARD, position)
    claim(journal)
    with pytest.raises(Damaged):
        tail(journal)


@pytest.mark.parametrize("position", [1, 2, 3])
def test_a_frame_that_is_missing_halts_the_shard(rig: JournalRig, position: int) -> None:
    journal = rig.open()
    append(journal, claim(journal).epoch, 1, 2, 3)
    rig.lose(SHARD, position)
    claim(journal)
    with pytest.raises(Damaged):
        tail(journal)


def test_trouble_is_no_damage_once_another_owner_has_begun(rig: JournalRig) -> None:
    journal = rig.open()
    append(journal, claim(journal).epoch, 1, 2)
    claim(journal)
    claim(rig.open())
    rig.lose(SHARD, 2)
    with pytest.raises(Overtaken):
        tail(journal)


def test_a_checkpoint_that_rotted_halts_the_shard(rig: JournalRig) -> None:
    journal = rig.open()
    epoch = claim(journal).epoch
    append(journal, epoch, 1)
    move_floor(journal, epoch, 1)
    rig.rot(SHARD)
    claim(journal)
    with pytest.raises(Damaged):
        list(journal.read_checkpoint(SHARD))


# ---- checkpoints, floor, cut -----------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 30, 31, 32, 33, 64, 100])
def test_a_checkpoint_of_any_number_of_parts_comes_back(rig: JournalRig, count: int) -> None:
    journal = rig.open()
    epoch = claim(journal).epoch
    append(journal, epoch, 1, 2)
    bodies = [b"part %d" % n for n in range(count)]
    parts = checkpoint(1, *bodies)
    for at in range(0, count, 7):
        assert one(journal, Work(SHARD, epoch, parts=parts[at : at + 7])) == Committed()
    assert one(journal, Work(SHARD, epoch, floor=Floor(1))) == Committed()
    heir = rig.open()
    assert claim(heir) == Claimed(2, 2, 1, 1)
    assert list(heir.read_checkpoint(SHARD)) == bodies
    assert tail(heir) == [b"frame 2"]


def test_parts_and_frames_share_rounds(rig: JournalRig) -> None:
    journal = rig.open()
    epoch = claim(journal).epoch
    append(journal, epoch, 1)
    parts = checkpoint(1, b"x", b"y", b"z")
    for n, part in enumerate(parts):
        work = Work(SHARD, epoch, Frame(n + 2, b"frame %d" % (n + 2)), parts=(part,))
        assert one(journal, work) == Committed()
    assert one(journal, Work(SHARD, epoch, Frame(5, b"frame 5"), floor=Floor(1))) == Committed()
    claim(journal)
    assert list(journal.read_checkpoint(SHARD)) == [b"x", b"y", b"z"]
    assert tail(journal) == [b"frame %d" % n for n in (2, 3, 4, 5)]


def test_a_checkpoint_without_its_floor_is_not_read(rig: JournalRig) -> None:
    journal = rig.open()
    epoch = claim(journal).epoch
    append(journal, epoch, 1, 2)
    move_floor(journal, epoch, 1, b"good")
    assert one(journal, Work(SHARD, epoch, parts=checkpoint(2, b"unnamed"))) == Committed()
    claim(journal)
    assert list(journal.read_checkpoint(SHARD)) == [b"good"]
    assert tail(journal) == [b"frame 2"]


def test_a_torn_checkpoint_of_an_old_owner_is_never_read(rig: JournalRig) -> None:
    old, new = rig.open(), rig.open()
    epoch = claim(old).epoch
    append(old, epoch, 1, 2)
    assert one(old, Work(SHARD, epoch, parts=checkpoint(2, b"old", b"old")[:1])) == Committed()
    epoch = claim(new).epoch
    move_floor(new, epoch, 2, b"new")
    one(old, Work(SHARD, epoch - 1, parts=(CheckpointPart(2, 1, b"old", True),), floor=Floor(2)))
    claim(new)
    assert list(new.read_checkpoint(SHARD)) == [b"new"]


def test_the_floor_needs_its_whole_checkpoint(rig: JournalRig) -> None:
    journal = rig.open()
    epoch = claim(journal).epoch
    append(journal, epoch, 1, 2)
    parts = checkpoint(1, b"x", b"y")
    for wrong in (
        Work(SHARD, epoch, floor=Floor(1)),
        Work(SHARD, epoch, parts=parts[:1], floor=Floor(1)),
        Work(SHARD, epoch, parts=parts, floor=Floor(2)),
        Work(SHARD, epoch, parts=parts[1:]),
        Work(SHARD, epoch, parts=checkpoint(3, b"beyond")),
    ):
        with pytest.raises(JournalRefused):
            journal.commit([wrong])
    move_floor(journal, epoch, 1, b"x", b"y")
    with pytest.raises(JournalRefused):
        journal.commit([Work(SHARD, epoch, parts=checkpoint(1, b"again"))])


def test_a_cut_keeps_the_previous_generation(rig: JournalRig) -> None:
    journal = rig.open()
    epoch = claim(journal).epoch
    last, floors = rig.frames_of(4), [rig.frames_of(segments) for segments in (1.2, 2.4, 3.5)]
    append(journal, epoch, *range(1, last + 1))
    for position in floors:
        move_floor(journal, epoch, position, b"one", b"two")
        cut_all(journal, epoch)
    frames, checkpoints = rig.stored()
    assert len(checkpoints) == 2
    kept = last - floors[1]
    # Stores that cut by segments keep a rest.
    assert kept <= len(frames) <= kept + rig.segment_frames
    heir = rig.open()
    claim(heir)
    assert list(heir.read_checkpoint(SHARD)) == [b"one", b"two"]
    assert len(tail(heir)) == last - floors[2]


def test_a_cut_before_any_floor_drops_nothing(rig: JournalRig) -> None:
    journal = rig.open()
    epoch = claim(journal).epoch
    append(journal, epoch, 1, 2, 3)
    cut_all(journal, epoch)
    move_floor(journal, epoch, 2)
    cut_all(journal, epoch)
    assert rig.stored()[0] == {1, 2, 3}


def test_the_next_owner_goes_on_cutting(rig: JournalRig) -> None:
    journal = rig.open()
    epoch = claim(journal).epoch
    last, first, second = (rig.frames_of(segments) for segments in (2.4, 1.2, 2.1))
    append(journal, epoch, *range(1, last + 1))
    move_floor(journal, epoch, first)
    move_floor(journal, epoch, second)
    heir = rig.open()
    epoch = claim(heir).epoch
    with pytest.raises(JournalRefused):
        heir.commit([Work(SHARD, epoch, cut=Cut())])
    kept = last - second
    assert len(tail(heir)) == kept
    move_floor(heir, epoch, last)
    cut_all(heir, epoch)
    frames, checkpoints = rig.stored()
    assert len(checkpoints) == 2
    assert kept <= len(frames) <= kept + rig.segment_frames
    claim(heir)
    assert list(heir.read_checkpoint(SHARD)) == [b"state %d" % last]


def test_checkpoints_given_up_go_with_a_cut(rig: JournalRig) -> None:
    journal = rig.open()
    epoch = claim(journal).epoch
    append(journal, epoch, 1, 2, 3)
    assert one(journal, Work(SHARD, epoch, parts=checkpoint(1, b"x", b"y")[:1])) == Committed()
    heir = rig.open()
    epoch = claim(heir).epoch
    append(heir, epoch, 4)
    assert one(heir, Work(SHARD, epoch, parts=checkpoint(3, b"x", b"y")[:1])) == Committed()
    move_floor(heir, epoch, 4)
    cut_all(heir, epoch, (1, 1))
    assert {position for position, _ in rig.stored()[1]} == {4}
    claim(heir)
    assert list(heir.read_checkpoint(SHARD)) == [b"state 4"]


def test_an_owner_never_gives_up_the_checkpoint_that_it_writes(rig: JournalRig) -> None:
    """Only those of other epochs are taken for abandoned, whatever the owner has begun itself."""
    journal = rig.open()
    epoch = claim(journal).epoch
    append(journal, epoch, 1, 2, 3)
    move_floor(journal, epoch, 1)
    parts = checkpoint(3, b"x", b"y")
    assert one(journal, Work(SHARD, epoch, parts=parts[:1])) == Committed()
    cut_all(journal, epoch, (3, epoch))
    assert one(journal, Work(SHARD, epoch, parts=parts[1:], floor=Floor(3))) == Committed()
    heir = rig.open()
    claim(heir)
    assert list(heir.read_checkpoint(SHARD)) == [b"x", b"y"]


def test_a_cut_leaves_nothing_behind_what_it_cut(rig: JournalRig) -> None:
    """Looked for in the store itself: the sizes that a journal says go by what it knows of."""
    journal, many = rig.open(), [b"part"] * (BUCKET_PARTS + 8)
    epoch = claim(journal).epoch
    last, floors = rig.frames_of(4), [rig.frames_of(segments) for segments in (1.2, 2.4, 3.5)]
    append(journal, epoch, 1, 2, 3)
    unfinished = checkpoint(1, *many)[: BUCKET_PARTS + 2]
    assert one(journal, Work(SHARD, epoch, parts=unfinished)) == Committed()
    heir = rig.open()
    abandoned, epoch = (1, epoch), claim(heir).epoch
    assert len(tail(heir)) == 3
    append(heir, epoch, 4)
    given_up = checkpoint(3, *many)[: BUCKET_PARTS + 2]
    assert one(heir, Work(SHARD, epoch, parts=given_up)) == Committed()
    for before, position in zip((4, *floors), (*floors, last), strict=True):
        append(heir, epoch, *range(before + 1, position + 1))
        if position != last:
            move_floor(heir, epoch, position, *many)
            cut_all(heir, epoch, abandoned)
    positions, checkpoints = rig.stored()
    assert checkpoints == {(position, epoch) for position in floors[1:]}
    needed = {*range(floors[1] + 1, last + 1)}
    assert needed <= positions
    assert len(positions - needed) <= rig.segment_frames, "whole segments may keep a rest"
    assert not [one for one in positions if one <= floors[1] - rig.segment_frames]


# ---- ended -----------------------------------------------------------------------------------


def test_of_ended_rows_the_highest_position_counts(rig: JournalRig) -> None:
    journal = rig.open()
    epoch = claim(journal).epoch
    append(journal, epoch, 1, 2)
    assert journal.read_ended(SHARD, kind="k", key="x") is None
    rows = [EndedRow("k", "x", 2, b"second"), EndedRow("k", "x", 1, b"first")]
    for row in rows:
        assert one(journal, Work(SHARD, epoch, ended=(row, row))) == Committed()
    assert rig.open().read_ended(SHARD, kind="k", key="x") == rows[0]
    assert journal.read_ended(SHARD, kind="other", key="x") is None
    assert journal.read_ended(OTHER, kind="k", key="x") is None


@pytest.mark.parametrize("size", [0, FRAME_PART_BYTES_MAX + 5, 5 * 1024 * 1024])
def test_a_final_state_of_any_size_comes_back_whole(rig: JournalRig, size: int) -> None:
    """Such as the spec of a job with the own configs of its instances."""
    journal = rig.open()
    epoch = claim(journal).epoch
    row = EndedRow("k", "x", 1, bytes(n % 251 for n in range(size)))
    work = Work(SHARD, epoch, Frame(1, b""), ended=(row, EndedRow("k", "y", 1, b"small")))
    assert one(journal, work) == Committed()
    heir = rig.open()
    assert heir.read_ended(SHARD, kind="k", key="x") == row
    gone = EndedRow("k", "x", 2, b"", deleted=True)
    assert one(journal, Work(SHARD, epoch, Frame(2, b""), ended=(gone,))) == Committed()
    assert heir.read_ended(SHARD, kind="k", key="x") is None
    assert heir.read_ended(SHARD, kind="k", key="y") is not None


def test_a_deleted_key_is_gone_until_it_ends_again(rig: JournalRig) -> None:
    journal = rig.open()
    epoch = claim(journal).epoch
    for position, row in enumerate(
        [EndedRow("k", "x", 1, b""), EndedRow("k", "x", 2, b"", True), EndedRow("k", "x", 3, b"z")]
    ):
        work = Work(SHARD, epoch, Frame(position + 1, b""), ended=(row,))
        assert one(journal, work) == Committed()
        found = journal.read_ended(SHARD, kind="k", key="x")
        assert found == (None if row.deleted else row)


def test_a_row_cannot_end_beyond_what_is_committed(rig: JournalRig) -> None:
    journal = rig.open()
    epoch = claim(journal).epoch
    with pytest.raises(JournalRefused):
        journal.commit([Work(SHARD, epoch, ended=(EndedRow("k", "x", 1, b""),))])
    assert journal.read_ended(SHARD, kind="k", key="x") is None
