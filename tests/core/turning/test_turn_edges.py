"""Turns at their edges: entries too large, refusals for now, and what a recovery begins with."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from peloton.runtime.core.offline.digest import digest
from peloton.runtime.core.turning import turns
from peloton.runtime.core.turning.turn import TurnOutcome, UnknownMessage, take_turn
from peloton.runtime.vocabulary import KIND_STATES, At, Decision, Refused, key
from tests.core.test_endings import Piecemeal
from tests.toy import messages as w
from tests.toy.bench import Bench, frames_after
from tests.toy.daemon import panel
from tests.toy.kinds import KINDS

X = key("note", "x")
BYTES_MAX = 100


def test_an_entry_that_no_frame_takes_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "ENTRY_BYTES_MAX", BYTES_MAX)
    bench = Bench()
    bench.send(panel("large"), w.Install(0, (1,) * (BYTES_MAX + 20)), reply_to=1)
    bench.send(X, w.Add(1), reply_to=2)
    bench.rest()
    assert bench.answers() == [w.Total(1)], "the others of its frame go on"
    assert [*bench.shard.population.cells] == [X]
    assert digest(bench.replay()) == digest(bench.shard)


def test_what_is_not_answered_for_nobody_changes_nothing() -> None:
    note = replace(KINDS["note"], absent={})
    turn = take_turn(note, None, message=w.Add(1), at=At(now=0.0, key=X))
    assert turn == TurnOutcome(None, (), (), None, "no such note")
    with pytest.raises(UnknownMessage):
        take_turn(note, None, message=w.Install(0, ()), at=At(now=0.0, key=X))


@pytest.mark.parametrize("again", [True, False])
def test_a_refusal_for_now_is_not_kept_under_its_key(again: bool) -> None:
    """A later copy of the request may succeed, if the client was told so."""
    note = KINDS["note"]
    refused = Decision(reply=Refused("NO", "not yet", again=again))
    absent = {**note.absent, w.Close: lambda message, at: refused}
    bench = Bench(kinds={**KINDS, "note": replace(note, absent=absent)})
    bench.send(X, w.Close(), reply_to=1, request=("k", b"c"))
    bench.rest()
    bench.send(X, w.Add(5))
    bench.send(X, w.Close(), reply_to=2, request=("k", b"c"))
    bench.rest()
    first, second = bench.answers()
    assert first == refused.reply
    assert second == (w.Total(5) if again else first)


def test_the_recovery_after_the_next_folds_no_old_piece_under_the_new() -> None:
    bench = Piecemeal()
    bench.send(X, w.Add(-1))
    bench.rest()
    bench.shard = bench.replay()
    assert X not in bench.shard.population.cells, "nobody finished it"
    bench.send(X, w.Add(5))
    bench.rest()
    assert bench.shard.population.cells[X].total == 5
    assert bench.replay().population.cells[X].total == 5


@pytest.mark.parametrize("checkpoint", [False, True], ids=["a tail", "a checkpoint alone"])
def test_time_goes_on_from_where_the_last_owner_was(checkpoint: bool) -> None:
    """Its clock was ahead of ours. A deadline is neither put off by that, nor comes early."""
    bench = Bench(checkpoint_bytes_min=1 if checkpoint else 10**9)
    bench.send(X, w.Add(1))
    bench.after(100.0)
    bench.shard.checkpointer.last_bytes = 0  # so that the next frame, too, is worth one
    bench.send(X, w.Add(1))
    bench.rest()
    assert bool(frames_after(bench.frames, bench.checkpoint[0])) is not checkpoint
    before = bench.shard.turns.now
    assert before == bench.now
    bench.shard = bench.replay()
    bench.now -= 50.0
    for passed in (0.0, 1.0, 2.0):
        bench.now += 1.0 if passed else 0.0
        bench.send(X, w.Add(1))
        bench.rest()
        assert round(bench.shard.turns.now - before, 3) == passed


def test_other_threads_read_what_was_recovered() -> None:
    bench = Bench()
    bench.send(X, w.Add(5))
    bench.rest()
    assert bench.replay().reads.answer(X, w.Show()) == w.Total(5)


def test_an_answer_made_of_many_states_is_over_with_a_change_of_any() -> None:
    """A reader that was told of the change may not be shown what was before it."""
    note = replace(KINDS["note"], depends=lambda query: KIND_STATES)
    bench = Bench(kinds={**KINDS, "note": note})
    bench.send(X, w.Add(5))
    bench.rest()
    reads = bench.shard.reads
    state = bench.shard.population.cells[X]
    reads.keep(note, X, query=w.Show(), state=state, answer=w.Total(5))
    assert reads.answer(X, w.Show()) == w.Total(5)
    bench.send(key("note", "y"), w.Add(1))
    bench.rest()
    assert reads.answer(X, w.Show()) is None
