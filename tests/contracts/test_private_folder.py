"""A data folder is for one user: modes whatever the umask, foreign owners, foreign lock holders."""

from __future__ import annotations

import fcntl
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from peloton.assembly.folders import take_data_folder
from peloton.failures import CannotStart
from peloton.runtime.adapters import private_folder
from peloton.runtime.adapters.data_folder import DataFolder, FolderTaken
from peloton.runtime.adapters.private_folder import FolderOfAnother
from peloton.settings.start_options import StartOptions

NOBODY = 65534
needs_root = pytest.mark.needs_root("to act as another user")
HOLD = """
import fcntl, os, sys
os.setuid(int(sys.argv[2]))
fcntl.flock(int(sys.argv[1]), fcntl.LOCK_SH)
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture(params=[0o000, 0o022, 0o077])
def any_umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def loose(path: Path) -> Path:
    """A data folder whose files others may read."""
    (path / "keeper").mkdir(parents=True)
    for name in ("journal.sqlite", "lock", "backend", "notes.txt"):
        (path / name).touch()
        (path / name).chmod(0o644)
    (path / "backend").write_text("process\n")
    for folder in (path, path / "keeper"):
        folder.chmod(0o755)
    return path


def test_root_alone_lets_others_pass_through_its_folders(tmp_path: Path) -> None:
    """Tasks of other accounts need it while the daemon starts again; files stay closed."""
    root = os.geteuid() == 0
    path = loose(tmp_path / "data")
    private_folder.secure(path)
    private_folder.let_pass(path)
    private_folder.let_pass(path / "keeper")
    (path / "lock").chmod(0o711)
    told = [text.split(" could")[0] for text in private_folder.secure(path)]
    folders = [str(path), str(path / "keeper")]
    assert told == ([] if root else folders) + [str(path / "lock")]
    passed = 0o711 if root else 0o700
    assert (mode(path), mode(path / "keeper"), mode(path / "lock")) == (passed, passed, 0o600)
    for found in (0o715, 0o751, 0o710, 0o701):
        path.chmod(found)
        assert len(private_folder.secure(path)) == 1 and mode(path) == 0o700


def test_a_new_folder_and_its_lock_are_for_one_user(any_umask: None, tmp_path: Path) -> None:
    with DataFolder(tmp_path / "data") as folder:
        assert folder.tightened == []
        assert (mode(folder.path), mode(folder.path / "lock")) == (0o700, 0o600)


def test_an_open_folder_is_tightened_and_it_is_said(tmp_path: Path) -> None:
    path = loose(tmp_path / "data")
    said: list[str] = []
    options = StartOptions()
    take_data_folder(path, backend="process", options=options, report=said.append).close()
    assert mode(path) == mode(path / "keeper") == 0o700
    assert {mode(path / name) for name in ("journal.sqlite", "lock", "backend")} == {0o600}
    assert mode(path / "notes.txt") == 0o644, "Peloton did not make it"
    assert len(said) == 5
    assert f"{path} could be opened by other users: its mode was 0755, is 0700" in said[0]
    said.clear()
    take_data_folder(path, backend="process", options=options, report=said.append).close()
    assert said == []


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.touch()
    outside.chmod(0o644)
    path = tmp_path / "data"
    path.mkdir(mode=0o700)
    (path / "journal.sqlite").symlink_to(outside)
    assert private_folder.secure(path) == []
    assert mode(outside) == 0o644
    (path / "lock").symlink_to(outside)
    with pytest.raises(OSError, match="symbolic"):
        DataFolder(path)


@needs_root
def test_a_folder_of_another_user_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.mkdir()
    os.chown(path, NOBODY, NOBODY)
    with pytest.raises(FolderOfAnother, match=f"user {private_folder.user_name(NOBODY)}"):
        DataFolder(path)
    assert list(path.iterdir()) == []
    with pytest.raises(CannotStart, match="belongs to user .* runs as root"):
        take_data_folder(path, backend="process", options=StartOptions(), report=print)


def held_by(user: int, descriptor: int) -> subprocess.Popen[str]:
    holder = subprocess.Popen(
        [sys.executable, "-S", "-c", HOLD, str(descriptor), str(user)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, pass_fds=[descriptor], cwd="/",
    )  # fmt: skip
    assert holder.stdout is not None and holder.stdout.readline() == "held\n"
    return holder


@needs_root
def test_another_users_reader_does_not_hold_the_folder(tmp_path: Path) -> None:
    path = loose(tmp_path / "data")
    descriptor = os.open(path / "lock", os.O_RDONLY)
    holder = held_by(NOBODY, descriptor)
    os.close(descriptor)
    try:
        with DataFolder(path), pytest.raises(FolderTaken) as held:
            DataFolder(path)
        assert held.value.pid == os.getpid(), "the new lock is obeyed"
        assert not (path / "lock.new").exists()
    finally:
        holder.communicate()


def test_a_lock_of_our_own_user_is_obeyed(tmp_path: Path) -> None:
    path = loose(tmp_path / "data")
    descriptor = os.open(path / "lock", os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    with pytest.raises(FolderTaken):
        DataFolder(path)
    os.close(descriptor)
    DataFolder(path).close()
