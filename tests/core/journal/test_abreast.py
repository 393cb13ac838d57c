"""Several shards, or several claims of one, at once: none may wait or answer for another."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from peloton.runtime.adapters.fenced_rows import FencedRows
from peloton.runtime.core.journal.statements import (
    Advance,
    InsertRow,
    Statement,
    StatementFailed,
    StatementReply,
    WriteTogether,
    single_writes,
)
from peloton.runtime.ports import (
    CheckpointPart,
    Claimed,
    Committed,
    Fenced,
    Floor,
    Frame,
    JournalRefused,
    RoundRefused,
    ShardId,
    Unclear,
    Work,
)
from peloton.runtime.simulation.memory_rows import MemoryRows

SHARDS = [ShardId("g", number) for number in range(3)]


def _commits(statements: Sequence[Statement]) -> bool:
    return any(isinstance(each, Advance) for one in statements for each in single_writes(one))


class Frozen(MemoryRows):
    """A store that answers no conditional write while it is frozen: each call is a time-out."""

    def __init__(self) -> None:
        super().__init__()
        self.frozen = False
        self.calls = 0

    def run(self, statements: Sequence[Statement]) -> list[StatementReply]:
        self.calls += bool(statements)
        if self.frozen and _commits(statements):
            return [StatementFailed("no answer") for _ in statements]
        return super().run(statements)


def test_unclear_shards_are_settled_abreast() -> None:
    rows = Frozen()
    journal = FencedRows(rows, process=bytes(16))
    journal.bootstrap({"g": len(SHARDS)})
    for shard in SHARDS:
        assert isinstance(journal.claim(shard, "x"), Claimed)
    rows.frozen = True
    in_doubt = journal.commit([Work(shard, 1, Frame(1, b"x")) for shard in SHARDS[:2]])
    assert all(isinstance(answer, Unclear) for answer in in_doubt)
    before = rows.calls
    answers = journal.settle(SHARDS)
    assert rows.calls == before + 1, "one time-out for all of them"
    assert [type(answer) for answer in answers] == [Unclear, Unclear, Fenced]
    rows.frozen = False
    assert journal.settle(SHARDS[:2]) == [Committed(), Committed()]


class Late(MemoryRows):
    """A store that does something else just before it fails to answer a frame's commit."""

    def __init__(self) -> None:
        super().__init__()
        self.meanwhile: Callable[[], object] | None = None

    def run(self, statements: Sequence[Statement]) -> list[StatementReply]:
        meanwhile = self.meanwhile
        if meanwhile is not None and _commits(statements):
            self.meanwhile = None
            meanwhile()
            return [StatementFailed("no answer") for _ in statements]
        return super().run(statements)


def test_a_talk_of_an_older_claim_leaves_a_younger_one_alone() -> None:
    """1. a commit waits for the store; 2. the shard is dropped and claimed anew by another thread;
    3. the commit ends in doubt. The new claim has nothing to settle, and goes on."""
    rows, shard = Late(), SHARDS[0]
    journal = FencedRows(rows, process=bytes(16))
    journal.bootstrap({"g": 1})
    assert isinstance(journal.claim(shard, "x"), Claimed)
    rows.meanwhile = lambda: journal.claim(shard, "x")
    (answer,) = journal.commit([Work(shard, 1, Frame(1, b"old"))])
    assert isinstance(answer, Unclear)
    journal.drop(shard, 1)
    assert journal.commit([Work(shard, 2, Frame(1, b"new"))]) == [Committed()]


def test_an_older_claim_that_is_fenced_does_not_take_a_younger_one_along() -> None:
    rows, shard = Late(), SHARDS[0]
    journal = FencedRows(rows, process=bytes(16))
    journal.bootstrap({"g": 1})
    assert isinstance(journal.claim(shard, "x"), Claimed)
    rows.meanwhile = lambda: None
    assert isinstance(journal.commit([Work(shard, 1, Frame(1, b"old"))])[0], Unclear)
    (held,) = journal._pending.values()
    assert isinstance(journal.claim(shard, "x"), Claimed)
    answers = journal._drive({shard: held})  # as if it had been on its way all the time
    assert isinstance(answers[shard], Fenced)
    assert journal.commit([Work(shard, 2, Frame(1, b"new"))]) == [Committed()]


