"""The watch over a test run names and ends what it left behind, and is not to be seen otherwise.

A pipe that closes says that whoever held it has ended.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.tree import ROOT

TIMEOUT_S = 90.0
WATCH = (sys.executable, "-m", "tests.outlived")
AT_ONCE = """
import sys
from tests import outlived
sys.exit(outlived.main(sys.argv[1:], within_s=0))
"""
"""The same without time to leave."""
WAITS = "echo $$ > up; read line < down"


def watched(
    script: str, folder: Path, *, watch: tuple[str, ...] = WATCH
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*watch, "sh", "-c", script], cwd=folder, env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
    )  # fmt: skip


@pytest.mark.parametrize(("code", "told"), [(0, 1), (5, 5)])
def test_a_process_that_was_left_is_named_and_killed(code: int, told: int, tmp_path: Path) -> None:
    """It has a session of its own. The call here ends when nobody holds the output any more."""
    leaves = f"mkfifo up down; setsid sh -c '{WAITS}' & read pid < up; echo $pid; exit {code}"
    done = watched(leaves, tmp_path, watch=(sys.executable, "-c", AT_ONCE))
    assert done.returncode == told
    _, line = done.stderr.splitlines()
    assert line == f"  {done.stdout.strip()}  in {tmp_path}: sh -c {WAITS}"


@pytest.mark.parametrize("code", [0, 5])
def test_of_a_command_that_leaves_nothing_only_the_exit_code_is_seen(
    code: int, tmp_path: Path
) -> None:
    done = watched(f"true & echo said; exit {code}", tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (code, "said\n", "")


def test_one_that_is_about_to_end_is_given_the_time(tmp_path: Path) -> None:
    """It ends when the watch has waited for its parent."""
    leaving = 'parent=$$; (while [ -e "/proc/$parent" ]; do sleep 0.01; done) & exit 0'
    done = watched(leaving, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


def test_an_orphan_that_has_ended_is_waited_for_meanwhile(tmp_path: Path) -> None:
    """Else it would be there as long as the command is, and so would the command."""
    orphan = "pid=$(sh -c 'true & echo $!')"
    waits = 'while [ -e "/proc/$pid" ]; do sleep 0.01; done'
    done = watched(f"{orphan}; {waits}; echo reaped", tmp_path)
    assert (done.returncode, done.stdout) == (0, "reaped\n")


def test_a_signal_to_end_is_passed_on() -> None:
    script = "trap 'echo told; exit 5' TERM; echo ready; while :; do sleep 0.01; done"
    with subprocess.Popen(
        [*WATCH, "sh", "-c", script], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as watch:
        assert watch.stdout is not None
        assert watch.stdout.readline() == "ready\n"
        watch.send_signal(signal.SIGTERM)
        assert watch.stdout.readline() == "told\n"
        assert watch.wait(TIMEOUT_S) == 5
