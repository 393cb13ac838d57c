"""Plain rows as a fleet's store keeps them: every cell has a time, and the later time wins.

Turns inserts and deletes with the times of their senders into the rows that a read finds, in
whatever order they arrive. A delete is a tombstone on a whole partition, or on a part of it: an
older row stays deleted although it arrives later; a row that a fast clock dated later is visible
again. Registers, which take conditional writes only, are in `store`, which also decides when a
write arrives.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from peloton.runtime.core.journal.statements import (
    DeleteBucket,
    DeleteSegment,
    FrameRow,
    InsertRow,
    PartRow,
    PlainWrite,
    ReadBucket,
    ReadEnded,
    ReadSegment,
)
from peloton.runtime.ports import BUCKET_PARTS, EndedRow, ShardId

PlainRow = FrameRow | PartRow | EndedRow
RowKey = tuple[int, ...]
EVERYTHING = 2**63


class Partition(NamedTuple):
    """The unit of deletes and reads; for frames: those of one shard in one segment."""

    table: str
    shard: ShardId
    key: tuple[int | str | bytes, ...]


class Cell(NamedTuple):
    """A row with the time of its write by its writer's clock."""

    stamp_us: int
    row: PlainRow


class Cells:
    """The three plain tables, as partitions of rows by their clustering key."""

    def __init__(self) -> None:
        self.rows: dict[Partition, dict[RowKey, Cell]] = {}
        self.deleted: dict[Partition, dict[int, int]] = {}
        """Per tombstone the position up to which it reaches, and its time."""

    def write(self, statement: PlainWrite, stamp_us: int) -> None:
        """Apply a plain statement of this time, which may arrive repeatedly."""
        where = partition(statement)
        if isinstance(statement, InsertRow):
            self._insert(where, Cell(stamp_us, statement.row))
            return
        upto = statement.upto if isinstance(statement, DeleteSegment) else EVERYTHING
        marks = self.deleted.setdefault(where, {})
        marks[upto] = max(stamp_us, marks.get(upto, stamp_us))
        left = {
            at: cell
            for at, cell in self.at(where).items()
            if at[0] > upto or cell.stamp_us > stamp_us
        }
        if left:
            self.rows[where] = left
        else:
            self.rows.pop(where, None)

    def _insert(self, where: Partition, cell: Cell) -> None:
        key = row_key(cell.row)
        for upto, mark in self.deleted.get(where, {}).items():
            if key[0] <= upto and cell.stamp_us <= mark:
                return  # at equal times the delete wins
        there = self.at(where).get(key)
        if there is None or cell.stamp_us >= there.stamp_us:
            self.rows.setdefault(where, {})[key] = cell

    def at(self, where: Partition) -> dict[RowKey, Cell]:
        return self.rows.get(where, {})

    def read(self, statement: ReadSegment | ReadBucket | ReadEnded) -> Iterator[PlainRow]:
        """Yield rows in the order of their keys; of ended rows only the last."""
        cells = self.at(partition(statement))
        keys = sorted(cells)
        if isinstance(statement, ReadSegment):
            keys = [key for key in keys if statement.first <= key[0] <= statement.last]
        for key in keys[-1:] if isinstance(statement, ReadEnded) else keys:
            yield cells[key].row

    def copy(self) -> Cells:
        """Return a copy that later writes do not change."""
        twin = Cells()
        twin.rows = {where: dict(cells) for where, cells in self.rows.items()}
        twin.deleted = {where: dict(marks) for where, marks in self.deleted.items()}
        return twin


def partition(statement: PlainWrite | ReadSegment | ReadBucket | ReadEnded) -> Partition:
    """Return the partition of a statement."""
    if isinstance(statement, (ReadSegment, DeleteSegment)):
        return Partition("journal", statement.shard, (statement.segment,))
    if isinstance(statement, (ReadBucket, DeleteBucket)):
        return Partition(
            "checkpoint", statement.shard, (statement.position, statement.epoch, statement.bucket)
        )
    if isinstance(statement, ReadEnded):
        return Partition("ended", statement.shard, (statement.kind, statement.key))
    row = statement.row
    if isinstance(row, FrameRow):
        return Partition("journal", statement.shard, (row.segment,))
    if isinstance(row, PartRow):
        bucket = row.number // BUCKET_PARTS
        return Partition("checkpoint", statement.shard, (row.position, row.epoch, bucket))
    return Partition("ended", statement.shard, (row.kind, row.key))


def row_key(row: PlainRow) -> RowKey:
    """Return the clustering key.

    That of a frame has the epoch: otherwise a late row of an old owner would replace a committed
    one.
    """
    if isinstance(row, FrameRow):
        return (row.position, -row.epoch, row.part)
    if isinstance(row, PartRow):
        return (row.number,)
    return (row.position,)
