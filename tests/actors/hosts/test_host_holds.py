"""Holds on a host, and the runs that are launched on them.

Orders to the backend are checked, reports are made by hand.
"""

from __future__ import annotations

from math import nextafter
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from peloton.actors.host import facts as f
from peloton.actors.host import messages as m
from peloton.actors.host.decide import deadline, owed
from peloton.actors.host.folds import folded
from peloton.actors.host.granting import HELD
from peloton.actors.host.holds import hold_messages as hm
from peloton.actors.host.holds.foreign_names import (
    foreign_crowd,
    foreign_number,
    is_foreign,
    is_foreign_id,
    shown_run,
)
from peloton.actors.host.inventory.decide import list_hosts
from peloton.actors.host.inventory.messages import ListHosts
from peloton.actors.host.inventory.state import Hosts, Inventory
from peloton.actors.host.run_spec import Port, RunSpec
from peloton.actors.host.stages import Maintenance, RunPhase
from peloton.actors.host.state import Host
from peloton.actors.resources import UNIT, Resources
from peloton.actors.task.messages import HOST_MAINTENANCE, pod_id
from peloton.placement import filters
from peloton.placement.filters import HostWant
from peloton.placement.messages import Constraint, HostSummary, Label
from peloton.runtime.core.turning.turn import TurnOutcome as Turn
from peloton.runtime.core.turning.turn import take_turn
from peloton.runtime.vocabulary import At, Bits, Due, Key, Message, Pursue, Refused
from tests.actors.hosts import test_host as h

SPEC = RunSpec(Resources(UNIT), "true")
HOLD_S = 300.0
HOLD = hm.HoldHost("one", "zoe", HOLD_S)


def receive(host: Host | None, message: Message, *members: int, now: float = 9.0) -> Turn:
    some = Bits.of(*members) if members else None
    at = At(now=now, key=h.HOST, sender=h.CROWD, members=some, epoch=h.EPOCH)
    return take_turn(h.KIND, host, message=message, at=at)


def held(host: Host | None = None, name: str = "one") -> Host:
    """A host that is held."""
    found = receive(h.up() if host is None else host, hm.HoldHost(name, "zoe", HOLD_S)).state
    assert found.hold.name == name
    return found  # type: ignore[no-any-return]


def run_of(task: str, hold: str = "one") -> str:
    """The name of a foreign run."""
    return pod_id(foreign_crowd(task), 0, run=foreign_number(hold))


def launch(*tasks: str, hold: str = "one", spec: RunSpec = SPEC) -> hm.LaunchForeign:
    return hm.LaunchForeign(hold, tuple(hm.ForeignRun(task, spec) for task in tasks))


def launched(*tasks: str) -> Host:
    """A host with these foreign runs, of a cpu each."""
    turn = receive(held(), launch(*tasks))
    assert isinstance(turn.reply, hm.ForeignLaunched)
    return turn.state  # type: ignore[no-any-return]


def refusal(turn: Turn) -> tuple[str, str]:
    assert isinstance(turn.reply, Refused) and not turn.facts and not turn.sends
    return turn.reply.code, turn.reply.text


# ---- holds ----


def test_a_hold_takes_all_that_is_free_and_placers_learn_of_it() -> None:
    before = receive(h.up(), m.Launch(1, SPEC), 0).state
    turn = receive(before, HOLD)
    left = Resources(3 * UNIT)
    assert turn.reply.resources == left and turn.reply.until == 9.0 + HOLD_S
    host = turn.state
    assert host.unused == left and host.hold.resources == left and host.hold.holder == "zoe"
    assert host.version > before.version
    summary = host.summary(h.HOST)
    assert summary.free == Resources() and summary.ports == 0 and summary.up
    again = receive(host, HOLD, now=50.0)
    assert again.reply.until == turn.reply.until and not again.facts, "a repeat does not prolong it"


def test_a_second_hold_is_refused() -> None:
    assert refusal(receive(held(), hm.HoldHost("two", "ann", HOLD_S)))[0] == filters.NOT_READY


def test_nothing_is_granted_to_tasks_while_it_is_held() -> None:
    for spec in (SPEC, RunSpec(Resources(), "true")):
        turn = receive(held(), m.Launch(1, spec), 0)
        ((answer, members),) = h.replies(turn)
        assert members == [0] and answer.reason == HELD and not h.orders(turn)  # type: ignore[attr-defined]
    released = receive(held(), hm.ReleaseHold("one")).state
    assert h.orders(receive(released, m.Launch(1, SPEC), 0))


