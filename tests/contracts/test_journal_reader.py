"""Reading a journal without owning it, over every store: what was committed, and what was damaged.

And of SQLite in particular: beside a writer, after one that was killed, and after a clean stop, no
file of the data folder is created or changed.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from peloton.assembly.journal_reader import Source
from peloton.runtime.adapters.sqlite_reading import SqliteRows
from peloton.runtime.adapters.sqlite_store import SqliteJournal
from peloton.runtime.core.journal.statements import (
    CreateRegister,
    ReadCluster,
    ReadEnded,
    ReadName,
    Rows,
    RowsFound,
)
from peloton.runtime.core.offline.journal_reading import Contents, read_shard
from peloton.runtime.ports import (
    CheckpointPart,
    Claimed,
    Committed,
    Damaged,
    EndedRow,
    Floor,
    Frame,
    Journal,
    JournalRefused,
    ShardId,
    Work,
)
from tests.contracts import journals
from tests.contracts.journals import OTHER, SHARD

READABLE = (*journals.RIGS, *journals.SERVED)


@pytest.fixture(params=READABLE)
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> journals.JournalRig:
    built = journals.build(request.param, tmp_path)
    built.open().bootstrap(journals.GROUPS)
    yield built
    built.close()


def rows_of(rig: journals.JournalRig) -> Rows:
    if isinstance(rig, journals.SqliteRig):
        return SqliteRows(rig.path.parent)
    return rig.open().rows  # type: ignore[attr-defined]


def contents(rows: Rows, shard: ShardId = SHARD) -> Contents:
    talk = read_shard(shard)
    ask = next(talk)
    while True:
        try:
            ask = talk.send(tuple(rows.run(ask)))  # type: ignore[arg-type]
        except StopIteration as end:
            return end.value


def write(journal: Journal, count: int, *, checkpoint_at: int = 0) -> None:
    """So many frames; at one of them a checkpoint of forty parts, which is more than a bucket."""
    claimed = journal.claim(SHARD, "owner")
    assert isinstance(claimed, Claimed)
    list(journal.read_checkpoint(SHARD))
    for at in range(claimed.last_position + 1, claimed.last_position + count + 1):
        ended = (EndedRow("k", f"k/{at}", at, b"row"),)
        done = [Work(SHARD, claimed.epoch, Frame(at, b"frame %d" % at), ended=ended)]
        if at == checkpoint_at:
            parts = [CheckpointPart(at, n, b"part %d" % n, last=n == 39) for n in range(40)]
            done += [Work(SHARD, claimed.epoch, parts=(part,)) for part in parts]
            done.append(Work(SHARD, claimed.epoch, floor=Floor(at)))
        for work in done:
            assert isinstance(journal.commit([work])[0], Committed)


def test_what_was_committed_is_read_beside_the_owner(rig: journals.JournalRig) -> None:
    journal = rig.open()
    write(journal, 5, checkpoint_at=3)
    found = contents(rows_of(rig))
    assert found.findings == ()
    assert [frame.body for frame in found.frames] == [b"frame %d" % at for at in range(1, 6)]
    assert found.tail == [Frame(4, b"frame 4"), Frame(5, b"frame 5")]
    assert found.parts == tuple(b"part %d" % n for n in range(40))
    write(journal, 2)
    assert len(contents(rows_of(rig)).frames) == 7, "the owner was not disturbed"


def test_frames_of_two_epochs_are_one_history(rig: journals.JournalRig) -> None:
    write(rig.open(), 2)
    write(rig.open(), 2)
    found = contents(rows_of(rig))
    assert found.findings == ()
    assert [frame.epoch for frame in found.frames] == [1, 1, 2, 2]


def test_a_shard_without_frames(rig: journals.JournalRig) -> None:
    found = contents(rows_of(rig), OTHER)
    assert (found.frames, found.findings) == ((), ())


def test_the_cluster_and_ended_rows_are_found(rig: journals.JournalRig) -> None:
    write(rig.open(), 2)
    record, row, none = rows_of(rig).run(
        [ReadCluster(), ReadEnded(SHARD, "k", "k/2"), ReadEnded(SHARD, "k", "k/3")]
    )
    assert isinstance(record, RowsFound) and record.rows[0].shards == journals.GROUPS  # type: ignore[attr-defined]
    assert row == RowsFound((EndedRow("k", "k/2", 2, b"row"),))
    assert none == RowsFound(())


def test_the_clusters_name_is_found_once_it_has_one(rig: journals.JournalRig) -> None:
    rig.open()
    assert rows_of(rig).run([ReadName()]) == [RowsFound(())]
    rig.open().bootstrap(journals.GROUPS, name="west")
    assert rows_of(rig).run([ReadName()]) == [RowsFound(("west",))]


@pytest.mark.parametrize("damage", ["tamper", "lose", "rot"])
def test_damage_is_found(rig: journals.JournalRig, damage: str) -> None:
    write(rig.open(), 5, checkpoint_at=2)
    if damage == "rot":
        rig.rot(SHARD)
        text = "checkpoint 2: part 40 is not what was written"
        position = 0
    else:
        getattr(rig, damage)(SHARD, 4)
        position = 4
        text = "it is not what was written" if damage == "tamper" else "no whole frame is there"
    found = [(each.position, each.text) for each in contents(rows_of(rig)).findings]
    assert (position, text) in found


# ---- SQLite ----

FRAMES = 30


def files(folder: Path) -> dict[str, tuple[int, str]]:
    return {
        path.name: (path.stat().st_size, hashlib.sha256(path.read_bytes()).hexdigest())
        for path in folder.iterdir()
    }


def read_all(folder: Path) -> Contents:
    rows = SqliteRows(folder)
    try:
        assert len(list(rows.ended(SHARD))) >= 1
        return contents(rows)
    finally:
        rows.close()


ELSEWHERE = """
import sys
from pathlib import Path
from tests.contracts.test_journal_reader import read_all
found = read_all(Path(sys.argv[1]))
print(len(found.frames), len(found.findings))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A data folder whose journal was closed."""
    journal = SqliteJournal(tmp_path / "journal.sqlite")
    journal.bootstrap(journals.GROUPS)
    write(journal, FRAMES)
    journal.close()
    return tmp_path


def test_a_stopped_one_is_read_and_no_file_appears(folder: Path) -> None:
    before = files(folder)
    assert [*before] == ["journal.sqlite"]
    assert len(read_all(folder).frames) == FRAMES
    assert files(folder) == before


def test_a_running_one_is_read_and_no_file_changes(folder: Path) -> None:
    journal = SqliteJournal(folder / "journal.sqlite")
    write(journal, 3)
    before = files(folder)
    assert {*before} == {"journal.sqlite", "journal.sqlite-wal", "journal.sqlite-shm"}
    # From another process: within one, SQLite shares the index among all connections.
    command = [sys.executable, "-c", ELSEWHERE, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == f"{FRAMES + 3} 0\n"
    assert files(folder) == before
    journal.close()


def test_one_that_is_opened_while_it_is_read(folder: Path) -> None:
    """It was opened as a file that never changes, and then it does."""
    rows = SqliteRows(folder)
    assert len(contents(rows).frames) == FRAMES
    journal = SqliteJournal(folder / "journal.sqlite")
    write(journal, 3)
    assert len(contents(rows).frames) == FRAMES + 3
    rows.close()
    journal.close()


@pytest.mark.parametrize("index", [True, False])
def test_what_a_crash_or_a_copy_left(folder: Path, tmp_path: Path, index: bool) -> None:
    """The last frames stand in the write-ahead log only; a copy may lack the log's index."""
    journal = SqliteJournal(folder / "journal.sqlite")
    write(journal, 3)
    copy = tmp_path / "copy"
    copy.mkdir()
    for name in ("journal.sqlite", "journal.sqlite-wal", "journal.sqlite-shm")[: 2 + index]:
        shutil.copy(folder / name, copy)
    journal.close()
    before = files(copy)
    assert len(read_all(copy).frames) == FRAMES + 3
    assert files(copy) == before


