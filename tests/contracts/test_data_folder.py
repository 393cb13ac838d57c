"""The lock of the data folder: one process, told by its pid; what it starts holds nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from peloton.runtime.adapters.data_folder import DataFolder, FolderTaken

HOLD = """
import sys, pathlib
from peloton.runtime.adapters.data_folder import DataFolder
folder = DataFolder(pathlib.Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


def start(path: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", HOLD, str(path)]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
    )  # fmt: skip
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    return process


def test_a_second_process_is_refused_with_the_first_ones_pid(tmp_path: Path) -> None:
    holder = start(tmp_path / "data")
    with pytest.raises(FolderTaken) as held:
        DataFolder(tmp_path / "data")
    assert held.value.pid == holder.pid
    assert str(holder.pid) in str(held.value)
    holder.kill()
    holder.communicate()
    with DataFolder(tmp_path / "data"):
        pass


def test_a_closed_folder_is_free(tmp_path: Path) -> None:
    with DataFolder(tmp_path), pytest.raises(FolderTaken) as held:
        DataFolder(tmp_path)
    assert held.value.pid == os.getpid()
    DataFolder(tmp_path).close()


def test_a_program_that_we_start_does_not_hold_the_folder(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path)
    child = subprocess.Popen(
        [sys.executable, "-c", "import sys; print('up', flush=True); sys.stdin.read()"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, close_fds=False,
    )  # fmt: skip
    assert child.stdout is not None and child.stdout.readline() == b"up\n"
    folder.close()
    DataFolder(tmp_path).close()
    child.communicate()
