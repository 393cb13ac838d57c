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
from peloton.runtime.core.codec import encode
from peloton.runtime.core.envelope import Envelope
from peloton.runtime.core.packing import MailBatch, Packing, Route
from peloton.runtime.core.parcels import Link, LinkLimits
from peloton.runtime.core.wire import Parcel
from peloton.runtime.ports import ShardId, StreamListener
from peloton.runtime.shells import pending_asks
from peloton.runtime.shells.dispatcher import Threads
from peloton.runtime.shells.peer import PeerShell
from peloton.runtime.shells.peer_messages import Inbound, Outbound, Peers
from peloton.runtime.shells.shell_messages import Ref, resolve, send
from peloton.runtime.simulation.stepper import Stepper
from peloton.runtime.vocabulary import Absent, Key, Unavailable, key
from tests.toy import messages as w
from tests.toy.kinds import KINDS

HERE = ShardId("house", 0)
X = key("note", "x")
WAIT_S_MAX = 60.0
"""For what takes a moment, on a machine that has other things to do."""
NOTE = msgspec.structs.replace(KINDS["note"], queries={501: w.Show})
PACKING = Packing({**KINDS, "note": NOTE})


class Wires:
    """Streams within one process, whole and in order: the kindest `Exchange` there is."""

    def __init__(self) -> None:
        self.numbers = itertools.count(1)
        self.listener: dict[str, StreamListener] = {}
        self.others: dict[int, tuple[str, int]] = {}  # stream → whose is the other end, its number


class Wire:
    """One daemon's end of all wires."""

    def __init__(self, wires: Wires, address: str) -> None:
        self._wires, self._address = wires, address

    def listen(self, listener: StreamListener) -> None:
        self._wires.listener[self._address] = listener

    def dial(self, address: str) -> int:
        wires = self._wires
        here, there = next(wires.numbers), next(wires.numbers)
        called = wires.listener.get(address)
        if called is None:
            wires.listener[self._address].closed(here, "nobody")
            return here
        wires.others[here], wires.others[there] = (address, there), (self._address, here)
        called.accepted(there)
        return here

    def send(self, stream: int, data: bytes) -> None:
        other = self._wires.others.get(stream)
        if other is not None:
            self._wires.listener[other[0]].arrived(other[1], data)

    def close(self, stream: int) -> None:
        other = self._wires.others.pop(stream, None)
        if other is not None and self._wires.others.pop(other[1], None) is not None:
            self._wires.listener[other[0]].closed(other[1], "closed")


class Hall:
    """Answers asks with their amount; raises at 13, gives 14 what has no number, 15 nothing."""

    def __init__(self) -> None:
        self.heard: list[int] = []
        self.broken: list[str] = []
        self.troubles: Counter[str] = Counter()
        self.threads: dict[int, None] = {}

    def deliver(self, arrived: Inbound) -> bool:
        self.threads[threading.get_ident()] = None
        for envelope in arrived.envelopes:
            message: Any = envelope.message
            if isinstance(message, w.Show):
                resolve(envelope.reply_to, [Absent(X), w.Total(1)])
            elif message.amount == 13:
                raise ValueError("13")
            elif message.amount == 14:
                resolve(envelope.reply_to, w.Grid("g"))
            elif message.amount != 15 and envelope.reply_to is not None:
                resolve(envelope.reply_to, w.Total(message.amount))
            else:
                self.heard.append(message.amount)
        return True

    def misdirected(self, peer: str, place: Route, *, view: int) -> None:
        raise AssertionError("nothing is astray here")

    def reached(self) -> None:
        raise AssertionError("nobody was out of reach here")

    def trouble(self, name: str, text: str) -> None:
        self.troubles[name] += 1

    def broke(self, text: str) -> None:
        self.broken.append(text)


