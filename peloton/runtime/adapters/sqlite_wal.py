"""Moves the write-ahead log of the SQLite journal into its file, on a thread of its own.

A commit should wait for its own fsync and for nothing else, so the move is made here. An error here
does not fail a commit: the log grows, and the move is retried.

On a full disk the move makes room: the log is cut off once it is moved. Otherwise nothing would,
because a move is due after enough commits, and none succeeds.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from pathlib import Path

from peloton.runtime.adapters import sqlite_schema as sql

MOVE_BYTES = 8 * 1024 * 1024
RESTART_BYTES = 4 * MOVE_BYTES
MAKE_ROOM_EVERY_S = 5.0


class WalMover:
    """Moves the WAL on a thread; takes `writer_lock` only to start the log over."""

    def __init__(self, path: Path, writer_lock: threading.Lock) -> None:
        self._path = path
        self._log = sql.log_of(path)
        self._writer_lock = writer_lock
        self._wrote_bytes = 0
        self._make_room = False
        self._make_room_at_s = 0.0
        self._wake = threading.Event()
        self._closing = False
        self._db: sqlite3.Connection | None = None
        self._thread = threading.Thread(target=self._loop, name="wal-mover", daemon=True)
        self._thread.start()

    def wrote(self, size_bytes: int) -> None:
        """Count the bytes of a commit. The caller holds the writer's lock."""
        self._wrote_bytes += size_bytes
        if self._wrote_bytes >= MOVE_BYTES:
            self._wrote_bytes = 0
            self._wake.set()

    def full(self) -> None:
        """Request a move after a commit found the disk full. The caller holds the writer's lock."""
        if time.monotonic() >= self._make_room_at_s:
            self._make_room_at_s = time.monotonic() + MAKE_ROOM_EVERY_S
            self._make_room = True
            self._wake.set()

    def close(self) -> None:
        self._closing = True
        self._wake.set()
        self._thread.join()

    def _loop(self) -> None:
        while not self._closing:
            self._wake.wait()
            self._wake.clear()
            if not self._closing:
                try:
                    self._move()
                except (sqlite3.Error, OSError):
                    self._discard()
        self._discard()

    def _move(self) -> None:
        if self._db is None:
            self._db = sql.open_mover(self._path)
        make_room, self._make_room = self._make_room, False
        self._db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        if make_room or self._log.stat().st_size > RESTART_BYTES:
            # A writer that never pauses is always a little ahead of PASSIVE, and the log would
            # grow for ever. With most of it moved, the rest is short enough to block the writer.
            with self._writer_lock:
                self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def _discard(self) -> None:
        db, self._db = self._db, None
        if db is not None:
            db.close()
