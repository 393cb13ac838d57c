"""A journal read and decoded, and nothing else: the least that a recovery could take.

It must not know what a frame means.
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec


def read_raw(journal: Path) -> tuple[float, int]:
    """Read every blob of the journal, and decode what is MessagePack; seconds and bytes."""
    began, size = time.perf_counter(), 0
    with contextlib.closing(sqlite3.connect(journal)) as rows:
        for table, columns in _blobs(rows):
            for row in rows.execute(f"SELECT {columns} FROM {table}"):
                for value in row:
                    if isinstance(value, bytes):
                        size += len(value)
                        with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
                            msgspec.msgpack.decode(value)
    return time.perf_counter() - began, size


def _blobs(rows: sqlite3.Connection) -> Iterator[tuple[str, str]]:
    tables = rows.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    for (table,) in tables:
        found = rows.execute(f"PRAGMA table_info({table})").fetchall()
        names = [name for _, name, kind, *_ in found if kind.upper() == "BLOB"]
        if names:
            yield table, ", ".join(names)
