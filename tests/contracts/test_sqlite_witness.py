"""Accidents to the files of a SQLite journal, and what its witness says of each."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from peloton.runtime.adapters.sqlite_copy import begin_anew
from peloton.runtime.adapters.sqlite_store import SqliteJournal
from peloton.runtime.adapters.sqlite_witness import WitnessOptions
from peloton.runtime.adapters.witness_file import read_witness
from peloton.runtime.ports import (
    CheckpointPart,
    Claimed,
    ClusterRecord,
    Committed,
    Damaged,
    Floor,
    Frame,
    JournalBroken,
    RolledBack,
    ShardId,
    Unclear,
    Work,
)
from tests.contracts.journals import GROUPS, OTHER, SHARD
from tests.killed_forks import dies_at, is_killed

NAME = "journal.sqlite"
FILES = (NAME, f"{NAME}-wal", f"{NAME}-shm")
FRAMES = 30


class Data:
    """A data folder with its journal; `crash` leaves the files as a `kill -9` would."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lines: list[str] = []
        self.positions: dict[ShardId, int] = {}

    def open(
        self, *, accept: bool = False, keeper_of: str = "", epochs: dict[ShardId, int] | None = None
    ) -> SqliteJournal:
        witness = WitnessOptions(
            self.folder, accept, keeper_of, epochs or {}, report=self.lines.append
        )
        journal = SqliteJournal(self.folder / NAME, witness=witness)
        try:
            self.record = self.bootstrapped(journal)
        except BaseException:
            journal.close()
            raise
        return journal

    def bootstrapped(self, journal: SqliteJournal) -> ClusterRecord:
        return journal.bootstrap(GROUPS)

    def commit(self, journal: SqliteJournal, count: int, *, size: int = 3000) -> None:
        epochs = {}
        for shard in (SHARD, OTHER):
            claimed = journal.claim(shard, "us")
            assert isinstance(claimed, Claimed)
            epochs[shard], self.positions[shard] = claimed.epoch, claimed.last_position
        for _ in range(count):
            for shard in self.positions:
                self.positions[shard] += 1
            works = [
                Work(shard, epochs[shard], Frame(at, bytes(size)))
                for shard, at in self.positions.items()
            ]
            assert journal.commit(works) == [Committed(), Committed()]

    def live(self, count: int) -> None:
        """Open the journal, commit, and close it."""
        journal = self.open()
        self.commit(journal, count)
        journal.close()

    def crash(self, journal: SqliteJournal, to: Path) -> Data:
        """A copy of the files as they are now; what runs on does so in the old place."""
        shutil.copytree(self.folder, to)
        journal.close()
        return Data(to)

    @property
    def log(self) -> Path:
        return self.folder / f"{NAME}-wal"


@pytest.fixture
def crashed(tmp_path: Path) -> Data:
    """A folder after a crash, with all its frames in the log."""
    data = Data(tmp_path / "living")
    data.folder.mkdir()
    journal = data.open()
    data.commit(journal, FRAMES)
    return data.crash(journal, tmp_path / "data")


def refused(data: Data) -> str:
    before = files(data)
    with pytest.raises(RolledBack) as caught:
        data.open()
    assert files(data) == before, "left as they are, for whoever repairs them"
    return str(caught.value)


def files(data: Data) -> dict[str, bytes]:
    found = [path for path in data.folder.rglob("*") if path.is_file()]
    return {str(path): path.read_bytes() for path in found}


def test_a_crash_is_no_rollback(crashed: Data) -> None:
    journal = crashed.open()
    crashed.commit(journal, 2)
    assert crashed.positions[SHARD] == FRAMES + 2
    assert crashed.record.generation == 0
    assert crashed.lines == []
    journal.close()


@pytest.mark.parametrize("left", [0.5, 0.97])
def test_a_log_that_was_cut_is_refused_with_what_is_missing(crashed: Data, left: float) -> None:
    os.truncate(crashed.log, int(crashed.log.stat().st_size * left))
    text = refused(crashed)
    assert "acknowledged frames are missing (a-0 " in text


