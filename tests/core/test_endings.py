"""Entities that leave memory and come back, and checkpoints: nothing of them may be lost."""

from __future__ import annotations

import sys
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from peloton.runtime.core.ended.ended_rows import RowDamaged, open_row
from peloton.runtime.core.ended.endings import ENDED_ROWS_PER_ROUND
from peloton.runtime.core.offline.digest import alike, digest
from peloton.runtime.core.shard import Shard
from peloton.runtime.core.sharding import Sharding
from peloton.runtime.core.turning.pump import Budget
from peloton.runtime.core.turning.replies import KEEP_S
from peloton.runtime.core.turning.supervision import Failure, attempt
from peloton.runtime.vocabulary import (
    Absent,
    Decision,
    Key,
    Refused,
    ShardDamaged,
    Unavailable,
    key,
)
from tests.toy import messages as w
from tests.toy.bench import Bench
from tests.toy.daemon import bulbs, panel
from tests.toy.kinds import KINDS

X = key("note", "x")


def closed() -> Bench:
    bench = Bench()
    bench.send(X, w.Add(5), reply_to=0, request=("k", b"5"))
    bench.send(X, w.Close())
    bench.rest()
    bench.rest()
    bench.answers()
    return bench


def same(bench: Bench) -> None:
    assert digest(bench.replay()) == digest(bench.shard)
    assert digest(bench.replay(checkpoint=False)) == digest(bench.shard)


def test_what_has_ended_leaves_memory_once_its_row_is_safe():
    bench = Bench()
    bench.send(X, w.Add(5))
    bench.send(X, w.Close())
    bench.once()
    bench.once()
    assert X in bench.shard.population.cells and not bench.ended
    ready = bench.ready()
    assert [row.key for row in ready.ended] == [X]
    assert X in bench.shard.population.cells, "the row is not safe yet"
    bench.write(ready)
    bench.shard.committed()
    assert X not in bench.shard.population.cells
    same(bench)


def test_whether_it_has_ended_is_asked_once_in_a_frame():
    asked: list[int] = []
    ended = KINDS["note"].ended

    def has_ended(state: Any, index: Any) -> bool:
        asked.append(state.total)
        return ended(state, index)

    bench = Bench(kinds={**KINDS, "note": replace(KINDS["note"], ended=has_ended)})
    for amount in (1, 2, 3):
        bench.send(X, w.Add(amount))
    bench.once()  # loads it
    bench.once()
    assert asked == [6]
    bench.send(X, w.Close())
    bench.rest()
    assert X in bench.ended and X not in bench.shard.population.cells
    same(bench)


def test_an_ended_entity_answers_queries_and_repeats_unchanged():
    bench = closed()
    bench.send(X, w.Show(), reply_to=1)
    bench.rest()
    assert bench.answers() == [w.Total(5)]
    assert X not in bench.shard.population.cells, "a query wakes nobody"
    bench.send(X, w.Add(5), reply_to=2, request=("k", b"5"))
    bench.rest()
    assert bench.answers() == [w.Total(5)]
    same(bench)


@pytest.mark.parametrize("message", [w.Show(), w.Add(1)], ids=["a query", "a command"])
def test_a_final_state_that_cannot_be_read_harms_nobody_else(message: Any):
    bench = closed()
    row = bench.ended[X]
    bench.ended[X] = msgspec.structs.replace(row, body=b"\xc1 torn")
    bench.send(X, message, reply_to=1)
    bench.send(key("note", "y"), w.Add(2), reply_to=2)
    bench.rest()
    total, torn = sorted(bench.answers(), key=lambda answer: isinstance(answer, Unavailable))
    assert total == w.Total(2)
    assert isinstance(torn, Unavailable) and f"{X} cannot be read: DecodeError" in torn.text
    assert X not in bench.shard.population.cells
    bench.ended[X] = row
    bench.send(X, w.Show(), reply_to=3)
    bench.rest()
    assert bench.answers() == [w.Total(5)], "once it is mended it is read again"


@pytest.mark.parametrize("message", [w.Show(), w.Add(1)], ids=["a query", "a command"])
def test_who_asks_for_a_final_state_that_cannot_be_read_waits_for_nobody_else(message: Any):
    bench = closed()
    bench.ended[X] = msgspec.structs.replace(bench.ended[X], body=b"\xc1 torn")
    bench.send(X, message, reply_to=1)
    bench.once()
    assert bench.shard.busy, "else the answer would leave with the next message to anybody"
    bench.rest()
    (torn,) = bench.answers()
    assert isinstance(torn, ShardDamaged)
    assert not bench.shard.busy


