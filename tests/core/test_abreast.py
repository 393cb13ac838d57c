"""Several shards at once: what one waits for must not be added to what the others wait for."""

from __future__ import annotations

from collections.abc import Sequence

from peloton.runtime.adapters.fenced_rows import FencedRows
from peloton.runtime.adapters.memory_rows import MemoryRows
from peloton.runtime.core.statements import Advance, Failed, Reply, Statement
from peloton.runtime.ports import Claimed, Committed, Fenced, Frame, ShardId, Unclear, Work

SHARDS = [ShardId("g", number) for number in range(3)]


class Frozen(MemoryRows):
    """A store that answers no conditional write while it is frozen: each call is a time-out."""

    def __init__(self) -> None:
        super().__init__()
        self.frozen = False
        self.calls = 0

    def run(self, statements: Sequence[Statement]) -> list[Reply]:
        self.calls += bool(statements)
        if self.frozen and any(isinstance(each, Advance) for each in statements):
            return [Failed("no answer") for _ in statements]
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
