"""A store of rows in memory with a hook at both sides of each call: how tests lose what it says.

Hands statements on to rows that several journals may share, as processes share a store. The hook
may lose the answer of a call (raise `AnswerLost`), or end the process (raise anything else). It
must not change a statement.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

from peloton.runtime.core.journal.statements import (
    Statement,
    StatementFailed,
    StatementReply,
    single_writes,
)
from peloton.runtime.ports import ShardId
from peloton.runtime.simulation.memory_rows import MemoryRows


class StoreCall(NamedTuple):
    """Statements that are sent together: their classes, and the shards that they are of."""

    names: tuple[str, ...]
    shards: tuple[ShardId, ...]
    moment: Literal["before", "after"]

    def moves(self) -> bool:
        """Whether it commits frames."""
        return "Advance" in self.names

    def claims(self) -> bool:
        """Whether it gives a shard its next owner."""
        return "Bump" in self.names


class AnswerLost(Exception):
    """Raised by a hook: the answer of the call was lost, before it was done or after."""


class HookedRows:
    """The rows as one process reaches them."""

    def __init__(
        self, rows: MemoryRows, hook: Callable[[StoreCall], object] = lambda call: None
    ) -> None:
        self.rows = rows
        self.hook = hook

    def run(self, statements: Sequence[Statement]) -> list[StatementReply]:
        each = [one for some in statements for one in single_writes(some)]
        names = tuple(type(one).__name__ for one in each)
        shards = tuple(one.shard for one in each if hasattr(one, "shard"))
        try:
            self.hook(StoreCall(names, shards, "before"))
            replies = self.rows.run(statements)
            self.hook(StoreCall(names, shards, "after"))
        except AnswerLost as lost:
            return [StatementFailed(str(lost)) for _ in statements]
        return replies

    def close(self) -> None:
        """The tables stay, as a server's would."""
