"""Peer shells on real threads: the router is called on one thread, calls come from any.

No test here needs a network: streams are calls within one process.
"""

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
from peloton.runtime.core.entities.encoding import encode
from peloton.runtime.core.links.packing import MailBatch, Packing, Route
from peloton.runtime.core.links.parcels import Link, LinkLimits
from peloton.runtime.core.links.wire import Parcel
from peloton.runtime.core.turning.envelope import Envelope
from peloton.runtime.ports import ShardId, StreamListener
from peloton.runtime.shells import peer_messages
from peloton.runtime.shells.dispatcher import Threads
from peloton.runtime.shells.own_address import own_greeting
from peloton.runtime.shells.peer import COMPANY_S, PeerShell
from peloton.runtime.shells.peer_messages import Inbound, Outbound, Peers
from peloton.runtime.shells.shell_messages import WAKE, Ref, resolve, send
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
    """Streams within one process that lose and reorder nothing: the most reliable `Exchange`."""

    def __init__(self) -> None:
        self.numbers = itertools.count(1)
        self.listener: dict[str, StreamListener] = {}
        self.others: dict[int, tuple[str, int]] = {}  # stream → address and number of the other end


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


class RecordingRouter:
    """Answers a call with its amount; raises at 13, answers 14 with an unknown class, 15 never."""

    def __init__(self) -> None:
        self.received: list[int] = []
        self.broken: list[str] = []
        self.problems: Counter[str] = Counter()
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
                self.received.append(message.amount)
        return True

    def misdirected(self, peer: str, route: Route, *, view: int) -> None:
        raise AssertionError("every batch goes to the right daemon here")

    def peer_reachable(self) -> None:
        raise AssertionError("every peer is always reachable here")

    def report_problem(self, name: str, text: str) -> None:
        self.problems[name] += 1

    def links_reset(self, text: str) -> None:
        self.broken.append(text)


