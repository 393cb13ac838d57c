"""Schema and connections of the SQLite journal.

`synchronous = FULL` is required: with `NORMAL` the last acknowledged commits may be lost in a
power cut. The WAL is moved into the file by a connection of its own, so that no commit waits for
it; the writer's automatic checkpoint is switched off.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

BUSY_TIMEOUT_MS = 5000
MOVER_BUSY_MS = 50

SCHEMA = """
CREATE TABLE IF NOT EXISTS cluster (
  one INTEGER PRIMARY KEY CHECK (one = 1), cluster_id BLOB NOT NULL, format INTEGER NOT NULL,
  shards TEXT NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS cluster_name (
  one INTEGER PRIMARY KEY CHECK (one = 1), name TEXT NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS register (
  shard_group TEXT NOT NULL, shard_number INTEGER NOT NULL, epoch INTEGER NOT NULL,
  op BLOB NOT NULL, owner TEXT NOT NULL, last_position INTEGER NOT NULL,
  last_chain BLOB NOT NULL, floor INTEGER NOT NULL, floor_epoch INTEGER NOT NULL,
  PRIMARY KEY (shard_group, shard_number)
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS witness (
  one INTEGER PRIMARY KEY CHECK (one = 1), generation INTEGER NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS journal (
  shard_group TEXT NOT NULL, shard_number INTEGER NOT NULL, position INTEGER NOT NULL,
  part INTEGER NOT NULL, epoch INTEGER NOT NULL, parts INTEGER NOT NULL, op BLOB NOT NULL,
  prev_chain BLOB NOT NULL, chain BLOB NOT NULL, body BLOB NOT NULL,
  PRIMARY KEY (shard_group, shard_number, position, part)
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS checkpoint (
  shard_group TEXT NOT NULL, shard_number INTEGER NOT NULL, position INTEGER NOT NULL,
  epoch INTEGER NOT NULL, number INTEGER NOT NULL, parts INTEGER NOT NULL,
  body BLOB NOT NULL, digest BLOB NOT NULL,
  PRIMARY KEY (shard_group, shard_number, position, epoch, number)
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS ended (
  shard_group TEXT NOT NULL, shard_number INTEGER NOT NULL, kind TEXT NOT NULL,
  key TEXT NOT NULL, position INTEGER NOT NULL, deleted INTEGER NOT NULL, body BLOB NOT NULL,
  PRIMARY KEY (shard_group, shard_number, kind, key, position)
) STRICT, WITHOUT ROWID;
"""

SHARD_CLAUSE = "shard_group = ? AND shard_number = ?"
READ_NAME = "SELECT name FROM cluster_name"
READ_REGISTER = (
    "SELECT epoch, op, owner, last_position, last_chain, floor, floor_epoch"
    f" FROM register WHERE {SHARD_CLAUSE}"
)
READ_REGISTERS = (
    "SELECT shard_group, shard_number, epoch, op, owner, last_position, last_chain, floor,"
    " floor_epoch FROM register"
)
READ_CLUSTER = "SELECT cluster_id, format, shards FROM cluster"
READ_GENERATION = "SELECT generation FROM witness"
WRITE_GENERATION = "INSERT INTO witness VALUES (1, ?) ON CONFLICT DO UPDATE SET generation = ?"
CHAIN_AT = f"SELECT chain FROM journal WHERE {SHARD_CLAUSE} AND position = ? LIMIT 1"
CREATE_REGISTER = "INSERT OR IGNORE INTO register VALUES (?, ?, 0, ?, '', 0, ?, 0, 0)"
RAISE_EPOCH = f"UPDATE register SET epoch = max(epoch, ?), op = ? WHERE {SHARD_CLAUSE}"
BUMP = f"UPDATE register SET epoch = MAX(epoch, ?) + 1, op = ?, owner = ? WHERE {SHARD_CLAUSE}"
ADVANCE = (
    "UPDATE register SET last_position = ?, last_chain = ?, op = ?"
    f" WHERE {SHARD_CLAUSE} AND epoch = ? AND op = ?"
)
MOVE_FLOOR = (
    "UPDATE register SET floor = ?, floor_epoch = ?, op = ?"
    f" WHERE {SHARD_CLAUSE} AND epoch = ? AND op = ?"
)
FREE = f"UPDATE register SET owner = '', op = ? WHERE {SHARD_CLAUSE} AND epoch = ? AND op = ?"
INSERT_FRAME = "INSERT INTO journal VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
# Repeats of these two carry the same bytes; a position of the journal is never written twice.
INSERT_PART = "INSERT INTO checkpoint VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
INSERT_ENDED = "INSERT INTO ended VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
READ_FRAMES = (
    "SELECT position, epoch, part, parts, op, prev_chain, chain, body FROM journal"
    f" WHERE {SHARD_CLAUSE} AND position > ? AND position <= ? ORDER BY position, part"
)
READ_PARTS = (
    "SELECT position, epoch, number, parts, body, digest FROM checkpoint"
    f" WHERE {SHARD_CLAUSE} AND position = ? AND epoch = ? AND number >= ? ORDER BY number LIMIT ?"
)
READ_ENDED = (
    "SELECT kind, key, position, body, deleted FROM ended"
    f" WHERE {SHARD_CLAUSE} AND kind = ? AND key = ? ORDER BY position DESC LIMIT 1"
)
FIRST_FRAME = f"SELECT min(position) FROM journal WHERE {SHARD_CLAUSE}"
LAST_FRAME = f"SELECT max(position) FROM journal WHERE {SHARD_CLAUSE}"
CUT_FRAMES = f"DELETE FROM journal WHERE {SHARD_CLAUSE} AND position <= ?"
NEXT_CHECKPOINT = (
    f"SELECT position, epoch FROM checkpoint WHERE {SHARD_CLAUSE} AND (position, epoch) > (?, ?)"
    " ORDER BY position, epoch LIMIT 1"
)
CUT_PARTS = (
    f"DELETE FROM checkpoint WHERE {SHARD_CLAUSE} AND position = ? AND epoch = ? AND number IN"
    f" (SELECT number FROM checkpoint WHERE {SHARD_CLAUSE} AND position = ? AND epoch = ? LIMIT ?)"
)

IO_ERROR, CORRUPT, FULL, NOT_A_DATABASE = 10, 11, 13, 26
NO_INDEX = (10 | 18 << 8, 10 | 19 << 8, 10 | 21 << 8)
"""The index of the log (`-shm`) cannot be opened, extended or mapped, as on a full disk. It is made
anew at each open, and nothing is lost with it."""


def log_of(path: Path) -> Path:
    """Return the path of SQLite's write-ahead log."""
    return path.with_name(f"{path.name}-wal")


def error_code(error: sqlite3.Error) -> int:
    """Return SQLite's primary result code, or 0 if the error is Python's own."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def is_full(error: sqlite3.Error) -> bool:
    """Return whether the disk has no room for pages, or for the index of the log."""
    return error_code(error) == FULL or getattr(error, "sqlite_errorcode", 0) in NO_INDEX


def open_writer(path: Path, *, page_count_max: int | None = None) -> sqlite3.Connection:
    """Open the connection that commits. Creates the file and its tables if missing."""
    connection = _open(path, "rwc")
    try:
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
        if mode != "wal":
            raise sqlite3.OperationalError(f"journal_mode is {mode}, the folder cannot have a WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        connection.executescript(SCHEMA)
        if page_count_max is not None:
            connection.execute(f"PRAGMA max_page_count = {page_count_max:d}")
    except BaseException:
        connection.close()
        raise
    return connection


def open_reader(path: Path) -> sqlite3.Connection:
    return _open(path, "ro")


def open_mover(path: Path) -> sqlite3.Connection:
    """Open the connection that moves the WAL into the file."""
    connection = _open(path, "rw")
    connection.execute("PRAGMA synchronous = FULL")
    # It waits for readers while commits wait for it, and a backup reads for long.
    connection.execute(f"PRAGMA busy_timeout = {MOVER_BUSY_MS}")
    return connection


def _open(path: Path, mode: str) -> sqlite3.Connection:
    connection = sqlite3.connect(
        # Quoted: `%`, `?` and `#` in the name of a folder mean something in a URI.
        f"{path.absolute().as_uri()}?mode={mode}",
        uri=True,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=256,
    )
    connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
    return connection
