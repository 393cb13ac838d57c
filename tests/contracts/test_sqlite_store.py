"""What only the SQLite journal promises: kills, a full disk, failed commits, a bounded file.

`test_journal.py` runs that on SQLite too.
"""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from peloton.runtime.adapters import sqlite_schema, sqlite_wal
from peloton.runtime.adapters.sqlite_store import SqliteJournal
from peloton.runtime.ports import (
    CheckpointPart,
    Claimed,
    Committed,
    Cut,
    EndedRow,
    Fenced,
    Floor,
    Frame,
    JournalBroken,
    JournalRefused,
    ShardId,
    Unclear,
    Unreachable,
    Work,
)
from tests.contracts.journals import GROUPS, OTHER, SHARD, FailingCommit
from tests.contracts.sqlite_writer import SHARDS, body

WRITER = Path(__file__).with_name("sqlite_writer.py")


def opened(path: Path, *, page_count_max: int | None = None) -> SqliteJournal:
    journal = SqliteJournal(path, page_count_max=page_count_max)
    journal.bootstrap(GROUPS)
    return journal


def claim(journal: SqliteJournal, shard: ShardId = SHARD) -> int:
    claimed = journal.claim(shard, "somebody")
    assert isinstance(claimed, Claimed)
    return claimed.epoch


def tail(journal: SqliteJournal, shard: ShardId = SHARD) -> list[bytes]:
    list(journal.read_checkpoint(shard))
    return [frame.body for frame in journal.read_tail(shard)]


# ---- kill -9 ---------------------------------------------------------------------------------


def killed_after(path: Path, lines: int) -> int:
    """Starts a writer, kills it after so many acknowledgements; the last one it made."""
    command = [sys.executable, str(WRITER), str(path)]
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}
    writer = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True)
    assert writer.stdout is not None
    said = [writer.stdout.readline() for _ in range(lines)]
    writer.send_signal(signal.SIGKILL)
    said += writer.stdout.readlines()
    writer.wait()
    return int([line for line in said if line.endswith("\n")][-1])


def test_kill_9_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    journal = opened(path)
    chance = random.Random(7)
    acknowledged = 0
    for _ in range(8):
        last = killed_after(path, chance.randrange(1, 60))
        assert last > acknowledged
        acknowledged = last
        for shard in SHARDS:
            claimed = journal.claim(shard, "checker")
            assert isinstance(claimed, Claimed)
            assert claimed.last_position >= acknowledged
            parts = list(journal.read_checkpoint(shard))
            assert parts == ([str(claimed.floor).encode()] if claimed.floor else [])
            for frame in journal.read_tail(shard):
                assert frame.body == body(shard, frame.position)
            for at in range(5, claimed.last_position + 1, 5):
                row = journal.read_ended(shard, kind="k", key=str(at))
                assert row == EndedRow("k", str(at), at, body(shard, at))
    journal.close()
    with sqlite3.connect(path) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    db.close()


def test_three_journals_fight_over_three_shards_and_lose_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Who waits for the lock is not served in turn, and each holder has the disk to wait for.
    monkeypatch.setattr(sqlite_schema, "BUSY_TIMEOUT_MS", 60_000)
    journals = [opened(tmp_path / "j") for _ in range(3)]
    acknowledged: dict[tuple[ShardId, int], bytes] = {}
    fenced: list[ShardId] = []
    all_have_claimed = threading.Barrier(3, timeout=120)

    def owner(journal: SqliteJournal, seed: int) -> None:
        chance = random.Random(seed)
        for fight in range(20):
            held = {shard: journal.claim(shard, str(seed)) for shard in SHARDS}
            if fight % 2:
                all_have_claimed.wait()
            for step in range(1, chance.randrange(2, 8)):
                works = [
                    Work(shard, c.epoch, Frame(c.last_position + step, chance.randbytes(300)))
                    for shard, c in held.items()
                    if isinstance(c, Claimed)
                ]
                for work, answer in zip(works, journal.commit(works), strict=True):
                    if isinstance(answer, Committed) and work.frame is not None:
                        acknowledged[work.shard, work.frame.position] = work.frame.body
                    else:
                        fenced.append(work.shard)
                        del held[work.shard]

    fighters = [
        threading.Thread(target=owner, args=(journal, seed))
        for seed, journal in enumerate(journals)
    ]
    for fighter in fighters:
        fighter.start()
    for fighter in fighters:
        fighter.join()
    assert len(fenced) >= 10 * 2 * len(SHARDS), "of three claimers of a shard two are fenced"
    for shard in SHARDS:
        claim(journals[0], shard)
        frames = {frame.position: frame.body for frame in journals[0].read_tail(shard)}
        assert frames == {at: found for (one, at), found in acknowledged.items() if one == shard}
    for journal in journals:
        journal.close()