def test_the_first_fact_of_a_second_life_carries_the_whole_state():
    bench = closed()
    bench.send(X, w.Add(3), reply_to=1)
    bench.rest()
    assert bench.answers() == [w.Total(8)]
    bench.ended.clear()  # recovery reads no row
    same(bench)
    assert bench.replay().population.cells[X].total == 8


def test_a_deletion_writes_one_more_row():
    bench = closed()
    bench.send(X, w.Forget())
    bench.rest()
    assert not bench.ended
    bench.send(X, w.Show(), reply_to=1)
    bench.rest()
    assert bench.answers()[-1] == Absent(X)
    same(bench)


def test_a_deletion_whose_row_was_not_written_is_written_by_the_next_owner():
    bench = closed()
    bench.send(X, w.Forget())
    bench.once()
    assert X in bench.ended
    bench.write(bench.ready())  # the fact, not the row
    assert X in bench.ended
    bench.shard = bench.replay()
    bench.rest()
    assert X not in bench.ended


def test_a_second_life_without_lookup_does_not_fold_onto_the_first():
    # A note closed and left, then told a report: that class is not looked up.
    bench = closed()
    bench.send(X, w.Lamps(7, 2), sender=Key("panel/zzz"))
    bench.rest()
    assert bench.shard.population.cells[X].total == 0
    same(bench)


def test_a_crowd_leaves_and_returns_with_its_parent():
    bench = Bench()
    bench.send(panel("a"), w.Install(3))
    bench.send(panel("a"), w.Retire())
    bench.after(1)  # its last word is said first
    assert panel("a") in bench.ended
    assert bulbs("a") not in bench.shard.population.crowds
    same(bench)
    bench.send(panel("a"), w.Show(), reply_to=1)
    bench.rest()
    assert bench.answers() == [0]
    bench.send(panel("a"), w.Switch(True))
    bench.rest()
    assert bench.shard.population.crowd(bulbs("a")).present == 0b111
    same(bench)


def test_a_member_that_would_begin_without_its_parent_does_not_delete_the_parents_row():
    """A message that was held back may come when the parent has left with all other members."""
    bench = Bench()
    bench.send(panel("a"), w.Install(3))
    bench.send(panel("a"), w.Retire())
    bench.after(1)
    row = bench.ended[panel("a")]
    bench.send(bulbs("a"), w.Fit(0), 0b1000)
    bench.after(5)
    assert bench.ended[panel("a")] == row
    assert bulbs("a") not in bench.shard.population.crowds
    (aside,) = bench.shard.deferred.dump()[bulbs("a")]
    assert "NoParent: bulb/a would change, but panel/a is not in memory" in aside.error
    same(bench)
    bench.send(panel("a"), w.Switch(True))
    bench.rest()
    assert bench.shard.population.crowd(bulbs("a")).present == 0b111
    same(bench)


