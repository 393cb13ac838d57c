"""A folder and its copies are told apart by where they are; a moved folder is no copy."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from peloton.assembly.folders import adopt_copy, take_data_folder
from peloton.failures import CannotStart
from peloton.runtime.adapters import folder_origin
from peloton.runtime.adapters.data_folder import DataFolder
from peloton.runtime.adapters.folder_origin import FolderKind, FolderLease, LeaseTaken
from peloton.runtime.adapters.sqlite_store import SqliteJournal
from peloton.runtime.adapters.sqlite_witness import WitnessOptions
from peloton.settings.access_files import made_token
from peloton.settings.start_options import StartOptions


def take(path: Path, said: list[str], *, adopt: bool = False) -> DataFolder:
    options = StartOptions(adopt_copy=adopt)
    return take_data_folder(path, backend="process", options=options, report=said.append)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data folder that was used."""
    take(tmp_path / "data", []).close()
    return tmp_path / "data"


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Path]:
    """A folder on another file system."""
    shared = Path("/dev/shm")
    if not shared.is_dir() or shared.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("there is one file system only")
    with tempfile.TemporaryDirectory(dir=shared) as found:
        yield Path(found)


def test_a_folder_is_found_again(data: Path) -> None:
    said: list[str] = []
    known = folder_origin.read(data)
    take(data, said).close()
    assert said == [] and folder_origin.read(data) == known


def test_a_copy_is_refused_by_the_names_of_both(data: Path, tmp_path: Path) -> None:
    shutil.copytree(data, tmp_path / "copy")
    with pytest.raises(CannotStart) as refused:
        take(tmp_path / "copy", [])
    text = str(refused.value)
    assert f"{tmp_path / 'copy'} is a copy of {data}, which is still there" in text
    assert "--adopt-copy" in text
    take(data, []).close()


def test_a_copy_in_the_place_of_its_original_is_a_copy(data: Path, tmp_path: Path) -> None:
    shutil.copytree(data, tmp_path / "copy")
    data.rename(tmp_path / "aside")
    (tmp_path / "copy").rename(data)
    with pytest.raises(CannotStart, match="keeps its inode"):
        take(data, [])
    said: list[str] = []
    take(tmp_path / "aside", said).close()
    assert said == [f"data folder {tmp_path / 'aside'} was moved from {data}"]


def test_a_folder_moved_to_another_file_system_is_no_copy(data: Path, elsewhere: Path) -> None:
    shutil.copytree(data, elsewhere / "data")
    with pytest.raises(CannotStart, match="which is still there"):
        take(elsewhere / "data", [])
    shutil.rmtree(data)
    said: list[str] = []
    take(elsewhere / "data", said).close()
    assert said == [f"data folder {elsewhere / 'data'} was moved from {data}, where it is no more"]
    said.clear()
    take(elsewhere / "data", said).close()
    assert said == [], "it is at home there"


def test_a_living_original_is_noticed_where_nobody_looks(data: Path, elsewhere: Path) -> None:
    shutil.copytree(data, elsewhere / "copy")
    data.rename(data.with_name("moved"))
    with (
        take(data.with_name("moved"), []),
        pytest.raises(CannotStart, match="one that is in use: the process with pid"),
    ):
        take(elsewhere / "copy", [])


def test_another_machine_is_another_place(data: Path) -> None:
    known = folder_origin.read(data)
    assert known is not None
    for changed, kind in (
        (known._replace(boot="b", device=known.device + 1), FolderKind.SAME),  # restarted
        (
            known._replace(machine="m", boot="b"),
            FolderKind.COPY if known.machine else FolderKind.SAME,
        ),
        (known._replace(machine="m"), FolderKind.SAME),  # another container on the same kernel
        (known._replace(inode=known.inode + 1, boot="b"), FolderKind.COPY),
        (
            known._replace(inode=known.inode + 1, machine="m", boot="b", restored=True),
            FolderKind.MOVED,
        ),
    ):
        folder_origin.write(data, changed)
        assert folder_origin.examine(data).kind is kind, changed


def test_an_adopted_copy_has_an_id_of_its_own(data: Path, tmp_path: Path) -> None:
    journal = SqliteJournal(data / "journal.sqlite")
    record = journal.bootstrap({"jobmgr": 2}, name="west")
    journal.close()
    made_token(data / "token")
    copy = tmp_path / "copy"
    shutil.copytree(data, copy)
    said: list[str] = []
    with take(copy, said, adopt=True) as folder:
        before = folder_origin.read(copy)
        adopt_copy(folder, witness=WitnessOptions(copy, report=said.append))
        assert "another cluster" in said[-1]
        assert folder_origin.read(copy) != before
    assert (data / "token").exists() and not (copy / "token").exists(), "it gets one of its own"
    other = SqliteJournal(copy / "journal.sqlite")
    renamed = other.bootstrap({"jobmgr": 2}, name="west")
    other.close()
    assert renamed.cluster_id != record.cluster_id
    assert (renamed.name, renamed.shards) == (record.name, record.shards)
    with take(data, []), take(copy, []):
        pass  # both live


def test_a_crash_in_the_middle_of_an_adoption_leaves_a_copy(data: Path, tmp_path: Path) -> None:
    SqliteJournal(data / "journal.sqlite").close()
    shutil.copytree(data, tmp_path / "copy")
    take(tmp_path / "copy", [], adopt=True).close()  # before its journal was opened
    with pytest.raises(CannotStart, match="is a copy of"):
        take(tmp_path / "copy", [])


def test_a_damaged_origin_is_no_new_folder(data: Path) -> None:
    (data / "origin").write_text('{"folder_id": ')
    with pytest.raises(CannotStart, match="origin is damaged"):
        take(data, [])


def test_a_lease_ends_with_its_holder() -> None:
    lease = FolderLease("test-of-a-lease")
    with pytest.raises(LeaseTaken):
        FolderLease("test-of-a-lease")
    lease.close()
    FolderLease("test-of-a-lease").close()


def test_the_tables_of_a_copy_stay(data: Path, tmp_path: Path) -> None:
    journal = SqliteJournal(data / "journal.sqlite")
    journal.bootstrap({"jobmgr": 1})
    journal.close()
    shutil.copytree(data, tmp_path / "copy")
    with take(tmp_path / "copy", [], adopt=True) as folder:
        adopt_copy(folder, witness=WitnessOptions(tmp_path / "copy"))
    read = "SELECT shard_group, shard_number, last_position, last_chain FROM register"
    rows = [
        sqlite3.connect(path / "journal.sqlite").execute(read).fetchall()
        for path in (data, tmp_path / "copy")
    ]
    assert rows[0] == rows[1] != []


def test_daemons_that_begin_at_once_do_not_disturb_each_other(tmp_path: Path) -> None:
    """Two of a machine share their keeper's folder."""
    with ThreadPoolExecutor(4) as pool:
        for number in range(50):
            folder = tmp_path / str(number)
            folder.mkdir()
            begun = [pool.submit(folder_origin.record, folder) for _ in range(4)]
            ids = [each.result() for each in begun]
            found = folder_origin.read(folder)
            assert found is not None and found.folder_id in ids
            assert [one.name for one in folder.iterdir()] == [folder_origin.ORIGIN]
