"""What is set aside: kept once, known at once, tried again without harm to its shard."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

import msgspec
import pytest

from peloton.runtime.core.codec import Codec
from peloton.runtime.core.dead_letters import Redrives
from peloton.runtime.core.deferred import DEAD_LETTER_BYTES_MAX
from peloton.runtime.core.digest import digest
from peloton.runtime.core.envelope import Envelope
from peloton.runtime.core.inspection import Redrive, RedriveDone, shard_key
from peloton.runtime.core.pump import FRAME_BYTES_SOFT
from peloton.runtime.core.records import MessageDeadLettered, Quarantined
from peloton.runtime.core.recovery import restore
from peloton.runtime.core.shard import Shard
from peloton.runtime.core.sharding import Sharding
from peloton.runtime.ports import FRAME_BYTES_MAX, Frame, ShardId
from peloton.runtime.vocabulary import (
    SETTLED,
    At,
    CrowdKind,
    Decision,
    Fact,
    Key,
    Kind,
    Message,
    Refused,
    Unavailable,
    Value,
    key,
)
from tests.toy import messages as w
from tests.toy.bench import Bench


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


class Desk:
    """One shard of dots whose `Put` is refused as long as the version is bad."""

    def __init__(self) -> None:
        self.bad = False
        self.frames: list[Frame] = []
        self.replies: list[Any] = []
        self.now = 0.0
        self.kinds: dict[str, Kind] = {"box": self._kind("box"), "dot": self._dots()}
        self.shard = self.fresh()
        self.tell(BOX, Put())  # the parent of all dots
        self.rest()
        self.bad = True

    def fresh(self) -> Shard:
        sharding = Sharding(self.kinds, {"p": 1})
        return Shard(ShardId("p", 0), self.kinds, sharding=sharding, codec=Codec(self.kinds))

    def replay(self) -> Shard:
        shard = self.fresh()
        restore(shard, [], frames=self.frames, floor=0)
        return shard

    def tell(self, to: Key, message: Message, members: int = 0, **more: Any) -> None:
        self.shard.take([Envelope(to, message, members, **more)])

    def once(self) -> None:
        ready = self.shard.ready(self.now)
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
        self.tell(shard_key(self.shard.id), Redrive(of), reply_to=1)

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


def aside(members: int = ALL, size: int = 10, values: Iterable[Any] = ()) -> Desk:
    desk = Desk()
    desk.tell(DOTS, Put(b"x" * size), members, values=tuple(values))
    desk.fail()
    return desk


def same(desk: Desk) -> None:
    assert digest(desk.replay()) == digest(desk.shard)


def test_the_bytes_of_a_word_are_written_once_for_all_its_members():
    desk = aside(size=20_000)
    assert len(desk.facts(DOTS)) == 1000
    assert sum(len(frame.body) for frame in desk.frames) < 500_000
    assert sum(len(fact.body) for fact in desk.facts(DOTS)) < 21_000
    same(desk)


def test_after_a_checkpoint_the_bytes_are_still_there():
    desk = aside(0b111)
    twin = desk.fresh()
    twin.population.put(BOX, desk.shard.population.cells[BOX])
    for fact in desk.facts(DOTS):
        twin.deferred.fold(DOTS, fact)
    assert digest(twin) == digest(desk.shard)
    desk.bad, desk.shard = False, twin
    desk.redrive(DOTS)
    desk.rest()
    assert desk.replies == [RedriveDone()] and desk.puts() == 0b111


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
    desk = aside(0b11, values=[Spot(1.5), Spot(2.5)])
    for shard in (desk.shard, desk.replay()):
        twin = Desk()
        twin.frames, twin.shard, twin.now, twin.bad = [*desk.frames], shard, desk.now, False
        shard.kinds = twin.kinds
        twin.redrive(DOTS)
        twin.rest()
        columns = shard.population.crowds[DOTS].columns
        assert [columns.read("spot", at) for at in (0, 1)] == [Spot(1.5), Spot(2.5)]
        again = twin.replay().population.crowds[DOTS].columns
        assert again.read("spot", 1) == Spot(2.5)


def test_what_cannot_be_read_any_more_stays_aside_and_the_order_says_so():
    desk = Desk()
    desk.tell(DOTS, Odd(), 1)
    desk.tell(BOX, Put(b"y" * (DEAD_LETTER_BYTES_MAX + 1)))
    desk.fail()
    for of, because in ((DOTS, "KeyError"), (BOX, "too large to be kept")):
        assert len(desk.facts(of)) == 1
        desk.redrive(of)
        desk.rest()
        (answer,) = desk.replies
        assert isinstance(answer, Unavailable) and because in answer.text
        assert len(desk.facts(of)) == 1 and not desk.shard.redrives
        desk.replies = []
    same(desk)


def test_one_that_cannot_be_read_keeps_back_no_other():
    desk = Desk()
    desk.tell(DOTS, Odd(), 1)
    desk.tell(DOTS, Put(), 1)
    desk.fail()
    desk.bad = False
    desk.redrive(DOTS)
    desk.rest()
    assert desk.puts() == 1 and [type(fact) for fact in desk.facts(DOTS)] == [MessageDeadLettered]
    same(desk)


@pytest.mark.parametrize("of", ["nonsense/1", "nonsense", ""])
def test_an_order_for_nothing_is_refused_and_harms_nobody(of: str):
    desk = Desk()
    desk.redrive(Key(of))
    desk.rest()
    (answer,) = desk.replies
    assert isinstance(answer, Refused)


def test_a_redrive_is_spread_over_frames_that_the_journal_takes():
    desk = Desk()
    for at in range(24):  # each with bytes of its own
        desk.tell(DOTS, Put(bytes([at]) * 900_000), 1 << at)
    desk.fail()
    kept = len(desk.facts(DOTS))
    assert kept == 24
    before = len(desk.frames)
    desk.redrive(DOTS)
    desk.rest()
    sizes = [len(frame.body) for frame in desk.frames[before:]]
    assert max(sizes) <= FRAME_BYTES_SOFT + DEAD_LETTER_BYTES_MAX + 10_000 < FRAME_BYTES_MAX
    assert len(sizes) >= kept * 900_000 // (FRAME_BYTES_SOFT + DEAD_LETTER_BYTES_MAX)
    assert desk.replies == [RedriveDone()], "once, when all are tried"
    same(desk)


def test_a_crash_in_the_middle_of_a_redrive_loses_nothing():
    desk = aside((1 << 20) - 1)
    desk.shard.redrives = Redrives(per_frame_max=7)
    desk.bad = False
    desk.redrive(DOTS)
    desk.once()
    assert desk.replies == [] and len(desk.facts(DOTS)) == 13 and desk.puts().bit_count() == 7
    same(desk)
    desk.shard = desk.replay()
    desk.redrive(DOTS)
    desk.rest()
    assert desk.replies == [RedriveDone()] and desk.puts() == (1 << 20) - 1
    assert not desk.facts(DOTS)
    same(desk)


def test_who_fails_again_on_one_word_is_in_quarantine_again():
    desk = Desk()
    for body in (b"a", b"b", b"c"):
        desk.tell(DOTS, Put(body), 0b11)
        desk.fail()
    assert desk.shard.deferred.quarantined == {DOTS: 0b11}
    desk.redrive(DOTS)
    desk.rest()
    assert desk.shard.deferred.quarantined == {DOTS: 0b11}
    same(desk)
    desk.bad = False
    desk.redrive(DOTS)
    desk.rest()
    assert not desk.shard.deferred.quarantined and not desk.shard.deferred.dead_letters
    same(desk)


def test_a_quarantine_alone_is_lifted():
    desk = Desk()
    desk.shard.deferred.fold(BOX, Quarantined())
    desk.redrive(BOX)
    desk.rest()
    assert not desk.shard.deferred.quarantined and desk.replies == [RedriveDone()]


def test_a_word_of_many_senders_is_known_for_each_of_them():
    desk = Desk()
    meters = [key("by", at) for at in range(3)]
    origins = tuple((1 << at, meter) for at, meter in enumerate(meters))
    desk.tell(DOTS, Put(), 0b011, origins=origins[:2])
    desk.fail()
    assert sorted(fact.sender for fact in desk.facts(DOTS)) == meters[:2]
    told = len(desk.shard.turns.story._lines)
    desk.tell(DOTS, Put(), 0b111, origins=origins)
    desk.rest()
    assert desk.shard.deferred.retrying[DOTS].members == 0b100
    assert len(desk.shard.turns.story._lines) == told + 1


class Open(Message, frozen=True, gc=False, array_like=True):
    what: Any


def test_a_message_without_bytes_and_an_endless_error_are_set_aside_too():
    desk = Desk()

    def fails(message: Message, at: At) -> Decision:
        raise ValueError("x" * 20_000_000)

    desk.kinds["box"].absent[Open] = fails  # type: ignore[index]
    desk.tell(BOX, Open(object()), reply_to=2)
    desk.fail()
    (fact,) = desk.facts(BOX)
    assert "bytes are not kept" in fact.error and len(fact.error) < 10_000
    same(desk)


def test_an_order_for_an_entity_that_cannot_be_read_is_answered():
    bench = Bench()
    note = key("note", "x")
    bench.tell(shard_key(bench.id), Redrive(note), reply_to=1)
    ready = bench.shard.ready(bench.now)
    bench.write(ready)
    bench.shard.committed()
    assert ready.load == (note,)
    bench.shard.unreadable(note, "torn")
    bench.once()
    (answer,) = bench.answers()
    assert isinstance(answer, Unavailable) and "torn" in answer.text
    bench.tell(shard_key(bench.id), Redrive(note), reply_to=2)
    bench.rest()
    assert bench.answers() == [RedriveDone()], "the next one is looked up anew"


def test_mail_behind_an_order_that_waits_asks_for_no_second_row():
    bench = Bench()
    note = key("note", "x")
    bench.tell(shard_key(bench.id), Redrive(note), reply_to=1)
    assert bench.shard.ready(bench.now).load == (note,)
    bench.shard.committed()
    bench.tell(note, w.Add(1), reply_to=2)
    assert bench.shard.ready(bench.now).load == (), "it waits for the same"
    bench.shard.committed()
    bench.shard.loaded(note, None)
    bench.rest()
    assert bench.answers() == [RedriveDone(), w.Total(1)]
