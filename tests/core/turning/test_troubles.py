"""A kind's own functions that raise: the story tells it, the shard and everybody else go on."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from peloton.runtime.core.checkpoint import CHECKPOINT_BYTES_MIN
from peloton.runtime.core.entities.records import MessageDeadLettered, Quarantined
from peloton.runtime.core.offline.digest import digest
from peloton.runtime.core.reading.listing import ListViews
from peloton.runtime.core.recovery import restore
from peloton.runtime.kinds import Kind, Listing
from peloton.runtime.vocabulary import DeadLettered, Key, key
from tests.toy import messages as w
from tests.toy.bench import Bench
from tests.toy.daemon import bulbs, panel
from tests.toy.kinds import KINDS

X, Y = key("note", "x"), key("note", "y")


def broken(*args: Any) -> Any:
    raise ValueError("this kind is broken")


REPORTING = KINDS["panel"].reporting
assert REPORTING is not None


class Broken(Bench):
    """A bench where one function of one kind raises."""

    def __init__(self, name: str, **functions: Any) -> None:
        kind = msgspec.structs.replace(KINDS[name], **functions)
        kinds: dict[str, Kind] = {**KINDS, name: kind}
        super().__init__(checkpoint_bytes_min=CHECKPOINT_BYTES_MIN, kinds=kinds)


def told(bench: Bench) -> list[str]:
    return [line.because for line in bench.shard.turns.story._lines if "failed" in line.because]


@pytest.mark.parametrize("field", ["listing", "ended", "fresh", "owed"])
def test_a_broken_function_of_a_cell_stops_nobody(field: str):
    bench = Broken("note", **{field: Listing(summary=broken) if field == "listing" else broken})
    bench.send(X, w.Add(1), reply_to=1)
    bench.send(Y, w.Add(2), reply_to=2)
    bench.after(3)
    assert sorted(bench.answers(), key=repr) == [w.Total(1), w.Total(2)]
    if field in ("listing", "ended"):
        assert any("this kind is broken" in line for line in told(bench))
    twin = bench.replay()
    assert twin.population.cells[X].total == 1 and twin.population.cells[Y].total == 2


def test_a_summary_that_raises_leaves_the_last_one():
    bench = Broken(
        "note",
        listing=Listing(summary=lambda name, state: broken() if state.total > 1 else state.total),
    )
    bench.send(X, w.Add(1))
    bench.rest()
    bench.send(X, w.Add(1))
    bench.rest()
    assert bench.shard.views.page(ListViews("note")).items == (1,)


def test_a_report_that_raises_is_made_later():
    calls: list[int] = []

    def report(state: Any, at: Any) -> Any:
        calls.append(1)
        return broken() if len(calls) == 1 else REPORTING.make(state, at)

    bench = Broken("panel", reporting=msgspec.structs.replace(REPORTING, make=report))
    bench.send(panel("a"), w.Install(2))
    bench.after(1)
    assert len(calls) == 1 and any("report failed" in line for line in told(bench))
    bench.after(8)
    assert len(calls) >= 2


def test_an_owed_send_that_cannot_be_made_is_tried_again_after_recovery():
    bench = Bench()
    bench.send(panel("a"), w.Install(2))
    bench.send(panel("a"), w.Switch(True))
    bench.rest()
    bench.taken()
    owed = KINDS["bulb"].owed
    worse = Broken("bulb", owed=broken)
    twin = worse.fresh()
    restore(twin, [], frames=bench.frames, floor=0)
    assert twin.turns.resolver.owed_sends.of(bulbs("a")) == 0b11
    worse.kinds["bulb"] = msgspec.structs.replace(worse.kinds["bulb"], owed=owed)
    twin = worse.fresh()
    restore(twin, [], frames=bench.frames, floor=0)
    worse.shard = twin
    worse.rest()
    assert any(isinstance(each.message, w.Draw) for each in worse.taken())


def lit(count: int) -> Bench:
    bench = Bench()
    bench.send(panel("a"), w.Install(count))
    bench.send(panel("a"), w.Switch(True))
    bench.send(bulbs("a"), w.Granted(1), (1 << count) - 1, sender=Key("meter/0"))
    bench.rest()
    return bench


def test_strikes_are_counted_for_each_member():
    bench = lit(4)
    for member in range(3):
        bench.send(bulbs("a"), w.Trip(1), 1 << member)
        bench.after(3)
    facts = bench.shard.deferred.dump()[bulbs("a")]
    assert [type(fact) for fact in facts] == [MessageDeadLettered] * 3, "one strike each"


def test_a_member_with_three_strikes_is_quarantined_alone():
    bench = lit(4)
    for sender in ("a", "b", "c"):
        bench.send(bulbs("a"), w.Trip(1), 0b0010, sender=key("meter", sender))
        bench.after(3)
    facts = bench.shard.deferred.dump()[bulbs("a")]
    assert [fact.members for fact in facts if isinstance(fact, Quarantined)] == [bytes([0b0010])]
    assert bench.shard.deferred.quarantined == {bulbs("a"): 0b0010}
    assert digest(bench.replay()) == digest(bench.shard)


def test_a_repeat_to_another_set_is_found_by_its_members():
    bench = lit(3)
    bench.send(bulbs("a"), w.Trip(1), 0b001, sender=Key("meter/0"))
    bench.after(3)
    kept = len(bench.shard.deferred.dead_letters[bulbs("a")])
    assert kept == 1
    bench.send(bulbs("a"), w.Trip(1), 0b111, sender=Key("meter/0"))
    bench.rest()
    box = bench.shard.deferred.retrying[bulbs("a")]
    assert box.members == 0b110, "of the first it is known already"


def test_a_new_failure_does_not_put_off_the_mail_that_waits():
    bench = Bench()
    bench.send(X, w.Add(1))
    bench.send(X, w.Add(13))
    bench.rest()
    first = bench.shard.deferred.due[X]
    bench.now += 0.3
    bench.send(X, w.Add(13), attempt=1)
    bench.rest()
    assert bench.shard.deferred.due[X] == first


def test_mail_that_is_resent_waits_once():
    bench = Bench()
    bench.send(X, w.Add(1))
    bench.send(X, w.Add(13))
    bench.rest()
    for _ in range(50):
        bench.send(X, w.Lamps(3, 1), sender=panel("a"))
    bench.rest()
    box = bench.shard.deferred.retrying[X]
    assert len(box._queue) == 2
    bench.after(3)
    assert bench.shard.population.cells[X].heard == 1


def test_every_ask_is_answered():
    bench = Bench()
    bench.send(X, w.Lamps(1, 1), reply_to=1)
    bench.send(panel("a"), w.Install(2))
    bench.send(bulbs("a"), w.Granted(1), 0b11, reply_to=2)
    bench.send(X, w.Add(13), reply_to=3)
    bench.after(4)
    answers = bench.answers()
    assert len(answers) == 3
    assert any(isinstance(answer, DeadLettered) for answer in answers)
