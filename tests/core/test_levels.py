"""New facts are written from a feature level on, and by a shard whose fleet knows them."""

from __future__ import annotations

import msgspec
import pytest

from peloton.runtime.core.entities.codec import AboveLevel, Codec, Entry, known_level
from peloton.runtime.core.recovery import Unrecoverable
from peloton.runtime.kinds import Kind
from peloton.runtime.vocabulary import key
from tests.toy import levels
from tests.toy.bench import Bench
from tests.toy.levels import V1, V2, Blindly, Count, Counted, CountedMany, Total

COUNTER = key("counter", "a")
OLD, NEW = {"counter": V1}, {"counter": V2}


def counting(level: int, kinds: dict[str, Kind] = NEW) -> Bench:
    bench = Bench(kinds=kinds)
    bench.codec.level = level
    return bench


def facts(bench: Bench) -> list[type]:
    frames = (bench.codec.decode_frame(frame.body)[1] for frame in bench.frames)
    return [type(fact) for entries in frames for entry in entries for fact in entry.facts]


def test_a_program_knows_the_highest_level_of_its_kinds() -> None:
    assert known_level(OLD) == 0
    assert known_level(NEW) == Codec(NEW).known_level == levels.MANY_LEVEL


def test_below_the_level_a_decision_writes_what_all_know() -> None:
    bench = counting(0)
    bench.send(COUNTER, Count(3))
    bench.rest()
    assert facts(bench) == [Counted] * 3
    old = bench.reopened(OLD)
    assert old.shard.population.cells[COUNTER].total == 3, "an older member takes over"


def test_from_the_level_on_it_writes_the_new_fact() -> None:
    bench = counting(0)
    bench.send(COUNTER, Count(1))
    bench.rest()
    bench.codec.level = 1
    bench.send(COUNTER, Count(3))
    bench.rest()
    assert facts(bench) == [Counted, CountedMany]
    with pytest.raises(Unrecoverable, match="counter has no fact of number 2"):
        bench.reopened(OLD)


def test_a_decision_that_does_not_look_is_refused_and_the_old_form_goes_on() -> None:
    """The turn fails and leaves nothing behind: no member finds a fact that it does not know."""
    bench = counting(0)
    bench.send(COUNTER, Count(2))
    bench.rest()
    bench.send(COUNTER, Blindly(5), reply_to=1)
    bench.after(60.0)
    (aside,) = bench.shard.deferred.dead_letters[COUNTER].facts()
    text = "AboveLevel: CountedMany may be written from feature level 1 on, the cluster's is 0"
    assert aside.error == text
    assert CountedMany not in facts(bench)
    assert bench.shard.population.cells[COUNTER].total == 2


def test_answers_that_are_remembered_are_held_back_too() -> None:
    codec = Codec({"counter": msgspec.structs.replace(V2, since={Total: 2})})
    codec.level = 1
    with pytest.raises(AboveLevel, match="Total may be written from feature level 2"):
        codec.encode_answer(COUNTER, Total(1))
    codec.level = 2
    assert codec.decode_answer(COUNTER, codec.encode_answer(COUNTER, Total(1))) == Total(1)


def test_what_others_wrote_is_read_at_any_level() -> None:
    row = Codec(NEW).encode_entry(Entry(COUNTER, (CountedMany(4),)))
    low = Codec(NEW)
    low.level = 0
    assert low.decode_entry(row).facts == (CountedMany(4),)
