"""What a keeper has is for its user alone: folder, files, socket, sandboxes, whatever the umask."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from peloton.backends.keeper_calling import KeeperUnavailable, dial, start_keeper
from peloton.backends.keeper_messages import KeeperDown

NOBODY = 65534
needs_root = pytest.mark.needs_root("to give a folder away")


@pytest.fixture
def no_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def open_to_others(folder: Path) -> list[str]:
    """All that another user could open if the folder above let it."""
    paths = [folder, *folder.rglob("*")]
    return [str(p) for p in paths if stat.S_IMODE(p.lstat().st_mode) & 0o077 and not p.is_symlink()]


def test_all_of_a_keeper_is_for_its_user(no_umask: None, folder: Path, daemon_of: Any) -> None:
    (folder / "runs" / "old").mkdir(parents=True)  # as made by hand, or unpacked
    daemon = daemon_of()
    daemon.launch("a", "true; sleep 600")
    daemon.launch("b", "true")
    daemon.end("b")
    files = {path.name for path in folder.iterdir()}
    assert {"socket", "lock", "journal", "identity", "keeper.log", "runs"} <= files
    assert open_to_others(folder) == []
    assert stat.S_IMODE((folder / "socket").stat().st_mode) == 0o600


@needs_root
def test_a_folder_of_another_user_is_neither_kept_nor_dialled(
    folder: Path, daemon_of: Callable[..., Any]
) -> None:
    folder.mkdir()
    os.chown(folder, NOBODY, NOBODY)
    with pytest.raises(KeeperUnavailable):
        start_keeper(folder, [])
    assert not (folder / "lock").exists()
    assert "the folder belongs to another user" in (folder / "keeper.log").read_text()
    with pytest.raises(PermissionError, match="belongs to another user"):
        dial(folder)
    down: KeeperDown = daemon_of().log.next_report(KeeperDown)
    assert "keeper.log" in down.why or "another user" in down.why