class Listed(MemoryRows):
    """Notes the kinds of statements of each call."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[list[type[Statement]]] = []

    def run(self, statements: Sequence[Statement]) -> list[StatementReply]:
        self.steps += [[type(each) for each in statements]] if statements else []
        return super().run(statements)


def test_a_round_is_two_steps_and_one_conditional_write() -> None:
    rows = Listed()
    journal = FencedRows(rows, process=bytes(16))
    journal.bootstrap({"g": len(SHARDS)})
    for shard in SHARDS:
        assert isinstance(journal.claim(shard, "x"), Claimed)
    rows.steps.clear()
    works = [Work(shard, 1, Frame(1, b"x")) for shard in SHARDS]
    assert journal.commit(works) == [Committed()] * 3
    assert rows.steps == [[InsertRow] * 3, [WriteTogether]]


def test_floors_of_a_round_are_moved_by_one_write_and_a_fenced_one_stays_behind() -> None:
    rows = Listed()
    journal, other = (FencedRows(rows, process=bytes([name] * 16)) for name in (1, 2))
    journal.bootstrap({"g": len(SHARDS)})
    for shard in SHARDS:
        assert isinstance(journal.claim(shard, "x"), Claimed)
    assert journal.commit([Work(one, 1, Frame(1, b"x")) for one in SHARDS]) == [Committed()] * 3
    assert isinstance(other.claim(SHARDS[1], "y"), Claimed)
    part = CheckpointPart(1, 0, b"state", last=True)
    rows.steps.clear()
    answers = journal.commit([Work(one, 1, parts=(part,), floor=Floor(1)) for one in SHARDS])
    assert [type(answer) for answer in answers] == [Committed, Fenced, Committed]
    assert rows.steps[-2:] == [[WriteTogether]] * 2
    assert [rows.registers[shard].floor for shard in SHARDS] == [1, 0, 1]


def test_a_talk_of_a_round_leaves_a_younger_claim_of_one_of_its_shards_alone() -> None:
    """1. a round waits for the store; 2. another thread claims one shard anew; 3. it is in doubt.
    That shard has nothing to settle and goes on; the others learn that the round was refused."""
    rows = Late()
    journal = FencedRows(rows, process=bytes(16))
    journal.bootstrap({"g": len(SHARDS)})
    for shard in SHARDS:
        assert isinstance(journal.claim(shard, "x"), Claimed)
    rows.meanwhile = lambda: journal.claim(SHARDS[1], "x")
    answers = journal.commit([Work(shard, 1, Frame(1, b"old")) for shard in SHARDS])
    assert [type(answer) for answer in answers] == [Unclear] * 3
    assert journal.commit([Work(SHARDS[1], 2, Frame(1, b"new"))]) == [Committed()]
    assert isinstance(journal.settle([SHARDS[0]])[0], RoundRefused)
    assert isinstance(journal.settle([SHARDS[2]])[0], RoundRefused)
    assert journal.commit([Work(SHARDS[1], 2, Frame(2, b"new"))]) == [Committed()]
    assert [rows.registers[shard].last_position for shard in SHARDS] == [0, 2, 0]


def test_of_a_round_that_is_refused_under_way_a_younger_claim_is_kept() -> None:
    class Slow(MemoryRows):
        meanwhile: Callable[[], object] | None = None

        def run(self, statements: Sequence[Statement]) -> list[StatementReply]:
            meanwhile, self.meanwhile = self.meanwhile, None
            if meanwhile is not None:
                meanwhile()
            return super().run(statements)

    rows = Slow()
    journal = FencedRows(rows, process=bytes(16))
    journal.bootstrap({"g": len(SHARDS)})
    for shard in SHARDS:
        assert isinstance(journal.claim(shard, "x"), Claimed)
    rows.meanwhile = lambda: journal.claim(SHARDS[1], "x")
    answers = journal.commit([Work(shard, 1, Frame(1, b"old")) for shard in SHARDS])
    assert [type(answer) for answer in answers] == [RoundRefused, Fenced, RoundRefused]
    assert journal.commit([Work(SHARDS[1], 2, Frame(1, b"new"))]) == [Committed()]


class Noted(MemoryRows):
    """Answers no conditional write while it is frozen, and notes each that it was sent."""

    def __init__(self) -> None:
        super().__init__()
        self.frozen = False
        self.sent: list[Statement] = []

    def run(self, statements: Sequence[Statement]) -> list[StatementReply]:
        self.sent += [one for one in statements if _commits([one])]
        if self.frozen and _commits(statements):
            return [StatementFailed("no answer") for _ in statements]
        return super().run(statements)


def test_whoever_settles_sends_the_identical_write_of_the_whole_round() -> None:
    rows = Noted()
    journal = FencedRows(rows, process=bytes(16))
    journal.bootstrap({"g": len(SHARDS)})
    for shard in SHARDS:
        assert isinstance(journal.claim(shard, "x"), Claimed)
    rows.frozen = True
    journal.commit([Work(shard, 1, Frame(1, b"x")) for shard in SHARDS])
    for some in (SHARDS[1:2], SHARDS[::-1], SHARDS[:1]):
        assert [type(each) for each in journal.settle(some)] == [Unclear] * len(some)
    journal.drop(SHARDS[2])
    rows.frozen = False
    assert journal.settle(SHARDS[1:2]) == [Committed()]
    assert len(rows.sent) == 5 and len(set(rows.sent)) == 1, "the same write, in the same company"
    with pytest.raises(JournalRefused):
        journal.commit([Work(SHARDS[0], 1, Frame(2, b"y"))])
    assert journal.settle(SHARDS[:1]) == [Committed()]
    assert len(rows.sent) == 5, "its outcome was known"
    works = [Work(shard, 1, Frame(2, b"y")) for shard in SHARDS[:2]]
    assert journal.commit(works) == [Committed()] * 2
    assert [rows.registers[shard].last_position for shard in SHARDS] == [2, 2, 1]
