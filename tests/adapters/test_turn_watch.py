"""A turn of an extension that never ends is ended, and the next one of another actor is taken."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

import pytest

from peloton.assembly.turn_watch import TurnWatch, time_limited
from peloton.runtime.core.turning.supervision import ATTEMPTS_MAX
from peloton.runtime.vocabulary import DeadLettered, key
from peloton.sdk.kit import (
    ActorFact,
    ActorKind,
    ActorMessage,
    ActorReply,
    ActorState,
    At,
    Decision,
    LimitExceeded,
    build,
)
from tests.toy.bench import Bench

LIMIT_S = 0.05


def loop() -> None:
    while True:
        pass


def handle_all() -> None:
    """As programs do that must not fail."""
    while True:
        try:
            loop()
        except Exception:
            continue


def raise_at_once() -> None:
    raise KeyError("a mistake")


@pytest.mark.parametrize("function", [loop, handle_all])
def test_a_loop_ends_with_the_name_of_its_limit(function: Callable[[], None]) -> None:
    limited = TurnWatch().timed(function, kind="spinner", limit_s=LIMIT_S)
    with pytest.raises(LimitExceeded, match="spinner: turn_s: more than 0.05 s"):
        limited()


def test_what_ends_by_itself_is_left_alone() -> None:
    watch = TurnWatch()
    with pytest.raises(KeyError, match="a mistake"):
        watch.timed(raise_at_once, kind="spinner", limit_s=LIMIT_S)()
    assert watch.timed(lambda: 7, kind="spinner", limit_s=LIMIT_S)() == 7


def test_only_the_thread_that_loops_is_ended() -> None:
    watch, entered, leave = TurnWatch(), threading.Event(), threading.Event()

    def wait() -> str:
        entered.set()
        leave.wait()  # for long, without processor time
        return "well"

    found: list[str] = []
    waiting = watch.timed(wait, kind="waiter", limit_s=LIMIT_S)
    thread = threading.Thread(target=lambda: found.append(waiting()))
    thread.start()
    entered.wait()
    with pytest.raises(LimitExceeded):
        watch.timed(loop, kind="spinner", limit_s=LIMIT_S)()
    leave.set()
    thread.join()
    assert found == ["well"]


class Turned(ActorState, frozen=True):
    count: int = 0


class Spin(ActorMessage, frozen=True):
    pass


class Turn(ActorMessage, frozen=True):
    pass


class Count(ActorReply, frozen=True):
    count: int


class HasTurned(ActorFact, frozen=True):
    pass


@pytest.fixture
def bench() -> Iterator[Bench]:
    spinner = ActorKind("spinner", state=Turned)

    @spinner.decides(Spin)
    def spin(state: Turned, message: Spin, at: At) -> Decision:
        loop()
        raise AssertionError("it ended")

    @spinner.decides(Turn, reply=Count)
    def turn(state: Turned, message: Turn, at: At) -> Decision:
        return Decision((HasTurned(),), reply=Count(state.count + 1))

    @spinner.folds(HasTurned)
    def turned(state: Turned, fact: HasTurned) -> Turned:
        return Turned(count=state.count + 1)

    kind = time_limited(build(spinner), LIMIT_S)
    yield Bench("spinner", 0, sizes={"spinner": 1}, kinds={"spinner": kind})


def test_a_turn_that_loops_becomes_a_dead_letter_and_harms_no_other(bench: Bench) -> None:
    bench.send(key("spinner", "bad"), Spin(), reply_to="bad")
    for number in range(ATTEMPTS_MAX):
        bench.send(key("spinner", "good"), Turn(), reply_to=f"good {number}")
        bench.after(120.0)
    answers = {reply.reply_to: reply.value for reply in bench.replies}
    assert isinstance(answers["bad"], DeadLettered)
    assert "turn_s" in answers["bad"].text
    assert answers[f"good {ATTEMPTS_MAX - 1}"] == Count(ATTEMPTS_MAX)


def leave() -> None:
    raise SystemExit(3)


def test_what_is_no_exception_is_raised_as_one() -> None:
    limited = TurnWatch().timed(leave, kind="spinner", limit_s=LIMIT_S)
    with pytest.raises(RuntimeError, match="spinner raised SystemExit: 3"):
        limited()


def test_the_interpreter_is_left_as_it_was() -> None:
    """Where it is made to look for exceptions for ever, a function that is traced never begins."""
    program = (
        "import sys\n"
        "from peloton.assembly.turn_watch import TurnWatch\n"
        "from peloton.sdk.kit import LimitExceeded\n"
        "watch = TurnWatch()\n"
        "watch.timed(int, kind='k', limit_s=9.0)()\n"
        "def loop():\n"
        "    while True: pass\n"
        "try: watch.timed(loop, kind='k', limit_s=0.05)()\n"
        "except LimitExceeded: pass\n"
        "def trace(*about): return trace\n"
        "sys.settrace(trace)\n"
        "print((lambda: 7)())\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=60)
    assert done.stdout.split() == [b"7"], done.stderr
