"""Dead letters: kept once, found at once, redriven without affecting the rest of the shard."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

import msgspec
import pytest

from peloton.runtime.core.deferring.dead_letters import Redrives
from peloton.runtime.core.deferring.deferred import DEAD_LETTER_BYTES_MAX
from peloton.runtime.core.entities.codec import Codec
from peloton.runtime.core.entities.records import MessageDeadLettered, Quarantined
from peloton.runtime.core.offline.digest import digest
from peloton.runtime.core.reading.inspection import Redrive, RedriveDone, shard_key
from peloton.runtime.core.recovery import restore
from peloton.runtime.core.shard import Shard
from peloton.runtime.core.sharding import Sharding
from peloton.runtime.core.turning.envelope import Envelope
from peloton.runtime.core.turning.pump import FRAME_BYTES_SOFT
from peloton.runtime.kinds import CrowdKind, Kind
from peloton.runtime.ports import FRAME_BYTES_MAX, Frame, ShardId
from peloton.runtime.vocabulary import (
    SETTLED,
    At,
    Decision,
    Fact,
    Key,
    Message,
    Refused,
    Unavailable,
    Value,
    key,
)
from tests.toy import messages as w
from tests.toy.bench import Bench, a_round


class Spot(Value, frozen=True, gc=False, array_like=True):
    x: float


class Put(Message, frozen=True, gc=False, array_like=True):
    body: bytes = b""


class Odd(Message, frozen=True, gc=False, array_like=True):
    pass


class WasPut(Fact, frozen=True, gc=False, array_like=True):
    pass


class Dot(Value, frozen=True, gc=False, array_like=True):
    puts: int = 0


DOTS = key("dot", 1)
BOX = key("box", 1)
ALL = (1 << 1000) - 1


class DotBench:
    """One shard of dots whose `Put` is refused as long as the version is bad."""

    def __init__(self) -> None:
        self.bad = False
        self.frames: list[Frame] = []
        self.replies: list[Any] = []
        self.now = 0.0
        self.kinds: dict[str, Kind] = {"box": self._kind("box"), "dot": self._dots()}
        self.shard = self.fresh()
        self.send(BOX, Put())  # the parent of all dots
        self.rest()
        self.bad = True

    def fresh(self) -> Shard:
        sharding = Sharding(self.kinds, {"p": 1})
        return Shard(ShardId("p", 0), self.kinds, sharding=sharding, codec=Codec(self.kinds))

    def replay(self) -> Shard:
        shard = self.fresh()
        restore(shard, [], frames=self.frames, floor=0)
        return shard

    def send(self, to: Key, message: Message, members: int = 0, **more: Any) -> None:
        self.shard.take([Envelope(to, message, members, **more)])

    def once(self) -> None:
        ready = a_round(self.shard, self.now)
        self.shard.committed()
        if ready.frame is not None:
            self.frames.append(Frame(ready.position, ready.frame))
        self.replies += [reply.value for reply in ready.replies]

    def rest(self) -> None:
        self.once()
        while self.shard.busy:
            self.once()

    def fail(self) -> None:
        for _ in range(8):
            self.rest()
            self.now += 1.0

    def redrive(self, of: Key) -> None:
        self.send(shard_key(self.shard.id), Redrive(of), reply_to=1)

    def facts(self, of: Key) -> list[Any]:
        return list(self.shard.deferred.dump().get(of, []))

    def puts(self) -> int:
        crowd = self.shard.population.crowds.get(DOTS)
        return crowd.where(lambda dot: dot.puts) if crowd is not None else 0

    def _put(self, message: Message, at: At) -> Decision:
        if self.bad:
            raise ValueError("a fault that a new version mends")
        return Decision(facts=(WasPut(),))

    def _odd(self, message: Message, at: At) -> Decision:
        raise ValueError("odd")

    def _kind(self, name: str) -> Kind:
        return Kind(
            name=name,
            group="p",
            state=Dot,
            decide={Put: lambda dot, message, at: self._put(message, at)},
            absent={Put: self._put, Odd: self._odd},
            pursue=lambda state, at: SETTLED,
            evolve={WasPut: lambda dot, fact: Dot((dot.puts if dot else 0) + 1)},
            messages={1: Put},
            facts={1: WasPut},
            partition=lambda name: "0",
        )

    def _dots(self) -> Kind:
        crowd = CrowdKind(
            columns={"spot": Spot},
            write={},
            parent=lambda name: BOX,
            per_member={WasPut: "spot"},
        )
        return msgspec.structs.replace(self._kind("dot"), crowd=crowd)


def aside(members: int = ALL, size: int = 10, values: Iterable[Any] = ()) -> DotBench:
    bench = DotBench()
    bench.send(DOTS, Put(b"x" * size), members, values=tuple(values))
    bench.fail()
    return bench


def same(bench: DotBench) -> None:
    assert digest(bench.replay()) == digest(bench.shard)


def test_the_bytes_of_a_message_are_journaled_once_for_all_its_members():
    bench = aside(size=20_000)
    assert len(bench.facts(DOTS)) == 1000
    assert sum(len(frame.body) for frame in bench.frames) < 500_000
    assert sum(len(fact.body) for fact in bench.facts(DOTS)) < 21_000
    same(bench)


def test_after_a_checkpoint_the_bytes_are_still_there():
    bench = aside(0b111)
    twin = bench.fresh()
    twin.population.put(BOX, bench.shard.population.cells[BOX])
    for fact in bench.facts(DOTS):
        twin.deferred.fold(DOTS, fact)
    assert digest(twin) == digest(bench.shard)
    bench.bad, bench.shard = False, twin
    bench.redrive(DOTS)
    bench.rest()
    assert bench.replies == [RedriveDone()] and bench.puts() == 0b111


def test_what_one_member_costs_does_not_grow_with_the_others():
    def calls(size: int) -> int:
        count = 0

        def note(*_: Any) -> None:
            nonlocal count
            count += 1

        values = [Spot(float(at)) for at in range(size)]
        sys.setprofile(note)
        try:
            aside((1 << size) - 1, values=values)
        finally:
            sys.setprofile(None)
        return count

    assert calls(800) < 6 * calls(200)


def test_values_keep_their_type_until_the_redrive_and_beyond():
    bench = aside(0b11, values=[Spot(1.5), Spot(2.5)])
    for shard in (bench.shard, bench.replay()):
        twin = DotBench()
        twin.frames, twin.shard, twin.now, twin.bad = [*bench.frames], shard, bench.now, False
        shard.kinds = twin.kinds
        twin.redrive(DOTS)
        twin.rest()
        columns = shard.population.crowds[DOTS].columns
        assert [columns.read("spot", at) for at in (0, 1)] == [Spot(1.5), Spot(2.5)]
        again = twin.replay().population.crowds[DOTS].columns
        assert again.read("spot", 1) == Spot(2.5)


def test_a_dead_letter_that_cannot_be_decoded_is_kept_and_the_redrive_reports_so():
    bench = DotBench()
    bench.send(DOTS, Odd(), 1)
    bench.send(BOX, Put(b"y" * (DEAD_LETTER_BYTES_MAX + 1)))
    bench.fail()
    for of, because in ((DOTS, "KeyError"), (BOX, "too large to be kept")):
        assert len(bench.facts(of)) == 1
        bench.redrive(of)
        bench.rest()
        (answer,) = bench.replies
        assert isinstance(answer, Unavailable) and because in answer.text
        assert len(bench.facts(of)) == 1 and not bench.shard.redrives
        bench.replies = []
    same(bench)


def test_one_that_cannot_be_read_keeps_back_no_other():
    bench = DotBench()
    bench.send(DOTS, Odd(), 1)
    bench.send(DOTS, Put(), 1)
    bench.fail()
    bench.bad = False
    bench.redrive(DOTS)
    bench.rest()
    assert bench.puts() == 1 and [type(fact) for fact in bench.facts(DOTS)] == [MessageDeadLettered]
    same(bench)


@pytest.mark.parametrize("of", ["nonsense/1", "nonsense", ""])
def test_an_order_for_nothing_is_refused_and_harms_nobody(of: str):
    bench = DotBench()
    bench.redrive(Key(of))
    bench.rest()
    (answer,) = bench.replies
    assert isinstance(answer, Refused)


def test_a_redrive_is_spread_over_frames_that_the_journal_takes():
    bench = DotBench()
    for at in range(24):  # each with bytes of its own
        bench.send(DOTS, Put(bytes([at]) * 900_000), 1 << at)
    bench.fail()
    kept = len(bench.facts(DOTS))
    assert kept == 24
    before = len(bench.frames)
    bench.redrive(DOTS)
    bench.rest()
    sizes = [len(frame.body) for frame in bench.frames[before:]]
    assert max(sizes) <= FRAME_BYTES_SOFT + DEAD_LETTER_BYTES_MAX + 10_000 < FRAME_BYTES_MAX
    assert len(sizes) >= kept * 900_000 // (FRAME_BYTES_SOFT + DEAD_LETTER_BYTES_MAX)
    assert bench.replies == [RedriveDone()], "once, when all are tried"
    same(bench)


def test_a_crash_in_the_middle_of_a_redrive_loses_nothing():
    bench = aside((1 << 20) - 1)
    bench.shard.redrives = Redrives(per_frame_max=7)
    bench.bad = False
    bench.redrive(DOTS)
    bench.once()
    assert bench.replies == [] and len(bench.facts(DOTS)) == 13 and bench.puts().bit_count() == 7
    same(bench)
    bench.shard = bench.replay()
    bench.redrive(DOTS)
    bench.rest()
    assert bench.replies == [RedriveDone()] and bench.puts() == (1 << 20) - 1
    assert not bench.facts(DOTS)
    same(bench)


def test_all_orders_of_a_frame_share_its_tries():
    """However many orders come at once, other mail does not wait for more than these."""
    bench = aside((1 << 20) - 1)
    bench.shard.redrives = Redrives(per_frame_max=7)
    bench.bad = False
    for number in range(5):
        bench.redrive(DOTS if number % 2 == 0 else BOX)
    tried = []
    while bench.facts(DOTS):
        before = len(bench.facts(DOTS))
        bench.once()
        tried.append(before - len(bench.facts(DOTS)))
    assert tried == [7, 7, 6]
    bench.rest()
    assert bench.replies == [RedriveDone()] * 5 and bench.puts() == (1 << 20) - 1
    same(bench)


def test_a_member_that_fails_again_on_one_message_is_quarantined_again():
    bench = DotBench()
    for body in (b"a", b"b", b"c"):
        bench.send(DOTS, Put(body), 0b11)
        bench.fail()
    assert bench.shard.deferred.quarantined == {DOTS: 0b11}
    bench.redrive(DOTS)
    bench.rest()
    assert bench.shard.deferred.quarantined == {DOTS: 0b11}
    same(bench)
    bench.bad = False
    bench.redrive(DOTS)
    bench.rest()
    assert not bench.shard.deferred.quarantined and not bench.shard.deferred.dead_letters
    same(bench)


def test_a_quarantine_alone_is_lifted():
    bench = DotBench()
    bench.shard.deferred.fold(BOX, Quarantined())
    bench.redrive(BOX)
    bench.rest()
    assert not bench.shard.deferred.quarantined and bench.replies == [RedriveDone()]


def test_a_message_of_many_senders_is_found_for_each_of_them():
    bench = DotBench()
    meters = [key("by", at) for at in range(3)]
    origins = tuple((1 << at, meter) for at, meter in enumerate(meters))
    bench.send(DOTS, Put(), 0b011, origins=origins[:2])
    bench.fail()
    assert sorted(fact.sender for fact in bench.facts(DOTS)) == meters[:2]
    told = len(bench.shard.turns.story._lines)
    bench.send(DOTS, Put(), 0b111, origins=origins)
    bench.rest()
    assert bench.shard.deferred.retrying[DOTS].members == 0b100
    assert len(bench.shard.turns.story._lines) == told + 1


class Open(Message, frozen=True, gc=False, array_like=True):
    what: Any


def test_a_message_without_bytes_and_an_endless_error_become_dead_letters_too():
    bench = DotBench()

    def fails(message: Message, at: At) -> Decision:
        raise ValueError("x" * 20_000_000)

    bench.kinds["box"].absent[Open] = fails  # type: ignore[index]
    bench.send(BOX, Open(object()), reply_to=2)
    bench.fail()
    (fact,) = bench.facts(BOX)
    assert "bytes are not kept" in fact.error and len(fact.error) < 10_000
    same(bench)


def test_an_order_for_an_entity_that_cannot_be_read_is_answered():
    bench = Bench()
    note = key("note", "x")
    bench.send(shard_key(bench.id), Redrive(note), reply_to=1)
    ready = bench.ready()
    bench.write(ready)
    bench.shard.committed()
    assert ready.load == (note,)
    bench.shard.unreadable(note, "torn")
    bench.once()
    (answer,) = bench.answers()
    assert isinstance(answer, Unavailable) and "torn" in answer.text
    bench.send(shard_key(bench.id), Redrive(note), reply_to=2)
    bench.rest()
    assert bench.answers() == [RedriveDone()], "the next one is looked up anew"


def test_mail_behind_an_order_that_waits_asks_for_no_second_row():
    bench = Bench()
    note = key("note", "x")
    bench.send(shard_key(bench.id), Redrive(note), reply_to=1)
    assert bench.ready().load == (note,)
    bench.shard.committed()
    bench.send(note, w.Add(1), reply_to=2)
    assert bench.ready().load == (), "it waits for the same"
    bench.shard.committed()
    bench.shard.loaded(note, None)
    bench.rest()
    assert bench.answers() == [RedriveDone(), w.Total(1)]