def test_beside_a_writer_that_never_pauses_and_after_it_is_killed(tmp_path: Path) -> None:
    SqliteJournal(tmp_path / "journal.sqlite").bootstrap(journals.GROUPS)
    script = Path(__file__).parent / "sqlite_writer.py"
    writer = subprocess.Popen(
        [sys.executable, str(script), str(tmp_path / "journal.sqlite")],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert writer.stdout is not None
    rows, said = SqliteRows(tmp_path), 0
    for _ in range(20):
        said = int(writer.stdout.readline())
        found = rows.snapshot(lambda: contents(rows))
        assert found.findings == ()
        assert found.register.last_position >= said
    rows.close()
    writer.kill()
    said = max([said, *(int(line) for line in writer.stdout.read().split())])
    writer.wait()
    before = files(tmp_path)
    assert read_all(tmp_path).register.last_position >= said
    # A writer that is killed in the middle leaves an index that its readers make anew: no data.
    kept = [name for name in before if not name.endswith("-shm")]
    assert {name: files(tmp_path)[name] for name in kept} == {name: before[name] for name in kept}
    assert files(tmp_path).keys() == before.keys()


def test_a_folder_without_a_journal_is_refused_and_stays_empty(tmp_path: Path) -> None:
    with pytest.raises(JournalRefused, match="is no data folder"):
        SqliteRows(tmp_path)
    assert files(tmp_path) == {}


def test_a_file_that_is_no_database_is_damaged(tmp_path: Path) -> None:
    (tmp_path / "journal.sqlite").write_bytes(b"not a database" * 100)
    with pytest.raises(Damaged):
        contents(SqliteRows(tmp_path))


def test_nothing_is_written_through_it(folder: Path) -> None:
    with pytest.raises(JournalRefused, match="read-only"):
        SqliteRows(folder).run([CreateRegister(SHARD, b"op")])


def test_a_source_may_lack_a_list_of_ended_rows() -> None:
    assert Source(None).ended is None
