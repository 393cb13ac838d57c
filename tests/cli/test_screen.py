"""What a person sees who types into a terminal, and a pipe never carries."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from types import SimpleNamespace
from typing import Any

import click
import pytest

from peloton.cli import attend
from peloton.ops.v1 import ops_pb2 as ops
from peloton.sdk.ops import WaitResult
from tests.cli.terminal import Terminal
from tests.sdk.fakes import JOB

RULE = "─"


def typed_at(width: int, peloton: Terminal, *words: str) -> str:
    """All that one command line shows in a terminal so wide."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, width, 0, 0))
    line = [sys.executable, "-m", "peloton", "--api", peloton.address, "-t", "60s", *words]
    env = {name: text for name, text in os.environ.items() if name not in ("COLUMNS", "LINES")}
    with subprocess.Popen(
        line, stdin=theirs, stdout=theirs, stderr=theirs, env=env | {"TERM": "xterm"}
    ) as process:
        os.close(theirs)
        shown = b""
        while True:
            try:
                part = os.read(ours, 65536)
            except OSError:  # the other side is closed
                break
            if not part:
                break
            shown += part
        process.wait(60)
    os.close(ours)
    return shown.decode()


@pytest.fixture
def hosts(peloton: Terminal) -> Terminal:
    for name in ("rack1", "rack\x1b[2J2"):
        peloton.cluster.hosts.append(ops.Host(name=name, state="UP", text="[bold]fine[/bold]"))
    return peloton


def test_a_terminal_gets_a_table_that_fits_and_a_pipe_the_plain_one(hosts: Terminal) -> None:
    shown = typed_at(120, hosts, "host", "list")
    assert RULE in shown and "|" not in shown
    assert "rack1" in shown and "[bold]fine[/bold]" in shown, "texts are no markup"
    plain = hosts("host", "list").out
    assert plain.splitlines()[0].endswith("|") and RULE not in plain and "\x1b[1" not in plain


def test_a_name_does_not_steer_the_terminal(hosts: Terminal) -> None:
    shown = typed_at(120, hosts, "host", "list")
    assert r"rack\x1b[2J2" in shown and "\x1b[2J" not in shown


def test_a_terminal_that_is_too_narrow_gets_the_plain_table(hosts: Terminal) -> None:
    shown = typed_at(30, hosts, "host", "list").replace("\r\n", "\n")
    assert RULE not in shown and "rack1|" in shown


def test_a_bar_stands_aside_for_a_question_and_stays_away_after_the_last() -> None:
    class Interrupted:
        """A cluster at which a wait is interrupted once, and then goes on."""

        def __init__(self) -> None:
            self.errors = [KeyboardInterrupt()]

        def wait(self, job: str, **rest: object) -> WaitResult:
            if self.errors:
                raise self.errors.pop()
            return WaitResult("KILLED", True, {}, 0)

        def stop(self, job: str) -> None:
            seen.append("stopped")

    @contextmanager
    def asking() -> Iterator[None]:
        seen.append("aside")
        yield
        seen.append("back")

    seen: list[str] = []
    cluster: Any = SimpleNamespace(ops=Interrupted(), jobs=Interrupted())
    nobody = io.StringIO()  # who cannot be asked stops the job
    with (
        redirect_stderr(nobody),
        pytest.raises(attend.StoppedHere),
        click.Context(click.Command("map")),
    ):
        attend.attend(cluster, JOB, seen=lambda now: None, asking=asking)
    assert seen == ["aside", "stopped"]


def test_who_waits_sees_how_far_it_is(peloton: Terminal) -> None:
    peloton.cluster.add_job("SUCCEEDED", "SUCCEEDED")
    counts = {"RUNNING": 3, "SUCCEEDED": 1}
    peloton.cluster.waits += [
        ops.WaitJobResponse(done=False, state="RUNNING", counts=counts),
        ops.WaitJobResponse(done=True, state="SUCCEEDED", counts={"SUCCEEDED": 4}),
    ]
    shown = typed_at(120, peloton, "wait", JOB)
    assert "1/4" in shown and "RUNNING" in shown
    assert f"Job {JOB} SUCCEEDED: 4 SUCCEEDED" in shown