def test_a_file_that_is_no_journal_is_refused(tmp_path: Path) -> None:
    (tmp_path / "j").write_bytes(b"not a database, whatever it is" * 100)
    with pytest.raises(JournalBroken):
        SqliteJournal(tmp_path / "j")
    with pytest.raises(Unreachable):
        SqliteJournal(tmp_path / "missing" / "j")


# ---- a full disk -----------------------------------------------------------------------------


def test_a_full_disk_is_unclear_and_work_goes_on_when_there_is_room(tmp_path: Path) -> None:
    journal = opened(tmp_path / "j", page_count_max=60)
    epochs = {shard: claim(journal, shard) for shard in (SHARD, OTHER)}
    position = 0
    while True:
        position += 1
        works = [
            Work(SHARD, epochs[SHARD], Frame(position, bytes(9000))),
            Work(OTHER, epochs[OTHER], Frame(position, b"small")),
        ]
        answers = journal.commit(works)
        if isinstance(answers[0], Unclear):
            break
    assert position > 3
    assert all(isinstance(answer, Unclear) for answer in answers)
    again = journal.settle([SHARD])[0]
    assert isinstance(again, Unclear), "still no room"
    with pytest.raises(JournalRefused):
        journal.commit([works[0]])
    assert isinstance(journal.settle([OTHER])[0], Unclear), "a small one would fit, but not both"
    journal.page_count_max = 10_000
    assert journal.settle([SHARD])[0] == Committed()
    assert journal.settle([OTHER])[0] == Committed()
    assert journal.commit([Work(SHARD, epochs[SHARD], Frame(position + 1, b"on"))]) == [Committed()]
    assert len(tail(journal)) == position + 1
    assert len(tail(journal, OTHER)) == position
    journal.close()


def test_a_shard_given_up_on_a_full_disk_is_whole_for_the_next_claim(tmp_path: Path) -> None:
    journal = opened(tmp_path / "j", page_count_max=60)
    epoch = claim(journal)
    position = 1
    while journal.commit([Work(SHARD, epoch, Frame(position, bytes(9000)))]) == [Committed()]:
        position += 1
    journal.drop(SHARD)
    assert isinstance(journal.settle([SHARD])[0], Fenced)
    journal.page_count_max = None
    claimed = journal.claim(SHARD, "again")
    assert isinstance(claimed, Claimed)
    assert claimed.last_position == position - 1 == len(tail(journal))
    journal.close()


def test_on_a_full_disk_the_log_is_moved_and_cut_off(tmp_path: Path) -> None:
    """The log alone may hold the room that the next commit needs."""
    path = tmp_path / "j"
    journal = opened(path)
    epoch = claim(journal)
    for position in range(1, 200):
        work = Work(SHARD, epoch, Frame(position, bytes(9000)))
        assert journal.commit([work]) == [Committed()]
    journal.read_ended(SHARD, kind="k", key="x")  # a reader is open: else the log ends with us
    log = path.with_name("j-wal")
    assert log.stat().st_size > 1_000_000
    assert journal._writer is not None
    error = sqlite3.OperationalError("database or disk is full")
    error.sqlite_errorcode = sqlite_schema.FULL
    journal._writer = FailingCommit(journal._writer, committed=False, error=error)  # type: ignore[assignment]
    assert isinstance(journal.commit([Work(SHARD, epoch, Frame(200, b""))])[0], Unclear)
    until = time.monotonic() + 30
    while log.stat().st_size and time.monotonic() < until:
        threading.Event().wait(0.01)
    assert log.stat().st_size == 0
    assert journal.settle([SHARD]) == [Committed()]
    journal.close()


