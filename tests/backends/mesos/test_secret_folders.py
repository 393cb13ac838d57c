"""Where executors have files of secrets, and who removes what is left there.

Real files and locks; the executors are objects, and one that is killed is a process.
"""

from __future__ import annotations

import os
import signal
import stat
from pathlib import Path

import pytest

from peloton.backends.keeper.kinds import KeeperRun
from peloton.backends.keeper.secret_files import RunSecret, SecretFiles
from peloton.backends.mesos.executor import secret_folders
from peloton.backends.mesos.executor.secret_folders import LOCK, PREFIX, SecretFolders, sweep

NOBODY = 65534


@pytest.fixture
def parents(tmp_path: Path) -> tuple[Path, Path]:
    """Two that take the place of memory and disk."""
    found = tmp_path / "memory", tmp_path / "disk"
    for one in found:
        one.mkdir()
    (tmp_path / "executor" / "runs" / "r-0-1").mkdir(parents=True)
    return found


def put(folder: Path, places: SecretFolders) -> SecretFiles:
    """A run there that has a secret."""
    files = SecretFiles(str(folder / "executor"), lambda: "", places=places.roots)
    run = KeeperRun("r-0-1", "mesos", command={}, memory_mb=0.0)
    run.secrets = (RunSecret("token", b"value"),)
    files.put(run, "runs/r-0-1")
    return files


def left(parents: tuple[Path, Path]) -> list[str]:
    return [name for one in parents for name in os.listdir(one)]


def test_a_run_has_its_files_in_the_first_place_and_nothing_in_the_sandbox(
    tmp_path: Path, parents: tuple[Path, Path]
) -> None:
    places = SecretFolders(map(str, parents))
    assert not left(parents), "nothing is made before it is needed"
    files = put(tmp_path, places)
    link = tmp_path / "executor" / "runs" / "r-0-1" / "token"
    file = link.resolve()
    assert file.read_bytes() == b"value" and file.is_relative_to(parents[0])
    assert stat.S_IMODE(file.stat().st_mode) == 0o400
    assert stat.S_IMODE(file.parent.parent.stat().st_mode) == 0o700
    assert os.listdir(tmp_path / "executor") == ["runs"]
    files.drop("r-0-1")
    assert not file.exists() and not link.exists()
    places.close()
    assert not left(parents)


def test_where_the_first_place_is_not_to_be_had_the_second_one_has_to_do(
    tmp_path: Path, parents: tuple[Path, Path]
) -> None:
    parents[0].rmdir()
    places = SecretFolders(map(str, parents))
    put(tmp_path, places)
    assert (tmp_path / "executor/runs/r-0-1/token").resolve().is_relative_to(parents[1])
    with pytest.raises(FileNotFoundError):
        SecretFolders([str(tmp_path / "none")]).roots()


def test_a_run_that_no_place_is_to_be_had_for_is_over_and_that_is_all(tmp_path: Path) -> None:
    """What its end raises would end the executor, and all other tasks with it."""
    files = SecretFiles(str(tmp_path), lambda: "", places=SecretFolders([f"{tmp_path}/none"]).roots)
    run = KeeperRun("r-0-1", "mesos", command={}, memory_mb=0.0)
    run.secrets = (RunSecret("token", b"value"),)
    with pytest.raises(FileNotFoundError):
        files.put(run, "runs/r-0-1")
    files.drop("r-0-1")
    assert not os.listdir(tmp_path)


needs_root = pytest.mark.needs_root("to give a folder away")


@pytest.mark.parametrize("what", ["file", "link", pytest.param("folder", marks=needs_root)])
def test_a_place_whose_name_others_have_taken_is_another_one(
    tmp_path: Path, parents: tuple[Path, Path], what: str
) -> None:
    """Everybody can read the names of locks there, and make what should be ours."""
    places = SecretFolders(map(str, parents))
    put(tmp_path, places).drop("r-0-1")
    (tmp_path / "executor/runs/r-0-1/token").unlink()
    taken = [*map(Path, places.roots())]
    for one in taken:
        if one.exists():
            one.rmdir()
        if what == "file":
            one.touch()
        elif what == "link":
            one.symlink_to(tmp_path)
        else:
            one.mkdir()
            os.chown(one, NOBODY, NOBODY)
    before = stat.S_IMODE(tmp_path.stat().st_mode)
    put(tmp_path, places)
    file = (tmp_path / "executor/runs/r-0-1/token").resolve()
    assert file.read_bytes() == b"value" and file.is_relative_to(parents[0])
    assert stat.S_IMODE(tmp_path.stat().st_mode) == before
    places.close()
    assert sorted(left(parents)) == sorted(one.name for one in taken), "nor is a lock left"


def test_what_another_one_has_that_lives_is_not_touched(
    tmp_path: Path, parents: tuple[Path, Path]
) -> None:
    places = SecretFolders(map(str, parents))
    put(tmp_path, places)
    before = left(parents)
    sweep(map(str, parents))
    assert left(parents) == before and (tmp_path / "executor/runs/r-0-1/token").exists()


def test_what_a_killed_one_had_is_removed(tmp_path: Path, parents: tuple[Path, Path]) -> None:
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            put(tmp_path, SecretFolders(map(str, parents)))
            os.write(writes, b"!")
            signal.pause()
        finally:
            os._exit(1)
    assert os.read(reads, 1) == b"!"
    others = [f"{PREFIX}of-nobody", f"{PREFIX}folder{LOCK}", "a.lock"]
    (parents[0] / others[0]).write_text("no lock, so it is not ours")
    (parents[0] / others[1]).mkdir()
    (parents[0] / others[2]).touch()
    sweep(map(str, parents))
    assert (tmp_path / "executor/runs/r-0-1/token").exists()
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    sweep(map(str, parents))
    assert sorted(left(parents)) == sorted(others)
    for end in (reads, writes):
        os.close(end)


def test_a_lock_that_was_swept_away_or_is_of_another_one_is_not_held(tmp_path: Path) -> None:
    """Whoever sweeps may find a lock before it is held."""
    path = str(tmp_path / "lock")
    first = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    os.unlink(path)
    assert not secret_folders._lock(path, first)
    second, third = (os.open(path, os.O_WRONLY | os.O_CREAT, 0o600) for _ in range(2))
    assert not secret_folders._lock(path, first), "another file has the name"
    assert secret_folders._lock(path, second)
    assert not secret_folders._lock(path, third)
    for descriptor in (first, second, third):
        os.close(descriptor)
