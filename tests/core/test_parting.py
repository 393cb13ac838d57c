"""What an ended entity is asked before it leaves memory: once, and it stays until it is done."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from peloton.runtime.kinds import Retention
from peloton.runtime.vocabulary import Key, Message, key
from tests.toy import messages as w
from tests.toy.bench import Bench
from tests.toy.kinds import KINDS

X = key("note", "x")
Asking = Callable[[Key, w.Note], Message | None]


def lamps_first(name: Key, note: w.Note) -> Message | None:
    """A note leaves once it has heard of the lamps."""
    return w.Lamps(1, 7) if note.version < 1 else None


def bench_of(asking: Asking, *, keep: int = 0) -> Bench:
    kind: Any = replace(KINDS["note"], retention=Retention(parting=asking, count=keep))
    return Bench(kinds={**KINDS, "note": kind})


def closed(bench: Bench, name: Key = X) -> None:
    bench.send(name, w.Add(5))
    bench.send(name, w.Close())
    bench.rest()


def note_of(bench: Bench, name: Key = X) -> w.Note | None:
    found: w.Note | None = bench.shard.population.cells.get(name)
    return found


@pytest.mark.parametrize("keep", [0, 1])
def test_what_was_asked_is_in_the_row(keep: int) -> None:
    bench = bench_of(lamps_first, keep=keep)
    closed(bench)
    closed(bench, key("note", "y"))
    assert note_of(bench) is None
    bench.send(X, w.Add(1))
    bench.rest()
    back = note_of(bench)
    assert back is not None
    assert (back.total, back.heard) == (6, 7)


def test_an_entity_stays_until_it_has_done_what_it_was_asked() -> None:
    asked: list[Key] = []

    def never_done(name: Key, note: w.Note) -> Message | None:
        asked.append(name)
        return w.Lamps(note.version, 7)  # which it has heard: nothing changes

    bench = bench_of(never_done)
    closed(bench)
    assert note_of(bench) is not None
    rounds = bench.shard.delivered
    bench.after(100)
    assert note_of(bench) is not None
    assert bench.shard.delivered == rounds, "it is asked once"
    assert asked


def test_a_shard_that_recovers_asks_again() -> None:
    bench = bench_of(lamps_first)
    bench.send(X, w.Add(5))
    bench.send(X, w.Close())
    bench.write(bench.ready())  # the process dies before it has asked
    bench.shard = bench.replay()
    bench.rest()
    assert note_of(bench) is None


def test_one_that_acts_again_meanwhile_stays() -> None:
    bench = bench_of(lamps_first, keep=1)
    closed(bench)
    bench.send(X, w.Add(1))
    bench.rest()
    closed(bench, key("note", "y"))
    assert note_of(bench) == w.Note(6)
