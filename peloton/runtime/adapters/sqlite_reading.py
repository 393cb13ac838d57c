"""Reads the SQLite journal of a data folder without owning it, beside a running cluster or none.

Answers the reads of port `Rows`, and no write. It must not create or change a file, which SQLite
does when a write-ahead log is read in the usual way: a reader writes its marks into `-shm`, and
makes both files anew where they were removed at the end of a clean stop. So:

  no `-wal`           nobody has the journal open: the file is read as one that never changes;
                      should somebody open it meanwhile, what was read is read again
  `-wal` and `-shm`   both are opened read-only
  `-wal` alone        a copy without its index, as some backups are: read from a copy of our own
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from peloton.runtime.adapters import sqlite_schema as sql
from peloton.runtime.adapters.claimed_folder import JOURNAL
from peloton.runtime.core.statements import (
    FrameRow,
    PartRow,
    ReadBucket,
    ReadCluster,
    ReadEnded,
    ReadName,
    ReadRegister,
    ReadSegment,
    RegisterRow,
    RowsFound,
    Statement,
    StatementFailed,
    StatementReply,
)
from peloton.runtime.ports import (
    BUCKET_PARTS,
    SEGMENT_FRAMES,
    ClusterRecord,
    Damaged,
    EndedRow,
    JournalRefused,
    ShardId,
    Sizes,
    Unreachable,
)

READ_CLUSTER = "SELECT cluster_id, format, shards FROM cluster"
FIND_NAMES = "SELECT 1 FROM sqlite_master WHERE name = 'cluster_name'"
"""Journals of the first version have no such table, and a reader makes none."""
READ_ALL_ENDED = (
    f"SELECT kind, key, position, body, deleted FROM ended WHERE {sql.SHARD_CLAUSE}"
    " AND (kind, key, position) > (?, ?, ?) ORDER BY kind, key, position LIMIT ?"
)
ENDED_AT_ONCE = 256
T = TypeVar("T")


class SqliteRows:
    """The journal in a folder. Raises Refused if there is none."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / JOURNAL
        if not self.path.is_file():
            raise JournalRefused(f"{folder} is no data folder: it has no {JOURNAL}")
        self._copy: tempfile.TemporaryDirectory[str] | None = None
        self._still = False  # opened as a file that never changes
        self._db: sqlite3.Connection | None = None

    def run(self, statements: Sequence[Statement]) -> list[StatementReply]:
        """Answers of reads. Raises Damaged where the file is none of SQLite's."""
        return [self._run(statement) for statement in statements]

    def snapshot(self, read: Callable[[], T]) -> T:
        """What `read` finds, all of it as of one moment, whatever a writer does meanwhile.

        The log cannot start over while that lasts, so it should be a shard, not a cluster.
        """
        self._read("BEGIN", ())
        try:
            return read()
        finally:
            if self._db is not None and self._db.in_transaction:
                self._db.execute("ROLLBACK")

    def ended(self, shard: ShardId) -> Iterator[EndedRow]:
        """All final states of a shard, in the order of their keys. Raises Unreachable, Damaged."""
        after: tuple[str, str, int] = ("", "", 0)
        while True:
            found = self._read(READ_ALL_ENDED, (*shard, *after, ENDED_AT_ONCE))
            for row in found:
                yield EndedRow(row[0], row[1], row[2], row[3], bool(row[4]))
            if len(found) < ENDED_AT_ONCE:
                return
            after = found[-1][:3]

    def sizes(self, shard: ShardId) -> Sizes:
        """What the shard takes. Raises Unreachable, Damaged."""
        counts: list[int] = []
        for table in ("journal", "checkpoint", "ended"):
            counts += self._read(f"{sql.SELECT_SIZES} {table} WHERE {sql.SHARD_CLAUSE}", shard)[0]
        return Sizes(*counts)

    def close(self) -> None:
        """Let go of the file."""
        db, self._db = self._db, None
        if db is not None:
            db.close()
        copy, self._copy = self._copy, None
        if copy is not None:
            copy.cleanup()

    # ---- inside ----

    def _run(self, ask: Statement) -> StatementReply:
        try:
            return RowsFound(tuple(self._rows(ask)))
        except Unreachable as error:
            return StatementFailed(str(error))

    def _rows(self, ask: Statement) -> list[Any]:
        if isinstance(ask, ReadCluster):
            found = self._read(READ_CLUSTER, ())
            return [ClusterRecord(row[0], row[1], json.loads(row[2])) for row in found]
        if isinstance(ask, ReadName):
            there = self._read(FIND_NAMES, ())
            return [row[0] for row in self._read(sql.READ_NAME, ())] if there else []
        if isinstance(ask, ReadRegister):
            return [RegisterRow(*row) for row in self._read(sql.READ_REGISTER, ask.shard)]
        if isinstance(ask, ReadSegment):
            first = ask.segment * SEGMENT_FRAMES
            values = (*ask.shard, first, first + SEGMENT_FRAMES)
            return [FrameRow(*row) for row in self._read(sql.READ_FRAMES, values)]
        if isinstance(ask, ReadBucket):
            where = (ask.position, ask.epoch, ask.bucket * BUCKET_PARTS, BUCKET_PARTS)
            return [PartRow(*row) for row in self._read(sql.READ_PARTS, (*ask.shard, *where))]
        if isinstance(ask, ReadEnded):
            found = self._read(sql.READ_ENDED, (*ask.shard, ask.kind, ask.key))
            return [EndedRow(row[0], row[1], row[2], row[3], bool(row[4])) for row in found]
        raise JournalRefused(f"{type(ask).__name__}: the journal is only read here")

    def _read(self, statement: str, values: Sequence[object]) -> list[Any]:
        while True:
            try:
                if self._db is None:
                    self._db = self._open()
                found = self._db.execute(statement, values).fetchall()
            except sqlite3.Error as error:
                self.close()
                if sql.error_code(error) in (sql.CORRUPT, sql.NOT_A_DATABASE):
                    raise Damaged(f"{self.path}: {error}") from error
                raise Unreachable(f"{self.path}: {error}") from error
            if not self._still or not self._log.exists():
                return found
            self.close()  # somebody has opened it since: it does change

    @property
    def _log(self) -> Path:
        return self.path.with_name(f"{JOURNAL}-wal")

    def _open(self) -> sqlite3.Connection:
        path, index = self.path.absolute(), self.path.with_name(f"{JOURNAL}-shm")
        self._still = not self._log.exists()
        if self._still:
            return _connect(path, "mode=ro&immutable=1")
        if index.exists():
            return _connect(path, "mode=ro&readonly_shm=1")
        self._copy = tempfile.TemporaryDirectory(prefix="peloton-journal-")
        for file in (path, self._log):
            shutil.copy(file, self._copy.name)
        return _connect(Path(self._copy.name) / JOURNAL, "mode=rw")


def _connect(path: Path, how: str) -> sqlite3.Connection:
    connection = sqlite3.connect(f"{path.as_uri()}?{how}", uri=True, isolation_level=None)
    connection.execute(f"PRAGMA busy_timeout = {sql.BUSY_TIMEOUT_MS}")
    return connection
