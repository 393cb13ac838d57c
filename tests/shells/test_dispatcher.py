"""Dispatchers: one wakes another at the end of its pass, or does the work of one that is lent."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from peloton.runtime.adapters.system_clock import SystemClock
from peloton.runtime.shells import dispatcher
from peloton.runtime.shells.dispatcher import LENT_S_MAX, OWN_PASSES, PASS_S_MAX, Threads
from peloton.runtime.shells.shell import Shell, begin_shell
from peloton.runtime.shells.shell_messages import Ref, send

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


def held(ref: Ref) -> threading.Event:
    """The shell is in a turn until this is set, and the mail that comes meanwhile waits."""
    began, go = threading.Event(), threading.Event()

    def turn() -> None:
        began.set()
        go.wait(WAIT_S_MAX)

    send(ref, turn)
    assert began.wait(WAIT_S_MAX)
    return go


def test_nobody_is_woken_in_the_middle_of_a_turn(threads: Threads) -> None:
    one, other = threads.driver("one"), threads.driver("other")
    target = Calling("target", other)
    senders = [Calling(f"sender-{n}", one) for n in range(3)]
    refs = {shell: begin_shell(shell) for shell in (target, *senders)}
    arrived = threading.Semaphore(0)
    reached, early = threading.Event(), list[bool]()
    until_asleep(other)

    def pass_on() -> None:
        send(refs[target], reached.set)
        send(refs[target], arrived.release)
        if not early:  # of the others the pass is long by now
            early.append(reached.wait(NOT_YET_S))

    go = held(refs[senders[0]])
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
    arrived = threading.Event()
    found: list[bool] = []
    ended = threading.Event()
    until_asleep(other)

    def tell_and_stay() -> None:
        send(refs[target], arrived.set)
        threading.Event().wait(2 * PASS_S_MAX)

    def wait_for_it() -> None:
        found.append(arrived.wait(WAIT_S_MAX))
        ended.set()

    go = held(refs[quick])
    send(refs[quick], tell_and_stay)
    send(refs[slow], wait_for_it)
    go.set()
    assert ended.wait(2 * WAIT_S_MAX) and found == [True]


def test_a_shell_that_is_about_to_wait_wakes_others_first(threads: Threads) -> None:
    """What is committed goes out before the journal waits for a store that does not answer."""
    one, other = threads.driver("one"), threads.driver("other")
    target, journal = Calling("target", other), Calling("journal", one)
    to_target, to_journal = begin_shell(target), begin_shell(journal)
    arrived, ended = threading.Event(), threading.Event()
    found: list[bool] = []
    until_asleep(other)

    def tell_and_wait() -> None:
        send(to_target, arrived.set)
        one.about_to_wait()
        found.append(arrived.wait(WAIT_S_MAX / 4))
        ended.set()

    send(to_journal, tell_and_wait)
    assert ended.wait(WAIT_S_MAX) and found == [True]


def test_a_long_turn_wakes_others_between_its_messages(threads: Threads) -> None:
    """A reader claims shard after shard in one turn: the first is to open before the last is read.

    It must not wait for another shell of the same dispatcher: a reader has none beside it.
    """
    one, other = threads.driver("one"), threads.driver("other")
    target, reader = Calling("target", other), Calling("reader", one)
    to_target, to_reader = begin_shell(target), begin_shell(reader)
    arrived = threading.Event()
    found: list[bool] = []
    ended = threading.Event()
    until_asleep(other)

    def read_and_tell() -> None:
        threading.Event().wait(2 * PASS_S_MAX)
        send(to_target, arrived.set)

    def read_the_next() -> None:
        found.append(arrived.wait(WAIT_S_MAX / 4))
        ended.set()

    go = held(to_reader)
    send(to_reader, read_and_tell)
    send(to_reader, read_the_next)
    go.set()
    assert ended.wait(WAIT_S_MAX) and found == [True]


def test_a_thread_that_ends_by_an_exception_leaves_no_wake_up_behind() -> None:
    """What it still tells others, of its end for one, wakes them at once."""
    made = Threads(SystemClock())
    one, other = made.driver("one"), made.driver("other")
    target, source = Calling("target", other), Calling("source", one)
    to_target, handled = begin_shell(target), threading.Event()

    def tell_of_its_end(text: str) -> None:
        send(to_target, handled.set)

    made.on_broken = tell_of_its_end
    begin_shell(source)
    until_asleep(other)
    source.grant = None  # type: ignore[assignment]  # calling it raises, as a fault of pykka would
    send(source.ref, handled.set)
    assert handled.wait(WAIT_S_MAX / 4)
    made.stop()


def test_mail_from_outside_of_a_pass_wakes_at_once(threads: Threads) -> None:
    driver = threads.driver("one")
    shell = Calling("shell", driver)
    ref, handled = begin_shell(shell), threading.Event()
    until_asleep(driver)
    send(ref, handled.set)
    assert handled.wait(WAIT_S_MAX)


class Lent:
    """Two shells: what `tell` sends to the first it sends on to the other, which is lent."""

    def __init__(self, threads: Threads) -> None:
        threads.lend("other")
        self.one, self.other = threads.driver("one"), threads.driver("other")
        sender, self.target = Calling("sender", self.one), Calling("target", self.other)
        self._refs = begin_shell(sender), begin_shell(self.target)
        self.ran_on: list[str] = []
        self._ran = threading.Semaphore(0)

    def tell(self, work: Callable[[], Any] = bool) -> str:
        """Let the second do this; the name of the thread that did it."""
        until_asleep(self.one)
        until_asleep(self.other)

        def note() -> None:
            work()
            self.ran_on.append(threading.current_thread().name)
            self._ran.release()

        send(self._refs[0], lambda: send(self._refs[1], note))
        assert self._ran.acquire(timeout=WAIT_S_MAX)
        return self.ran_on[-1]

    def tell_from_outside(self) -> str:
        """The same without the first."""
        until_asleep(self.other)
        done = threading.Event()
        found: list[str] = []

        def note() -> None:
            found.append(threading.current_thread().name)
            done.set()

        send(self._refs[1], note)
        assert done.wait(WAIT_S_MAX)
        return found[0]


def test_a_lent_dispatcher_is_run_by_who_would_wake_it(
    threads: Threads, monkeypatch: pytest.MonkeyPatch
) -> None:
    # On a busy machine a pass may take long for no fault of its own.
    monkeypatch.setattr(dispatcher, "LENT_S_MAX", WAIT_S_MAX)
    lent = Lent(threads)
    assert [lent.tell() for _ in range(3)] == ["peloton-one"] * 3
    assert lent.tell_from_outside() == "peloton-other", "only another dispatcher does its work"
    assert lent.tell() == "peloton-one"


def test_one_that_was_slow_runs_by_itself_for_a_while(threads: Threads) -> None:
    lent = Lent(threads)
    assert lent.tell(lambda: threading.Event().wait(3 * LENT_S_MAX)) == "peloton-one"
    assert [lent.tell() for _ in range(OWN_PASSES)] == ["peloton-other"] * OWN_PASSES
    assert lent.tell() == "peloton-one"


def test_a_lent_shell_is_never_in_two_threads(threads: Threads) -> None:
    threads.lend("lent")
    target = Calling("target", threads.driver("lent"))
    inside, both = threading.Lock(), []
    done = threading.Semaphore(0)
    count = 400

    def work() -> None:
        if not inside.acquire(blocking=False):
            both.append(threading.current_thread().name)
            done.release()
            return
        threading.Event().wait(0.0002)
        inside.release()
        done.release()

    ref = begin_shell(target)
    senders = [begin_shell(Calling(f"s{n}", threads.driver(f"s{n}"))) for n in range(3)]
    for at in range(count):
        send(senders[at % 3], lambda: send(ref, work))
        send(ref, work)
    for _ in range(2 * count):
        assert done.acquire(timeout=WAIT_S_MAX)
    assert both == []
