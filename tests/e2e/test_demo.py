"""The demo does what it promises."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e import cluster as c
from tests.e2e.storms import left_over

DEMO = [sys.executable, "-m", "peloton.processes.demo"]
GONE = "the cluster and its keeper to be gone"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    c.end_keeper(tmp_path)  # only if the demo fails to


def test_hello_world() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "peloton.processes.demo"],
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "HelloWorld: 10 of 10 SUCCEEDED" in done.stdout
    line = done.stdout.splitlines()[-1]
    found = subprocess.run(
        ["sh", "-c", f"{line}; command -v peloton"], capture_output=True, text=True, timeout=60
    )
    assert found.stdout.strip() == str(Path(sys.executable).with_name("peloton"))


@pytest.mark.parametrize(
    ("mark", "number"), [("Starting", signal.SIGTERM), ("$ peloton", signal.SIGINT)]
)
def test_a_demo_that_is_interrupted_leaves_nothing(
    mark: str, number: signal.Signals, folder: Path
) -> None:
    environment = os.environ | {"TMPDIR": str(folder)}
    with subprocess.Popen(
        DEMO, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as demo:
        assert demo.stdout is not None
        next(line for line in demo.stdout if mark in line)
        demo.send_signal(number)
        _, errors = demo.communicate(timeout=120)
    assert demo.returncode == 128 + number
    c.wait_for(lambda: not left_over(folder), GONE)
    assert "Traceback" not in errors
    assert list(folder.iterdir()) == []


def test_a_demo_that_nobody_reads_leaves_nothing(folder: Path) -> None:
    environment = os.environ | {"TMPDIR": str(folder)}
    with subprocess.Popen(
        DEMO, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    ) as demo:
        assert demo.stdout is not None and demo.stderr is not None
        demo.stdout.readline()
        demo.stdout.close()
        errors = demo.stderr.read().decode()
        demo.wait(120)
    assert demo.returncode == 128 + signal.SIGPIPE
    c.wait_for(lambda: not left_over(folder), GONE)
    assert "Traceback" not in errors and "Exception ignored" not in errors


def test_an_option_is_explained_or_refused() -> None:
    done = subprocess.run([*DEMO, "--help"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "usage: script/demo" in done.stdout
    done = subprocess.run([*DEMO, "--frob"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "--frob" in done.stderr
