"""Below the feature level of a schema, a later program writes what the earlier one reads.

The toy kind in three versions, in both directions: each goes on with what another wrote.
"""

from __future__ import annotations

import immutables
import pytest
from msgspec.structs import replace

from peloton.assembly.kinds import kinds
from peloton.runtime.core.codec import AboveLevel, Codec, Entry
from peloton.runtime.core.digest import digest
from peloton.runtime.core.inspection import Redrive, shard_key
from peloton.runtime.core.recovery import Unrecoverable
from peloton.runtime.vocabulary import Kind, key
from peloton.settings.daemon import ALONE_SHARDS
from tests.core.test_upcasting import COINS, TILL, paid, same_twice, state
from tests.toy.ages import (
    AGES,
    COIN_2,
    TILL_2,
    Close,
    Coin2,
    Paid2,
    Pay2,
    Sum1,
    Sum2,
    Till1,
    Till2,
    Till3,
    Turn,
)
from tests.toy.bench import Bench

EUR = ("eur",)


def at_level(level: int, version: int, *, before: Bench | None = None) -> Bench:
    """A shard of that version, in a cluster of that level; it continues the journal of another."""
    bench = before.reopened(AGES[version]) if before is not None else Bench(kinds=AGES[version])
    bench.codec.level = level
    return bench


@pytest.mark.parametrize("version", [2, 3])
def test_facts_are_read_by_the_version_before_and_the_other_way_round(version: int) -> None:
    one = Bench(kinds=AGES[1])
    paid(one, 5)
    later = at_level(0, version, before=one)
    paid(later, 4, form=Pay2, names=EUR)
    one = later.reopened(AGES[1])
    assert state(one) == Till1(9)
    paid(one, 3)
    again = at_level(0, version, before=one)
    assert state(again) == (Till2("eur", 12) if version == 2 else Till3(False, sums(eur=12)))
    same_twice(again)


def sums(**amounts: int) -> immutables.Map[str, int]:
    return immutables.Map(amounts)


@pytest.mark.parametrize("version", [2, 3])
def test_checkpoints_with_crowds_and_columns(version: int) -> None:
    one = Bench(kinds=AGES[1])
    paid(one, 1)
    one.send(COINS, Turn(), members=0b10)
    one.rest()
    later = one.reopened(AGES[version])
    later.codec.level = 0
    later.bytes_min = 1
    later.shard = later.replay()
    paid(later, 4, form=Pay2, names=EUR)
    later.rest()
    assert later.checkpoint[0] > one.frames[-1].position, "a test of checkpoints needs one"
    one = later.reopened(AGES[1])
    assert state(one) == Till1(5)
    here, there = one.shard.population.crowd(COINS), later.shard.population.crowd(COINS)
    assert here.columns.read("by", 1) == "ann"
    assert {state_.heads: raw for state_, raw in here.classes.items()} == {
        state_.heads: raw for state_, raw in there.classes.items()
    }
    assert digest(one.replay(checkpoint=False)) == digest(one.replay())


@pytest.mark.parametrize("version", [2, 3])
def test_ended_rows_and_remembered_answers(version: int) -> None:
    later = at_level(0, version)
    later.send(TILL, Pay2("eur", 5), reply_to=1, request=("k", b"d"))
    later.rest()
    other = key("till", "b")
    paid(later, 6, form=Pay2, names=EUR, till="b")
    later.send(other, Close())
    later.rest()
    later.rest()
    assert later.ended[other].body and other not in later.shard.population.cells
    one = later.reopened(AGES[1])
    one.send(TILL, Pay2("eur", 5), reply_to=1, request=("k", b"d"))
    one.rest()
    assert one.answers() == [Sum1(5)], "a repeat"
    paid(one, 1, till="b")
    assert one.answers() == [Sum1(7)]


def test_dead_letters() -> None:
    two = at_level(0, 2)
    paid(two, 1, form=Pay2, names=EUR)
    two.send(TILL, Pay2("eur", 13), reply_to=1)
    two.after(60.0)
    (fact,) = two.shard.deferred.dead_letters[TILL].facts()
    assert fact.schema == 1
    three = at_level(0, 3, before=two.reopened(AGES[1]))
    three.send(shard_key(three.id), Redrive(TILL), reply_to=1)
    three.rest()
    assert state(three).sums == sums(eur=14)


def test_each_schema_has_its_own_level() -> None:
    three = at_level(1, 3)
    paid(three, 5, form=Pay2, names=EUR)
    assert state(three.reopened(AGES[2])) == Till2("eur", 5)
    body = three.codec.encode_cell(TILL, three.shard.population.cells[TILL])
    assert Codec(AGES[2]).decode_entity(body) == (TILL, (Till2("eur", 5), 0.0))
    with pytest.raises(Unrecoverable, match="Paid1 of schema 2, this program knows 1"):
        three.reopened(AGES[1])