class Both:
    """Two daemons, each with its own thread."""

    def __init__(self, packing_of_a: Packing = PACKING) -> None:
        self.threads = Threads(SystemClock())
        self.packings = {"a": packing_of_a, "b": PACKING}
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
            packing=self.packings[name],
            router=self.halls[name],
        )

    def publish(self, members: str) -> None:
        self.view += 1
        for ref in self.refs.values():
            send(ref, Peers(self.view, {name: name for name in members}))

    def ask(self, message: Any, to: Key = X) -> Any:
        return self.begin_ask(message, to).result(WAIT_S_MAX)

    def begin_ask(self, message: Any, to: Key = X) -> Future[Any]:
        future: Future[Any] = Future()
        envelope = Envelope(to, message, reply_to=future)
        send(self.refs["a"], Outbound("b", self.view, HERE, [envelope]))
        return future


@pytest.fixture
def both() -> Iterator[Both]:
    found = Both()
    yield found
    found.threads.stop()


def test_words_arrive_in_order_and_asks_are_answered(both: Both) -> None:
    for at in range(0, 1000, 10):
        words = [Envelope(X, w.Add(100 + number)) for number in range(at, at + 10)]
        send(both.refs["a"], Outbound("b", both.view, HERE, words))
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
    found = sorted(future.result(WAIT_S_MAX).value for future in futures)
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
    assert (
        isinstance(poison.result(WAIT_S_MAX), Unavailable) and "forgotten" in poison.result().text
    )


def test_an_ask_runs_out_of_its_time(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending_asks, "REMOTE_ASK_S_MAX", 0.2)
    answer = both.begin_ask(w.Add(15)).result(WAIT_S_MAX)
    assert isinstance(answer, Unavailable) and "has not answered" in answer.text


def test_who_is_no_member_is_out_of_reach_at_once(both: Both) -> None:
    both.publish("a")
    assert isinstance(both.ask(w.Add(1)), Unavailable)


def test_an_ask_that_the_other_side_does_not_understand_is_unavailable() -> None:
    messages = {**NOTE.messages, 77: w.Draw}
    newer = msgspec.structs.replace(NOTE, messages=messages)
    both = Both(Packing({"note": newer}))
    try:
        answer = both.ask(w.Draw(1))
        assert isinstance(answer, Unavailable) and "77" in answer.text
        assert both.ask(w.Add(5)) == w.Total(5)
    finally:
        both.threads.stop()


def test_nobody_answers_for_another() -> None:
    table, future = pending_asks.PendingAsks(), Future[Any]()
    number = table.open(future, X, peer="a", now=0.0)
    table.give_up([number], peer="b", text="not b's to give up")
    assert table.take(number, "b") is None and not future.done()
    assert table.take(number, "a") is not None and len(table) == 0
    assert table.open(future, X, peer="a", now=0.0) != number


def test_an_asker_that_gave_up_is_left_alone(both: Both) -> None:
    gone: Future[Any] = Future()
    gone.cancel()
    send(both.refs["a"], Outbound("b", both.view, HERE, [Envelope(X, w.Add(1), reply_to=gone)]))
    assert both.ask(w.Add(5)) == w.Total(5)
    assert not both.halls["a"].broken


class Page:
    """An `Exchange` that writes down what it is told, and does nothing."""

    def __init__(self) -> None:
        self.told: list[tuple[object, ...]] = []
        self.dialled = 0

    def listen(self, listener: StreamListener) -> None:
        self.listener = listener

    def dial(self, address: str) -> int:
        self.told.append(("dial", address))
        self.dialled += 1
        return self.dialled

    def send(self, stream: int, data: bytes) -> None:
        self.told.append(("send", stream))

    def close(self, stream: int) -> None:
        self.told.append(("close", stream))


