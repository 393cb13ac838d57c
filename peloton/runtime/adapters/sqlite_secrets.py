"""Port `SecretStore` on a SQLite file of its own, beside the journal of a daemon that is alone.

Turns sealed rows into rows of one table. The file is for its owner alone from the first moment, and
what is deleted is overwritten.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from peloton.runtime.ports import SealedSecret, Unreachable

BUSY_TIMEOUT_S = 5.0
SCHEMA = """
CREATE TABLE IF NOT EXISTS secrets (
  job TEXT NOT NULL, id TEXT NOT NULL, made INTEGER NOT NULL, key_id TEXT NOT NULL,
  data BLOB NOT NULL, PRIMARY KEY (job, id, made)
) STRICT, WITHOUT ROWID;
"""


class SqliteSecrets:
    """A SecretStore on one connection, for one thread at a time. Raises Unreachable."""

    def __init__(self, path: Path) -> None:
        self._lock = threading.Lock()
        self._path = path
        try:
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600))
            os.chmod(path, 0o600)
            self._connection = sqlite3.connect(
                path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
            )
            self._connection.execute("PRAGMA secure_delete = ON")
            self._connection.execute("PRAGMA synchronous = FULL")
            self._connection.executescript(SCHEMA)
        except (OSError, sqlite3.Error) as error:
            raise Unreachable(f"secrets {path}: {error}") from error

    def put(self, rows: Sequence[SealedSecret]) -> None:
        """Write rows of one job, all or none."""
        values = [(row.job, row.id, row.made, row.key_id, row.data) for row in rows]
        with self._changing() as connection:
            connection.executemany("INSERT OR REPLACE INTO secrets VALUES (?, ?, ?, ?, ?)", values)

    def of_job(self, job: str) -> list[SealedSecret]:
        """Return all rows of a job."""
        query = "SELECT job, id, made, key_id, data FROM secrets WHERE job = ?"
        with self._asking() as connection:
            return [SealedSecret(*row) for row in connection.execute(query, (job,))]

    def delete(self, rows: Sequence[SealedSecret]) -> None:
        values = [(row.job, row.id, row.made) for row in rows]
        with self._changing() as connection:
            connection.executemany(
                "DELETE FROM secrets WHERE job = ? AND id = ? AND made = ?", values
            )

    def forget(self, job: str) -> None:
        with self._changing() as connection:
            connection.execute("DELETE FROM secrets WHERE job = ?", (job,))

    def jobs(self, after: str, *, most: int) -> list[str]:
        """Return the next jobs after the given one, by name."""
        query = "SELECT DISTINCT job FROM secrets WHERE job > ? ORDER BY job LIMIT ?"
        with self._asking() as connection:
            return [job for (job,) in connection.execute(query, (after, most))]

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    @contextlib.contextmanager
    def _asking(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            try:
                yield self._connection
            except sqlite3.Error as error:
                raise Unreachable(f"secrets {self._path}: {error}") from error

    @contextlib.contextmanager
    def _changing(self) -> Iterator[sqlite3.Connection]:
        with self._asking() as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise


def copy(source: Path, target: Path) -> None:
    """Copy all rows as of one moment into a file that exists; writers go on. Raises Unreachable."""
    try:
        with (
            contextlib.closing(sqlite3.connect(f"{source.absolute().as_uri()}?mode=ro", uri=True,
                                               timeout=BUSY_TIMEOUT_S)) as rows,
            contextlib.closing(sqlite3.connect(target, isolation_level=None)) as made,
        ):  # fmt: skip
            rows.backup(made)
    except sqlite3.Error as error:
        raise Unreachable(f"secrets {source}: {error}") from error
