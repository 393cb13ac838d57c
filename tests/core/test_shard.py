"""A shard by hand: what goes in, what is journaled, what leaves, what a replay brings back."""

from __future__ import annotations

import msgspec
import pytest

from peloton.runtime.core.offline.digest import digest
from peloton.runtime.core.reading.listing import ListViews
from peloton.runtime.core.shard import Shard
from peloton.runtime.core.turning.envelope import Envelope
from peloton.runtime.core.turning.pump import Budget
from peloton.runtime.vocabulary import Absent, Bits, Decision, Key, Refused, Seen, Send, key
from tests.toy import messages as w
from tests.toy.bench import Bench
from tests.toy.daemon import bulbs, panel
from tests.toy.kinds import KINDS
from tests.toy.messages import Power


def same_as_replay(bench: Bench) -> None:
    live = digest(bench.shard)
    assert digest(bench.replay()) == live
    if bench.checkpoint[0]:
        assert digest(bench.replay(checkpoint=False)) == live


def crowd_of(bench: Bench, name: str):
    return bench.shard.population.crowd(bulbs(name))


def switched_on(size: int = 10) -> Bench:
    bench = Bench()
    bench.send(panel("a"), w.Install(size), reply_to="install")
    bench.send(panel("a"), w.Switch(True), reply_to="switch")
    bench.rest()
    return bench


def test_a_command_is_answered_with_its_frame_and_moves_the_whole_crowd():
    bench = switched_on()
    assert bench.answers() == [w.Done(1), w.Done(2)]
    crowd = crowd_of(bench, "a")
    assert crowd.classes == {w.Bulb(True, 2, Power.HEATING, 1, 0): 0b1111111111}
    draws = [e for e in bench.taken() if isinstance(e.message, w.Draw)]
    assert [(e.to, e.message, e.origin) for e in draws] == [
        ("meter/0", w.Draw(1, 60), 0b1111111111)
    ]
    same_as_replay(bench)


def test_nothing_leaves_before_its_frame_and_nothing_is_sent_twice():
    bench = Bench()
    bench.send(panel("a"), w.Install(3), reply_to=1)
    bench.once()  # it is looked up first
    first = bench.ready()
    assert first.frame is not None and len(first.replies) == 1
    bench.write(first)
    bench.shard.committed()
    assert bench.once().replies == []


def test_an_answer_of_a_meter_reaches_the_members_it_names():
    bench = switched_on()
    bench.send(bulbs("a"), w.Granted(1), 0b11, sender=Key("meter/0"))
    bench.rest()
    crowd = crowd_of(bench, "a")
    assert crowd.where(lambda bulb: bulb.power is Power.ON) == 0b11
    assert crowd.columns.read("lit_at", 1) == bench.now
    assert crowd.columns.read("lit_at", 2) is None
    same_as_replay(bench)


def test_owed_sends_are_resent_until_answered_and_slower_after_a_while():
    bench = switched_on(4)
    bench.taken()
    bench.send(bulbs("a"), w.Granted(1), 0b1, sender=Key("meter/0"))
    bench.after(2.5)
    again = [e for e in bench.taken() if isinstance(e.message, w.Draw)]
    assert again and all(e.origin == 0b1110 for e in again)
    assert again[0].message == w.Draw(1, 60)


def test_only_what_is_due_is_resent_and_not_all_of_its_crowd():
    bench = switched_on(4)
    bench.taken()
    bench.shard.turns.resolver.resend_owed(bulbs("a"), 0b0101)
    bench.rest()
    assert [e.origin for e in bench.taken()] == [0b0101]


def test_a_send_to_no_member_of_a_crowd_is_none():
    bench = switched_on(1)
    nobody, one = Send(bulbs("a"), w.Fit(60), Bits()), Send(bulbs("a"), w.Granted(1), Bits(0b1))
    bench.shard.turns.resolver.of_cell(Envelope(panel("a"), w.Switch(True)), (nobody, one))
    bench.rest()
    lines = bench.shard.turns.story.of(bulbs("a"))
    assert lines and not [line for line in lines if "failed" in line.because]
    assert crowd_of(bench, "a").where(lambda bulb: bulb.power is Power.ON) == 0b1


def test_owed_messages_get_slow():
    bench = Bench()
    bench.send(panel("a"), w.Install(1))
    bench.send(panel("a"), w.Switch(True))
    bench.rest()
    bench.send(panel("a"), w.Switch(False))
    bench.rest()
    bench.taken()
    bench.after(60)
    undraws = [e for e in bench.taken() if isinstance(e.message, w.Undraw)]
    assert 4 <= len(undraws) <= 6