class Alone:
    """One daemon, "b", driven by hand; its peer "a" is a link in the test's own hand."""

    def __init__(self) -> None:
        self.stepper, self.page, self.router = Stepper(1), Page(), Hall()
        self.ref = PeerShell.start(
            "b", self.stepper, exchange=self.page, packing=PACKING, router=self.router
        )
        shell = self.stepper.shells[-1]
        assert isinstance(shell, PeerShell)
        shell.limits = LinkLimits(ack_s=0.0)  # what it hears it answers, and the test can see it
        self.a = Link("a", "b", birth=1, limits=LinkLimits())
        send(self.ref, Peers(1, {"a": "at-a", "b": "at-b"}))
        self.run()

    def run(self) -> list[tuple[object, ...]]:
        """Until the shell has read its mail: what it told the exchange."""
        shell = self.stepper.shells[-1]
        while not shell.actor_inbox.empty():
            self.stepper.step()
        told, self.page.told = self.page.told, []
        return told

    def come(self, stream: int, *frames: bytes) -> list[tuple[object, ...]]:
        for frame in frames:
            self.page.listener.arrived(stream, frame)
        return self.run()

    def greet(self, stream: int) -> list[tuple[object, ...]]:
        self.page.listener.accepted(stream)
        return self.come(stream, self.a.dialled(stream, self.stepper.clock.now_s))


def parcel(number: int, amount: int) -> bytes:
    body = msgspec.Raw(PACKING.pack(Envelope(X, w.Add(amount))))
    letter = msgspec.Raw(encode(MailBatch(HERE, None, 1, [body])))
    return encode(Parcel(number, 0, 1, [letter]))


def test_an_older_stream_is_closed_before_a_newer_is_read_and_never_read_again() -> None:
    alone = Alone()
    assert alone.greet(7) == [("send", 7)]
    assert alone.greet(8) == [("close", 7), ("send", 8)]
    assert alone.come(7, parcel(1, 100)) == []
    alone.page.listener.closed(7, "late")
    assert alone.come(8, parcel(1, 101)) == [("send", 8)]
    assert alone.router.heard == [101]


def test_a_gap_closes_the_stream_and_nothing_behind_it_is_read() -> None:
    alone = Alone()
    alone.greet(7)
    assert ("close", 7) in alone.come(7, parcel(1, 100), parcel(3, 103), parcel(2, 102))
    assert alone.router.heard == [100]


def test_a_stranger_is_sent_away() -> None:
    alone = Alone()
    alone.a = Link("c", "b", birth=1, limits=LinkLimits())
    assert alone.greet(7) == [("close", 7)]
    alone.page.listener.accepted(8)
    assert alone.come(8, b"not a greeting") == [("close", 8)]
    alone.page.listener.accepted(9)
    alone.run()
    while not (told := alone.run()):
        alone.stepper.step()
    assert told == [("close", 9)], "it never greeted"


def test_letters_that_cannot_be_read_are_counted_and_the_others_heard() -> None:
    alone = Alone()
    alone.greet(7)
    bad = msgspec.Raw(encode([77, "a letter of a later version"]))
    good = msgspec.msgpack.decode(parcel(1, 101), type=Parcel).batches
    unknown = Packing({"note": msgspec.structs.replace(NOTE, messages={77: w.Add})})
    bodies = [
        msgspec.Raw(unknown.pack(Envelope(X, w.Add(5)), 3)),
        msgspec.Raw(encode("no envelope")),
        msgspec.Raw(PACKING.pack(Envelope(X, w.Add(102)))),
    ]
    mixed = msgspec.Raw(encode(MailBatch(HERE, None, 1, bodies)))
    alone.come(7, encode(Parcel(1, 0, 1, [bad, *good, mixed])))
    assert alone.router.heard == [101, 102]
    shell: Any = alone.stepper.shells[-1]
    assert shell.counts == {"unreadable": 2, "unknown": 1}


def test_a_peer_that_moved_is_dialled_where_it_is_now() -> None:
    alone = Alone()
    send(alone.ref, Peers(2, {"b": "at-b", "c": "at-c"}))
    assert alone.run()[0] == ("dial", "at-c")
    send(alone.ref, Peers(3, {"b": "at-b", "c": "elsewhere"}))
    assert alone.run() == [("close", 1)]
    while ("dial", "elsewhere") not in alone.run():
        alone.stepper.step()
    send(alone.ref, Peers(2, {}))
    assert alone.run() == [], "an older view is no news"
