"""Idle entities go cold, and nobody can tell: not their state, their deadlines, or a checkpoint."""

from __future__ import annotations

from peloton.runtime.core.entities.passivation import COLD_AFTER_S, COLD_PER_CHECK_MAX, Idleness
from peloton.runtime.core.offline.digest import digest
from peloton.runtime.vocabulary import Key, key
from tests.toy import messages as w
from tests.toy.bench import Bench
from tests.toy.daemon import bulbs, panel

X = key("note", "x")


def idle(bench: Bench) -> None:
    bench.after(COLD_AFTER_S + 21)


def test_who_is_idle_goes_cold_and_a_turn_warms_it():
    bench = Bench()
    bench.send(X, w.Add(5))
    bench.rest()
    cells = bench.shard.population.cells
    assert X in cells.warm
    idle(bench)
    assert X in cells.cold and X not in cells.warm and X in cells
    bench.send(X, w.Add(2))
    bench.rest()
    assert cells.warm[X].total == 7 and X not in cells.cold
    assert digest(bench.replay()) == digest(bench.shard)


def test_a_question_leaves_it_cold():
    bench = Bench()
    bench.send(X, w.Add(5))
    bench.rest()
    idle(bench)
    bench.send(X, w.Show(), reply_to=1)
    bench.rest()
    assert bench.answers() == [w.Total(5)]
    assert X in bench.shard.population.cells.cold


def test_a_cold_crowd_keeps_its_deadlines():
    bench = Bench()
    bench.send(panel("a"), w.Install(3))
    bench.send(panel("a"), w.Switch(True))
    bench.rest()
    bench.shard.population.freeze(panel("a"))
    assert bulbs("a") in bench.shard.population.crowds.cold
    twin = Bench()
    twin.send(panel("a"), w.Install(3))
    twin.send(panel("a"), w.Switch(True))
    twin.rest()
    for each in (bench, twin):
        each.send(bulbs("a"), w.Granted(1), 0b011, sender=Key("meter/0"))
        each.after(30)
    assert digest(bench.shard) == digest(twin.shard)
    assert digest(bench.replay()) == digest(bench.shard)


def test_a_checkpoint_holds_the_cold_as_they_are():
    bench = Bench(checkpoint_bytes_min=400)
    bench.send(panel("a"), w.Install(3))
    for at in range(4):
        bench.send(key("note", at), w.Add(at))
    bench.rest()
    idle(bench)
    assert len(bench.shard.population.cells.cold) > 4
    for _ in range(12):
        bench.send(X, w.Add(1))
        bench.rest()
    assert bench.checkpoint[0] > 0, "no checkpoint was cut"
    assert digest(bench.replay()) == digest(bench.shard)


def test_what_is_looked_at_while_cold_counts_as_touched():
    bench = Bench()
    bench.send(X, w.Add(5))
    bench.rest()
    idle(bench)
    assert bench.shard.population.cells.get(X).total == 5
    idle(bench)
    assert X in bench.shard.population.cells.cold, "else each look would keep one warm for good"


def test_so_many_a_look_are_packed_and_the_rest_at_once_after():
    idleness = Idleness(10.0)
    keys = [key("note", at) for at in range(COLD_PER_CHECK_MAX + 5)]
    idleness.touch(keys, 100.0)
    assert idleness.idle(105.0) == [] and idleness.next_s == 115.0
    assert len(idleness.idle(115.0)) == COLD_PER_CHECK_MAX
    assert idleness.next_s == 115.0
    assert idleness.idle(115.0) == keys[COLD_PER_CHECK_MAX:]
    assert idleness.next_s is None