def test_a_release_is_answered_whatever_there_is() -> None:
    turn = receive(held(), hm.ReleaseHold("one"))
    assert turn.reply == hm.HoldReleased(known=True) and turn.state.hold is None
    assert turn.state.version > held().version and turn.state.free == h.ROOM
    for host in (turn.state, held(name="two"), None):
        again = receive(host, hm.ReleaseHold("one"))
        assert again.reply == hm.HoldReleased(known=False) and again.state == host


def test_a_hold_whose_time_is_over_is_no_obstacle() -> None:
    """Its deadline may come behind the next hold, which is then answered the same when repeated."""
    turn = receive(held(), hm.HoldHost("two", "bob", HOLD_S), now=9.0 + HOLD_S)
    assert [type(fact) for fact in turn.facts] == [f.HoldEnded, f.HoldTaken]
    assert turn.state.hold is not None and turn.state.hold.name == "two"
    again = receive(turn.state, hm.HoldHost("two", "bob", HOLD_S), now=9.0 + HOLD_S)
    assert not again.facts and again.reply.until == turn.reply.until


def test_a_hold_ends_by_its_time() -> None:
    host = held()
    assert deadline(host) == ("hold one", HOLD_S)
    turn = receive(host, Due("hold one"), now=9.0 + HOLD_S)
    assert turn.state.hold is None and turn.facts == (f.HoldEnded("one", "expired"),)
    assert deadline(turn.state) is None


def test_a_hold_whose_time_came_while_the_machine_was_away_ends_with_the_next_turn() -> None:
    host = receive(held(), m.BackendDown("away")).state
    assert host.hold is not None and deadline(host) == ("unreachable", 60.0)
    host = receive(host, m.BackendUp(), now=20.0).state
    assert host.hold is not None
    assert receive(host, Pursue(), now=9.0 + HOLD_S).state.hold is None


def test_a_hold_survives_a_restart_of_the_daemon() -> None:
    host = receive(held(), m.RecheckBackend()).state
    host = receive(host, m.RunsListed(())).state
    assert host.hold.name == "one" and host.grants
    assert folded(h.up(), (f.HoldTaken(host.hold),)).hold == host.hold


def test_what_ends_meanwhile_is_held_too() -> None:
    host = held(h.with_run(RunPhase.STARTED))
    host = receive(host, m.RunsEnded((m.RunEnd(h.pod(0), h.DONE),))).state
    assert host.unused == h.ROOM and host.free == Resources()


def test_a_maintenance_ends_a_hold() -> None:
    turn = receive(held(), m.StartMaintenance())
    assert turn.facts[0] == f.HoldEnded("one", HOST_MAINTENANCE)
    assert turn.state.hold is None and turn.state.maintenance != Maintenance.NONE
    assert refusal(receive(turn.state, HOLD))[0] == filters.NOT_READY


@pytest.mark.parametrize("message", [m.HostGone(), Due("unreachable")])
def test_a_lost_host_is_not_held(message: Message) -> None:
    host = receive(held(), m.BackendDown("away")).state
    assert receive(host, message).state.hold is None


def test_a_host_that_is_not_there_is_not_held() -> None:
    assert receive(None, HOLD).reply.code == m.NO_HOST


EXCLUSIVE = Label("peloton/exclusive", "ml")


def of_label(label: Label) -> Constraint:
    return Constraint("label", kind="host", label=label, condition="greater")


@pytest.mark.parametrize(
    ("want", "result"),
    [
        (HostWant(), filters.SUITS),
        (HostWant(Resources(4 * UNIT)), filters.SUITS),
        (HostWant(Resources(5 * UNIT)), filters.TOO_SMALL),
        (HostWant(Resources(UNIT), revocable=True), filters.TOO_SMALL),
        (HostWant(ports=3), filters.SUITS),
        (HostWant(ports=4), filters.TOO_SMALL),
        (HostWant(constraint=of_label(Label("hostname", "h"))), filters.SUITS),
        (HostWant(constraint=of_label(Label("rack", "r"))), filters.UNSUITABLE),
    ],
)
def test_what_is_wanted_is_checked_by_the_host(want: HostWant, result: str) -> None:
    turn = receive(h.up(), hm.HoldHost("one", "zoe", HOLD_S, want))
    got = filters.SUITS if isinstance(turn.reply, hm.HostHeld) else refusal(turn)[0]
    assert got == result