class TwoDaemons:
    """Two daemons, each with its own thread."""

    def __init__(self, packing_of_a: Packing = PACKING) -> None:
        self.threads = Threads(SystemClock())
        self.packings = {"a": packing_of_a, "b": PACKING}
        self.wires = Wires()
        self.routers = {name: RecordingRouter() for name in "ab"}
        self.refs: dict[str, Ref] = {name: self.begin(name) for name in "ab"}
        self.view = 0
        self.publish("ab")

    def begin(self, name: str) -> Ref:
        return PeerShell.start(
            name,
            self.threads.driver(name),
            exchange=Wire(self.wires, name),
            packing=self.packings[name],
            router=self.routers[name],
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
def both() -> Iterator[TwoDaemons]:
    found = TwoDaemons()
    yield found
    found.threads.stop()


def test_messages_arrive_in_order_and_calls_are_answered(both: TwoDaemons) -> None:
    for at in range(0, 1000, 10):
        envelopes = [Envelope(X, w.Add(100 + number)) for number in range(at, at + 10)]
        send(both.refs["a"], Outbound("b", both.view, HERE, envelopes))
    assert both.ask(w.Add(5)) == w.Total(5)
    assert both.routers["b"].received == [100 + number for number in range(1000)]
    assert both.ask(w.Show()) == [Absent(X), w.Total(1)]
    assert len(both.routers["b"].threads) == 1


def test_calls_come_from_many_threads(both: TwoDaemons) -> None:
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


def test_an_answer_that_cannot_be_encoded_is_unavailable_and_harms_no_other_call(
    both: TwoDaemons,
) -> None:
    answer = both.ask(w.Add(14))
    assert isinstance(answer, Unavailable) and "Grid" in answer.text
    assert both.routers["b"].problems == {"packing": 1} and not both.routers["b"].broken
    assert both.ask(w.Add(5)) == w.Total(5)


def test_a_router_that_raises_resets_the_links(both: TwoDaemons) -> None:
    assert both.ask(w.Add(5)) == w.Total(5)
    poison = both.begin_ask(w.Add(13))
    while not both.routers["b"].broken:
        threading.Event().wait(0.01)
    assert both.routers["b"].broken == ["ValueError: 13"]
    assert both.ask(w.Add(6)) == w.Total(6)
    assert (
        isinstance(poison.result(WAIT_S_MAX), Unavailable)
        and "b (b) lost the state of its link" in poison.result().text
    )


def test_a_call_without_an_answer_times_out(
    both: TwoDaemons, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer_messages, "REMOTE_ASK_S_MAX", 0.2)
    answer = both.begin_ask(w.Add(15)).result(WAIT_S_MAX)
    assert isinstance(answer, Unavailable) and "has not answered" in answer.text


def test_a_call_to_a_former_member_is_unavailable_at_once(both: TwoDaemons) -> None:
    both.publish("a")
    assert isinstance(both.ask(w.Add(1)), Unavailable)


def test_a_call_that_the_peer_cannot_read_is_unavailable() -> None:
    messages = {**NOTE.messages, 77: w.Draw}
    newer = msgspec.structs.replace(NOTE, messages=messages)
    both = TwoDaemons(Packing({"note": newer}))
    try:
        answer = both.ask(w.Draw(1))
        assert isinstance(answer, Unavailable) and "77" in answer.text
        assert both.ask(w.Add(5)) == w.Total(5)
    finally:
        both.threads.stop()


def test_a_peer_answers_only_its_own_calls() -> None:
    table, future = peer_messages.PendingAsks(), Future[Any]()
    number = table.open(future, X, peer="a", now=0.0)
    table.give_up([number], peer="b", text="not b's to give up")
    assert table.take(number, "b") is None and not future.done()
    assert table.take(number, "a") is not None and len(table) == 0
    assert table.open(future, X, peer="a", now=0.0) != number


def test_a_cancelled_call_is_left_alone(both: TwoDaemons) -> None:
    gone: Future[Any] = Future()
    gone.cancel()
    send(both.refs["a"], Outbound("b", both.view, HERE, [Envelope(X, w.Add(1), reply_to=gone)]))
    assert both.ask(w.Add(5)) == w.Total(5)
    assert not both.routers["a"].broken


OWN = -1
"""The stream of a daemon to itself."""


class RecordingExchange:
    """An `Exchange` that records the calls, and does nothing."""

    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []
        self.dialled = 0

    def listen(self, listener: StreamListener) -> None:
        self.listener = listener

    def dial(self, address: str) -> int:
        self.calls.append(("dial", address))
        self.dialled += 1
        return self.dialled

    def send(self, stream: int, data: bytes) -> None:
        self.calls.append(("send", stream))

    def close(self, stream: int) -> None:
        self.calls.append(("close", stream))


class OneDaemon:
    """One daemon, "b", driven step by step; its peer "a" is a link that the test drives."""

    def __init__(self, router: RecordingRouter | None = None) -> None:
        self.stepper, self.exchange = Stepper(1), RecordingExchange()
        self.router = router or RecordingRouter()
        self.ref = PeerShell.start(
            "b", self.stepper, exchange=self.exchange, packing=PACKING, router=self.router
        )
        shell = self.stepper.shells[-1]
        assert isinstance(shell, PeerShell)
        shell.limits = LinkLimits(ack_s=0.0)  # acknowledges at once, so that the test sees it
        self.a = Link("a", "b", birth=1, limits=LinkLimits())
        send(self.ref, Peers(1, {"a": "at-a", "b": "at-b"}))
        self.run()
        self.exchange.listener.accepted(OWN)
        assert self.arrive(OWN, own_greeting("b"))[-1] == ("close", OWN), "its address leads to it"
        self.exchange.dialled = 0

    def run(self) -> list[tuple[object, ...]]:
        """Until the inbox of the shell is empty; returns its calls of the exchange."""
        shell = self.stepper.shells[-1]
        while not shell.actor_inbox.empty():
            self.stepper.step()
        calls, self.exchange.calls = self.exchange.calls, []
        return calls

    def pass_time(self, seconds: float) -> None:
        self.stepper.clock.now_s += seconds
        send(self.ref, WAKE)

    def arrive(self, stream: int, *frames: bytes) -> list[tuple[object, ...]]:
        for frame in frames:
            self.exchange.listener.arrived(stream, frame)
        return self.run()

    def greet(self, stream: int) -> list[tuple[object, ...]]:
        self.exchange.listener.accepted(stream)
        return self.arrive(stream, self.a.dialled(stream, self.stepper.clock.now_s))


def parcel(number: int, amount: int) -> bytes:
    body = msgspec.Raw(PACKING.pack(Envelope(X, w.Add(amount))))
    batch = msgspec.Raw(encode(MailBatch(HERE, None, 1, [body])))
    return encode(Parcel(number, 0, 1, [batch]))


def test_an_older_stream_is_closed_before_a_newer_is_read_and_never_read_again() -> None:
    daemon = OneDaemon()
    assert daemon.greet(7) == [("send", 7)]
    assert daemon.greet(8) == [("close", 7), ("send", 8)]
    assert daemon.arrive(7, parcel(1, 100)) == []
    daemon.exchange.listener.closed(7, "late")
    assert daemon.arrive(8, parcel(1, 101)) == [("send", 8)]
    assert daemon.router.received == [101]


def test_a_gap_closes_the_stream_and_nothing_behind_it_is_read() -> None:
    daemon = OneDaemon()
    daemon.greet(7)
    assert ("close", 7) in daemon.arrive(7, parcel(1, 100), parcel(3, 103), parcel(2, 102))
    assert daemon.router.received == [100]


def test_a_stream_of_an_unknown_member_is_closed() -> None:
    daemon = OneDaemon()
    daemon.a = Link("c", "b", birth=1, limits=LinkLimits())
    assert daemon.greet(7) == [("close", 7)]
    daemon.exchange.listener.accepted(8)
    assert daemon.arrive(8, b"not a greeting") == [("close", 8)]
    daemon.exchange.listener.accepted(9)
    daemon.run()
    while not (calls := daemon.run()):
        daemon.stepper.step()
    assert calls == [("close", 9)], "it never greeted"


def test_batches_that_cannot_be_read_are_counted_and_the_others_received() -> None:
    daemon = OneDaemon()
    daemon.greet(7)
    bad = msgspec.Raw(encode([77, "a batch of a later version"]))
    good = msgspec.msgpack.decode(parcel(1, 101), type=Parcel).batches
    unknown = Packing({"note": msgspec.structs.replace(NOTE, messages={77: w.Add})})
    bodies = [
        msgspec.Raw(unknown.pack(Envelope(X, w.Add(5)), 3)),
        msgspec.Raw(encode("no envelope")),
        msgspec.Raw(PACKING.pack(Envelope(X, w.Add(102)))),
    ]
    mixed = msgspec.Raw(encode(MailBatch(HERE, None, 1, bodies)))
    daemon.arrive(7, encode(Parcel(1, 0, 1, [bad, *good, mixed])))
    assert daemon.router.received == [101, 102]
    shell: Any = daemon.stepper.shells[-1]
    assert shell.counts == {"unreadable": 2, "unknown": 1}


def test_a_peer_with_a_new_address_is_dialled_there() -> None:
    daemon = OneDaemon()
    send(daemon.ref, Peers(2, {"b": "at-b", "c": "at-c"}))
    assert daemon.run()[0] == ("dial", "at-c")
    send(daemon.ref, Peers(3, {"b": "at-b", "c": "elsewhere"}))
    assert daemon.run() == [("close", 1)]
    while ("dial", "elsewhere") not in daemon.run():
        daemon.stepper.step()
    send(daemon.ref, Peers(2, {}))
    assert daemon.run() == [], "an older view is ignored"


def test_mail_of_a_quiet_link_leaves_at_once_and_of_a_busy_one_in_company() -> None:
    daemon = OneDaemon()
    daemon.greet(7)
    daemon.pass_time(1.0)
    assert daemon.run() == []

    def mail(amount: int) -> list[tuple[object, ...]]:
        send(daemon.ref, Outbound("a", 1, HERE, [Envelope(X, w.Add(amount))]))
        return daemon.run()

    assert mail(1) == [("send", 7)]
    assert [mail(amount) for amount in range(2, 5)] == [[], [], []]
    daemon.pass_time(COMPANY_S)
    assert daemon.run() == [("send", 7)], "one frame for the three"
    daemon.pass_time(2 * COMPANY_S)
    assert daemon.run() == []
    assert mail(5) == [("send", 7)], "quiet again"


def test_an_acknowledgement_that_is_due_waits_for_company_without_waking_its_shell() -> None:
    daemon = OneDaemon()
    daemon.greet(7)
    daemon.pass_time(1.0)
    assert daemon.run() == []
    assert daemon.arrive(7, parcel(1, 100)) == [("send", 7)]
    assert daemon.arrive(7, parcel(2, 101)) == []
    before_s = daemon.stepper.clock.now_s
    daemon.stepper.step()
    assert daemon.exchange.calls == [("send", 7)]
    assert daemon.stepper.clock.now_s >= before_s + COMPANY_S
