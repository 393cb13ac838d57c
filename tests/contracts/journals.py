"""Where contract tests get their journals: one rig per adapter, all with the same methods.

A rig is a store that outlives its journals; `open` is a new process on it. Tampering goes behind
the port's back, as rot does. The tests have the assertions.
"""

from __future__ import annotations

import itertools
import random
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from peloton.runtime.adapters.fenced_rows import FencedRows
from peloton.runtime.adapters.sqlite_store import SqliteJournal
from peloton.runtime.core.journal.statements import (
    Advance,
    PartRow,
    Statement,
    StatementFailed,
    StatementReply,
    single_writes,
)
from peloton.runtime.ports import Claimed, Frame, Journal, ShardId, Work
from peloton.runtime.simulation.cells import Partition, PlainRow
from peloton.runtime.simulation.memory_rows import MemoryRows
from peloton.runtime.simulation.stepper import VirtualClock
from peloton.runtime.simulation.store import SimulatedStore
from tests.servers import keyspaces
from tests.servers.patient import PatientRows, executed

GROUPS = {"a": 2, "b": 1}
SHARD = ShardId("a", 0)
SECOND = ShardId("a", 1)
OTHER = ShardId("b", 0)
ROUND = [SHARD, SECOND, OTHER]
Stored = tuple[set[int], set[tuple[int, int]]]
"""The positions of frames, and the checkpoints, by position and epoch."""


def claim(journal: Journal, shard: ShardId = SHARD) -> Claimed:
    """A claim that nobody is in the way of."""
    claimed = journal.claim(shard, "somebody")
    assert isinstance(claimed, Claimed)
    return claimed


def frames(journal: Journal, position: int = 1) -> list[Work]:
    """A frame of each shard of a round, claimed for it."""
    return [Work(one, claim(journal, one).epoch, Frame(position, b"ours")) for one in ROUND]


class JournalRig:
    """Counts its processes, so that no two have one name."""

    # Rows that no condition guards are accepted from anyone; they repeat what is committed.
    fences_plain_rows = True
    segment_frames = 16
    """Of its segments; a test of cuts fills several."""

    def __init__(self) -> None:
        self._processes = itertools.count(1)
        self.journals: list[Journal] = []

    def frames_of(self, segments: float) -> int:
        """How many frames so many segments have."""
        return int(segments * self.segment_frames)

    def open(self) -> Journal:
        journal = self._make(next(self._processes).to_bytes(16, "big"))
        self.journals.append(journal)
        return journal

    def _make(self, process: bytes) -> Journal:
        raise NotImplementedError

    def lose_commit(self, journal: Journal, *, done: bool) -> None:
        """The next commit of this journal has no answer, having been done or not."""
        assert isinstance(journal, FencedRows)
        rows, run = journal.rows, journal.rows.run

        def silent(statements: Sequence[Statement]) -> list[StatementReply]:
            writes = [each for one in statements for each in single_writes(one)]
            if not any(isinstance(each, Advance) for each in writes):
                return run(statements)
            rows.run = run  # type: ignore[method-assign]
            if done:
                run(statements)
            return [StatementFailed("no answer") for _ in statements]

        rows.run = silent  # type: ignore[method-assign]

    def tamper(self, shard: ShardId, position: int) -> None:
        """Change the body of a committed frame."""
        raise NotImplementedError

    def lose(self, shard: ShardId, position: int) -> None:
        """Lose a committed frame."""
        raise NotImplementedError

    def rot(self, shard: ShardId) -> None:
        """Change a part of every checkpoint."""
        raise NotImplementedError

    def stored(self) -> Stored:
        """What the store has of a journal of one shard."""
        raise NotImplementedError

    def close(self) -> None:
        for journal in self.journals:
            journal.close()


class RowsRig(JournalRig):
    fences_plain_rows = False

    def stored(self) -> Stored:
        frames = (key for rows in self.rows.journal.values() for key in rows)
        parts = (key for key, rows in self.rows.checkpoint.items() if rows)
        return {key[0] for key in frames}, {(key[1], key[2]) for key in parts}

    def __init__(self) -> None:
        super().__init__()
        self.rows = MemoryRows()

    def _make(self, process: bytes) -> Journal:
        return FencedRows(self.rows, process=process)

    def tamper(self, shard: ShardId, position: int) -> None:
        for rows in self.rows.journal.values():
            for key, row in list(rows.items()):
                if row.position == position:
                    rows[key] = msgspec.structs.replace(row, body=row.body + b"!")

    def lose(self, shard: ShardId, position: int) -> None:
        for rows in self.rows.journal.values():
            for key in [key for key in rows if key[0] == position]:
                del rows[key]

    def rot(self, shard: ShardId) -> None:
        for parts in self.rows.checkpoint.values():
            number = max(parts)
            parts[number] = msgspec.structs.replace(parts[number], body=b"rot")


