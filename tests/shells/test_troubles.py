"""Shells on real threads when something goes wrong, and ephemeral services.

Nothing here needs a server.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence

from msgspec.structs import replace

from peloton.runtime.adapters.fenced_rows import FencedRows
from peloton.runtime.adapters.system_clock import SystemClock
from peloton.runtime.core.entities.records import MessageDeadLettered
from peloton.runtime.core.reading.inspection import RedriveDone
from peloton.runtime.core.turning.envelope import Envelope, Reply
from peloton.runtime.kinds import Kind
from peloton.runtime.ports import Answer, ShardId, Work
from peloton.runtime.shells import root as shells_root
from peloton.runtime.shells.root import Root, start
from peloton.runtime.simulation.memory_rows import MemoryRows
from peloton.runtime.vocabulary import DeadLettered, ShardDamaged, Unavailable, key
from tests.toy import messages as w
from tests.toy.kinds import KINDS, SIZES

X = key("note", "x")
WAIT_S_MAX = 60.0
"""For what takes a moment, on a machine that has other things to do."""


def daemon(journal: FencedRows) -> Root:
    root = start(KINDS, journal, sizes=SIZES, clock=SystemClock())
    root.opened.result(WAIT_S_MAX)
    return root


def until(condition: Callable[[], bool]) -> None:
    end_s = time.monotonic() + WAIT_S_MAX
    while not condition():
        assert time.monotonic() < end_s
        time.sleep(0.01)


class Slow(FencedRows):
    """Blocks every round until the gate is set."""

    def __init__(self) -> None:
        super().__init__(MemoryRows(), process=b"s" * 16)
        self.gate = threading.Event()
        self.begun = threading.Event()
        self.rounds: list[int] = []

    def commit(self, works: Sequence[Work]) -> list[Answer]:
        self.begun.set()
        self.gate.wait(WAIT_S_MAX)
        self.rounds.append(len(works))
        return super().commit(works)


class Bad(FencedRows):
    def commit(self, works: Sequence[Work]) -> list[Answer]:
        raise OSError("no space left")


def test_nothing_is_answered_while_the_round_is_under_way_and_the_next_gathers():
    journal = Slow()
    root = daemon(journal)
    try:
        first = root.region.ask(X, w.Add(1))
        assert journal.begun.wait(WAIT_S_MAX)
        later = [root.region.ask(key("note", at), w.Add(1)) for at in range(50)]
        assert not first.done() and not any(future.done() for future in later)
        journal.gate.set()
        assert first.result(WAIT_S_MAX) == w.Total(1)
        assert [future.result(WAIT_S_MAX) for future in later] == [w.Total(1)] * 50
        assert len(journal.rounds) < 10, "fifty commands, a few rounds"
    finally:
        journal.gate.set()
        root.stop()


def test_a_journal_that_raises_ends_the_daemon():
    root = daemon(Bad(MemoryRows(), process=b"b" * 16))
    try:
        root.region.ask(X, w.Add(1))
        assert root.exited.result(WAIT_S_MAX) == "journal: OSError: no space left"
        ok, reasons = root.health()
        assert not ok and "no space left" in reasons[0]
    finally:
        root.stop(drain=False)


def test_quarantine_and_redrive_through_the_region():
    root = daemon(FencedRows(MemoryRows(), process=b"q" * 16))
    try:
        assert root.region.ask(X, w.Add(13)).result(WAIT_S_MAX) == DeadLettered(
            "ValueError: 13 is not added"
        )
        [(name, fact)] = root.region.quarantine().result(WAIT_S_MAX)
        assert name == X and isinstance(fact, MessageDeadLettered)
        assert root.region.message_name(X, fact.number) == "Add"
        assert root.region.message_name(X, -1) == "note message -1", "of another version"
        assert root.region.redrive(X).result(WAIT_S_MAX) == RedriveDone()
        ((again, _),) = root.region.quarantine().result(WAIT_S_MAX)
        assert again == X, "it failed once more, and the same frame made it a dead letter again"
        lines = root.region.story(X).result(WAIT_S_MAX)
        assert any("try 3 failed" in line.because for line in lines)
    finally:
        root.stop()


def test_what_has_no_owner_is_unavailable_and_so_is_all_after_the_stop(monkeypatch):
    root = daemon(FencedRows(MemoryRows(), process=b"u" * 16))
    assert isinstance(root.region.ask(key("nobody", 1), w.Add(1)).result(WAIT_S_MAX), Unavailable)
    shard = root.region.owned()[-1]
    root.disown((shard,)).result(WAIT_S_MAX)
    assert shard not in root.region.owned()
    assert isinstance(root.region.views("note").result(WAIT_S_MAX), Unavailable)
    root.own((shard,))
    until(lambda: isinstance(root.region.views("note").result(WAIT_S_MAX), list))
    monkeypatch.setattr(shells_root, "ROOT_STOP_S_MAX", WAIT_S_MAX)
    begun = time.monotonic()
    root.stop()
    assert time.monotonic() - begun < WAIT_S_MAX, "it left the cluster, and did not time out"
    assert isinstance(root.region.ask(X, w.Add(1)).result(WAIT_S_MAX), Unavailable)


class Echo:
    """Answers with the amount of a message, and adds to a note when it wakes."""

    own_thread = True

    def __init__(self) -> None:
        self.wake_at: float | None = None
        self.resets = 0

    def receive(self, envelopes: list[Envelope], now: float) -> Iterable[Envelope | Reply]:
        for envelope in envelopes:
            message = envelope.message
            assert isinstance(message, w.Add)
            if message.amount == 13:
                raise ValueError("13")
            if envelope.reply_to is not None:
                yield Reply(envelope.reply_to, w.Total(message.amount))
            yield Envelope(X, message)
            self.wake_at = now + 0.05
        if not envelopes and self.wake_at is not None:
            self.wake_at = None
            yield Envelope(X, w.Add(100))

    def reset(self) -> None:
        self.resets += 1


def test_an_ephemeral_service_sends_wakes_and_is_reset_when_it_raises():
    root = daemon(FencedRows(MemoryRows(), process=b"e" * 16))
    echo = Echo()
    root.region.register_service("echo", echo)
    try:
        assert root.region.ask(key("echo", 0), w.Add(2)).result(WAIT_S_MAX) == w.Total(2)
        assert isinstance(
            root.region.ask(key("echo", 0), w.Add(13)).result(WAIT_S_MAX), Unavailable
        )
        assert root.region.ask(key("echo", 0), w.Add(3)).result(WAIT_S_MAX) == w.Total(3)
        # Not earlier: the caller gets the failure a moment before the service is reset.
        assert echo.resets == 1
        until(
            lambda: root.region.ask(X, w.Show()).result(WAIT_S_MAX) in (w.Total(105), w.Total(205))
        )
    finally:
        root.stop()


class Requester(Echo):
    """Makes requests of its own accord."""

    def __init__(self) -> None:
        super().__init__()
        self.hurried = threading.Event()

    def hurry(self) -> None:
        self.hurried.set()


def test_a_service_that_makes_requests_hears_when_peers_can_be_reached():
    root = daemon(FencedRows(MemoryRows(), process=b"r" * 16))
    requester = Requester()
    root.region.register_service("echo", requester)
    try:
        root.region.peer_reachable()
        assert requester.hurried.wait(WAIT_S_MAX)
    finally:
        root.stop()


def test_one_damaged_shard_is_halted_and_the_others_open():
    store = MemoryRows()
    root = daemon(FencedRows(store, process=b"1" * 16))
    meter = key("meter", 0)
    assert root.region.ask(X, w.Add(11)).result(WAIT_S_MAX) == w.Total(11)
    assert not isinstance(root.region.ask(meter, w.Build(3)).result(WAIT_S_MAX), Unavailable)
    root.stop()
    later = FencedRows(store, process=b"2" * 16)
    root = start(unfolding(11), later, sizes=SIZES, clock=SystemClock())
    try:
        root.opened.result(WAIT_S_MAX)
        ok, (reason,) = root.health()
        assert not ok and "shard house/" in reason and "11 does not fold" in reason
        assert f", position 1, {X}, fact Added: ValueError" in reason, (
            "what a person needs to find the cause"
        )
        answer = root.region.ask(X, w.Show()).result(WAIT_S_MAX)
        assert isinstance(answer, ShardDamaged) and "11 does not fold" in answer.text
        assert reason.startswith(answer.text.partition(" is ")[0])
        condition = root.region.daemon_health()
        assert condition.live and not condition.ready
        assert [one.damaged for one in condition.reasons] == [True]
        assert not isinstance(root.region.ask(meter, w.Build(3)).result(WAIT_S_MAX), Unavailable)
        (halted,) = [shard for shard in all_shards() if shard not in root.region.owned()]
        root.disown((halted,)).result(WAIT_S_MAX)
        root.own(
            (halted,)
        )  # a person tries again: the shard is halted again, and nothing else happens
        until(lambda: "11 does not fold" in str(root.health()[1]))
        assert not root.exited.done()
    finally:
        root.stop()


def all_shards() -> list[ShardId]:
    return [ShardId(group, at) for group in SIZES for at in range(SIZES[group])]


def unfolding(amount: int) -> dict[str, Kind]:
    """The toy kinds, where a note cannot fold this amount any more."""
    note = KINDS["note"]
    added = note.evolve[w.Added]

    def evolve(state: w.Note, fact: w.Added) -> w.Note:
        if fact.amount == amount:
            raise ValueError(f"{amount} does not fold")
        return added(state, fact)

    return {**KINDS, "note": replace(note, evolve={**note.evolve, w.Added: evolve})}
