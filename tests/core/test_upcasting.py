"""What an older program stored is read by a later one: frames, checkpoints, ended rows, answers.

A toy kind in three versions writes a journal with each, and the next goes on with it.
"""

from __future__ import annotations

from typing import Any

import immutables
import msgspec
import pytest

from peloton.assembly.kinds import kinds
from peloton.runtime.core.codec import Codec
from peloton.runtime.core.digest import digest
from peloton.runtime.core.inspection import Redrive, shard_key
from peloton.runtime.core.recovery import Unrecoverable
from peloton.runtime.core.upcasting import MissingUpcaster, upcast
from peloton.runtime.vocabulary import Kind, key
from peloton.settings.daemon import ALONE_SHARDS
from tests.toy.ages import (
    AGES,
    COIN_3,
    TILL_3,
    Ask,
    Close,
    Coin2,
    Pay1,
    Pay2,
    Sum2,
    Till2,
    Till3,
    Turn,
)
from tests.toy.bench import Bench

TILL = key("till", "a")
COINS = key("coin", "a")


def paid(
    bench: Bench, *cents: int, form: type = Pay1, names: tuple[str, ...] = (), till: str = "a"
) -> None:
    for amount in cents:
        message = form(*names, amount)
        bench.send(key("till", till), message, who="ann", reply_to=1)
        bench.rest()


def state(bench: Bench, till: str = "a") -> Any:
    bench.answers()
    bench.send(key("till", till), Ask(), reply_to=1)
    bench.rest()
    (found,) = bench.answers()
    return found


def begun(checkpoint_bytes_min: int | None = None) -> Bench:
    return Bench(kinds=AGES[1], checkpoint_bytes_min=checkpoint_bytes_min)


def same_twice(bench: Bench) -> None:
    """A second recovery of the journal, and one from all frames, make the very same state."""
    assert digest(bench.replay()) == digest(bench.shard)
    assert digest(bench.replay(checkpoint=False)) == digest(bench.shard)


def test_frames_of_all_versions_in_one_tail() -> None:
    one = begun()
    paid(one, 5, 6)
    two = one.reopened(AGES[2])
    assert state(two) == Till2("eur", 11)
    paid(two, 4, form=Pay2, names=("eur",))
    three = two.reopened(AGES[3])
    assert state(three) == Till3(sums=immutables.Map({"eur": 15}))
    paid(three, 7, form=Pay2, names=("usd",))
    assert state(three).sums == immutables.Map({"eur": 15, "usd": 7})
    same_twice(three)


def test_the_oldest_checkpoint_is_read_by_the_newest_at_once() -> None:
    one = begun(checkpoint_bytes_min=200)
    paid(one, *([1] * 9))
    one.send(COINS, Turn(), members=0b10)
    one.rest()
    assert one.checkpoint[0], "a test of checkpoints needs one"
    three = one.reopened(AGES[3])
    assert state(three) == Till3(sums=immutables.Map({"eur": 9}))
    crowd = three.shard.population.crowd(COINS)
    assert crowd.classes == {Coin2(0, False): 0b11111101, Coin2(1, True): 0b10}
    same_twice(three)


def test_columns_change_with_the_schema_of_their_crowd() -> None:
    one = begun(checkpoint_bytes_min=1)
    paid(one, 1)
    one.send(COINS, Turn(), members=0b10)
    one.rest()
    assert one.checkpoint[0] == 1, "the coin was laid before the checkpoint"
    crowd = one.reopened(AGES[3]).shard.population.crowd(COINS)
    assert crowd.columns.read("by", 1) == "a. ann"
    assert one.reopened(AGES[2]).shard.population.crowd(COINS).columns.read("by", 1) == "ann"


def test_columns_that_are_no_more_are_left_out() -> None:
    one = begun(checkpoint_bytes_min=1)
    paid(one, 1)
    one.send(COINS, Turn(), members=0b10)
    one.rest()
    body = one.codec.encode_crowd(one.shard.population.crowd(COINS))
    assert COIN_3.crowd is not None
    bare = msgspec.structs.replace(COIN_3.crowd, columns={}, write={})
    kinds_ = {"till": TILL_3, "coin": msgspec.structs.replace(COIN_3, crowd=bare)}
    crowd = Codec(kinds_).decode_entity(body)[1]
    assert crowd.columns.read("by", 1) is None
    assert crowd.classes == {Coin2(1, True): 0b10}


@pytest.mark.parametrize("version", [2, 3])
def test_ended_rows(version: int) -> None:
    one = begun()
    paid(one, 5)
    one.send(TILL, Close())
    one.rest()
    one.rest()
    assert one.ended[TILL].body and TILL not in one.shard.population.cells
    later = one.reopened(AGES[version])
    paid(later, 2, form=Pay2, names=("eur",))
    assert later.answers() == [Sum2("7 eur")]
    same_twice(later)
    assert later.shard.population.cells[TILL] == state(later)


