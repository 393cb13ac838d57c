"""A process in the foreground: what it says at its end, and its exit code.

Must not start a cluster: tests/e2e does.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType

import pytest

from peloton.failures import CannotStart, ClusterFailed
from peloton.processes.foreground import CANNOT_START, Leaving, ProcessTexts, run_process

Trace = Callable[[FrameType, str, object], object] | None
MANNER = ProcessTexts("peloton thing", "leaving", failed=7, left=1, left_text="some is left")


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """The runner's own signals."""
    before = {one: signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGINT)}
    yield
    for one, handler in before.items():
        signal.signal(one, handler)


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
        raise CannotStart("the folder is held")

    assert run_process(start, greet=lambda thing: print("ready"), texts=MANNER) == CANNOT_START
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", "peloton thing: the folder is held\n")


@pytest.mark.timeout(30)
def test_a_signal_that_another_thread_got_is_noticed() -> None:
    """The kernel may give it to any thread, and only the main one runs the handler."""
    main = threading.main_thread().ident
    assert main is not None

    def once_it_waits() -> None:
        while sys._current_frames()[main].f_code is not Leaving.wait.__code__:
            os.sched_yield()
        signal.pthread_kill(threading.get_ident(), signal.SIGTERM)

    other = threading.Thread(target=once_it_waits)
    assert ran(True, other.start) == 0
    other.join()


@pytest.mark.timeout(30)
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