def test_a_deadline_reaches_exactly_those_it_belongs_to():
    bench = switched_on(4)
    bench.send(bulbs("a"), w.Granted(1), 0b1, sender=Key("meter/0"))
    bench.after(4.9)
    assert crowd_of(bench, "a").where(lambda bulb: bulb.power is Power.HEATING) == 0b1110
    bench.after(0.2)
    assert crowd_of(bench, "a").where(lambda bulb: bulb.power is Power.STOPPING) == 0b1110
    same_as_replay(bench)


def test_deadlines_survive_recovery():
    bench = switched_on(4)
    bench.after(3)
    bench.shard = bench.replay()
    bench.after(1.9)
    assert crowd_of(bench, "a").where(lambda bulb: bulb.power is Power.HEATING) == 0b1111
    bench.after(0.2)
    assert crowd_of(bench, "a").where(lambda bulb: bulb.power is Power.STOPPING) == 0b1111


def test_recovery_says_once_what_is_owed_and_reports():
    bench = switched_on(4)
    bench.shard = bench.replay()
    bench.taken()
    bench.rest()
    assert [e.message for e in bench.taken()] == [w.Draw(1, 60)]


def test_values_go_to_the_column_and_columns_are_targets():
    bench = Bench()
    bench.send(panel("a"), w.Install(4, (60, 40)))
    bench.rest()
    wires = (Key("meter/1"), Key("meter/2"), Key("meter/1"))
    bench.send(bulbs("a"), w.Wire(), 0b1101, values=wires)
    bench.send(panel("a"), w.Switch(True))
    bench.rest()
    draws = {(e.to, e.message.watts): e.origin for e in bench.taken() if type(e.message) is w.Draw}
    assert draws == {
        ("meter/1", 60): 0b0001,
        ("meter/2", 60): 0b0100,
        ("meter/1", 40): 0b1000,
        ("meter/0", 40): 0b0010,
    }
    same_as_replay(bench)


def test_newcomers_do_not_inherit_columns():
    bench = Bench()
    bench.send(panel("a"), w.Install(4))
    bench.send(panel("a"), w.Switch(True))
    bench.rest()
    bench.send(bulbs("a"), w.Granted(1), 0b1111, sender=Key("meter/0"))
    bench.rest()
    bench.send(bulbs("a"), w.Scrap(), 0b1)
    bench.rest()
    crowd = crowd_of(bench, "a")
    assert crowd.present == 0b1111  # the panel fitted a new one at once
    assert crowd.columns.read("lit_at", 1) == bench.now
    assert crowd.columns.read("lit_at", 0) is None
    same_as_replay(bench)


def test_the_index_of_a_parent_is_the_sum_of_its_children():
    bench = Bench("city")
    bench.send(key("meter", 0), w.Build(5))
    bench.send(key("meter", 0), w.Draw(1, 60), sender=bulbs("a"), origin=0b111)
    bench.send(key("meter", 0), w.Draw(1, 60), sender=bulbs("b"), origin=0b111)
    bench.rest()
    said = {(e.to, e.message): e.members for e in bench.taken()}
    assert said[bulbs("a"), w.Granted(1)] == 0b111
    assert said[bulbs("b"), w.Denied(1)] == 0b111
    bench.send(key("grid", 0), w.Show(), reply_to=1)
    bench.rest()
    assert bench.answers() == [3]
    live = bench.shard.population.indexes
    assert bench.replay().population.indexes == live
    same_as_replay(bench)


def test_the_newest_report_is_resent_until_it_is_seen():
    bench = switched_on(2)
    bench.send(bulbs("a"), w.Granted(1), 0b11, sender=Key("meter/0"))
    bench.after(1)
    note = bench.shard.population.cells[key("note", "a")]
    assert note.heard == 2  # the note shares the shard, so it was told at once
    bench = Bench("city")
    bench.send(key("meter", 0), w.Build(5))
    bench.rest()
    first = [e for e in bench.taken() if isinstance(e.message, w.Lamps)]
    bench.after(3)
    assert [e for e in bench.taken() if isinstance(e.message, w.Lamps)][0] == first[-1]
    version = first[-1].message.version
    bench.send(key("grid", 0), Seen("Lamps", version), sender=key("note", "grid"))
    bench.rest()
    bench.taken()
    bench.after(5)
    assert bench.taken() == []
    wake_at = bench.ready().wake_at
    assert wake_at is not None and wake_at >= bench.now + 30, "only to pack what is idle"