class SimulatedRig(JournalRig):
    """The simulated store in a calm."""

    fences_plain_rows = False

    def __init__(self) -> None:
        super().__init__()
        self.store = SimulatedStore(random.Random(0), VirtualClock())

    def _make(self, process: bytes) -> Journal:
        return FencedRows(self.store.rows(process.hex()), process=process)

    def _partitions(self, table: str) -> list[Partition]:
        return [where for where in self.store.cells.rows if where.table == table]

    def stored(self) -> Stored:
        found: tuple[list[PlainRow], list[PlainRow]] = ([], [])
        for table, rows in zip(("journal", "checkpoint"), found, strict=True):
            for where in self._partitions(table):
                rows += [cell.row for cell in self.store.cells.rows[where].values()]
        frames, parts = found
        return {row.position for row in frames}, {
            (row.position, row.epoch) for row in parts if isinstance(row, PartRow)
        }

    def tamper(self, shard: ShardId, position: int) -> None:
        for where in self._partitions("journal"):
            cells = self.store.cells.rows[where]
            for key in [key for key in cells if key[0] == position]:
                row = cells[key].row
                changed = msgspec.structs.replace(row, body=row.body + b"!")
                cells[key] = cells[key]._replace(row=changed)

    def lose(self, shard: ShardId, position: int) -> None:
        for where in self._partitions("journal"):
            cells = self.store.cells.rows[where]
            for key in [key for key in cells if key[0] == position]:
                del cells[key]

    def rot(self, shard: ShardId) -> None:
        for where in self._partitions("checkpoint"):
            cells = self.store.cells.rows[where]
            last = max(cells)
            changed = msgspec.structs.replace(cells[last].row, body=b"rot")
            cells[last] = cells[last]._replace(row=changed)


class FailingCommit:
    """A connection whose COMMIT raises, having committed or not."""

    def __init__(
        self, db: sqlite3.Connection, *, committed: bool, error: sqlite3.Error | None = None
    ) -> None:
        self.db = db
        self.error = error or sqlite3.OperationalError("the commit failed")
        self.committed = committed
        self.closed = False

    def execute(self, statement: str, *values: Any) -> Any:
        if statement == "COMMIT":
            if self.committed:
                self.db.execute("COMMIT")
            raise self.error
        assert not self.closed, "a connection that failed is never used again"
        return self.db.execute(statement, *values)

    def executemany(self, statement: str, values: Any) -> Any:
        return self.db.executemany(statement, values)

    def close(self) -> None:
        self.closed = True
        self.db.close()


class SqliteRig(JournalRig):
    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.path = folder / "journal.sqlite"

    def _make(self, process: bytes) -> Journal:
        return SqliteJournal(self.path, process=process)

    def lose_commit(self, journal: Journal, *, done: bool) -> None:
        assert isinstance(journal, SqliteJournal) and journal._writer is not None
        journal._writer = FailingCommit(journal._writer, committed=done)  # type: ignore[assignment]

    def stored(self) -> Stored:
        with sqlite3.connect(self.path) as db:
            frames = db.execute("SELECT position FROM journal").fetchall()
            parts = db.execute("SELECT position, epoch FROM checkpoint").fetchall()
        db.close()
        return {position for (position,) in frames}, {*parts}

    def tamper(self, shard: ShardId, position: int) -> None:
        self._behind("UPDATE journal SET body = body || x'21' WHERE position = ?", position)

    def lose(self, shard: ShardId, position: int) -> None:
        self._behind("DELETE FROM journal WHERE position = ?", position)

    def rot(self, shard: ShardId) -> None:
        self._behind("UPDATE checkpoint SET body = x'21' WHERE parts > 0")

    def _behind(self, statement: str, *values: int) -> None:
        with sqlite3.connect(self.path) as db:
            db.execute(statement.replace("body || x'21'", "CAST(body || x'21' AS BLOB)"), values)
        db.close()


FRAME_KEY = "segment, shard_group, shard_number, position, epoch, part"


class CassandraRig(JournalRig):
    """A keyspace of the test run's server, emptied. Its processes share one session."""

    fences_plain_rows = False

    def __init__(self) -> None:
        super().__init__()
        self.connected = keyspaces.empty()

    def _make(self, process: bytes) -> Journal:
        return FencedRows(PatientRows(self.connected), process=process)

    def stored(self) -> Stored:
        frames = self._behind("SELECT position FROM frames")
        parts = self._behind("SELECT position, epoch FROM checkpoint")
        return {position for (position,) in frames}, {(at, epoch) for at, epoch in parts}

    def tamper(self, shard: ShardId, position: int) -> None:
        for row in self._frames(shard, position):
            self._behind(
                f"INSERT INTO frames ({FRAME_KEY}, body) VALUES (%s, %s, %s, %s, %s, %s, %s)",
                *row[:-1], row[-1] + b"!",
            )  # fmt: skip

    def lose(self, shard: ShardId, position: int) -> None:
        for row in self._frames(shard, position):
            where = " AND ".join(f"{column} = %s" for column in FRAME_KEY.split(", "))
            self._behind(f"DELETE FROM frames WHERE {where}", *row[:-1])

    def rot(self, shard: ShardId) -> None:
        key = "shard_group, shard_number, position, epoch, bucket, part"
        for row in self._behind(f"SELECT {key}, parts FROM checkpoint"):
            if row[-1]:
                self._behind(
                    f"INSERT INTO checkpoint ({key}, body) VALUES (%s, %s, %s, %s, %s, %s, %s)",
                    *row[:-1], b"rot",
                )  # fmt: skip

    def _frames(self, shard: ShardId, position: int) -> list[tuple]:
        """Keys and bodies, in whatever segment."""
        rows = self._behind(f"SELECT {FRAME_KEY}, body FROM frames")
        return [row for row in rows if row[1:4] == (*shard, position)]

    def _behind(self, statement: str, *values: object) -> list[tuple]:
        return executed(self.connected, statement, values or None)


RIGS = ("rows", "simulated", "sqlite")
SERVED = ("cassandra",)
"""On real servers: the same promises, at a thousandth of the pace."""


def build(name: str, folder: Path) -> JournalRig:
    if name == "cassandra":
        return CassandraRig()
    if name == "sqlite":
        return SqliteRig(folder)
    if name == "simulated":
        return SimulatedRig()
    return RowsRig()
