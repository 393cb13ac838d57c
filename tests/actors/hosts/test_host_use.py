"""What a backend is told of the use of its host, when a host waits for it, and what is repeated."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from peloton.actors.host import machine_messages as mm
from peloton.actors.host import messages as m
from peloton.actors.host.drain_view import NOT_OUT_OF_USE, why_not_down
from peloton.actors.host.goals import (
    DRAIN_POLL_EVERY_S,
    REMOVED_POLLS_MAX,
    HostNotes,
    pursue,
    recall_s,
)
from peloton.actors.host.machine_messages import HostUse, SetUse, UseSet
from peloton.actors.host.run_spec import RunSpec
from peloton.actors.host.stages import HostStates, Maintenance
from peloton.actors.host.state import Host
from peloton.actors.resources import UNIT, Resources
from peloton.actors.task.messages import End, RunOutcome
from peloton.runtime.core.turning.turn import TurnOutcome as Turn
from peloton.runtime.core.turning.turn import take_turn
from peloton.runtime.vocabulary import At, Bits, Decision, Message
from tests.actors.hosts import test_host as h

SPEC = RunSpec(Resources(UNIT), "true")
ENDED = RunOutcome(End.KILLED, None, "SIGTERM", "killed", "")


def receive(host: Host, message: Message, *members: int, sender: Any = h.CROWD) -> Turn:
    some = Bits.of(*members) if members else None
    at = At(now=9.0, key=h.HOST, sender=sender, members=some, epoch=h.EPOCH)
    return take_turn(h.KIND, host, message=message, at=at)


def told(turn: Turn) -> list[tuple[HostUse, int]]:
    """The orders about the use that leave with a turn."""
    sent = [(one.to, one.message) for one in turn.sends]
    orders = [(to, order) for to, order in sent if isinstance(order, SetUse)]
    assert all(to == turn.state.backend for to, _ in orders)
    return [(order.use, order.number) for _, order in orders]


def answered(host: Host, number: int, text: str = "") -> Turn:
    return receive(host, UseSet(number, text), sender=host.backend)


def loaded() -> Host:
    """A host with a run that has started."""
    host = receive(h.up(), m.Launch(1, SPEC), 0).state
    return receive(host, m.RunsStarted((h.pod(0),))).state  # type: ignore[no-any-return]


def drained() -> Turn:
    """Maintenance has begun, the last run ends now."""
    host = answered(receive(loaded(), m.StartMaintenance()).state, 1).state
    return receive(host, m.RunsEnded((m.RunEnd(h.pod(0), ENDED),)))


def test_a_backend_hears_of_each_step_of_a_maintenance() -> None:
    turn = receive(loaded(), m.StartMaintenance())
    assert told(turn) == [(HostUse.DRAINING, 1)] and turn.state.use.open
    turn = answered(turn.state, 1)
    assert not turn.state.use.open and turn.state.maintenance == Maintenance.DRAINING
    turn = receive(turn.state, m.RunsEnded((m.RunEnd(h.pod(0), ENDED),)))
    assert told(turn) == [(HostUse.OUT_OF_USE, 2)]
    host = answered(turn.state, 2).state
    host = receive(host, m.RunSeen(1), 0).state
    assert host.maintenance == Maintenance.DOWN
    turn = receive(host, m.CompleteMaintenance())
    assert told(turn) == [(HostUse.IN_USE, 3)]
    assert turn.state.grants, "what waits for the machine waits at its backend"
    assert not answered(turn.state, 3).state.use.open


def test_a_host_is_down_only_when_its_backend_has_put_it_out_of_use() -> None:
    host = receive(drained().state, m.RunSeen(1), 0).state
    assert host.maintenance == Maintenance.DRAINED and not host.runs
    assert why_not_down((), host.use) == NOT_OUT_OF_USE
    assert answered(host, 1).state == host, "the answer to an earlier order"
    assert answered(host, 2).state.maintenance == Maintenance.DOWN


def test_an_idle_host_is_down_with_the_answer() -> None:
    turn = receive(h.up(), m.StartMaintenance())
    assert told(turn) == [(HostUse.DRAINING, 1), (HostUse.OUT_OF_USE, 2)]
    assert turn.state.maintenance == Maintenance.DRAINED
    assert answered(turn.state, 1).facts == (), "of an earlier order"
    assert answered(turn.state, 2).state.maintenance == Maintenance.DOWN


def test_a_backend_that_will_not_holds_up_nobody_and_says_why() -> None:
    host = answered(receive(h.up(), m.StartMaintenance()).state, 2, "not permitted").state
    assert host.maintenance == Maintenance.DOWN and why_not_down((), host.use) == "not permitted"
    assert answered(host, 2, "not permitted").facts == ()
    assert answered(host, 2).state.use.text == "", "it could in the end"


def test_a_machine_that_is_lost_does_not_wait_for_its_backend() -> None:
    host = receive(drained().state, m.RunSeen(1), 0).state
    host = receive(host, m.BackendDown("gone")).state
    assert (host.state, host.maintenance) == (HostStates.UNREACHABLE, Maintenance.DRAINED)
    lost = replace(host, state=HostStates.LOST)
    step = pursue(lost, At(now=20.0, key=h.HOST, epoch=h.EPOCH))
    assert isinstance(step, Decision) and step.because == "down for maintenance"


def test_what_was_not_answered_is_ordered_again_with_each_poll() -> None:
    host = receive(drained().state, m.RunSeen(1), 0).state
    at = At(now=20.0, key=h.HOST, epoch=h.EPOCH)
    step = pursue(host, replace_notes(at, None))
    assert isinstance(step, Decision) and step.notes.poll_at == 20.0 + DRAIN_POLL_EVERY_S
    later = replace_notes(at, HostNotes(HostStates.UP, 20.0))
    step = pursue(host, later)
    assert isinstance(step, Decision)
    assert [type(one.message) for one in step.sends] == [m.ListRuns, SetUse]


def replace_notes(at: At, notes: HostNotes | None) -> At:
    return At(now=at.now, key=at.key, epoch=at.epoch, notes=notes)


def test_after_an_outage_a_host_that_is_not_in_use_has_its_backend_compare() -> None:
    assert told(receive(loaded(), m.BackendUp())) == []
    host = answered(receive(loaded(), m.StartMaintenance()).state, 1).state
    assert told(receive(host, m.BackendUp())) == [(HostUse.DRAINING, 1)]


def test_a_host_that_moves_stays_in_use_until_an_operator_takes_it_down() -> None:
    turn = receive(loaded(), mm.MoveToPool("default", "other"))
    assert turn.state.moving == "other" and told(turn) == []
    turn = receive(turn.state, m.StartMaintenance())
    assert turn.state.moving == "" and told(turn) == [(HostUse.DRAINING, 1)]
    assert told(receive(turn.state, m.StartMaintenance())) == []


def test_a_host_that_is_removed_in_maintenance_is_in_use_for_others() -> None:
    host = answered(receive(h.up(), m.StartMaintenance()).state, 2).state
    turn = receive(host, m.HostGone())
    assert told(turn) == [(HostUse.IN_USE, 3)] and turn.state.use.open
    at = At(now=20.0, key=h.HOST, epoch=h.EPOCH)
    step = pursue(turn.state, replace_notes(at, HostNotes(turn.state.state, 20.0)))
    assert isinstance(step, Decision)
    assert [type(one.message) for one in step.sends] == [m.PingBackend, SetUse]
    host = answered(turn.state, 3).state
    assert not isinstance(pursue(host, at), Decision), "and is not asked any more"


def test_a_host_that_is_removed_does_not_ask_a_backend_for_ever() -> None:
    """Its cluster may not be in any daemon's file any more."""
    host = answered(receive(h.up(), m.StartMaintenance()).state, 2).state
    for state in (HostStates.LOST, HostStates.RECONCILING, host.state):
        gone = receive(replace(host, state=state), m.HostGone()).state
        at, orders, woken = At(now=0.0, key=h.HOST, epoch=h.EPOCH), 0, 0
        while (step := pursue(gone, at)) and isinstance(step, Decision):
            orders += sum(isinstance(one.message, SetUse) for one in step.sends)
            at = At(
                now=recall_s(step.notes) or at.now, key=at.key, epoch=at.epoch,
                notes=step.notes,
            )  # fmt: skip
            woken += 1
            assert woken < 2 * REMOVED_POLLS_MAX
        assert orders == REMOVED_POLLS_MAX and recall_s(at.notes) is None
        assert at.now >= 1_800.0, "a backend that is away for a while is waited for"
