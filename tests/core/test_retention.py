"""Ended entities that are kept for a while: by count, by bytes and by age."""

from __future__ import annotations

import math
from typing import Any

import pytest
from msgspec.structs import replace

from peloton.actors.job.kind import kind as job_kind
from peloton.runtime.core.ended.retention import STALE_MIN, Retained
from peloton.runtime.kinds import Retention
from peloton.runtime.vocabulary import Key, key
from tests.toy import messages as w
from tests.toy.bench import Bench
from tests.toy.kinds import KINDS

NAMES = [key("note", f"n{number}") for number in range(4)]


def closed(**bounds: Any) -> Bench:
    """Four notes that ended one after the other, ten seconds apart."""
    bench = Bench(kinds={**KINDS, "note": replace(KINDS["note"], retention=Retention(**bounds))})
    for name in NAMES:
        bench.send(name, w.Add(5))
        bench.send(name, w.Close())
        bench.rest()
        bench.after(10)
    return bench


def kept(bench: Bench) -> list[Key]:
    return [name for name in NAMES if name in bench.shard.population.cells]


def size(bench: Bench) -> int:
    name = kept(bench)[0]
    return len(bench.codec.encode_cell(name, bench.shard.population.cells[name]))


@pytest.mark.parametrize("bounds", [{"count": 2}, {"count": 99, "seconds": 25.0}], ids=str)
def test_the_oldest_leave_by_count_and_by_age(bounds: dict[str, Any]) -> None:
    assert kept(closed(**bounds)) == NAMES[2:]


def test_the_oldest_leave_by_bytes() -> None:
    one = size(closed(count=99))
    assert kept(closed(count=99, size=3 * one)) == NAMES[1:]
    assert kept(closed(count=99, size=one - 1)) == [], "not even one fits"


def test_a_shard_without_mail_wakes_up_to_let_the_oldest_go() -> None:
    bench = closed(count=99, seconds=100.0)
    assert kept(bench) == NAMES
    oldest = bench.now - 40.0
    assert bench.shard.endings.next_s == pytest.approx(oldest + 100.0, abs=1.0)
    bench.now = oldest + 99.0
    bench.once()
    assert kept(bench) == NAMES
    bench.now = oldest + 101.0
    bench.rest()
    assert kept(bench) == NAMES[1:]
    bench.now += 1000.0
    bench.rest()
    assert kept(bench) == [] and bench.shard.endings.next_s is None


def test_the_next_departure_is_among_the_times_to_wake_up() -> None:
    bench = closed(count=99, seconds=45.0)
    (due, ready) = (bench.shard.endings.next_s, bench.once())
    assert due is not None and bench.now < due <= bench.now + 10.0
    assert ready.wake_at == due, "nothing else is due so soon"


def test_what_has_left_by_age_answers_and_lives_again() -> None:
    bench = closed(count=99, seconds=5.0)
    assert kept(bench) == []
    bench.send(NAMES[0], w.Show(), reply_to=1)
    bench.rest()
    assert bench.answers() == [w.Total(5)] and kept(bench) == []
    bench.send(NAMES[0], w.Add(1), reply_to=2)
    bench.rest()
    assert bench.answers() == [w.Total(6)]


def test_what_lives_again_or_is_deleted_is_not_counted() -> None:
    bench = closed(count=99)
    endings = bench.shard.endings
    before = endings._kept["note"]._bytes
    bench.send(NAMES[0], w.Forget())
    bench.rest()
    assert NAMES[0] not in endings._kept["note"]
    assert endings._kept["note"]._bytes == before * 3 // 4


def test_after_a_recovery_the_bounds_hold_as_before() -> None:
    bench = closed(count=99, seconds=100.0)
    bench.shard = bench.replay()
    bench.once()
    assert kept(bench) == NAMES
    bench.now += 101.0
    bench.rest()
    assert kept(bench) == []


def test_many_that_are_too_old_leave_in_portions() -> None:
    notes = Retained(Retention(count=99, seconds=1.0))
    for name in NAMES:
        notes.add(name, now=0.0, size=1)
    assert notes.leaving(5.0, 3) == NAMES[:3]
    assert notes.leaving(5.0, 3) == NAMES[3:] and notes.leaving(5.0, 3) == []


def test_finished_jobs_leave_by_each_of_the_three() -> None:
    bounds = job_kind(8).retention
    assert bounds is not None and bounds.count
    assert 0 < bounds.size < math.inf and 0 < bounds.seconds < math.inf


def held(**bounds: Any) -> Retained:
    return Retained(Retention(**bounds))


@pytest.mark.parametrize(
    ("bounds", "bound", "leaving"),
    [
        ({"count": 99, "seconds": 25.0}, "age", 2),
        ({"count": 3}, "count", 1),
        ({"count": 99, "size": 25}, "bytes", 2),
        ({"count": 99, "size": 0}, "bytes", 4),
        ({"count": 99}, "", 0),
    ],
    ids=str,
)
def test_who_leaves_is_counted_by_the_bound(
    bounds: dict[str, Any], bound: str, leaving: int
) -> None:
    notes = held(**bounds)
    for at, name in enumerate(NAMES):
        notes.add(name, now=10.0 * at, size=10)
    assert notes.leaving(40.0, 99) == NAMES[:leaving]
    left = {name: count for name, count in notes.figures.left if count}
    assert left == ({bound: leaving} if leaving else {})


def test_the_oldest_is_who_ended_first_in_whatever_order_they_are_found() -> None:
    """As after a recovery, which finds entities in the order of the checkpoint."""
    notes = held(count=99, size=20)
    for name, ended in zip(NAMES, (30.0, 10.0, 40.0, 20.0), strict=True):
        notes.add(name, now=100.0, size=10, ended_at=ended)
    assert notes.leaving(100.0, 99) == [NAMES[1], NAMES[3]]
    notes.add(NAMES[1], now=101.0, size=10, ended_at=200.0)  # a clock that was ahead
    assert notes.leaving(101.0, 99) == [NAMES[0]]


def test_who_is_to_leave_counts_as_held_until_it_has_left() -> None:
    notes = held(count=99, seconds=5.0)
    notes.add(NAMES[0], now=100.0, size=7, ended_at=1.0)
    assert notes.figures.due_s == 100.0, "nothing was late before we knew of it"
    assert notes.leaving(103.0, 9) == NAMES[:1]
    assert notes.figures[:2] == (1, 7) and notes.figures.due_s == 100.0
    notes.add(NAMES[1], now=103.0, size=3)
    assert notes.figures[:2] == (2, 10)
    notes.discard(NAMES[0])
    assert notes.figures[:2] == (1, 3) and notes.figures.due_s == 108.0


def test_the_order_is_no_longer_than_twice_what_is_held() -> None:
    notes = held(count=99)
    for turn in range(1000):
        notes.add(NAMES[turn % 2], now=float(turn), size=1)
    assert len(notes._order) <= 2 * 2 + STALE_MIN + 1
    assert notes.figures[:2] == (2, 2)


def test_a_shard_publishes_what_it_holds() -> None:
    bench = closed(count=99, seconds=1000.0, size=10_000)
    found = bench.shard.reads.ended["note"]
    assert (found.entities, found.size) == (4, 4 * size(bench))
    bench.now += 2000.0
    bench.rest()
    bench.once()
    gone = bench.shard.reads.ended["note"]
    assert (gone.entities, gone.size, dict(gone.left)["age"]) == (0, 0, 4)
