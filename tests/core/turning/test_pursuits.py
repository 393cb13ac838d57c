"""Goals that rest: all that is said is journaled, nobody begins anything, and all go on at once."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from peloton.runtime.core.offline.digest import digest
from peloton.runtime.core.sharding import Sharding
from peloton.runtime.shells.goals import Goals
from peloton.runtime.shells.routing import RoutingTable
from peloton.runtime.vocabulary import SETTLED, WAITING, Key
from tests.toy import messages as w
from tests.toy.bench import Bench
from tests.toy.daemon import COOL_S, WARM_S, bulbs, panel
from tests.toy.kinds import KINDS
from tests.toy.messages import Power

RESTING = ("bulb", "panel")
KINDS_AT_REST = {
    name: replace(kind, at_rest=WAITING) if name in RESTING else kind
    for name, kind in KINDS.items()
}
LIT = (w.Bulb(True, 2, Power.HEATING, 1, 0), 0b111)


def installed() -> Bench:
    bench = Bench(kinds=KINDS_AT_REST)
    bench.send(panel("a"), w.Install(3), reply_to="install")
    bench.rest()
    bench.taken(), bench.answers()
    return bench


def classes(bench: Bench) -> dict[Any, int]:
    return bench.shard.population.crowd(bulbs("a")).classes


def draws(bench: Bench) -> list[Any]:
    return [one.message for one in bench.taken() if isinstance(one.message, w.Draw)]


def test_what_is_said_meanwhile_is_answered_and_done_once_goals_are_pursued() -> None:
    bench = installed()
    bench.shard.rest(True)
    bench.send(panel("a"), w.Switch(True), reply_to="switch")
    bench.send(bulbs("a"), w.BulbGoal(2, True), 0b1)
    bench.after(60.0)
    assert bench.answers() == [w.Done(2)]
    assert not draws(bench)
    assert {bulb.power for bulb in classes(bench)} == {Power.OFF}
    bench.shard.rest(False)
    bench.rest()
    assert dict([LIT]) == classes(bench)
    assert len(draws(bench)) == 2, "one of the member that knew its goal, one of the others"


def test_no_deadline_comes_before_goals_are_pursued() -> None:
    bench = installed()
    bench.send(panel("a"), w.Switch(True))
    bench.send(bulbs("a"), w.Denied(1), 0b1, sender=Key("meter/0"))
    bench.rest()
    before = dict(classes(bench))
    assert {bulb.power for bulb in before} == {Power.HEATING, Power.BROKEN}
    bench.shard.rest(True)
    bench.after(10 * max(WARM_S, COOL_S))
    assert classes(bench) == before
    bench.shard.rest(False)
    bench.rest()
    assert Power.STOPPING in {bulb.power for bulb in classes(bench)}, "it has waited too long"
    assert Power.BROKEN not in {bulb.power for bulb in classes(bench)}, "it has cooled long ago"


def test_the_next_owner_makes_up_for_what_the_last_one_left_out() -> None:
    bench = installed()
    bench.shard.rest(True)
    bench.send(panel("a"), w.Switch(True))
    bench.send(bulbs("a"), w.BulbGoal(2, True), 0b111)
    bench.rest()
    later = bench.reopened(KINDS_AT_REST)
    later.rest()
    assert {bulb.power for bulb in classes(later)} == {Power.OFF}, "nobody has said anything since"
    Goals(RoutingTable({}, Sharding({}, {}))).obeyed_by(later.shard)  # it never rested there
    later.rest()
    assert dict([LIT]) == classes(later)


def test_who_knows_no_rest_goes_on() -> None:
    bench = Bench()
    bench.shard.rest(True)
    bench.send(panel("a"), w.Install(3))
    bench.send(panel("a"), w.Switch(True))
    bench.rest()
    assert dict([LIT]) == classes(bench)


def test_a_kind_may_do_something_else_at_rest() -> None:
    seen = []

    def at_rest(state: Any, at: Any) -> Any:
        seen.append(at.key)
        return SETTLED

    bench = Bench(kinds={**KINDS, "panel": replace(KINDS["panel"], at_rest=at_rest)})
    bench.send(panel("a"), w.Install(3))
    bench.rest()
    assert not seen
    bench.shard.rest(True)
    bench.send(panel("a"), w.Switch(True))
    bench.rest()
    assert set(seen) == {panel("a")}
    assert {bulb.power for bulb in classes(bench)} == {Power.OFF}


def test_to_go_on_without_a_rest_changes_nothing() -> None:
    bench = installed()
    before = digest(bench.shard)
    bench.shard.rest(False)
    bench.rest()
    assert digest(bench.shard) == before and not draws(bench)