def test_the_first_failing_check_is_the_result() -> None:
    room = Resources(UNIT, 0, 0, UNIT)
    summary = HostSummary(h.HOST, 1, room, room, (EXCLUSIVE,))

    def result(want: HostWant, *, ready: bool = True, free: Resources = room) -> str:
        return filters.suits(summary, want, ready=ready, room=free)

    big, gpu = HostWant(room + room), Resources(0, 0, 0, UNIT)
    assert result(big, ready=False) == filters.NOT_READY
    assert result(big, free=Resources()) == filters.NOTHING_FREE
    assert result(big) == filters.TOO_SMALL
    assert result(HostWant(Resources(UNIT))) == filters.SCARCE
    assert result(HostWant(gpu)) == filters.UNSUITABLE, "the host is exclusive"
    assert result(HostWant(gpu, constraint=of_label(EXCLUSIVE))) == filters.SUITS


def test_a_listing_shows_holds() -> None:
    hosts = Hosts()
    hosts.put(h.HOST, old=None, new=held())
    at = At(now=9.0, key=Key("inventory/0"), index=hosts)
    (view,) = list_hosts(Inventory(), ListHosts(), at)
    assert view.hold == "one" and view.held == h.ROOM and view.summary.free == Resources()


# ---- foreign runs ----


def test_a_launch_uses_the_hold() -> None:
    turn = receive(held(), launch("t-1", "t-2"))
    assert turn.reply == hm.ForeignLaunched((run_of("t-1"), run_of("t-2")))
    (order,) = h.orders(turn)
    assert isinstance(order, m.StartRuns) and [one.run for one in order.runs] == [
        run_of("t-1"), run_of("t-2"),
    ]  # fmt: skip
    host = turn.state
    assert host.hold is None and host.used == Resources(2 * UNIT) and host.foreign == 2
    assert host.free == Resources(2 * UNIT) and not h.replies(turn)
    assert refusal(receive(host, launch("t-3")))[0] == hm.NO_HOLD
    assert refusal(receive(host, launch("t-1", "t-3")))[0] == hm.NO_HOLD
    assert refusal(receive(host, launch()))[0] == hm.NO_HOLD
    assert h.orders(receive(host, m.Launch(1, SPEC), 0)), "what is left is free again"


UNTIL = 9.0 + HOLD_S


@pytest.mark.parametrize(("now", "over"), [(nextafter(UNTIL, 0.0), False), (UNTIL, True)])
def test_a_hold_is_over_at_its_end_for_whoever_asks(now: float, over: bool) -> None:
    ended = f.HoldEnded("one", "expired")
    used = receive(held(), launch("t-1"), now=now)
    assert isinstance(used.reply, Refused) == over == (ended in used.facts)
    other = receive(held(), hm.HoldHost("two", "bob", HOLD_S), now=now)
    assert isinstance(other.reply, hm.HostHeld) == over == (ended in other.facts)
    assert (receive(held(), Pursue(), now=now).state.hold is None) == over
    for_task = receive(h.up(), hm.HoldForTask("t-0", h.CROWD, 0, "zoe", HOLD_S)).state
    awaited = receive(for_task, Pursue(), now=now).state
    assert (awaited.task_holds == ()) == over


def test_a_hold_is_used_up_by_its_first_launch() -> None:
    host = launched("t-1", "t-2")
    assert refusal(receive(host, launch("t-1", "t-2")))[0] == hm.NO_HOLD
    again = receive(held(host, name="two"), launch("t-1", hold="two"))
    assert refusal(again)[0] == hm.CANNOT_LAUNCH, "it is there already"


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (launch("a", hold="two"), hm.NO_HOLD),
        (launch(*"abcde"), hm.CANNOT_LAUNCH),
        (launch("a", "a"), hm.CANNOT_LAUNCH),
        (launch(*"abcd", spec=RunSpec(Resources(), "x", ports=(Port("p"),))), hm.CANNOT_LAUNCH),
    ],
)
def test_all_or_nothing_is_launched(sent: hm.LaunchForeign, code: str) -> None:
    turn = receive(held(), sent)
    assert refusal(turn)[0] == code and turn.state == held()


def test_an_id_that_runs_here_is_refused() -> None:
    assert refusal(receive(held(launched("a"), "two"), launch("a", hold="two")))[0] == (
        hm.CANNOT_LAUNCH
    )


def test_a_foreign_run_is_told_to_no_task_and_forgotten_with_its_end() -> None:
    host = launched("a")
    turn = receive(host, m.RunsStarted((run_of("a"),)))
    assert turn.facts and not turn.sends
    assert turn.state.runs[run_of("a")].phase == RunPhase.STARTED and not owed(turn.state)
    turn = receive(turn.state, m.RunsEnded((m.RunEnd(run_of("a"), h.DONE),)))
    assert isinstance(turn.facts[0], f.ProcessesEnded)
    assert [type(order) for order in h.orders(turn)] == [m.ForgetRuns] and not h.replies(turn)
    host = turn.state
    assert not host.runs and host.used == Resources() and host.foreign == 0 and not owed(host)


