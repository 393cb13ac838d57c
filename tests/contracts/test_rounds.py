"""The journal's contract for a round of several shards, over every adapter: all frames or none.

How each adapter settles doubts is shown in its own tests.
"""

from __future__ import annotations

import pytest

from peloton.runtime.ports import (
    ROUND_SHARDS_MAX,
    CheckpointPart,
    Committed,
    Cut,
    EndedRow,
    Fenced,
    Floor,
    Frame,
    JournalRefused,
    RoundRefused,
    ShardId,
    Work,
)
from tests.contracts.journals import OTHER, ROUND, SECOND, SHARD, JournalRig, claim, frames


def tails(rig: JournalRig) -> list[list[bytes]]:
    """What the next owner of each shard reads."""
    heir, found = rig.open(), []
    for shard in ROUND:
        claim(heir, shard)
        list(heir.read_checkpoint(shard))
        found.append([frame.body for frame in heir.read_tail(shard)])
    return found


def with_an_end(work: Work) -> Work:
    """The work, and what follows its frame."""
    row = EndedRow("kind", "key", 1, b"end")
    part = CheckpointPart(1, 0, b"state", last=True)
    return Work(work.shard, work.epoch, work.frame, (row,), (part,), Floor(1), Cut())


def test_the_frames_of_a_round_are_committed_together(rig: JournalRig) -> None:
    journal = rig.open()
    works = frames(journal)
    assert journal.commit(works) == [Committed()] * 3
    again = [Work(one.shard, one.epoch, Frame(2, b"more")) for one in works]
    assert journal.commit(again) == [Committed()] * 3
    assert tails(rig) == [[b"ours", b"more"]] * 3


@pytest.mark.parametrize("stolen", ROUND)
def test_if_one_shard_is_fenced_no_frame_of_the_round_is_committed(
    rig: JournalRig, stolen: ShardId
) -> None:
    journal, thief = rig.open(), rig.open()
    works = [with_an_end(work) for work in frames(journal)]
    claim(thief, stolen)
    for work, answer in zip(works, journal.commit(works), strict=True):
        if work.shard == stolen:
            assert isinstance(answer, Fenced) and answer.definite
        else:
            assert isinstance(answer, RoundRefused)
            assert str(stolen) in answer.text, "it says because of whom"
        assert isinstance(journal.settle([work.shard])[0], Fenced), "nothing is pending"
        assert journal.read_ended(work.shard, kind="kind", key="key") is None
    assert tails(rig) == [[]] * 3


def test_all_that_are_fenced_are_told_so(rig: JournalRig) -> None:
    journal, thief = rig.open(), rig.open()
    works = frames(journal)
    claim(thief, SHARD)
    claim(thief, OTHER)
    assert [type(each) for each in journal.commit(works)] == [Fenced, RoundRefused, Fenced]


def test_a_shard_whose_round_was_refused_is_not_held_and_goes_on_after_a_claim(
    rig: JournalRig,
) -> None:
    journal, thief = rig.open(), rig.open()
    works = frames(journal)
    claim(thief, SECOND)
    journal.commit(works)
    (answer,) = journal.commit(works[:1])
    assert isinstance(answer, Fenced) and answer.definite
    claimed = claim(journal, SHARD)
    assert (claimed.epoch, claimed.last_position) == (2, 0), "the claim was still ours"
    assert list(journal.read_tail(SHARD)) == []
    assert journal.commit([Work(SHARD, 2, Frame(1, b"anew"))]) == [Committed()]
    assert tails(rig) == [[b"anew"], [], []]


def test_a_frame_of_a_shard_that_is_not_held_refuses_its_round(rig: JournalRig) -> None:
    journal = rig.open()
    works = frames(journal)
    journal.drop(SECOND)
    first, dropped, last = journal.commit(works)
    assert isinstance(dropped, Fenced) and dropped.definite
    assert isinstance(first, RoundRefused) and isinstance(last, RoundRefused)
    assert str(SECOND) in first.text
    assert isinstance(journal.commit(works[:1])[0], Fenced)
    assert tails(rig) == [[]] * 3


def test_a_work_without_a_frame_stands_for_itself(rig: JournalRig) -> None:
    journal, thief = rig.open(), rig.open()
    first, second, other = frames(journal)
    assert journal.commit([first, second, other]) == [Committed()] * 3
    claim(thief, SECOND)
    lone = Work(SHARD, first.epoch, ended=(EndedRow("kind", "key", 1, b"end"),))
    next_ones = [Work(one.shard, one.epoch, Frame(2, b"more")) for one in (second, other)]
    answers = journal.commit([next_ones[0], lone, next_ones[1]])
    assert [type(each) for each in answers] == [Fenced, Committed, RoundRefused]
    row = journal.read_ended(SHARD, kind="kind", key="key")
    assert row is not None and row.body == b"end"
    assert journal.commit([Work(SHARD, first.epoch, Frame(2, b"more"))]) == [Committed()]


def test_a_fenced_work_without_a_frame_refuses_nobody(rig: JournalRig) -> None:
    journal, thief = rig.open(), rig.open()
    first, second, other = frames(journal)
    assert journal.commit([first, second, other]) == [Committed()] * 3
    claim(thief, SECOND)
    part = CheckpointPart(1, 0, b"state", last=True)
    lone = Work(SECOND, second.epoch, parts=(part,), floor=Floor(1))
    next_ones = [Work(one.shard, one.epoch, Frame(2, b"more")) for one in (first, other)]
    answers = journal.commit([next_ones[0], lone, next_ones[1]])
    assert [type(each) for each in answers] == [Committed, Fenced, Committed]
    assert tails(rig) == [[b"ours", b"more"], [b"ours"], [b"ours", b"more"]]


def test_frames_and_works_without_one_may_be_fenced_in_one_round(rig: JournalRig) -> None:
    journal, thief = rig.open(), rig.open()
    first, second, other = frames(journal)
    assert journal.commit([first, second, other]) == [Committed()] * 3
    claim(thief, SHARD)
    claim(thief, SECOND)
    part = CheckpointPart(1, 0, b"state", last=True)
    works = [
        Work(other.shard, other.epoch, parts=(part,), floor=Floor(1)),
        Work(SECOND, second.epoch, parts=(part,), floor=Floor(1)),
        Work(SHARD, first.epoch, Frame(2, b"more")),
    ]
    assert [type(each) for each in journal.commit(works)] == [Committed, Fenced, Fenced]
    assert claim(journal, OTHER).floor == 1
    assert list(journal.read_checkpoint(OTHER)) == [b"state"]
    assert claim(journal, SECOND).floor == 0


def test_a_round_has_a_limit_of_frames_and_above_it_nothing_is_written(rig: JournalRig) -> None:
    journal = rig.open()
    journal.bootstrap({"many": ROUND_SHARDS_MAX + 1})
    shards = [ShardId("many", number) for number in range(ROUND_SHARDS_MAX + 1)]
    works = [Work(one, claim(journal, one).epoch, Frame(1, b"x")) for one in shards]
    with pytest.raises(JournalRefused, match="limit 64"):
        journal.commit(works)
    lone = Work(shards[-1], 1, cut=Cut())
    assert journal.commit([*works[:-1], lone]) == [Committed()] * len(works)
    assert claim(journal, shards[-1]).last_position == 0
