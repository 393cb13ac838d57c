"""What a person sees who types into a terminal, and a pipe never carries."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
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

from peloton.cli.jobs import attend
from peloton.cli.shared import screen
from peloton.cli.texts.job_rows import HEADER
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


def unstyled(shown: str) -> str:
    """Without the sequences that say how it looks."""
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown)


def a_crowd(peloton: Terminal, name: str) -> list[str]:
    """Jobs of this name, two of which have ids that begin alike; the ids."""
    info = peloton.cluster.add_job("RUNNING", *["RUNNING"] * 12)
    info.config.name = name
    ids = [JOB, "5e3c7c3a-0f0a-4c39-9d5c-0c3d6b7d1e12", "77777777-0f0a-4c39-9d5c-0c3d6b7d1e13"]
    for one in ids[1:]:
        copy = type(info)()
        copy.CopyFrom(info)
        copy.id.value = one
        peloton.cluster.jobs[one] = copy
    return ids


def test_jobs_fit_a_terminal_of_80_columns(peloton: Terminal) -> None:
    a_crowd(peloton, "x" * 5000)
    del peloton.cluster.jobs["5e3c7c3a-0f0a-4c39-9d5c-0c3d6b7d1e12"]
    lines = unstyled(typed_at(80, peloton, "ps")).splitlines()
    assert max(map(len, lines)) <= 80 and RULE in lines[1] and len(lines) < 12
    shown = "\n".join(lines)
    assert "\n77777777 " in shown and JOB[:8] in shown and JOB not in shown
    assert "Killed" not in shown, "a column with nothing in it"
    assert JOB in typed_at(400, peloton, "ps", "-o", "wide")
    assert JOB in peloton("ps").out, "a pipe gets all"


@pytest.mark.parametrize("width", [50, 60, 70, 80, 90, 100, 120])
def test_no_column_is_cut_off(peloton: Terminal, width: int) -> None:
    del peloton.cluster.jobs[a_crowd(peloton, "a_name")[1]]
    header, rule = unstyled(typed_at(width, peloton, "ps")).splitlines()[:2]
    assert len(rule) <= width
    assert {*header.split()} <= {word for name in HEADER for word in name.split()}


def test_a_name_that_people_copy_is_not_torn(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    row = ("0", "hello_world", "RUNNING", "peloton-mesos-agent0", "exited with status 1", "2")
    assert screen.show_table(("Instance", "Name", "State", "Host", "Message", "Failures"), [row])
    shown = capsys.readouterr().out.splitlines()
    assert "peloton-mesos-agent0" in shown[2] and max(map(len, shown)) <= 80


@pytest.mark.parametrize("width", [10, 25, 40])
def test_a_flat_table_keeps_its_first_columns_however_narrow(width: int) -> None:
    header = ("ID", "State", "Pool", "Tasks")
    table, left_out = screen.flat_table(header, [("8c95fa0c", "RUNNING", "/p", "1")], width=width)
    assert [column.width for column in table.columns[:2]] >= [8, 7]
    assert len(table.columns) + len(left_out) == len(header)


def test_ids_that_begin_alike_are_told_apart(peloton: Terminal) -> None:
    first, second, other = a_crowd(peloton, "x")
    shown = typed_at(150, peloton, "ps")
    assert first in shown and second in shown and other in shown
    del peloton.cluster.jobs[second]
    shown = typed_at(150, peloton, "ps")
    assert first[:8] in shown and first not in shown


def test_what_does_not_fit_is_named(peloton: Terminal) -> None:
    del peloton.cluster.jobs[a_crowd(peloton, "a_name")[1]]
    shown = unstyled(typed_at(60, peloton, "job", "query"))
    assert "not shown: Total, Running; -o wide has all" in shown
    assert "a_name" in shown and max(map(len, shown.splitlines())) <= 60


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
