"""The book of agents while its master is slow, silent or wrong, and several threads ask.

Files are read in test_agent_files.py.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from peloton.backends.mesos.masters.agent_book import KNOWN_S, MISSED_S, OLD_S, AgentBook
from peloton.backends.mesos.masters.leading_master import LeadingMaster
from peloton.backends.mesos.masters.operator_api import Credential, HttpDoor, NoAnswer
from tests.servers.scripted_agent import Json, ScriptedAgent, scripted

WAIT_S = 30.0


class Timed:
    """A book, whose time is set, and the master that it asks."""

    def __init__(self, master: ScriptedAgent) -> None:
        self.now, self.master = 0.0, master
        leading = LeadingMaster(master.address, Credential(), timeout_s=WAIT_S)
        self.book = AgentBook(leading, clock=lambda: self.now)
        self.door, self.other = (HttpDoor("127.0.0.1", master.port, name) for name in ("h1", "h2"))

    @property
    def asked(self) -> int:
        return len(self.master.asked)


@pytest.fixture
def it() -> Iterator[Timed]:
    with scripted("ours") as master:
        master.hostnames = ["h1", "h2"]
        yield Timed(master)


def slow(master: ScriptedAgent, answer: bytes | None = None) -> threading.Event:
    """From now on answers wait for `released`; the event is set when the master is asked."""
    arrived = threading.Event()

    def wait(call: Json) -> bytes | None:
        arrived.set()
        master.released.wait(WAIT_S)
        return answer

    master.broken = wait
    return arrived


def failing(master: ScriptedAgent) -> None:
    master.broken = lambda call: b""


def test_while_one_asks_others_use_what_is_not_too_old(it: Timed) -> None:
    assert it.book.door_of("h1") == it.door
    it.now = KNOWN_S + 1.0
    arrived = slow(it.master)
    with ThreadPoolExecutor(1) as pool:
        asker = pool.submit(it.book.door_of, "h1")
        assert arrived.wait(WAIT_S)
        assert it.book.door_of("h2") == it.other, "this did not wait"
        it.book.doubt("h2")
        assert not asker.done()
        it.master.released.set()
        assert asker.result(WAIT_S) == it.door
    assert it.asked == 2


def test_who_knows_nothing_waits_for_the_answer_to_another(it: Timed) -> None:
    arrived = slow(it.master)
    with ThreadPoolExecutor(4) as pool:
        asker = pool.submit(it.book.door_of, "h1")
        assert arrived.wait(WAIT_S)
        others = [pool.submit(it.book.door_of, name) for name in ("h1", "h2", "h9")]
        it.master.released.set()
        assert [one.result(WAIT_S) for one in (asker, *others)] == [
            it.door, it.door, it.other, None,
        ]  # fmt: skip
    assert it.asked == 1


def test_a_failure_is_told_to_all_who_come_soon(it: Timed) -> None:
    failing(it.master)
    for _ in range(3):
        with pytest.raises(NoAnswer, match=r"127\.0\.0\.1"):
            it.book.door_of("h1")
    assert it.asked == 1
    it.now = MISSED_S
    it.master.broken = lambda call: None
    assert it.book.door_of("h1") == it.door and it.asked == 2


def test_who_waits_for_a_master_that_fails_does_not_ask_as_well(it: Timed) -> None:
    arrived = slow(it.master, b"")
    with ThreadPoolExecutor(4) as pool:
        asker = pool.submit(it.book.door_of, "h1")
        assert arrived.wait(WAIT_S)
        others = [pool.submit(it.book.door_of, "h1") for _ in range(3)]
        it.master.released.set()
        for one in (asker, *others):
            assert isinstance(one.exception(WAIT_S), NoAnswer)
    assert it.asked == 1


def test_an_old_answer_does_for_a_while_when_the_master_is_away(it: Timed) -> None:
    assert it.book.door_of("h1") == it.door
    failing(it.master)
    it.now = OLD_S
    for _ in range(3):
        assert it.book.door_of("h1") == it.door
    assert it.asked == 2
    with pytest.raises(NoAnswer):
        it.book.door_of("h9")
    it.now = OLD_S + MISSED_S
    with pytest.raises(NoAnswer):
        it.book.door_of("h1")


def test_a_doubt_is_of_one_agent_and_once_in_a_while(it: Timed) -> None:
    assert it.book.door_of("h1") == it.door
    it.book.doubt("h1")
    assert it.book.door_of("h2") == it.other and it.asked == 1
    for _ in range(3):
        assert it.book.door_of("h1") == it.door
        it.book.doubt("h1")
    assert it.asked == 2, "a dead agent is not a reason to ask with each look"
    it.now = MISSED_S
    it.book.doubt("h1")
    failing(it.master)
    with pytest.raises(NoAnswer):
        it.book.door_of("h1")
    assert it.book.door_of("h2") == it.other and it.asked == 3


def test_a_doubt_that_comes_while_the_master_answers_stays(it: Timed) -> None:
    arrived = slow(it.master)
    with ThreadPoolExecutor(1) as pool:
        asker = pool.submit(it.book.door_of, "h1")
        assert arrived.wait(WAIT_S)
        it.book.doubt("h1")
        it.master.released.set()
        assert asker.result(WAIT_S) == it.door
    assert it.book.door_of("h1") == it.door and it.asked == 2