def test_flipped_bytes_in_the_log_are_refused(crashed: Data) -> None:
    data, chance = bytearray(crashed.log.read_bytes()), random.Random(3)
    for _ in range(100):
        data[chance.randrange(len(data) // 2, len(data))] ^= 0xFF
    crashed.log.write_bytes(data)
    assert "acknowledged frames are missing" in refused(crashed)


def test_a_missing_log_is_refused_by_name(crashed: Data) -> None:
    crashed.log.unlink()
    text = refused(crashed)
    # The whole cluster record was in it.
    assert "empty" in text or f"{NAME}-wal is missing" in text


def test_a_missing_log_with_a_part_of_the_history_is_refused(tmp_path: Path) -> None:
    living = Data(tmp_path / "living")
    living.folder.mkdir()
    living.live(5)
    journal = living.open()
    living.commit(journal, FRAMES)
    data = living.crash(journal, tmp_path / "data")
    data.log.unlink()
    text = refused(data)
    assert f"{2 * FRAMES} acknowledged frames are missing (a-0 {FRAMES}, b-0 {FRAMES})" in text
    assert f"{NAME}-wal is missing" in text


def test_a_log_that_somebody_moved_into_its_file_is_said_and_no_loss(crashed: Data) -> None:
    import sqlite3

    with sqlite3.connect(crashed.folder / NAME) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    database.close()
    assert not crashed.log.exists()
    journal = crashed.open()
    assert ["all that was acknowledged is in the journal" in line for line in crashed.lines] == [
        True
    ]
    journal.close()


def test_an_older_copy_is_refused_and_the_right_one_is_not(tmp_path: Path) -> None:
    data = Data(tmp_path / "data")
    data.folder.mkdir()
    data.live(5)
    for place in ("older", "newest"):
        (tmp_path / place).mkdir()
    shutil.copy(data.folder / NAME, tmp_path / "older" / NAME)
    data.live(20)
    shutil.copy(data.folder / NAME, tmp_path / "newest" / NAME)
    shutil.copy(tmp_path / "older" / NAME, data.folder / NAME)
    assert "40 acknowledged frames are missing (a-0 20, b-0 20)" in refused(data)
    shutil.copy(tmp_path / "newest" / NAME, data.folder / NAME)
    journal = data.open()
    data.commit(journal, 1)
    assert data.positions[SHARD] == 26
    journal.close()


def test_an_accepted_rollback_begins_a_generation_with_higher_epochs(tmp_path: Path) -> None:
    data = Data(tmp_path / "data")
    data.folder.mkdir()
    data.live(5)
    older = tmp_path / "older"
    shutil.copy(data.folder / NAME, older)
    for _ in range(4):
        data.live(3)
    newest = tmp_path / "newest"
    shutil.copy(data.folder / NAME, newest)
    shutil.copy(older, data.folder / NAME)
    journal = data.open(accept=True)
    assert data.record.generation == 1
    assert any("24 acknowledged frames are missing" in line for line in data.lines)
    claimed = journal.claim(SHARD, "us")
    assert isinstance(claimed, Claimed)
    assert claimed.last_position == 5 and claimed.epoch > 5, "above the five that were claimed"
    data.commit(journal, 30)
    journal.close()
    journal = data.open()
    assert data.record.generation == 1, "for good"
    journal.close()
    shutil.copy(newest, data.folder / NAME)
    assert "another history" in refused(data) or "from before a rollback" in refused(data)


def test_a_missing_journal_is_not_made_anew(crashed: Data) -> None:
    for name in FILES:
        (crashed.folder / name).unlink(missing_ok=True)
    with pytest.raises(RolledBack, match="is missing") as caught:
        crashed.open(accept=True)
    assert not caught.value.acceptable
    assert not (crashed.folder / NAME).exists()


def test_the_journal_of_another_cluster_is_refused(crashed: Data, tmp_path: Path) -> None:
    other = Data(tmp_path / "other")
    other.folder.mkdir()
    other.open().close()
    for name in FILES:
        (crashed.folder / name).unlink(missing_ok=True)
    shutil.copy(other.folder / NAME, crashed.folder / NAME)
    with pytest.raises(RolledBack, match="its witness is of cluster") as caught:
        crashed.open(accept=True)
    assert not caught.value.acceptable


def test_a_witness_is_created_once_and_missed_later(tmp_path: Path) -> None:
    data = Data(tmp_path)
    journal = SqliteJournal(tmp_path / NAME)  # which has none yet
    data.bootstrapped(journal)
    data.commit(journal, 3)
    journal.close()
    data.open().close()
    assert ["witness of the journal created" in line for line in data.lines] == [True]
    shutil.rmtree(tmp_path / "witness")
    assert "its witness" in refused(data) and "is missing" in refused(data)
    data.open(accept=True).close()
    assert data.record.generation == 1
    data.open().close()


def test_a_damaged_witness_is_named(crashed: Data) -> None:
    path = crashed.folder / "witness" / "positions"
    data = bytearray(path.read_bytes())
    data[20] ^= 1
    path.write_bytes(data)
    assert "its witness is damaged: its header" in refused(crashed)
    crashed.open(accept=True).close()
    crashed.open().close()


def test_the_keeper_is_a_witness_too(crashed: Data) -> None:
    journal = crashed.open()
    cluster = crashed.record.cluster_id.hex()
    journal.close()
    crashed.open(keeper_of=cluster, epochs={SHARD: 1}).close()
    crashed.open(keeper_of="another", epochs={SHARD: 9}).close()
    with pytest.raises(RolledBack, match="the keeper obeyed epoch 9 of a-0, it has 1"):
        crashed.open(keeper_of=cluster, epochs={SHARD: 9})
    journal = crashed.open(accept=True, keeper_of=cluster, epochs={SHARD: 9})
    claimed = journal.claim(SHARD, "us")
    assert isinstance(claimed, Claimed) and claimed.epoch > 9
    journal.close()


def test_a_closed_journal_is_one_file(tmp_path: Path) -> None:
    data = Data(tmp_path)
    journal = data.open()
    data.commit(journal, FRAMES)
    journal.read_ended(SHARD, kind="k", key="x")  # a reader is open, too
    journal.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == [NAME, "witness"]
    found = read_witness(tmp_path)
    assert found is not None and found.header.clean
    assert found.known[SHARD].position == FRAMES


def test_a_growing_cluster_has_its_new_shards_in_the_witness(tmp_path: Path) -> None:
    data = Data(tmp_path)
    data.open().close()
    journal = SqliteJournal(tmp_path / NAME, witness=WitnessOptions(tmp_path))
    journal.bootstrap({**GROUPS, "c": 1})
    journal.close()
    found = read_witness(tmp_path)
    assert found is not None and ShardId("c", 0) in found.known


def test_nothing_is_acknowledged_that_the_witness_does_not_have(tmp_path: Path) -> None:
    data = Data(tmp_path)
    journal = data.open()
    data.commit(journal, 1)
    assert journal._witness is not None and journal._witness._file is not None
    file, epoch = journal._witness._file, journal._owned[SHARD].epoch
    # Writes fail, and its thread can sync what was written before, whenever that comes to it.
    whole, no_writes = os.dup(file._descriptor), os.open(file._path, os.O_RDONLY)
    os.dup2(no_writes, file._descriptor)
    assert isinstance(journal.commit([Work(SHARD, epoch, Frame(2, b"two"))])[0], Unclear)
    assert isinstance(journal.settle([SHARD])[0], Unclear)
    os.dup2(whole, file._descriptor)
    assert journal.settle([SHARD]) == [Committed()]
    assert journal.commit([Work(SHARD, epoch, Frame(3, b"three"))]) == [Committed()]
    os.close(whole)
    os.close(no_writes)
    journal.close()
    found = read_witness(tmp_path)
    assert found is not None and found.known[SHARD].position == 3


def test_a_witness_that_cannot_be_synced_stops_the_process(tmp_path: Path) -> None:
    data = Data(tmp_path)
    journal = data.open()
    data.commit(journal, 1)
    assert journal._witness is not None and journal._witness._file is not None
    journal._witness._file._failed = OSError(errno.EIO, "input/output error")
    epoch = journal._owned[SHARD].epoch
    with pytest.raises(JournalBroken):
        journal.commit([Work(SHARD, epoch, Frame(2, b"two"))])
    journal.close()


def test_kills_never_leave_a_journal_behind_its_witness(tmp_path: Path) -> None:
    writer = Path(__file__).with_name("sqlite_writer.py")
    chance, last = random.Random(5), 0
    for _ in range(5):
        process = subprocess.Popen(
            [sys.executable, str(writer), str(tmp_path / NAME), "witness"],
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.getcwd()},
            text=True,
        )
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(chance.randrange(1, 60))]
        process.send_signal(signal.SIGKILL)
        lines += process.stdout.readlines()
        process.wait()
        whole = [line for line in lines if line.endswith("\n")]
        assert whole, "it was refused"
        assert int(whole[-1]) > last
        last = int(whole[-1])
        found = read_witness(tmp_path)
        assert found is not None
        assert all(known.position >= last for known in found.known.values())


