"""A round whose commit has no answer, over every adapter: settled by any of its shards, for all.

The suites of the adapters test what a store does to one shard alone.
"""

from __future__ import annotations

import pytest

from peloton.runtime.ports import (
    Answer,
    Committed,
    Cut,
    EndedRow,
    Fenced,
    Frame,
    Journal,
    JournalRefused,
    RoundRefused,
    ShardId,
    Unclear,
    Work,
)
from tests.contracts.journals import OTHER, ROUND, SECOND, SHARD, JournalRig, claim, frames


def doubted(rig: JournalRig, *, done: bool) -> Journal:
    """A journal with a round of all shards in doubt."""
    journal = rig.open()
    works = frames(journal)
    rig.lose_commit(journal, done=done)
    assert [type(each) for each in journal.commit(works)] == [Unclear] * 3
    return journal


def settle(journal: Journal, shard: ShardId) -> Answer:
    """The answer to one shard, as its shell would get it: it asks until it knows."""
    for _ in range(10):
        (answer,) = journal.settle([shard])
        if not isinstance(answer, Unclear):
            return answer
    raise AssertionError("it never ends")


def positions(rig: JournalRig) -> list[int]:
    heir = rig.open()
    return [claim(heir, shard).last_position for shard in ROUND]


@pytest.mark.parametrize("done", [False, True])
def test_the_first_to_ask_settles_the_round_and_the_others_learn_it_later(
    rig: JournalRig, done: bool
) -> None:
    journal = doubted(rig, done=done)
    assert settle(journal, SECOND) == Committed()
    assert journal.commit([Work(SECOND, 1, Frame(2, b"on"))]) == [Committed()]
    with pytest.raises(JournalRefused):
        journal.commit([Work(SHARD, 1, Frame(2, b"on"))])
    assert journal.settle([OTHER, SHARD]) == [Committed()] * 2
    assert journal.commit([Work(one, 1, Frame(2, b"on")) for one in (OTHER, SHARD)]) == (
        [Committed()] * 2
    )
    assert positions(rig) == [2, 2, 2]


@pytest.mark.parametrize("done", [False, True])
def test_a_shard_that_was_dropped_does_not_hinder_the_others(rig: JournalRig, done: bool) -> None:
    journal = doubted(rig, done=done)
    journal.drop(SECOND)
    assert settle(journal, SHARD) == Committed()
    assert isinstance(journal.settle([SECOND])[0], Fenced), "it is not held"
    assert settle(journal, OTHER) == Committed()
    assert positions(rig) == [1, 1, 1], "its frame stands with theirs"


@pytest.mark.parametrize("done", [False, True])
def test_a_release_in_doubt_writes_nothing_and_the_others_settle(
    rig: JournalRig, done: bool
) -> None:
    journal = doubted(rig, done=done)
    journal.release(SECOND)
    assert isinstance(journal.settle([SECOND])[0], Fenced), "it is not held"
    assert settle(journal, SHARD) == Committed()
    assert settle(journal, OTHER) == Committed()
    assert positions(rig) == [1, 1, 1], "its frame stands with theirs"


@pytest.mark.parametrize("done", [False, True])
def test_a_shard_claimed_again_gets_no_answer_of_the_round(rig: JournalRig, done: bool) -> None:
    journal = doubted(rig, done=done)
    assert claim(journal, SECOND).last_position == done
    answer = settle(journal, SHARD)
    assert answer == Committed() if done else isinstance(answer, RoundRefused)
    assert journal.commit([Work(SECOND, 2, Frame(1 + done, b"anew"))]) == [Committed()]
    assert type(settle(journal, OTHER)) is type(answer)
    assert positions(rig) == [int(done), 1 + done, int(done)]


@pytest.mark.parametrize("done", [False, True])
def test_of_a_round_in_doubt_one_is_fenced(rig: JournalRig, done: bool) -> None:
    journal, thief = doubted(rig, done=done), rig.open()
    assert claim(thief, SECOND).last_position == done
    first, fenced, last = (settle(journal, shard) for shard in ROUND)
    assert isinstance(fenced, Fenced) and (not fenced.definite or not done)
    assert type(first) is type(last) is (Committed if done else RoundRefused)
    assert positions(rig) == [int(done)] * 3


@pytest.mark.parametrize("done", [False, True])
def test_of_a_round_in_doubt_all_are_fenced(rig: JournalRig, done: bool) -> None:
    journal, thief = doubted(rig, done=done), rig.open()
    for shard in ROUND:
        claim(thief, shard)
    for answer in journal.settle(ROUND):
        assert isinstance(answer, Fenced) and (not answer.definite or not done)
    assert positions(rig) == [int(done)] * 3


@pytest.mark.parametrize("done", [False, True])
def test_what_follows_a_frame_in_doubt_is_done_when_its_shard_asks(
    rig: JournalRig, done: bool
) -> None:
    journal = rig.open()
    rows = {shard: (EndedRow("kind", "key", 1, b"end"),) for shard in ROUND}
    works = [
        Work(one, claim(journal, one).epoch, Frame(1, b"ours"), rows[one], cut=Cut())
        for one in ROUND
    ]
    rig.lose_commit(journal, done=done)
    assert [type(each) for each in journal.commit(works)] == [Unclear] * 3
    journal.drop(SECOND)
    for shard in (SHARD, OTHER):
        assert isinstance(settle(journal, shard), Committed)
        row = journal.read_ended(shard, kind="kind", key="key")
        assert row is not None and row.body == b"end"
