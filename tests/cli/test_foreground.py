"""A process in the foreground: what it says at its end, and its exit code.

Clusters are started in tests/e2e.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType

import pytest

from peloton.failures import CannotStart, ClusterFailed
from peloton.processes.foreground import CANNOT_START, Orders, ProcessTexts, run_process
from tests.conftest import ROOT

PROGRAM = """
import sys
from peloton.assembly.process_log import log_line
from peloton.processes.foreground import ProcessTexts, run_process

class Running:
    def stop(self):
        return True

def reload(one):
    log_line("reloading")
    print("reloaded", flush=True)

texts = ProcessTexts("thing", "leaving", failed=7, left=1)
greet = lambda one: print("ready")
sys.exit(run_process(lambda failed: Running(), greet=greet, texts=texts, reload=reload))
"""
WAIT_S_MAX = 60.0
Trace = Callable[[FrameType, str, object], object] | None
MANNER = ProcessTexts("peloton thing", "leaving", failed=7, left=1, left_text="some is left")


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """The runner's own signals. SIGHUP counts here: processes inherit that it is ignored, also
    from whoever runs the tests by nohup."""
    before = {one: signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    for one, handler in before.items():
        signal.signal(one, handler)


@contextlib.contextmanager
def program(
    log: Path, *, before: Sequence[str] = (), stdin: int = subprocess.DEVNULL
) -> Iterator[subprocess.Popen[str]]:
    """A process that says what it does on stdout, once it is ready, and logs there."""
    command = [*before, sys.executable, "-c", PROGRAM]
    with (
        log.open("a") as stderr,
        subprocess.Popen(
            command, stdin=stdin, stdout=subprocess.PIPE, stderr=stderr, text=True, cwd=ROOT
        ) as process,
    ):
        try:
            assert process.stdout is not None and process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()


class Thing:
    """Ends as it was told to."""

    def __init__(self, end: bool | ClusterFailed) -> None:
        self.end = end

    def stop(self) -> bool:
        if isinstance(self.end, ClusterFailed):
            raise self.end
        return self.end


def ran(end: bool | ClusterFailed, leave: Callable[[], object] | None = None) -> int:
    """Runs until it fails of itself, or `leave` makes it leave."""

    def start(failed: Callable[[], None]) -> Thing:
        (leave or failed)()
        return Thing(end)

    return run_process(start, greet=lambda thing: print("ready"), texts=MANNER)


@pytest.mark.parametrize(
    ("end", "code", "said"),
    [
        (True, 0, "leaving\n"),
        (False, 1, "leaving\nsome is left\n"),
        (ClusterFailed("out of room"), 7, "leaving\npeloton thing: out of room\n"),
    ],
)
def test_the_end(
    end: bool | ClusterFailed, code: int, said: str, capsys: pytest.CaptureFixture
) -> None:
    assert ran(end) == code
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("ready\n", said)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it(number: signal.Signals) -> None:
    assert ran(True, leave=lambda: os.kill(os.getpid(), number)) == 0


def test_what_cannot_start_says_why(capsys: pytest.CaptureFixture) -> None:
    def start(failed: Callable[[], None]) -> Thing:
        raise CannotStart("the folder is in use")

    assert run_process(start, greet=lambda thing: print("ready"), texts=MANNER) == CANNOT_START
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", "peloton thing: the folder is in use\n")


@pytest.mark.parametrize("words", [("daemon",), ("minicluster",), ("job", "query")])
def test_sighup_does_not_end_what_is_to_stay_before_it_has_started(words: Sequence[str]) -> None:
    text = (
        "import signal, sys, peloton.__main__ as program\n"
        f"sys.argv = ['peloton', *{words}, '--help']\n"
        "try:\n    program.main()\n"
        "except SystemExit:\n    signal.raise_signal(signal.SIGHUP)\n"
    )
    command = [sys.executable, "-c", text]
    done = subprocess.run(command, capture_output=True, cwd=ROOT, timeout=WAIT_S_MAX, check=False)
    assert done.returncode == (-signal.SIGHUP if words[0] == "job" else 0), done.stderr


def test_sighup_opens_the_log_anew_and_reloads(tmp_path: Path) -> None:
    """More often than once, and in their order."""
    with program(tmp_path / "log") as process:
        for number in range(1, 4):
            (tmp_path / "log").rename(tmp_path / f"log.{number}")
            process.send_signal(signal.SIGHUP)
            assert process.stdout is not None
            assert process.stdout.readline() == "reloaded\n"
            assert (tmp_path / "log").read_text() == "reloading\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_S_MAX) == 0
    assert (tmp_path / "log").read_text() == "reloading\nleaving\n"


def test_a_log_that_cannot_be_opened_goes_on_where_it_was(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    with program(folder / "log") as process:
        folder.rename(tmp_path / "moved")
        process.send_signal(signal.SIGHUP)
        assert process.stdout is not None and process.stdout.readline() == "reloaded\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_S_MAX) == 0
    first, *rest = (tmp_path / "moved" / "log").read_text().splitlines()
    assert first == f"thing: {folder / 'log'}: No such file or directory: the log goes on"
    assert rest == ["reloading", "leaving"]


@pytest.mark.parametrize("nohup", [False, True])
def test_a_terminal_that_closes_ends_it_unless_it_was_told_to_ignore_that(
    tmp_path: Path, nohup: bool
) -> None:
    ours, theirs = os.openpty()
    # The session's first process: a shell would pass the signal on.
    before = ["setsid", "--ctty", *(["nohup"] if nohup else [])]
    with program(tmp_path / "log", before=before, stdin=theirs) as process:
        os.close(theirs)
        process.send_signal(signal.SIGHUP)
        assert process.stdout is not None
        assert process.stdout.readline() == "reloaded\n", "it is there, so it is for a reload"
        os.close(ours)
        if nohup:
            with pytest.raises(subprocess.TimeoutExpired):  # a slow machine finds less
                process.wait(1.0)
            process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_S_MAX) == 0
    assert (tmp_path / "log").read_text().endswith("reloading\nleaving\n")


@pytest.mark.timeout(30)
def test_a_signal_that_another_thread_got_is_noticed() -> None:
    """The kernel may give it to any thread, and only the main one runs the handler."""
    main = threading.main_thread().ident
    assert main is not None

    def once_it_waits() -> None:
        while sys._current_frames()[main].f_code is not Orders.wait.__code__:
            os.sched_yield()
        signal.pthread_kill(threading.get_ident(), signal.SIGTERM)

    other = threading.Thread(target=once_it_waits)
    assert ran(True, other.start) == 0
    other.join()


@pytest.mark.parametrize("lines", range(9))
def test_a_signal_anywhere_in_the_wait_is_noticed(lines: int) -> None:
    """Its handler runs on the thread that waits, wherever this one is."""
    before, left = sys.gettrace(), iter(range(lines))

    def trace(frame: FrameType, event: str, arg: object) -> Trace:
        if event == "line" and next(left, None) is None:
            sys.settrace(before)
            signal.raise_signal(signal.SIGTERM)
            return None
        return trace

    def greet(thing: Thing) -> None:
        sys.settrace(trace)  # of functions that are called from here on
        sys._getframe(1).f_trace = trace

    try:
        assert run_process(lambda failed: Thing(True), greet=greet, texts=MANNER) == 0
    finally:
        sys.settrace(before)