def test_a_copy_from_before_a_start_that_wrote_nothing_is_the_newest(tmp_path: Path) -> None:
    """Such as one that found the journal damaged: the copy that replaces it has all there was."""
    data = Data(tmp_path / "data")
    data.folder.mkdir()
    data.live(5)
    shutil.copy(data.folder / NAME, tmp_path / "copy")
    journal, keeper = data.open(), data.record.cluster_id.hex()
    claimed = [journal.claim(shard, "us") for shard in (SHARD, OTHER)]
    journal.close()
    shutil.copy(tmp_path / "copy", data.folder / NAME)
    epochs = {SHARD: 2}  # the keeper has obeyed that start
    journal = data.open(keeper_of=keeper, epochs=epochs)
    again = [journal.claim(shard, "us") for shard in (SHARD, OTHER)]
    assert all(isinstance(one, Claimed) for one in (*claimed, *again))
    assert data.record.generation == 0 and not [line for line in data.lines if "rollback" in line]
    for before, after in zip(claimed, again, strict=True):
        assert after.epoch > before.epoch and after.last_position == before.last_position == 5
    journal.close()
    shutil.copy(tmp_path / "copy", data.folder / NAME)
    with pytest.raises(RolledBack, match="the keeper obeyed epoch 9"):
        data.open(keeper_of=keeper, epochs={SHARD: 9})


