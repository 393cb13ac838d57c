"""Dispatchers: one wakes another at the end of its pass, or of a turn when the pass is long."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from peloton.runtime.adapters.system_clock import SystemClock
from peloton.runtime.shells.dispatcher import PASS_S_MAX, Threads
from peloton.runtime.shells.shell import Shell, begin_shell
from peloton.runtime.shells.shell_messages import send

WAIT_S_MAX = 20.0
NOT_YET_S = 0.1


class Calling(Shell):
    """Calls what it receives."""

    def handle(self, message: Callable[[], Any]) -> None:
        message()

    def failed(self, error: BaseException) -> None:
        self.driver.broken(repr(error))


@pytest.fixture
def threads() -> Iterator[Threads]:
    made = Threads(SystemClock())
    yield made
    made.stop()


def until_asleep(driver: Any) -> None:
    while not driver._asleep:
        threading.Event().wait(0.005)


def test_nobody_is_woken_in_the_middle_of_a_turn(threads: Threads) -> None:
    one, other = threads.driver("one"), threads.driver("other")
    target = Calling("target", other)
    senders = [Calling(f"sender-{n}", one) for n in range(3)]
    refs = {shell: begin_shell(shell) for shell in (target, *senders)}
    began, go, arrived = threading.Event(), threading.Event(), threading.Semaphore(0)
    reached, early = threading.Event(), list[bool]()
    until_asleep(other)

    def first() -> None:
        began.set()
        go.wait(WAIT_S_MAX)

    def pass_on() -> None:
        send(refs[target], reached.set)
        send(refs[target], arrived.release)
        if not early:  # of the others the pass is long by now
            early.append(reached.wait(NOT_YET_S))

    send(refs[senders[0]], first)
    assert began.wait(WAIT_S_MAX)
    for sender in senders:  # they are ready together, so one pass has the turns of all
        send(refs[sender], pass_on)
    go.set()
    for _ in senders:
        assert arrived.acquire(timeout=WAIT_S_MAX)
    assert early == [False]


def test_a_long_pass_wakes_others_between_its_turns(threads: Threads) -> None:
    one, other = threads.driver("one"), threads.driver("other")
    target, quick, slow = (
        Calling("target", other), Calling("quick", one), Calling("slow", one),
    )  # fmt: skip
    refs = {shell: begin_shell(shell) for shell in (target, quick, slow)}
    began, go, arrived = threading.Event(), threading.Event(), threading.Event()
    found: list[bool] = []
    ended = threading.Event()
    until_asleep(other)

    def first() -> None:
        began.set()
        go.wait(WAIT_S_MAX)

    def tell_and_stay() -> None:
        send(refs[target], arrived.set)
        threading.Event().wait(2 * PASS_S_MAX)

    def wait_for_it() -> None:
        found.append(arrived.wait(WAIT_S_MAX))
        ended.set()

    send(refs[quick], first)
    assert began.wait(WAIT_S_MAX)
    send(refs[quick], tell_and_stay)
    send(refs[slow], wait_for_it)
    go.set()
    assert ended.wait(2 * WAIT_S_MAX) and found == [True]


def test_mail_from_outside_of_a_pass_wakes_at_once(threads: Threads) -> None:
    driver = threads.driver("one")
    shell = Calling("shell", driver)
    ref, handled = begin_shell(shell), threading.Event()
    until_asleep(driver)
    send(ref, handled.set)
    assert handled.wait(WAIT_S_MAX)