def test_checkpoints_are_cut_while_the_shard_goes_on():
    bench = Bench(checkpoint_bytes_min=400)
    bench.send(panel("a"), w.Install(5))
    for number in range(60):
        bench.send(key("note", number % 7), w.Add(1), reply_to=number, request=(f"k{number}", b"x"))
        bench.send(panel("a"), w.Switch(number % 2 == 0))
        bench.send(bulbs("a"), w.Granted(number // 2), 0b10101, sender=Key("meter/0"))
        bench.once()
        same(bench)
    bench.rest()
    assert bench.checkpoint[0] > 20
    same(bench)


def test_a_checkpoint_keeps_time_and_deadlines():
    bench = Bench(checkpoint_bytes_min=1)
    bench.send(panel("a"), w.Install(2))
    bench.send(panel("a"), w.Switch(True))
    bench.rest()
    assert bench.checkpoint[0]
    twin = bench.replay()
    assert twin.turns.now == bench.now
    assert twin.population.crowd(bulbs("a")).next_tick is not None
    bench.shard = twin
    bench.after(5.1)
    bench.rest()
    same(bench)


def deleted(count: int, bytes_min: int) -> Bench:
    """Many that had ended live again and are deleted, all in a few frames."""
    bench = Bench(checkpoint_bytes_min=bytes_min)
    for at in range(count):
        bench.send(key("note", at), w.Add(1))
        bench.send(key("note", at), w.Close())
    bench.rest()
    assert len(bench.ended) == count
    for at in range(count):
        bench.send(key("note", at), w.Forget())
    return bench


def test_rows_of_deletions_are_bounded_and_leave_room_for_endings():
    bench = Bench(checkpoint_bytes_min=10**9)
    for at in range(2000):
        bench.send(key("note", at), w.Add(1))
        bench.send(key("note", at), w.Forget())
    bench.rest()
    bench.shard = bench.replay()  # whether their rows were written is not in the journal
    bench.send(X, w.Add(5))
    bench.send(X, w.Close())
    rounds = []
    while bench.shard.busy:
        rounds.append(bench.once().ended)
    assert max(len(rows) for rows in rounds) <= ENDED_ROWS_PER_ROUND
    assert sum(row.deleted for rows in rounds for row in rows) == 2000
    first = next(at for at, rows in enumerate(rounds) if any(row.key == X for row in rows))
    assert first <= 2, "it has not to wait until all deletions are written"


@pytest.mark.parametrize("what", ["ended", "deleted"])
def test_what_a_round_costs_does_not_grow_with_what_waits(what: str):
    """An entity that waits for its row must cost nothing in all the rounds before."""

    def steps(size: int) -> int:
        bench = Bench()
        bench.shard.pump.budget = Budget(turns=10**9, bytes_soft=10**9)
        for number in range(size):
            bench.send(key("note", number), w.Add(1))
            bench.send(key("note", number), w.Close() if what == "ended" else w.Forget())
        bench.once()  # they may have rows
        bench.once()
        if what == "deleted":
            bench.shard = bench.replay()  # whether their rows were written is not in the journal
        assert len(bench.ended) == 0 and bench.shard.endings.busy
        count = 0

        def note(*_: Any) -> None:
            nonlocal count
            count += 1

        sys.setprofile(note)
        try:
            ready = bench.ready()
        finally:
            sys.setprofile(None)
        assert 0 < len(ready.ended) <= ENDED_ROWS_PER_ROUND
        return count

    assert steps(8000) < 1.2 * steps(2000)


def test_entities_that_are_touched_do_not_keep_others_from_leaving():
    bench = Bench()
    busy = [key("note", f"busy-{number}") for number in range(ENDED_ROWS_PER_ROUND)]
    for name in (*busy, X):
        bench.send(name, w.Add(1))
        bench.send(name, w.Close())
    bench.once()  # they may have rows
    bench.once()
    for _ in range(3):
        for name in busy:
            bench.send(name, w.Add(0))
            bench.send(name, w.Close())
        bench.once()
    assert X in bench.ended and not any(name in bench.ended for name in busy)
    bench.rest()
    assert all(name in bench.ended for name in busy)
    same(bench)


def test_the_floor_waits_for_the_rows_of_what_was_deleted_before_it():
    bench = deleted(2000, bytes_min=1)
    floors = 0
    while bench.shard.busy:
        ready = bench.ready()
        if ready.floor is not None:
            floors += 1
            # A crash right behind the floor: nothing but rows tells what became of these.
            cells = bench.replay(checkpoint=False).population.cells
            stale = [name for name in bench.ended if name not in cells]
            said = {Key(entry) for entry in _deleted_after(bench, ready.floor.position)}
            assert not [name for name in stale if name not in said and _was_deleted(bench, name)]
        bench.write(ready)
        bench.shard.committed()
        for name in ready.load:
            bench.shard.loaded(name, bench.ended.get(name))
    assert floors and not bench.ended


def _deleted_after(bench: Bench, floor: int) -> list[str]:
    frames = [bench.codec.decode_frame(f.body)[1] for f in bench.frames if f.position > floor]
    return [entry.key for entries in frames for entry in entries if w.Forgotten() in entry.facts]


def _was_deleted(bench: Bench, name: Key) -> bool:
    return name in _deleted_after(bench, 0)


def test_who_has_yet_to_look_what_to_report_stays_until_it_has_reported():
    """After a recovery all parents have to look, and a frame takes only so many of them."""
    bench, names = Bench(), [f"p{number}" for number in range(6)]
    for name in names:
        bench.send(panel(name), w.Install(2))
        bench.send(panel(name), w.Retire())
    bench.rest()
    assert not bench.ended, "the owner dies before anything is reported"
    bench.shard = bench.replay()
    bench.shard.pump.budget = Budget(turns=1)
    bench.rest()
    bench.after(2)
    assert {*bench.ended} >= {panel(name) for name in names}
    notes = [key("note", name) for name in names]
    told = [bench.shard.turns.story.of(note) for note in notes]
    assert all(any(line.cause == "Lamps" for line in lines) for lines in told)


class Piecemeal(Bench):
    """Notes below nothing are pieces that nobody finished; who closes none is refused."""

    def fresh(self) -> Shard:
        note = KINDS["note"]
        refused = Decision(reply=Refused("NO", "there is no such note"))
        kind = replace(
            note,
            absent={**note.absent, w.Close: lambda message, at: refused},
            unfinished=lambda state: state.total < 0,
        )
        kinds = {**KINDS, "note": kind}
        return Shard(self.id, kinds, sharding=Sharding(kinds, self.sizes), codec=self.codec)


def test_a_refusal_outlives_pieces_that_were_dropped_after_it():
    bench = Piecemeal()
    request = ("k", b"c")
    bench.send(X, w.Close(), reply_to=1, request=request)
    bench.rest()
    bench.send(X, w.Add(-1))
    bench.rest()
    bench.shard = bench.replay()
    assert X not in bench.shard.population.cells, "nobody finished it"
    bench.send(X, w.Add(5))
    bench.rest()
    bench.shard = bench.replay()
    bench.send(X, w.Close(), reply_to=2, request=request)
    bench.rest()
    first, late = bench.answers()
    assert isinstance(first, Refused) and late == first, "its client may know that it was refused"
    assert not bench.shard.population.cells[X].closed


# ---- rows that are not what was written ----


def sealed() -> tuple[Bench, bytes]:
    """A shard, and the row of what has ended in it."""
    bench = Bench()
    bench.send(X, w.Add(5), reply_to=0, request=("k", b"5"))
    bench.send(X, w.Close())
    bench.rest()
    bench.rest()
    bench.answers()
    ((_, row),) = bench.ended.items()
    return bench, row.body


def test_no_flipped_bit_of_a_row_is_accepted():
    bench, body = sealed()
    whole = open_row(bench.shard.codec, body, key=X)
    assert whole[0].total == 5
    for bit in range(8 * len(body)):
        torn = bytearray(body)
        torn[bit // 8] ^= 1 << bit % 8
        assert isinstance(attempt(open_row, bench.shard.codec, bytes(torn), key=X), Failure), bit


def test_a_row_of_another_key_is_not_accepted():
    bench, body = sealed()
    with pytest.raises(RowDamaged, match="it is the row of note/x"):
        open_row(bench.shard.codec, body, key=key("note", "y"))


def test_an_entity_with_a_damaged_row_is_unavailable_and_the_others_are_not():
    bench, body = sealed()
    row = bench.ended[next(iter(bench.ended))]
    bench.ended[next(iter(bench.ended))] = replace(row, body=body[:-1] + bytes([body[-1] ^ 4]))
    other = key("note", "other")
    bench.send(other, w.Add(1), reply_to=0)
    bench.send(X, w.Add(1), reply_to=0)
    bench.rest()
    (damaged,) = [each for each in bench.answers() if isinstance(each, ShardDamaged)]
    assert "digest differs" in str(damaged)
    assert bench.shard.population.cells[other].total == 1
    assert X not in bench.shard.population.cells


def test_a_revived_row_is_folded_with_its_digest():
    bench, _ = sealed()
    bench.send(X, w.Add(2), reply_to=1)
    bench.rest()
    bench.answers()
    assert digest(bench.replay()) == digest(bench.shard)


def test_an_answer_that_an_owner_has_forgotten_makes_no_other_state() -> None:
    bench = Bench()
    bench.send(X, w.Add(5), reply_to=0, request=("k", b"5"))
    bench.rest()
    bench.now += KEEP_S + 1.0
    bench.once()
    bench.shard.request_log.expire(bench.now)
    again = bench.replay()
    assert digest(again) != digest(bench.shard) and alike(again, bench.shard)
    bench.shard.population.drop(X)
    assert not alike(again, bench.shard)
