"""Several shards, or several claims of one, at once: none may wait or answer for another."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from peloton.runtime.adapters.fenced_rows import FencedRows
from peloton.runtime.core.statements import (
    Advance,
    Statement,
    StatementFailed,
    StatementReply,
    single_writes,
)
from peloton.runtime.ports import Claimed, Committed, Fenced, Frame, ShardId, Unclear, Work
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
    """Notes the conditional writes of each call."""

    def __init__(self) -> None:
        super().__init__()
        self.moves: list[list[ShardId]] = []

    def run(self, statements: Sequence[Statement]) -> list[StatementReply]:
        moved = [
            each.shard
            for one in statements
            for each in single_writes(one)
            if isinstance(each, Advance)
        ]
        self.moves += [moved] if moved else []
        return super().run(statements)


def test_of_joint_writes_only_the_fenced_shard_ends_and_the_others_go_again() -> None:
    rows = Listed()
    journal, other = (FencedRows(rows, process=bytes([name] * 16)) for name in (1, 2))
    journal.bootstrap({"g": len(SHARDS)})
    for shard in SHARDS:
        assert isinstance(journal.claim(shard, "x"), Claimed)
    assert isinstance(other.claim(SHARDS[1], "y"), Claimed)
    answers = journal.commit([Work(shard, 1, Frame(1, b"x")) for shard in SHARDS])
    assert [type(answer) for answer in answers] == [Committed, Fenced, Committed]
    assert rows.moves == [SHARDS, [SHARDS[0], SHARDS[2]]]
    assert [rows.registers[shard].last_position for shard in SHARDS] == [1, 0, 1]