# ---- copies ----


ANEW = "it is a copy"


@pytest.mark.parametrize("other_cluster", [False, True])
def test_a_copy_begins_anew_whatever_its_files_are(
    crashed: Data, tmp_path: Path, other_cluster: bool
) -> None:
    """Its witness was copied later than its journal."""
    ahead = Data(tmp_path / "ahead")
    shutil.copytree(crashed.folder, ahead.folder)
    ahead.live(5)
    for name in FILES:
        (ahead.folder / name).unlink(missing_ok=True)
        if (crashed.folder / name).exists():
            shutil.copy(crashed.folder / name, ahead.folder / name)
    assert "was rolled back" in refused(ahead)
    crashed.live(0)
    options = WitnessOptions(ahead.folder, report=ahead.lines.append, anew=ANEW)
    begin_anew(ahead.folder / NAME, options, other_cluster=other_cluster)
    assert not ahead.lines and not ahead.log.exists()
    journal = ahead.open()
    assert ahead.record.generation == 1
    assert (ahead.record.cluster_id != crashed.record.cluster_id) is other_cluster
    ahead.commit(journal, 1)
    assert ahead.positions == dict.fromkeys((SHARD, OTHER), FRAMES + 1)
    journal.close()


def killed_at_step(number: int, folder: Path) -> bool:
    """Begin anew in a fork that kills itself before that step; whether it got there."""

    def counted() -> None:
        step = dies_at(number)

        def seen(event: str, _: object) -> None:
            if event in ("open", "os.rename", "os.remove", "sqlite3.connect"):
                step()

        sys.addaudithook(seen)
        begin_anew(folder / NAME, WitnessOptions(folder, anew=ANEW), other_cluster=True)

    return is_killed(counted)


