"""Failing turns: retried, set aside, quarantined, taken back; and nobody else suffers."""

from __future__ import annotations

from peloton.runtime.core.entities.records import MessageDeadLettered, Quarantined
from peloton.runtime.core.offline.digest import digest
from peloton.runtime.vocabulary import DeadLettered, Key, Unavailable, key
from tests.toy import messages as w
from tests.toy.bench import Bench
from tests.toy.daemon import bulbs, panel
from tests.toy.messages import Power

X = key("note", "x")


def test_a_message_that_raises_is_tried_three_times_and_becomes_a_dead_letter():
    bench = Bench()
    bench.send(X, w.Add(1))
    bench.send(X, w.Add(13), reply_to="bad")
    bench.rest()
    assert bench.answers() == []
    bench.after(2)
    assert bench.answers() == [DeadLettered("ValueError: 13 is not added")]
    facts = bench.shard.deferred.dump()[X]
    assert [type(fact) for fact in facts] == [MessageDeadLettered]
    assert bench.shard.population.cells[X].total == 1
    assert digest(bench.replay()) == digest(bench.shard)


def test_a_fact_that_does_not_fold_is_never_written():
    bench = Bench()
    bench.send(X, w.Add(1))
    bench.send(X, w.Add(14))
    bench.rest()
    bench.after(2)
    assert bench.shard.population.cells[X].total == 1
    assert digest(bench.replay()) == digest(bench.shard)


def test_mail_behind_a_failing_message_stays_behind_it():
    bench = Bench()
    bench.send(X, w.Add(1))
    bench.rest()
    bench.send(X, w.Add(13), reply_to=1)
    bench.send(X, w.Add(2), reply_to=2)
    bench.rest()
    assert bench.answers() == []
    bench.after(3)
    assert bench.answers() == [DeadLettered("ValueError: 13 is not added"), w.Total(3)]


def test_a_repeat_of_a_dead_letter_is_answered_with_its_error():
    bench = Bench()
    bench.send(X, w.Add(13))
    bench.after(3)
    bench.send(X, w.Add(13), reply_to=2)
    bench.rest()
    assert bench.answers() == [DeadLettered("ValueError: 13 is not added")]


def test_only_the_guilty_members_are_held_and_the_others_go_on():
    bench = Bench()
    bench.send(panel("a"), w.Install(4))
    bench.send(panel("a"), w.Switch(True))
    bench.rest()
    bench.send(bulbs("a"), w.Granted(1), 0b0011, sender=Key("meter/0"))
    bench.send(bulbs("a"), w.Denied(1), 0b0100, sender=Key("meter/0"))
    bench.after(3.2)
    crowd = bench.shard.population.crowd(bulbs("a"))
    assert crowd.state_of(2).run == 2
    bench.send(bulbs("a"), w.Trip(2), 0b1111)
    bench.rest()
    assert bench.shard.deferred.retrying[bulbs("a")].members == 0b0100
    bench.send(bulbs("a"), w.Granted(2), 0b0100, sender=Key("meter/0"))
    bench.send(bulbs("a"), w.Granted(1), 0b1000, sender=Key("meter/0"))
    bench.rest()
    crowd = bench.shard.population.crowd(bulbs("a"))
    assert crowd.state_of(2).power is Power.HEATING, "it waits behind what failed"
    assert crowd.state_of(3).power is Power.ON
    bench.after(2)
    assert crowd.state_of(2).power is Power.ON
    assert [f.members for f in bench.shard.deferred.dump()[bulbs("a")]] == [bytes([0b0100])]
    assert digest(bench.replay()) == digest(bench.shard)


def broken_note() -> Bench:
    bench = Bench()
    bench.send(X, w.Add(1))
    bench.rest()
    for amount in (13, 14, 15):
        bench.send(X, w.Add(amount))
        bench.after(2)
    return bench


def test_quarantine_lets_only_inspection_through_until_it_is_lifted():
    bench = broken_note()
    assert [type(f) for f in bench.shard.deferred.dump()[X]].count(Quarantined) == 1
    bench.answers()
    bench.send(X, w.Add(1), reply_to=1)
    bench.send(X, w.Show(), reply_to=2)
    bench.rest()
    refused, shown = bench.answers()
    assert isinstance(refused, Unavailable) and shown == w.Total(1)
    twin = bench.replay()
    assert digest(twin) == digest(bench.shard)
    bench.shard = twin
    bench.shard.redrives.order(X)
    bench.rest()
    bench.after(5)  # all three fail again, and are set aside again at once
    assert bench.shard.deferred.quarantined and not bench.shard.deferred.retrying
    assert (
        len([f for f in bench.shard.deferred.dump()[X] if isinstance(f, MessageDeadLettered)]) == 3
    )
    assert digest(bench.replay()) == digest(bench.shard)