def test_a_list_of_the_backend_keeps_foreign_runs_and_kills_forgotten_ones() -> None:
    host = receive(launched("a"), m.RecheckBackend()).state
    turn = receive(host, m.RunsListed((run_of("a"), run_of("b"))), now=10.0)
    (stop,) = h.orders(turn)
    assert isinstance(stop, m.StopRuns) and stop.runs == (run_of("b"),)
    assert turn.state.runs[run_of("a")].phase == RunPhase.STARTED
    lost = receive(turn.state, m.RunsListed(()), now=20.0).state
    assert not lost.runs and lost.foreign == 0


def test_a_launch_whose_order_was_lost_is_ordered_again() -> None:
    host = receive(launched("a"), m.RecheckBackend()).state
    (start,) = h.orders(receive(host, m.RunsListed(()), now=10.0))
    assert isinstance(start, m.StartRuns) and start.runs[0].run == run_of("a")


def test_foreign_runs_are_killed_by_their_ids() -> None:
    host = receive(launched("a", "b"), m.RunsStarted((run_of("a"), run_of("b")))).state
    turn = receive(host, hm.KillForeign(("a", "a", "c"), 5.0))
    assert turn.reply == hm.ForeignKilled(("a",))
    (stop,) = h.orders(turn)
    assert stop == m.StopRuns(h.HOST, h.EPOCH, (run_of("a"),), 5.0)
    assert turn.state.runs[run_of("a")].phase == RunPhase.KILLING
    again = receive(turn.state, hm.KillForeign(("a",), 5.0))
    assert h.orders(again) == [stop] and not again.facts
    assert receive(None, hm.KillForeign(("a",))).reply == hm.ForeignKilled(())


def test_a_maintenance_ends_foreign_runs_and_waits_for_them() -> None:
    host = receive(launched("a"), m.StartMaintenance()).state
    assert host.maintenance == Maintenance.DRAINING
    host = receive(host, m.RunsEnded((m.RunEnd(run_of("a"), h.DONE),))).state
    assert host.maintenance == Maintenance.DRAINED and not host.runs


def test_a_lost_host_has_no_foreign_runs() -> None:
    host = receive(launched("a"), m.BackendDown("away")).state
    turn = receive(host, Due("unreachable"))
    assert not turn.state.runs and turn.state.foreign == 0 and not turn.sends


def test_names_of_foreign_runs_show_the_ids_of_their_callers() -> None:
    name, task = run_of(f"{h.JOB}-3-1"), f"{h.JOB}-3-1"
    assert shown_run(name) == task and task in name and is_foreign(foreign_crowd(task))
    assert shown_run(task) == task and not is_foreign(h.CROWD)
    assert run_of("a", "one") != run_of("a", "two")
    assert not any(map(is_foreign_id, ("", "a/b", "a.b", "é", "x" * 129, "a b")))
    start = m.StartRun(name, SPEC)
    assert dict(start.environment)["PELOTON_POD_ID"] == task
    assert dict(start.environment)["PELOTON_INSTANCE_ID"] == "3"


STEPS: list[Any] = [
    *(m.Launch(run, SPEC) for run in (1, 2)),
    HOLD,
    hm.HoldHost("two", "ann", HOLD_S),
    *(hm.ReleaseHold(name) for name in ("one", "two")),
    *(launch("a", "b", hold=name) for name in ("one", "two")),
    hm.KillForeign(("a",)),
    m.RunsEnded((m.RunEnd(run_of("a"), h.DONE), m.RunEnd(run_of("b", "two"), h.DONE))),
    m.RunsEnded((m.RunEnd(h.pod(0), h.DONE),)),
    Due("hold one"),
]


@given(st.lists(st.sampled_from(STEPS), max_size=30))
def test_what_is_used_and_held_is_never_more_than_there_is(steps: list[Any]) -> None:
    host = h.up()
    for step in steps:
        before = host
        turn = receive(host, step, *((0, 1) if isinstance(step, m.Launch) else ()))
        host = turn.state
        taken = host.used + (host.unused if host.hold is not None else Resources())
        assert taken.within(host.capacity) and (host.free + taken) == host.capacity
        assert host.foreign == sum(is_foreign(crowd) for crowd, _ in host.runs.sets())
        if before.hold is not None and host.hold == before.hold:
            assert host.used.within(before.used), "nobody else is granted anything"