def test_a_copy_that_was_killed_while_it_began_anew_does_it_again(
    crashed: Data, tmp_path: Path
) -> None:
    kills, killed = 0, True
    generations = set()
    while killed:
        copy = Data(tmp_path / f"copy-{kills}")
        shutil.copytree(crashed.folder, copy.folder)
        killed = killed_at_step(kills + 1, copy.folder)
        if killed:
            kills += 1
            options = WitnessOptions(copy.folder, anew=ANEW)
            begin_anew(copy.folder / NAME, options, other_cluster=True)
        journal = copy.open()
        copy.commit(journal, 1)
        assert copy.positions == dict.fromkeys((SHARD, OTHER), FRAMES + 1)
        generations.add(copy.record.generation)
        journal.close()
    assert kills > 6 and generations == {1, 2}


# ---- registers ----


NUMBERS = ("epoch", "last_position", "floor", "floor_epoch")
BYTES = ("op", "last_chain")


def recovered(data: Data) -> list[bytes]:
    """All that an owner reads: the checkpoint at the floor, and the frames after it."""
    journal = data.open()
    try:
        claimed = journal.claim(SHARD, "us")
        assert isinstance(claimed, Claimed)
        parts = list(journal.read_checkpoint(SHARD))
        return [*parts, *(frame.body for frame in journal.read_tail(SHARD))]
    finally:
        journal.close()


def flips() -> Iterator[tuple[str, int]]:
    """Each kind of bit of a register: those of its numbers, and some of its digests."""
    for name in NUMBERS:
        yield from ((name, bit) for bit in (*range(7), 30, 62))
    for name in BYTES:
        yield from ((name, bit) for bit in (0, 37, 127))


def test_a_flipped_bit_of_a_register_is_noticed_or_changes_nothing(tmp_path: Path) -> None:
    data = Data(tmp_path / "data")
    data.folder.mkdir()
    journal = data.open()
    data.commit(journal, 5, size=3)
    (epoch,) = [row[2] for row in registers(data) if row[:2] == tuple(SHARD)]
    part = CheckpointPart(4, 0, b"state at 4", True)
    assert journal.commit([Work(SHARD, epoch, parts=(part,), floor=Floor(4))]) == [Committed()]
    journal.close()
    shutil.copytree(data.folder, tmp_path / "healthy")
    healthy = recovered(Data(tmp_path / "healthy"))
    assert healthy == [b"state at 4", bytes(3)]
    from_the_first = [bytes(3)] * 5  # as none was cut yet, a floor of 0 leads to the same
    noticed = set()
    for name, bit in flips():
        flipped = Data(tmp_path / f"{name}-{bit}")
        shutil.copytree(data.folder, flipped.folder)
        flip(flipped, name, bit)
        try:
            assert recovered(flipped) in (healthy, from_the_first), (name, bit)
        except (RolledBack, Damaged):
            noticed.add(name)
    assert noticed == {"last_position", "floor", "floor_epoch", "last_chain"}


def registers(data: Data) -> list[tuple[object, ...]]:
    with contextlib.closing(sqlite3.connect(data.folder / NAME)) as db:
        return db.execute("SELECT * FROM register").fetchall()


def flip(data: Data, name: str, bit: int) -> None:
    with contextlib.closing(sqlite3.connect(data.folder / NAME, isolation_level=None)) as db:
        where = "WHERE shard_group = ? AND shard_number = ?"
        (value,) = db.execute(f"SELECT {name} FROM register {where}", SHARD).fetchone()
        if isinstance(value, int):
            changed: object = value ^ 1 << bit
        else:
            changed = (int.from_bytes(value, "big") ^ 1 << bit).to_bytes(len(value), "big")
        db.execute(f"UPDATE register SET {name} = ? {where}", (changed, *SHARD))
