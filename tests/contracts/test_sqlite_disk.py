"""What the SQLite journal makes of its disk: errors after which nobody knows, and what is synced.

The codes are those that SQLite reports.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from peloton.runtime.adapters import sqlite_schema
from peloton.runtime.adapters.sqlite_store import SqliteJournal
from peloton.runtime.ports import (
    CheckpointPart,
    Claimed,
    Committed,
    Cut,
    Floor,
    Frame,
    JournalBroken,
    Unclear,
    Work,
)
from tests.contracts.journals import GROUPS, SHARD

FULL = 2  # `PRAGMA synchronous`
FATAL = {
    "SQLITE_IOERR": 10,
    "SQLITE_IOERR_WRITE": 778,
    "SQLITE_IOERR_FSYNC": 1034,
    "SQLITE_CORRUPT": 11,
    "SQLITE_NOTADB": 26,
}
PASSING = {"SQLITE_FULL": 13, "SQLITE_BUSY": 5, "SQLITE_CANTOPEN": 14}


class Failing:
    """A connection whose next COMMIT fails with a code, before anything of it is done."""

    def __init__(self, connection: sqlite3.Connection, code: int) -> None:
        self._connection, self._code = connection, code
        self.closed = False

    def execute(self, sql: str, *values: Any) -> Any:
        if sql == "COMMIT":
            self._connection.execute("ROLLBACK")
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = self._code
            raise error
        return self._connection.execute(sql, *values)

    def executemany(self, sql: str, values: Any) -> Any:
        return self._connection.executemany(sql, values)

    def close(self) -> None:
        self.closed = True
        self._connection.close()


def failing(path: Path, code: int) -> tuple[SqliteJournal, Failing, Work]:
    journal = SqliteJournal(path)
    journal.bootstrap(GROUPS)
    claimed = journal.claim(SHARD, "somebody")
    assert isinstance(claimed, Claimed) and journal._writer is not None
    connection = Failing(journal._writer, code)
    journal._writer = connection  # type: ignore[assignment]
    return journal, connection, Work(SHARD, claimed.epoch, Frame(1, b"one"))


@pytest.mark.parametrize("name", FATAL)
def test_an_error_after_which_nobody_knows_what_is_on_disk_ends_the_process(
    tmp_path: Path, name: str
) -> None:
    """A sync that failed may report success the next time, for pages that are gone."""
    journal, connection, work = failing(tmp_path / "j", FATAL[name])
    with pytest.raises(JournalBroken):
        journal.commit([work])
    assert connection.closed, "what its cache shows may not be in the file"
    journal.close()


@pytest.mark.parametrize("name", PASSING)
def test_an_error_that_passes_is_unclear_and_settled_over_another_connection(
    tmp_path: Path, name: str
) -> None:
    journal, connection, work = failing(tmp_path / "j", PASSING[name])
    (answer,) = journal.commit([work])
    assert isinstance(answer, Unclear) and connection.closed
    assert journal.settle([SHARD]) == [Committed()]
    journal.close()


def test_every_commit_and_every_move_of_the_log_is_synced(tmp_path: Path) -> None:
    """With less, the last commits are lost in a power cut, or the log's pages before their copy."""
    path = tmp_path / "j"
    for opened in (sqlite_schema.open_writer(path), sqlite_schema.open_mover(path)):
        assert opened.execute("PRAGMA synchronous").fetchone() == (FULL,)
        opened.close()


@pytest.mark.parametrize("parts", [False, True], ids=["a frame", "no frame"])
def test_a_file_that_lost_writes_of_our_epoch_ends_the_process(tmp_path: Path, parts: bool) -> None:
    """As one that was put back to an earlier copy while we held the shard."""
    path = tmp_path / "j"
    journal = SqliteJournal(path)
    journal.bootstrap(GROUPS)
    claimed = journal.claim(SHARD, "somebody")
    assert isinstance(claimed, Claimed)
    assert journal.commit([Work(SHARD, claimed.epoch, Frame(1, b"one"))]) == [Committed()]
    other = sqlite3.connect(path)
    with other:
        other.execute("UPDATE register SET op = x'00' WHERE shard_group = ?", (SHARD.group,))
    other.close()
    frame = None if parts else Frame(2, b"two")
    part = CheckpointPart(1, 0, b"state", last=True)
    with pytest.raises(JournalBroken, match="lost acknowledged writes"):
        journal.commit([Work(SHARD, claimed.epoch, frame, parts=(part,) if parts else ())])
    journal.close()


def test_a_cut_leaves_the_checkpoint_that_becomes_the_floor_with_it(tmp_path: Path) -> None:
    journal = SqliteJournal(tmp_path / "j")
    journal.bootstrap(GROUPS)
    claimed = journal.claim(SHARD, "somebody")
    assert isinstance(claimed, Claimed)
    part = CheckpointPart(1, 0, b"state", last=True)
    frame = Frame(1, b"one")
    work = Work(SHARD, claimed.epoch, frame, parts=(part,), floor=Floor(1), cut=Cut())
    assert isinstance(journal.commit([work])[0], Committed)
    again = journal.claim(SHARD, "somebody")
    assert isinstance(again, Claimed) and again.floor == 1
    assert [*journal.read_checkpoint(SHARD)] == [b"state"]
    journal.close()
