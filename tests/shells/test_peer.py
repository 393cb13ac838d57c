"""Peer shells on real threads: a hall is called on one thread, asks come from any."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import msgspec
import pytest

from peloton.runtime.adapters.system_clock import SystemClock
from peloton.runtime.core.envelope import Envelope
from peloton.runtime.core.packing import Packing, Place
from peloton.runtime.ports import Ears, ShardId
from peloton.runtime.shells import asks
from peloton.runtime.shells.dispatcher import Threads
from peloton.runtime.shells.letters import Ref, resolve, tell
from peloton.runtime.shells.peer import PeerShell
from peloton.runtime.shells.post import Arrived, Outbound, Peers
from peloton.runtime.vocabulary import Absent, Key, Unavailable, key
from tests.toy import words as w
from tests.toy.kinds import KINDS

HERE = ShardId("house", 0)
X = key("note", "x")
NOTE = msgspec.structs.replace(KINDS["note"], queries={501: w.Show})
PACKING = Packing({**KINDS, "note": NOTE})


class Wires:
    """Streams within one process, whole and in order: the kindest `Exchange` there is."""

    def __init__(self) -> None:
        self.numbers = itertools.count(1)
        self.ears: dict[str, Ears] = {}
        self.others: dict[int, tuple[str, int]] = {}  # stream → whose is the other end, its number


class Wire:
    """One daemon's end of all wires."""

    def __init__(self, wires: Wires, address: str) -> None:
        self._wires, self._address = wires, address

    def listen(self, ears: Ears) -> None:
        self._wires.ears[self._address] = ears

    def dial(self, address: str) -> int:
        wires = self._wires
        here, there = next(wires.numbers), next(wires.numbers)
        called = wires.ears.get(address)
        if called is None:
            wires.ears[self._address].closed(here, "nobody")
            return here
        wires.others[here], wires.others[there] = (address, there), (self._address, here)
        called.accepted(there)
        return here

    def send(self, stream: int, data: bytes) -> None:
        other = self._wires.others.get(stream)
        if other is not None:
            self._wires.ears[other[0]].arrived(other[1], data)

    def close(self, stream: int) -> None:
        other = self._wires.others.pop(stream, None)
        if other is not None and self._wires.others.pop(other[1], None) is not None:
            self._wires.ears[other[0]].closed(other[1], "closed")


class Hall:
    """Answers asks with their amount; raises at 13, gives 14 what has no number, 15 nothing."""

    def __init__(self) -> None:
        self.heard: list[int] = []
        self.broken: list[str] = []
        self.troubles: Counter[str] = Counter()
        self.threads: dict[int, None] = {}

    def deliver(self, arrived: Arrived) -> bool:
        self.threads[threading.get_ident()] = None
        for envelope in arrived.envelopes:
            message: Any = envelope.message
            if isinstance(message, w.Show):
                resolve(envelope.ask, [Absent(X), w.Total(1)])
            elif message.amount == 13:
                raise ValueError("13")
            elif message.amount == 14:
                resolve(envelope.ask, w.Grid("g"))
            elif message.amount != 15 and envelope.ask is not None:
                resolve(envelope.ask, w.Total(message.amount))
            else:
                self.heard.append(message.amount)
        return True

    def misdirected(self, peer: str, place: Place, *, view: int) -> None:
        raise AssertionError("nothing is astray here")

    def trouble(self, name: str, text: str) -> None:
        self.troubles[name] += 1

    def broke(self, text: str) -> None:
        self.broken.append(text)


class Both:
    """Two daemons, each with its own thread."""

    def __init__(self) -> None:
        self.threads = Threads(SystemClock())
        self.wires = Wires()
        self.halls = {name: Hall() for name in "ab"}
        self.refs: dict[str, Ref] = {name: self.begin(name) for name in "ab"}
        self.view = 0
        self.publish("ab")

    def begin(self, name: str) -> Ref:
        return PeerShell.start(
            name,
            self.threads.driver(name),
            exchange=Wire(self.wires, name),
            packing=PACKING,
            hall=self.halls[name],
        )

    def publish(self, members: str) -> None:
        self.view += 1
        for ref in self.refs.values():
            tell(ref, Peers(self.view, {name: name for name in members}))

    def ask(self, message: Any, to: Key = X) -> Any:
        return self.begin_ask(message, to).result(10)

    def begin_ask(self, message: Any, to: Key = X) -> Future[Any]:
        future: Future[Any] = Future()
        envelope = Envelope(to, message, ask=future)
        tell(self.refs["a"], Outbound("b", self.view, HERE, [envelope]))
        return future


@pytest.fixture
def both() -> Iterator[Both]:
    found = Both()
    yield found
    found.threads.stop()


def test_words_arrive_in_order_and_asks_are_answered(both: Both) -> None:
    for at in range(0, 1000, 10):
        words = [Envelope(X, w.Add(100 + number)) for number in range(at, at + 10)]
        tell(both.refs["a"], Outbound("b", both.view, HERE, words))
    assert both.ask(w.Add(5)) == w.Total(5)
    assert both.halls["b"].heard == [100 + number for number in range(1000)]
    assert both.ask(w.Show()) == [Absent(X), w.Total(1)]
    assert len(both.halls["b"].threads) == 1


def test_asks_come_from_many_threads(both: Both) -> None:
    futures: list[Future[Any]] = []

    def some(first: int) -> None:
        futures.extend(both.begin_ask(w.Add(first + n)) for n in range(200))

    threads = [threading.Thread(target=some, args=(1000 * n,)) for n in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = sorted(future.result(10).value for future in futures)
    assert found == sorted(1000 * n + m for n in range(1, 5) for m in range(200))


def test_an_answer_of_no_number_is_unavailable_and_harms_nobody(both: Both) -> None:
    answer = both.ask(w.Add(14))
    assert isinstance(answer, Unavailable) and "Grid" in answer.text
    assert both.halls["b"].troubles == {"packing": 1} and not both.halls["b"].broken
    assert both.ask(w.Add(5)) == w.Total(5)


def test_a_hall_that_raises_costs_the_links_and_they_begin_anew(both: Both) -> None:
    assert both.ask(w.Add(5)) == w.Total(5)
    poison = both.begin_ask(w.Add(13))
    while not both.halls["b"].broken:
        threading.Event().wait(0.01)
    assert both.halls["b"].broken == ["ValueError: 13"]
    assert both.ask(w.Add(6)) == w.Total(6)
    assert isinstance(poison.result(10), Unavailable) and "forgotten" in poison.result().text


def test_an_ask_runs_out_of_its_time(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asks, "ASK_S_MAX", 0.2)
    answer = both.begin_ask(w.Add(15)).result(10)
    assert isinstance(answer, Unavailable) and "has not answered" in answer.text


def test_who_is_no_member_is_out_of_reach_at_once(both: Both) -> None:
    both.publish("a")
    assert isinstance(both.ask(w.Add(1)), Unavailable)


def test_an_asker_that_gave_up_is_left_alone(both: Both) -> None:
    gone: Future[Any] = Future()
    gone.cancel()
    tell(both.refs["a"], Outbound("b", both.view, HERE, [Envelope(X, w.Add(1), ask=gone)]))
    assert both.ask(w.Add(5)) == w.Total(5)
    assert not both.halls["a"].broken
