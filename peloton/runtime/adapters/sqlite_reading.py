"""Reads the SQLite journal: that of this process, or another's, whose cluster may be running.

Answers the reads of port `Rows`, and no write. A reader that does not own the journal must not
create or change a file, which SQLite does when a write-ahead log is read in the usual way: a reader
writes its marks into `-shm`, and makes both files anew where they were removed at a clean stop. So:

    no `-wal`           no process has the journal open: the file is read as immutable;
                        if a process opens it meanwhile, the read is repeated
    `-wal` and `-shm`   both are opened read-only
    `-wal` alone        a copy without its index, as some backups are: read from a copy of our own
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, TypeVar

from msgspec.structs import replace

from peloton.runtime.adapters import sqlite_schema as sql
from peloton.runtime.adapters.claimed_folder import JOURNAL
from peloton.runtime.core.journal import register
from peloton.runtime.core.journal.segments import SegmentList
from peloton.runtime.core.journal.statements import (
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
    SegmentStart,
    Statement,
    StatementFailed,
    StatementReply,
)
from peloton.runtime.ports import (
    BUCKET_PARTS,
    ClusterRecord,
    Damaged,
    EndedRow,
    JournalRefused,
    ShardId,
    Unreachable,
)

READ_ALL_ENDED = (
    f"SELECT kind, key, position, body, deleted FROM ended WHERE {sql.SHARD_CLAUSE}"
    " AND (kind, key, position) > (?, ?, ?) ORDER BY kind, key, position LIMIT ?"
)
READ_POSITIONS = (
    "SELECT shard_group, shard_number, last_position FROM register"
    " ORDER BY shard_group, shard_number"
)
ENDED_AT_ONCE = 256
WRONG_MAX = 10
FRAMES_AT_ONCE = 256
T = TypeVar("T")


class JournalSummary(NamedTuple):
    """The cluster of a journal, and the last position of each shard by its name."""

    cluster_id: bytes
    format: int
    name: str
    positions: dict[str, int]


def check_format(path: Path) -> None:
    """Raise JournalRefused if a journal of another format is there; change nothing."""
    if not path.is_file() or not path.stat().st_size:
        return
    with closing(SqliteRows(path.parent, path.name)) as rows:
        try:
            record = rows.query("cluster", sql.READ_CLUSTER)
        except (Damaged, Unreachable):
            return  # whoever opens it says so, with the witness
    for _, found, _ in record:
        register.check_format(found)


class StoredRows:
    """The rows of one file, read as port `Rows` reads them."""

    path: Path

    def run(self, statements: Sequence[Statement]) -> list[StatementReply]:
        """Return the replies of reads. Raises Damaged if the file is no SQLite database."""
        return [self._run(statement) for statement in statements]

    def query(self, table: str, query: str, *, values: Sequence[object] = ()) -> list[Any]:
        """Return rows of a table; none if the journal has never been started."""
        there = self._read("SELECT 1 FROM sqlite_master WHERE name = ?", (table,))
        return self._read(query, values) if there else []

    def segments_of(self, shard: ShardId, first: int, *, last: int) -> SegmentList:
        """These positions as segments, of so many frames as a read may find at once: a journal in
        one file has none. Not beyond what is stored: a damaged register may say any position."""
        ((stored,),) = self._read(sql.LAST_FRAME, shard)
        first = max(first, 1)
        starts = range(first, min(last, max(first, stored or 0)) + 1, FRAMES_AT_ONCE)
        return tuple(SegmentStart(start, b"") for start in starts)

    def _run(self, statement: Statement) -> StatementReply:
        try:
            return RowsFound(tuple(self._rows(statement)))
        except Unreachable as error:
            return StatementFailed(str(error))

    def _rows(self, statement: Statement) -> list[Any]:
        if isinstance(statement, ReadCluster):
            found = self._read(sql.READ_CLUSTER, ())
            return [ClusterRecord(row[0], row[1], json.loads(row[2])) for row in found]
        if isinstance(statement, ReadName):
            return [row[0] for row in self.query("cluster_name", sql.READ_NAME)]
        if isinstance(statement, ReadRegister):
            return [
                self._register(statement.shard, RegisterRow(*row))
                for row in self._read(sql.READ_REGISTER, statement.shard)
            ]
        if isinstance(statement, ReadSegment):
            values = (*statement.shard, statement.first - 1, statement.last)
            return [FrameRow(*row) for row in self._read(sql.READ_FRAMES, values)]
        if isinstance(statement, ReadBucket):
            where = (
                statement.position,
                statement.epoch,
                statement.bucket * BUCKET_PARTS,
                BUCKET_PARTS,
            )
            return [PartRow(*row) for row in self._read(sql.READ_PARTS, (*statement.shard, *where))]
        if isinstance(statement, ReadEnded):
            found = self._read(sql.READ_ENDED, (*statement.shard, statement.kind, statement.key))
            return [EndedRow(row[0], row[1], row[2], row[3], bool(row[4])) for row in found]
        raise JournalRefused(f"{type(statement).__name__}: this journal is read-only")

    def _register(self, shard: ShardId, row: RegisterRow) -> RegisterRow:
        ((first,),) = self._read(sql.FIRST_FRAME, shard)
        first = min(row.floor + 1, first or row.last_position)
        return replace(row, segments=self.segments_of(shard, first, last=row.last_position))

    def _read(self, query: str, values: Sequence[object]) -> list[Any]:
        """Return the rows of a query. Raises Unreachable, Damaged."""
        raise NotImplementedError


class OwnRows(StoredRows):
    """The rows of the journal that this process writes. Safe to call from any thread."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._db: sqlite3.Connection | None = None

    def close(self) -> None:
        with self._lock:
            self._discard()

    def _read(self, query: str, values: Sequence[object]) -> list[Any]:
        """Fetch all rows at once: an open snapshot would keep the WAL from being truncated."""
        with self._lock:
            try:
                if self._db is None:
                    self._db = sql.open_reader(self.path)
                return self._db.execute(query, values).fetchall()
            except sqlite3.Error as error:
                self._discard()
                _fail(self.path, error)

    def _discard(self) -> None:
        db, self._db = self._db, None
        if db is not None:
            db.close()