def test_a_request_key_gets_its_first_answer_again():
    bench = Bench()
    for at, amount in enumerate((5, 5, 6)):
        digest_ = bytes([amount])
        bench.send(key("note", "x"), w.Add(amount), reply_to=at, request=("k", digest_))
        bench.rest()
    first, again, other = bench.answers()
    assert first == again == w.Total(5)
    assert isinstance(other, Refused)
    bench.shard = bench.replay()
    bench.send(key("note", "x"), w.Add(5), reply_to=9, request=("k", bytes([5])))
    bench.rest()
    assert bench.answers() == [w.Total(5)]
    same_as_replay(bench)


def test_queries_see_the_newest_state_and_absent_ones_say_so():
    bench = Bench()
    bench.send(key("note", "x"), w.Add(5))
    bench.send(key("note", "x"), w.Show(), reply_to=1)
    bench.send(key("note", "y"), w.Show(), reply_to=2)
    bench.rest()
    bench.rest()
    assert {reply.reply_to: reply.value for reply in bench.replies} == {
        1: w.Total(5),
        2: Absent(key("note", "y")),
    }


def test_views_show_only_what_is_safe():
    bench = Bench()
    bench.send(key("note", "x"), w.Add(5))
    ready = bench.ready()
    assert bench.shard.views.page(ListViews("note")).items == () and ready.load == (
        key("note", "x"),
    )
    bench.shard.committed()
    bench.shard.loaded(key("note", "x"), None)
    bench.ready()
    assert bench.shard.views.page(ListViews("note")).items == ()
    bench.shard.committed()
    assert bench.shard.views.page(ListViews("note")).items == ((key("note", "x"), 5),)


def test_bits_of_a_line_find_a_members_story():
    bench = switched_on(3)
    bench.send(bulbs("a"), w.Denied(1), Bits.of(1).raw, sender=Key("meter/0"))
    bench.rest()
    assert bench.shard.turns.story.of(bulbs("a"), 1)[-1].because == "denied"
    assert bench.shard.turns.story.of(bulbs("a"), 2)[-1].because != "denied"


@pytest.mark.parametrize("budget", [Budget(turns=1), Budget(bytes_soft=1)])
def test_local_messages_are_delivered_in_the_same_frame(budget):
    """However full it is: who dies before the next one would have told its children nothing."""
    bench = Bench()
    bench.send(panel("a"), w.Install(5))
    bench.rest()
    bench.shard.pump.budget = budget
    bench.send(panel("a"), w.Switch(True))
    bench.send(panel("b"), w.Install(1))
    bench.once()
    goals = [state.want for state in bench.replay().population.crowd(bulbs("a")).classes]
    assert goals == [True]
    assert panel("b") not in bench.shard.population.cells


def test_a_refusal_under_a_request_key_stands_when_a_copy_of_the_request_comes_late():
    """A client said it twice, to two daemons; one told it that nothing was done."""
    refused = Refused("NO", "not now")
    kind = msgspec.structs.replace(
        KINDS["note"],
        absent={**KINDS["note"].absent, w.Close: lambda message, at: Decision(reply=refused)},
    )
    bench = Bench()
    bench.shard = Shard(
        bench.id, {**KINDS, "note": kind}, sharding=bench.shard._sharding, codec=bench.codec
    )
    x = key("note", "x")
    bench.send(x, w.Close(), reply_to=1, request=("k", b"c"))
    bench.rest()
    bench.send(x, w.Add(1), reply_to=2)
    bench.rest()
    bench.shard = bench.replay()
    bench.send(x, w.Close(), reply_to=3, request=("k", b"c"))
    bench.rest()
    assert [answer for answer in bench.answers() if isinstance(answer, Refused)] == [refused] * 2
    assert not bench.shard.population.cells[x].closed, "its client was told that it was not done"


def test_a_command_that_is_answered_with_nothing_may_carry_a_request_key_too():
    def mute(note, message, at):
        return msgspec.structs.replace(decide[w.Close](note, message, at), reply=None)

    decide = KINDS["note"].decide
    kind = msgspec.structs.replace(KINDS["note"], decide={**decide, w.Close: mute})
    bench = Bench()
    bench.shard = Shard(
        bench.id, {**KINDS, "note": kind}, sharding=bench.shard._sharding, codec=bench.codec
    )
    x = key("note", "x")
    bench.send(x, w.Add(1))
    for ask in (1, 2):
        bench.send(x, w.Close(), reply_to=ask, request=("k", b"c"))
        bench.rest()
    assert bench.answers() == [None, None]
    assert not bench.shard.deferred.dead_letters, "it was done, and once"
    bench.shard = bench.replay()
    bench.send(x, w.Close(), reply_to=3, request=("k", b"c"))
    bench.rest()
    assert bench.answers() == [None]
