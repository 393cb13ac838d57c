"""Faults of reads of plain rows: a read misses a row, or finds one that was not written so.

Turns the rows of a store into those that one read finds. Two faults of real servers are here: a
write without an answer is at one replica only, so that its row flickers from read to read; and a
row rots, until somebody repairs it from a replica. The stored rows stay as they were written, for
the checks.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import NamedTuple

from msgspec.structs import replace

from peloton.runtime.core.journal.statements import (
    ConditionalWrite,
    FrameRow,
    PartRow,
    PlainWrite,
    ReadBucket,
    ReadEnded,
    ReadSegment,
    RegisterRow,
)
from peloton.runtime.ports import ShardId
from peloton.runtime.simulation.cells import Cells, Partition, PlainRow, RowKey, partition, row_key

PlainRead = ReadSegment | ReadBucket | ReadEnded
WAYS = ("a flipped bit", "cut short", "gone")


class QuorumReads:
    """Applies the faults of reads. `rotten` has the rows that reads find changed."""

    def __init__(self) -> None:
        self.rotten: dict[tuple[Partition, RowKey], PlainRow | None] = {}
        self.ever: dict[ShardId, list[int]] = {}
        """The shards that had rotten rows, and the positions of these; also after the repair."""
        self.met = 0  # how often a read met such a row

    def rows(self, cells: Cells, statement: PlainRead) -> Iterable[PlainRow]:
        """Return what a read of these cells finds."""
        found = cells.read(statement)
        return self._decayed(partition(statement), found) if self.rotten else found

    def _decayed(self, where: Partition, found: Iterable[PlainRow]) -> Iterable[PlainRow]:
        for row in found:
            name = where, row_key(row)
            bad = self.rotten.get(name, row)
            self.met += name in self.rotten
            if bad is not None:
                yield bad

    def rot(
        self, cells: Cells, registers: dict[ShardId, RegisterRow], *, chance: random.Random
    ) -> str:
        """Let a row rot that the next owner of its shard needs; return which, for people."""
        needed = [
            (where, key, cell.row)
            for where, some in cells.rows.items()
            for key, cell in some.items()
            if is_needed(cell.row, registers.get(where.shard))
        ]
        if not needed:
            return ""
        where, key, row = chance.choice(needed)
        way = chance.choice(WAYS)
        self.rotten[where, key] = _spoiled(row, way, at=chance.randrange(1 << 16))
        self.ever.setdefault(where.shard, []).append(_position(where, key))
        return f"{where.shard}: {where.table} {key} is {way}"

    def repair(self) -> None:
        """Repair every row from a replica that has it as it was written."""
        self.rotten.clear()


def _position(where: Partition, key: RowKey) -> int:
    """Return the position of the frame or the checkpoint that the row is a part of."""
    return key[0] if where.table == "journal" else int(where.key[0])


def is_needed(row: PlainRow, register: RegisterRow | None) -> bool:
    """Return whether a recovery reads the row: a frame behind the floor, or a needed part."""
    if register is None or not row.body:
        return False
    if isinstance(row, FrameRow):
        return register.floor < row.position <= register.last_position
    if isinstance(row, PartRow):
        return (row.position, row.epoch) == (register.floor, register.floor_epoch)
    return False  # a row of an ended entity has its own digest, and no chain to miss it


def _spoiled(row: PlainRow, way: str, *, at: int) -> PlainRow | None:
    if way == "gone":
        return None
    body = bytes(row.body)
    at %= len(body)
    if way == "cut short":
        return replace(row, body=body[:at])
    return replace(row, body=body[:at] + bytes([body[at] ^ 1 << at % 8]) + body[at + 1 :])


class Late(NamedTuple):
    """A statement on its way, whatever its sender was answered.

    It is applied at its time, or once the store has received so many statements in all.
    """

    at_s: float
    received: int
    statement: ConditionalWrite | PlainWrite
    stamp_us: int


def with_some(cells: Cells, late: Iterable[Late], *, where: Partition) -> Cells:
    """Return a partition as it is once these writes have arrived."""
    shown = Cells()
    shown.rows = {where: dict(cells.at(where))}
    shown.deleted = {where: dict(cells.deleted.get(where, {}))}
    for each in late:
        if isinstance(each.statement, PlainWrite) and partition(each.statement) == where:
            shown.write(each.statement, each.stamp_us)
    return shown