class SqliteRows(StoredRows):
    """The readable rows of the journal in a folder. Raises JournalRefused if there is none."""

    def __init__(self, folder: Path, name: str = JOURNAL) -> None:
        self.path = folder / name
        if not self.path.is_file():
            raise JournalRefused(f"{folder} is no data folder: it has no {name}")
        self._copy: tempfile.TemporaryDirectory[str] | None = None
        self._immutable = False  # opened as a file that never changes
        self._db: sqlite3.Connection | None = None

    def wrong(self) -> list[str]:
        """Return what SQLite's integrity check finds wrong with the file. Raises Unreachable."""
        try:
            found = [row[0] for row in self._read(f"PRAGMA integrity_check({WRONG_MAX})", ())]
        except Damaged as error:
            return [str(error)]
        return [] if found == ["ok"] else found

    def snapshot(self, read: Callable[[], T]) -> T:
        """Return the result of `read`, as of one moment, whatever a writer does meanwhile.

        The log cannot be truncated meanwhile, so read a shard, not a cluster.
        """
        self._read("BEGIN", ())
        try:
            return read()
        finally:
            if self._db is not None and self._db.in_transaction:
                self._db.execute("ROLLBACK")

    def ended(self, shard: ShardId) -> Iterator[EndedRow]:
        """Yield all final states of a shard by key. Raises Unreachable, Damaged."""
        after: tuple[str, str, int] = ("", "", 0)
        while True:
            found = self._read(READ_ALL_ENDED, (*shard, *after, ENDED_AT_ONCE))
            for row in found:
                yield EndedRow(row[0], row[1], row[2], row[3], bool(row[4]))
            if len(found) < ENDED_AT_ONCE:
                return
            after = found[-1][:3]

    def copy_to(self, target: Path) -> None:
        """Copy the journal as of one moment into one file. Raises Unreachable, Damaged.

        It blocks no commit. The log of the source cannot start over meanwhile, so it grows.
        """
        while True:
            try:
                self._db = self._db or self._open()
                with closing(sqlite3.connect(target, isolation_level=None)) as copy:
                    self._db.backup(copy)
                    copy.execute("PRAGMA journal_mode = DELETE")
                    (found,) = copy.execute("PRAGMA quick_check(1)").fetchone()
            except sqlite3.Error as error:
                self.close()
                _fail(self.path, error)
            if found != "ok":
                raise Damaged(f"{self.path}: {found}")
            if not self._immutable or not self._log.exists():
                return
            self.close()  # a process opened it meanwhile, and may have changed it

    def summary(self) -> JournalSummary:
        """Return cluster and positions. Raises JournalRefused if no cluster was ever started."""
        found = self.query("cluster", sql.READ_CLUSTER)
        if not found:
            raise JournalRefused(f"{self.path} is of no cluster: it was never started")
        named = self.query("cluster_name", sql.READ_NAME)
        rows = self._read(READ_POSITIONS, ())
        positions = {f"{group}-{number}": last for group, number, last in rows}
        return JournalSummary(found[0][0], found[0][1], named[0][0] if named else "", positions)

    def close(self) -> None:
        """Close the file and remove the private copy, if one was made."""
        db, self._db = self._db, None
        if db is not None:
            db.close()
        copy, self._copy = self._copy, None
        if copy is not None:
            copy.cleanup()

    # ---- inside ----

    def _read(self, query: str, values: Sequence[object]) -> list[Any]:
        while True:
            try:
                if self._db is None:
                    self._db = self._open()
                found = self._db.execute(query, values).fetchall()
            except sqlite3.Error as error:
                self.close()
                _fail(self.path, error)
            if not self._immutable or not self._log.exists():
                return found
            self.close()  # another process has opened it since, so it changes

    @property
    def _log(self) -> Path:
        return sql.log_of(self.path)

    def _open(self) -> sqlite3.Connection:
        path, index = self.path.absolute(), self.path.with_name(f"{self.path.name}-shm")
        self._immutable = not self._log.exists()
        if self._immutable:
            return _connect(path, "mode=ro&immutable=1")
        if index.exists():
            return _connect(path, "mode=ro&readonly_shm=1")
        self._copy = tempfile.TemporaryDirectory(prefix="peloton-journal-")
        for file in (path, self._log):
            shutil.copy(file, self._copy.name)
        return _connect(Path(self._copy.name) / self.path.name, "mode=rw")


def _fail(path: Path, error: sqlite3.Error) -> NoReturn:
    """Raise Damaged or Unreachable for a failed read."""
    damaged = sql.error_code(error) in (sql.CORRUPT, sql.NOT_A_DATABASE)
    raise (Damaged if damaged else Unreachable)(f"{path}: {error}") from error


def _connect(path: Path, how: str) -> sqlite3.Connection:
    connection = sqlite3.connect(f"{path.as_uri()}?{how}", uri=True, isolation_level=None)
    connection.execute(f"PRAGMA busy_timeout = {sql.BUSY_TIMEOUT_MS}")
    return connection