def test_a_row_that_came_back_stands_in_the_frame_in_its_old_form() -> None:
    """`Revived` holds the row as it was: the next version reads it through two steps."""
    one = begun()
    paid(one, 5)
    one.send(TILL, Close())
    one.rest()
    one.rest()
    two = one.reopened(AGES[2])
    paid(two, 2, form=Pay2, names=("eur",))
    three = two.reopened(AGES[3])
    assert state(three).sums == immutables.Map({"eur": 7})


def test_answers_that_were_remembered() -> None:
    one = begun()
    one.send(TILL, Pay1(5), reply_to=1, request=("k", b"d"))
    one.rest()
    three = one.reopened(AGES[3])
    three.send(TILL, Pay2("eur", 5), reply_to=1, request=("k", b"d"))
    three.rest()
    assert three.answers() == [Sum2("5 eur")]
    assert state(three).sums == immutables.Map({"eur": 5}), "once, not twice"


def test_dead_letters() -> None:
    one = begun()
    paid(one, 1)
    one.answers()
    one.send(TILL, Pay1(13), reply_to=1)
    one.after(60.0)
    assert len(one.shard.deferred.dead_letters[TILL]) == 1
    three = one.reopened(AGES[3])
    three.send(shard_key(three.id), Redrive(TILL), reply_to=1)
    three.rest()
    assert state(three).sums == immutables.Map({"eur": 14})
    same_twice(three)


def test_a_dead_letter_of_a_later_schema_is_read_in_that_schema() -> None:
    two = Bench(kinds=AGES[2])
    paid(two, 1, form=Pay2, names=("usd",))
    two.send(TILL, Pay2("usd", 13), reply_to=1)
    two.after(60.0)
    (fact,) = two.shard.deferred.dead_letters[TILL].facts()
    assert fact.schema == 2
    three = two.reopened(AGES[3])
    three.send(shard_key(three.id), Redrive(TILL), reply_to=1)
    three.rest()
    assert state(three).sums == immutables.Map({"usd": 14})


@pytest.mark.parametrize(
    ("cls", "what"), [(Till3, "till: state of schema 1"), (Pay2, "till: Pay2 of schema 1")]
)
def test_a_missing_upcaster_is_named(cls: type, what: str) -> None:
    one = begun(checkpoint_bytes_min=1)
    paid(one, 5)
    one.send(TILL, Pay1(13), reply_to=1)
    one.after(60.0)
    cell = one.codec.encode_cell(TILL, one.shard.population.cells[TILL])
    (aside,) = one.shard.deferred.dead_letters[TILL].facts()
    steps = {known: steps for known, steps in TILL_3.upcasters.items() if known is not cls}
    codec = Codec({"till": msgspec.structs.replace(TILL_3, upcasters=steps), "coin": COIN_3})
    with pytest.raises(MissingUpcaster, match=f"{what}.*from 1 to 2"):
        if cls is Till3:
            codec.decode_entity(cell)
        codec.decode_message(TILL, aside.number, body=aside.body, schema=aside.schema)


def test_what_a_later_program_wrote_is_refused_by_its_schema() -> None:
    three = Bench(kinds=AGES[3])
    paid(three, 5, form=Pay2, names=("eur",))
    with pytest.raises(Unrecoverable, match="till: Paid1 of schema 2, this program knows 1"):
        three.reopened(AGES[1])


def test_what_did_not_change_is_written_as_ever() -> None:
    """The schema is written beside what has a later one only: older bytes stay as they are."""
    one = begun()
    paid(one, 5)
    rows = msgspec.msgpack.decode(one.frames[0].body)[2]
    assert [len(fact) for row in rows for fact in row[1]] == [2, 2]
    two = one.reopened(AGES[2])
    paid(two, 5, form=Pay2, names=("eur",))
    rows = msgspec.msgpack.decode(two.frames[-1].body)[2]
    assert [fact[2:] for row in rows for fact in row[1]] == [[2]]


@pytest.mark.parametrize(
    "kind", [*kinds(ALONE_SHARDS).values(), *AGES[3].values()], ids=lambda kind: kind.name
)
def test_every_kind_has_all_its_steps(kind: Kind) -> None:
    today = {**kind.schemas, kind.state: kind.schema}
    for cls, schema in today.items():
        steps = kind.upcasters.get(cls, {})
        assert sorted(steps) == [*range(1, schema)], f"{cls.__name__}: a step from each form"
    assert kind.upcasters.keys() <= today.keys(), "steps of a class in its first form"


def test_steps_are_taken_in_order() -> None:
    steps = {form: lambda raw, form=form: [*raw, form] for form in (1, 2, 3)}
    assert upcast([], steps, what="x", forms=(2, 4)) == [2, 3]
    assert upcast([], steps, what="x", forms=(4, 4)) == []