@pytest.mark.parametrize("code", [4618, 4874, 5386, 13])  # SHMOPEN, SHMSIZE, SHMMAP, FULL
def test_no_room_for_the_index_of_the_log_is_no_damage(tmp_path: Path, code: int) -> None:
    journal = opened(tmp_path / "j")
    epoch = claim(journal)
    assert journal._writer is not None
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = code
    journal._writer = FailingCommit(journal._writer, committed=False, error=error)  # type: ignore[assignment]
    assert isinstance(journal.commit([Work(SHARD, epoch, Frame(1, b"one"))])[0], Unclear)
    assert journal.settle([SHARD]) == [Committed()]
    journal.close()


# ---- a commit that fails ---------------------------------------------------------------------


@pytest.mark.parametrize("committed", [True, False])
def test_a_failed_commit_is_settled_by_op(tmp_path: Path, committed: bool) -> None:
    journal = opened(tmp_path / "j")
    epoch = claim(journal)
    assert journal._writer is not None
    failing = FailingCommit(journal._writer, committed=committed)
    journal._writer = failing  # type: ignore[assignment]
    part = CheckpointPart(1, 0, b"state", True)
    work = Work(SHARD, epoch, Frame(1, b"one"), (), (part,), Floor(1))
    assert journal.commit([work]) == [Unclear(f"{journal.path}: the commit failed")]
    assert failing.closed
    assert journal.settle([SHARD])[0] == Committed()
    assert journal.commit([Work(SHARD, epoch, Frame(2, b"two"))]) == [Committed()]
    claim(journal)
    assert list(journal.read_checkpoint(SHARD)) == [b"state"]
    assert tail(journal) == [b"two"]
    journal.close()


def test_a_failed_commit_that_another_owner_followed_is_fenced_and_unknown(tmp_path: Path) -> None:
    journal, other = opened(tmp_path / "j"), opened(tmp_path / "j")
    epoch = claim(journal)
    assert journal._writer is not None
    journal._writer = FailingCommit(journal._writer, committed=True)  # type: ignore[assignment]
    journal.commit([Work(SHARD, epoch, Frame(1, b"one"))])
    claim(other)
    answer = journal.settle([SHARD])[0]
    assert isinstance(answer, Fenced) and not answer.definite
    journal.close()
    other.close()


def test_a_position_in_the_file_twice_is_an_alarm(tmp_path: Path) -> None:
    journal = opened(tmp_path / "j")
    epoch = claim(journal)
    assert journal._writer is not None
    journal._writer.execute(
        "INSERT INTO journal VALUES ('a', 0, 1, 0, 1, 1, x'00', x'00', x'00', x'00')"
    )
    with pytest.raises(JournalBroken):
        journal.commit([Work(SHARD, epoch, Frame(1, b"one"))])
    journal.close()


# ---- threads and size ------------------------------------------------------------------------


def test_ended_rows_are_read_from_another_thread_while_we_commit(tmp_path: Path) -> None:
    journal = opened(tmp_path / "j")
    epoch = claim(journal)
    known = threading.Event()
    found: list[int] = []

    def read() -> None:
        known.wait(60)
        for _ in range(200):
            row = journal.read_ended(SHARD, kind="k", key="x")
            assert row is not None
            found.append(row.position)

    reader = threading.Thread(target=read)
    reader.start()
    position = 0
    while reader.is_alive():
        position += 1
        row = EndedRow("k", "x", position, b"")
        work = Work(SHARD, epoch, Frame(position, b""), ended=(row,))
        assert journal.commit([work]) == [Committed()]
        known.set()
    assert len(found) == 200 and found == sorted(found)
    journal.close()


def test_the_file_and_its_log_stay_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_wal, "MOVE_BYTES", 1 << 20)
    monkeypatch.setattr(sqlite_wal, "RESTART_BYTES", 2 << 20)
    path = tmp_path / "j"
    journal = opened(path)
    epoch = claim(journal)
    sizes, logs = [], []
    for position in range(1, 601):
        work = Work(SHARD, epoch, Frame(position, bytes(50_000)), cut=Cut())
        assert isinstance(journal.commit([work])[0], Committed)
        if position % 60 == 0:
            part = CheckpointPart(position, 0, bytes(900_000), True)
            floor = Work(SHARD, epoch, parts=(part,), floor=Floor(position))
            assert journal.commit([floor]) == [Committed()]
            sizes.append(path.stat().st_size)
            logs.append(path.with_name("j-wal").stat().st_size)
    journal.close()
    assert max(sizes) < 20_000_000, "three generations of 3 MB and a part, of 39 MB written"
    assert max(logs) < 20_000_000
