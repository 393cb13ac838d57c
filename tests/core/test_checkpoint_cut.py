"""A checkpoint is the state at its cut, whatever changes while it is written; so are deadlines.

What is compared is what the parts alone bring back: a fold of the tail over a later state may well
end in the same state, and hide the difference.
"""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from peloton.runtime.core.checkpoint import Checkpointer
from peloton.runtime.core.offline.digest import digest
from peloton.runtime.core.recovery import restore
from peloton.runtime.core.shard import Shard
from peloton.runtime.vocabulary import Decision, Due, Key, key
from tests.toy import messages as w
from tests.toy.bench import Bench, frames_after
from tests.toy.daemon import bulbs, panel
from tests.toy.kinds import KINDS

A, X = panel("a"), key("note", "x")
METERS = (Key("meter/1"), Key("meter/2"))


def cut() -> Bench:
    """Bulbs that heat, and a checkpoint that was cut and is yet to be written."""
    bench = Bench(checkpoint_bytes_min=10**9)
    bench.send(A, w.Install(4))
    bench.send(A, w.Switch(True))
    bench.rest()
    bench.shard.checkpointer = Checkpointer(bench.codec, 1)
    bench.send(X, w.Add(1))
    while not bench.shard.checkpointer.busy:
        assert bench.once().parts == (), "its frame is not durable yet"
    return bench


def from_parts_alone(bench: Bench, parts: list[bytes], position: int) -> Shard:
    shard = bench.fresh()
    restore(shard, parts, frames=[], floor=position)
    return shard


@pytest.mark.parametrize(
    ("message", "members", "values"),
    [
        (w.Denied(1), 0b0011, ()),  # the first of its facts counts how often
        (w.Wire(), 0b0011, METERS),  # changes a column alone
        (w.Fit(0), 0b110000, ()),  # more members
    ],
    ids=["states", "columns", "new members"],
)
def test_a_checkpoint_holds_members_as_they_were_at_its_cut(
    message: Any, members: int, values: tuple[Key, ...]
) -> None:
    bench = cut()
    position, before = bench.shard.position, digest(bench.shard)
    bench.send(bulbs("a"), message, members, sender=Key("meter/0"), values=values)
    ready = bench.once()
    assert ready.frame is not None and digest(bench.shard) != before
    (part,) = ready.parts
    assert part.position == position and part.last, "it was made after the change"
    recovered = from_parts_alone(bench, [part.body], position)
    assert digest(recovered) == before
    restored = bench.fresh()
    frames = frames_after(bench.frames, position)
    restore(restored, [part.body], frames=frames, floor=position)
    assert digest(restored) == digest(bench.shard)


def test_members_that_change_twice_under_a_checkpoint_are_copied_once() -> None:
    bench = cut()
    before, position = digest(bench.shard), bench.shard.position
    bench.send(bulbs("a"), w.Denied(1), 0b0001, sender=Key("meter/0"))
    bench.send(bulbs("a"), w.Granted(1), 0b0010, sender=Key("meter/0"))
    (part,) = bench.once().parts
    assert digest(from_parts_alone(bench, [part.body], position)) == before


# ---- deadlines ----


def due(note: w.Note, message: Due, at: Any) -> Decision:
    return Decision(facts=(w.Closed() if message.name == "even" else w.Added(10),))


def deadline(note: w.Note) -> tuple[str, float] | None:
    if note.closed or note.total > 9:
        return None
    return ("odd", 5.0) if note.total % 2 else ("even", 0.0)


def timed(**more: Any) -> Bench:
    """A note of an odd total becomes ten more after five seconds; one of an even total closes."""
    note = KINDS["note"]
    kind = replace(note, deadline=deadline, decide={**note.decide, Due: due})
    bench = Bench(kinds={**KINDS, "note": kind}, **more)
    bench.send(X, w.Add(1))
    bench.rest()
    return bench


def note_of(bench: Bench) -> w.Note:
    found = bench.shard.population.cells[X]
    assert isinstance(found, w.Note)
    return found


def test_a_message_of_a_deadline_that_is_not_over_changes_nothing() -> None:
    bench = timed()
    bench.after(4.9)
    bench.send(X, Due("odd"))
    bench.rest()
    assert note_of(bench).total == 1
    bench.after(0.2)
    assert note_of(bench).total == 11


def test_the_deadline_of_a_former_state_changes_nothing() -> None:
    """Both are over: the message of the one was queued when the other began."""
    bench = timed()
    bench.after(4.9)
    bench.now = round(bench.now + 0.1, 3)
    bench.send(X, w.Add(1))
    bench.send(X, Due("odd"))
    bench.once()
    assert note_of(bench).total == 2
    bench.rest()


def test_a_deadline_does_not_begin_anew_with_each_change() -> None:
    bench = timed()
    for _ in range(2):
        bench.after(2.0)
        bench.send(X, w.Add(2))
        bench.rest()
    bench.after(1.2)
    assert note_of(bench).total == 15


@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_deadline_does_not_begin_anew_with_a_recovery(checkpoint: bool) -> None:
    bench = timed(checkpoint_bytes_min=1 if checkpoint else 10**9)
    assert bool(bench.checkpoint[0]) is checkpoint
    bench.after(3.0)
    bench.shard = bench.replay()
    bench.after(1.8)
    assert note_of(bench).total == 1, "nor does it come early"
    bench.after(0.4)
    assert note_of(bench).total == 11


def test_the_deadlines_of_members_come_after_a_recovery() -> None:
    bench = Bench()
    bench.send(A, w.Install(2))
    bench.send(A, w.Switch(True))
    bench.rest()
    bench.taken()
    bench.shard = bench.replay()
    bench.after(5.2)
    undrawn = [each for each in bench.taken() if isinstance(each.message, w.Undraw)]
    assert undrawn and undrawn[0].origin == 0b11, "no grant in time"
