"""The store of the model: the tables of `MemoryRows`, frozen into a value between two statements.

What a statement does is what the real rows in memory do with it, so a fault planted there is
searched like any other.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from peloton.runtime.core.journal.statements import (
    CreateRegister,
    RegisterRow,
    Statement,
    StatementReply,
)
from peloton.runtime.simulation.memory_rows import MemoryRows
from tests.model.owners import SHARD

Table = tuple[tuple[Any, tuple[tuple[Any, Any], ...]], ...]


class Store(NamedTuple):
    """Everything that is durable."""

    register: RegisterRow
    journal: Table = ()
    checkpoint: Table = ()
    ended: Table = ()


def bootstrapped() -> Store:
    rows = MemoryRows()
    rows.run([CreateRegister(SHARD, b"boot")])
    return Store(rows.registers[SHARD])


def run(store: Store, statement: Statement) -> tuple[Store, StatementReply]:
    """The store after the statement, and what it answers."""
    rows = MemoryRows()
    rows.registers[SHARD] = store.register
    rows.journal = thawed_table(store.journal)
    rows.checkpoint = thawed_table(store.checkpoint)
    rows.ended = thawed_table(store.ended)
    (reply,) = rows.run([statement])
    tables = (frozen_table(one) for one in (rows.journal, rows.checkpoint, rows.ended))
    return Store(rows.registers[SHARD], *tables), reply


def thawed_table(table: Table) -> dict[Any, dict[Any, Any]]:
    """A table of its own, equal to the one that was frozen."""
    return {key: dict(rows) for key, rows in table}


def frozen_table(table: dict[Any, dict[Any, Any]]) -> Table:
    """The table as a value."""
    return tuple((key, tuple(sorted(table[key].items()))) for key in sorted(table))
