"""Why a job that `run` attends to has not begun; the reasons are the fake's."""

from __future__ import annotations

import pty
from contextlib import redirect_stderr
from pathlib import Path

import pytest

from peloton.__main__ import PROCESSES
from peloton.cli.jobs import waiting
from peloton.cli.main import root, run_cli
from peloton.ops.v1 import ops_pb2 as ops
from peloton.sdk.client import Client
from peloton.sdk.ops import WaitResult
from tests.cli.terminal import Terminal
from tests.sdk.fakes import JOB

PENDING = WaitResult("PENDING", False, {"PENDING": 2}, 0)
RUNNING = WaitResult("RUNNING", False, {"PENDING": 1, "RUNNING": 1}, 0)


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def because(peloton: Terminal, *texts: str) -> None:
    peloton.cluster.reasons[:] = [ops.Reason(state="PENDING", text=text) for text in texts]


def test_a_reason_is_said_once_and_again_when_it_changes(
    peloton: Terminal, capsys: pytest.CaptureFixture[str]
) -> None:
    peloton.cluster.add_job("PENDING", "PENDING")
    clock = Clock()
    with Client(peloton.address) as client:
        one = waiting.WhyWaiting(client, JOB, waits_for_hosts=False, now_s=clock, shown=True)

        def after(seconds: float, now: WaitResult = PENDING) -> str:
            clock.now_s += seconds
            one.seen(now)
            return capsys.readouterr().err

        because(peloton, "no host is up", "other")
        assert after(2.9) == "", "most jobs begin sooner"
        assert after(0.2) == f"job {JOB} waits: no host is up\n"
        assert after(57.0) == "", "it is the same"
        assert after(3.0) == f"job {JOB} waits: no host is up\n", "still so after a minute"
        because(peloton, "position 7 of 9")
        assert after(60.0) == f"job {JOB} waits: position 7 of 9\n"
        because(peloton, "position 6 of 8")
        assert after(59.0) == "", "only its numbers are others"
        because(peloton)
        assert after(60.0) == f"job {JOB} waits: position 7 of 9\n", "the last that is known"
        because(peloton, "no host is up")
        assert after(60.0, RUNNING) == "", "it has begun"
        asked = len(peloton.cluster.called("Why"))
        after(60.0)
        for _ in range(10):
            after(1.0)
        assert len(peloton.cluster.called("Why")) <= asked + 2, "not each second"
        peloton.cluster.jobs.clear()  # what cannot be asked ends nothing
        assert after(30.0) == ""


def never_fits(peloton: Terminal) -> None:
    blocker = ops.Blocker(code="can-never-run", never=True, proof="the largest has 2000 MB")
    reason = ops.Reason(state="PENDING", text="no host has 4000 MB", blockers=[blocker])
    peloton.cluster.reasons[:] = [reason]
    peloton.cluster.add_job("PENDING", "PENDING")


def test_the_stderr_of_a_command_is_told_each_minute(
    peloton: Terminal, capsys: pytest.CaptureFixture[str]
) -> None:
    peloton.cluster.add_job("PENDING", "PENDING")
    because(peloton, "no host is up")
    clock, said = Clock(), []
    with Client(peloton.address) as client:
        one = waiting.WhyWaiting(client, JOB, waits_for_hosts=False, now_s=clock, shown=False)
        for at in range(601):
            clock.now_s = float(at)
            one.seen(PENDING)
            said += [at] if capsys.readouterr().err else []
    assert said == [60 * minute for minute in range(1, 11)]
    assert len(peloton.cluster.called("Why")) < 60, "not each second"


@pytest.mark.parametrize(("words", "code"), [(("run", "-n", "2"), 125), (("map",), 81)])
def test_what_can_never_run_is_said_at_once_and_stopped(
    peloton: Terminal, words: tuple[str, ...], code: int
) -> None:
    never_fits(peloton)
    peloton.cluster.waits = [
        ops.WaitJobResponse(state="PENDING", counts={"PENDING": 1}),
        ops.WaitJobResponse(state="KILLED", done=True, counts={"KILLED": 1}),
    ]
    behind = ("true",) if words[0] == "run" else ("echo", ":::", "1")
    printed = peloton(*words, "--pool", "/hello", *behind)
    assert printed.code == code and "can never run as things are: no host has" in printed.err
    assert len(peloton.cluster.called("Stop") or peloton.cluster.called("Update")) >= 1


def test_who_waits_for_hosts_is_told_once_that_it_is_in_vain(peloton: Terminal) -> None:
    never_fits(peloton)
    peloton.cluster.waits = [
        ops.WaitJobResponse(state="PENDING", counts={"PENDING": 1}),
        ops.WaitJobResponse(state="PENDING", counts={"PENDING": 1}),
        ops.WaitJobResponse(state="SUCCEEDED", done=True),
    ]
    printed = peloton("run", "--wait-for-hosts", "-n", "2", "--pool", "/hello", "true")
    assert printed.code == 0
    assert printed.err.count(" waits: no host has 4000 MB") == 1


@pytest.mark.parametrize("instances", ["1", "2"])
def test_run_says_why_it_waits_where_somebody_looks(
    peloton: Terminal, instances: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "FIRST_S", 0.0)
    words = ("run", "-n", instances, "--pool", "/hello", "--", "true")
    waits = [
        ops.WaitJobResponse(state="PENDING", counts={"PENDING": 1}),
        ops.WaitJobResponse(state="KILLED", done=True, counts={"KILLED": 1}),
    ]
    because(peloton, "no host is up")
    peloton.cluster.add_job("PENDING", "PENDING")
    peloton.cluster.waits = [*waits]
    printed = peloton(*words)
    assert (printed.code, "waits" in printed.err) == (125, False), "stderr is the command's"
    peloton.cluster.waits = [*waits]
    ours, theirs = pty.openpty()
    with open(theirs, "w") as screen, redirect_stderr(screen), open(ours, "rb", 0) as read:
        code = run_cli(root(PROCESSES), ["--api", peloton.address, "-t", "60s", *words])
        said = read.read(65536).decode()
    assert (code, " waits: no host is up" in said) == (125, True), said


def test_a_constraint_that_no_host_meets_is_warned_of(peloton: Terminal, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    text = "no host fits: no host matches zone=mars"
    peloton.cluster.planned_job.waits.add(instances=1, never=True, text=text)
    one = "labelConstraint: {kind: HOST, condition: CONDITION_EQUAL, requirement: 1}"
    constraint = f"constraint: {{type: LABEL_CONSTRAINT, {one}}}, "
    for more in (constraint, ""):
        config = f"{{{more}command: {{value: ls}}, resource: {{cpuLimit: 1}}}}"
        file.write_text(f"name: a\ninstanceCount: 1\ndefaultConfig: {config}\n")
        for words in (
            ("job", "create", "/hello", str(file)),
            ("cron", "create", "nightly", "0 2 * * *", "/hello", str(file)),
            ("update", "create", JOB, str(file), "1", "/hello", "--override"),
        ):
            done = peloton(*words)
            assert (text in done.err) == bool(more), (words, done.err)
