"""`task logs --follow`: what is written comes at once, and Ctrl-C ends it."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.cli.terminal import Terminal
from tests.sdk.fakes import JOB
from tests.sdk.test_client import Growing, listening


@pytest.fixture
def interruptible() -> Iterator[None]:
    """A shell has what runs behind it ignore Ctrl-C, and children ignore what their parent does."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("ended", [False, True])
def test_it_prints_as_it_comes_and_stops(
    peloton: Terminal, ended: bool, interruptible: None
) -> None:
    peloton.cluster.add_job("RUNNING", "SUCCEEDED" if ended else "RUNNING")
    peloton.cluster.tasks[JOB][0].runtime.host = "agent0"
    growing = Growing(lambda body: body or b"hello\n", ranges=True)
    with listening(growing.handler) as port:
        peloton.cluster.sandbox.hostname, peloton.cluster.sandbox.port = "127.0.0.1", str(port)
        peloton.cluster.sandbox.paths.append(f"/{JOB}-0-1/stdout")
        words = ["--api", peloton.address, "task", "logs", JOB, "0", "--follow"]
        line = [sys.executable, "-m", "peloton", *words]
        with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"hello\n"
            if not ended:
                process.send_signal(signal.SIGINT)
            rest, errors = process.communicate(timeout=60)
    assert (process.returncode, rest) == ((0, b"") if ended else (130, b"")), errors
    assert errors == (b"" if ended else b"interrupted\n")