def test_the_new_schema_is_written_as_soon_as_the_level_is_raised() -> None:
    two = at_level(0, 2)
    paid(two, 5, form=Pay2, names=EUR)
    two.codec.level = 1
    paid(two, 5, form=Pay2, names=EUR)
    found = [two.codec.raw_frame(frame.body)[1] for frame in two.frames]
    written = [fact.schema for rows in found for row in rows if row[0] == TILL for fact in row[1]]
    assert written == [1, 2]
    assert state(two.reopened(AGES[2])) == Till2("eur", 10)


def test_what_the_older_schema_cannot_hold_is_refused_and_the_shard_goes_on() -> None:
    two = at_level(0, 2)
    paid(two, 5, form=Pay2, names=EUR)
    two.send(TILL, Pay2("usd", 7), reply_to=1)
    two.after(60.0)
    (aside,) = two.shard.deferred.dead_letters[TILL].facts()
    assert "AboveLevel: Paid2" in aside.error and "schema 1 cannot hold it" in aside.error
    assert state(two) == Till2("eur", 5)


def test_a_state_is_not_written_with_less_than_it_holds() -> None:
    """Otherwise what is recovered would differ from what was in memory."""
    codec = Codec(AGES[3])
    codec.level = 0
    with pytest.raises(AboveLevel, match="till/a: .*schema 1 cannot hold it"):
        codec.encode_cell(TILL, Till3(False, sums(eur=1, usd=2)))
    two = Bench(kinds=AGES[2])
    paid(two, 1, form=Pay2, names=EUR)
    one = Bench(kinds=AGES[1])
    paid(one, 1)
    crowd = one.reopened(AGES[2]).shard.population.crowd(COINS)
    two.codec.level = 0
    assert two.codec.encode_crowd(crowd)
    crowd.classes = {Coin2(2, False): 0b10}
    with pytest.raises(AboveLevel, match="coin/a: .*schema 1 cannot hold it"):
        two.codec.encode_crowd(crowd)


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"schemas_since": {}}, "every schema from 2 to 2 needs a level and a step"),
        ({"downcasters": {}}, "every schema from 2 to 2 needs a level and a step"),
        ({"schemas_since": {Coin2: {2: 0}}}, "levels of schemas are at least 1"),
        ({"schemas_since": {Coin2: {2: 1, 3: 1}}}, "every schema from 2 to 2"),
    ],
)
def test_a_schema_without_a_level_is_no_program(wrong: dict[str, object], text: str) -> None:
    """Its first daemon would write what the others cannot read."""
    with pytest.raises(ValueError, match=f"coin: Coin2: {text}"):
        Codec({"till": TILL_2, "coin": replace(COIN_2, **wrong)})


def test_a_schema_of_a_fact_needs_a_level_too() -> None:
    levels = {cls: of for cls, of in TILL_2.schemas_since.items() if cls is not Paid2}
    with pytest.raises(ValueError, match="till: Paid2: every schema from 2 to 2 needs a level"):
        Codec({"till": replace(TILL_2, schemas_since=levels), "coin": COIN_2})


def test_the_levels_of_schemas_count_for_what_a_program_knows() -> None:
    assert [Codec(AGES[version]).known_level for version in (1, 2, 3)] == [0, 1, 2]


def test_columns_of_a_later_version_are_skipped() -> None:
    """As fields at the end are: a column needs no schema."""
    one = Bench(kinds=AGES[1])
    paid(one, 1)
    crowd = one.shard.population.crowd(COINS)
    wide = crowd.columns.copy()
    wide._same |= {"mint": "d"}
    wide._each |= {"year": [None, 1999]}
    crowd.columns = wide
    body = one.codec.encode_crowd(crowd)
    found = Codec(AGES[1]).decode_entity(body)[1]
    assert found.columns.read("by", 1) == "ann"
    assert found.columns.read("mint", 1) is None


@pytest.mark.parametrize("kind", kinds(ALONE_SHARDS).values(), ids=lambda kind: kind.name)
def test_what_is_sent_has_one_form_for_ever(kind: Kind) -> None:
    """No schema stands beside a message or an answer on the wire: a new form is a new class."""
    sent = {*kind.messages.values(), *kind.queries.values(), *kind.answers.values()}
    assert not [cls.__name__ for cls in kind.schemas if cls in sent]


def test_an_entry_at_the_highest_level_is_encoded_as_ever() -> None:
    codec = Codec(AGES[2])
    row = codec.encode_entry(Entry(TILL, (Paid2("usd", 5),)))
    assert codec.decode_entry(row).facts == (Paid2("usd", 5),)
    assert codec.decode_answer(TILL, codec.encode_answer(TILL, Sum2("x"))) == Sum2("x")
