"""The maintenance of a host: what it ends, when it is down, and that it comes back.

Orders to the backend are checked, reports are made by hand.
"""

from __future__ import annotations

import pytest

from peloton.actors.host import messages as m
from peloton.actors.host.goals import DRAIN_POLL_EVERY_S
from peloton.actors.host.machine_messages import SetUse, UseSet
from peloton.actors.host.run_spec import RunSpec
from peloton.actors.host.stages import HostStates, Maintenance, RunPhase
from peloton.actors.host.state import Host
from peloton.actors.resources import UNIT, Resources
from peloton.actors.task import facts as tf
from peloton.actors.task import messages as t
from peloton.actors.task.messages import End, RunOutcome, TaskGoals
from peloton.actors.task.state import EVOLVE, SYSTEM_FAILURES_FREE
from peloton.runtime.core.turning.turn import TurnOutcome as Turn
from peloton.runtime.core.turning.turn import take_turn
from peloton.runtime.vocabulary import At, Bits, Message, Refused
from tests.actors.hosts import test_host as h
from tests.actors.tasks.test_task import running

STOPPED = RunOutcome(End.FAILED, None, "SIGTERM", "exited", "ended by SIGTERM")
SPEC = RunSpec(Resources(UNIT), "true")


def receive(host: Host | None, message: Message, *members: int) -> Turn:
    some = Bits.of(*members) if members else None
    at = At(now=9.0, key=h.HOST, sender=h.CROWD, members=some, epoch=h.EPOCH)
    return take_turn(h.KIND, host, message=message, at=at)


def told(turn: Turn) -> Host:
    """The backend knows of the last use that it was told."""
    return receive(turn.state, UseSet(turn.state.use.number, "")).state  # type: ignore[no-any-return]


def draining(*members: int) -> Host:
    """A host in maintenance that holds these runs, which had started."""
    host = receive(h.up(), m.Launch(1, SPEC), *members).state
    host = receive(host, m.RunsStarted(tuple(h.pod(one) for one in members))).state
    host = told(receive(host, m.StartMaintenance()))
    assert host.maintenance == Maintenance.DRAINING
    return host


def stopped(host: Host, *members: int, outcome: RunOutcome = STOPPED) -> Turn:
    return receive(host, m.RunsEnded(tuple(m.RunEnd(h.pod(one), outcome) for one in members)))


def test_all_runs_are_stopped_once_and_nothing_is_granted() -> None:
    host = receive(h.with_run(RunPhase.STARTED), m.Launch(1, SPEC), 1).state
    host = receive(host, m.KillRun(1, 5.0), 1).state
    turn = receive(host, m.StartMaintenance())
    assert turn.reply == m.MaintenanceSet(Maintenance.DRAINING)
    stops = [order.runs for order in h.orders(turn) if isinstance(order, m.StopRuns)]
    assert stops == [(h.pod(0),)], "1 is being killed already"
    assert {run.phase for _, run in turn.state.runs.items()} == {RunPhase.KILLING}
    refused = receive(turn.state, m.Launch(1, SPEC), 2)
    ((answer, _),) = h.replies(refused)
    assert answer.reason == "host is draining" and not answer.summary.up  # type: ignore[attr-defined]
    again = receive(turn.state, m.StartMaintenance())
    assert (
        again.reply == m.MaintenanceSet(Maintenance.DRAINING)
        and not again.facts
        and not again.sends
    )


def test_a_host_is_drained_when_runs_have_ended_and_down_when_their_tasks_know() -> None:
    host = stopped(draining(0, 1), 0).state
    assert host.maintenance == Maintenance.DRAINING
    host = told(stopped(host, 1))
    assert host.maintenance == Maintenance.DRAINED and host.used == Resources()
    host = receive(host, m.RunSeen(1), 0).state
    assert host.maintenance == Maintenance.DRAINED
    host = receive(host, m.RunSeen(1), 1).state
    assert host.maintenance == Maintenance.DOWN and not host.summary(h.HOST).up


def test_an_idle_host_is_down_at_once_and_up_only_after_its_completion() -> None:
    host = told(receive(h.up(), m.StartMaintenance()))
    assert host.maintenance == Maintenance.DOWN
    assert host.version > h.up().version, "placers have to hear of it"
    turn = receive(host, m.CompleteMaintenance())
    assert turn.reply == m.MaintenanceSet(Maintenance.NONE) and turn.state.grants
    assert turn.state.version > host.version
    assert receive(turn.state, m.Launch(1, SPEC), 3).state.runs[h.pod(3)]


@pytest.mark.parametrize("host", [h.up(), draining(0), stopped(draining(0), 0).state])
def test_what_is_not_down_cannot_be_completed(host: Host) -> None:
    turn = receive(host, m.CompleteMaintenance())
    assert isinstance(turn.reply, Refused) and turn.reply.code == m.NOT_DOWN
    assert turn.reply.text == "Host is not DOWN" and turn.state == host


def test_a_host_that_is_not_there_or_was_removed_refuses() -> None:
    removed = receive(draining(0), m.HostGone()).state
    assert removed.maintenance == Maintenance.NONE
    for host in (None, removed):
        for message in (m.StartMaintenance(), m.CompleteMaintenance()):
            reply = receive(host, message).reply
            assert isinstance(reply, Refused) and reply.code == m.NO_HOST


def test_the_end_of_a_drained_run_is_the_hosts_doing() -> None:
    ((end, members),) = h.replies(stopped(draining(0), 0))
    assert isinstance(end, t.Ended) and members == [0]
    assert (end.outcome.end, end.outcome.reason) == (End.KILLED, t.HOST_MAINTENANCE)
    assert end.outcome.system and end.outcome.signal == "SIGTERM"


def test_a_run_that_succeeded_before_it_was_stopped_has_succeeded() -> None:
    ((end, _),) = h.replies(stopped(draining(0), 0, outcome=h.DONE))
    assert isinstance(end, t.Ended) and end.outcome == h.DONE


def test_a_run_that_its_task_kills_is_killed_and_not_moved() -> None:
    host = receive(draining(0), m.KillRun(1, 5.0), 0).state
    ((end, _),) = h.replies(stopped(host, 0))
    task = running(goal=TaskGoals.KILLED)
    assert isinstance(end, t.Ended)
    assert EVOLVE[tf.RunEnded](task, tf.RunEnded(end.outcome)).state.name == "KILLED"


def test_maintenance_is_never_charged() -> None:
    moved = RunOutcome(End.KILLED, reason=t.HOST_MAINTENANCE, system=True)
    task = running(max_failures=0)
    for _ in range(SYSTEM_FAILURES_FREE + 2):
        task = EVOLVE[tf.RunEnded](task, tf.RunEnded(moved))
        assert task.free_try and (task.failures, task.system_failures) == (0, 0)


def test_a_host_that_dies_while_it_drains_goes_down_and_stays_down() -> None:
    host = receive(draining(0), m.BackendDown("gone")).state
    assert (host.state, host.maintenance) == (HostStates.UNREACHABLE, Maintenance.DRAINING)
    host = receive(host, h.Due("unreachable")).state
    assert (host.state, host.maintenance) == (HostStates.LOST, Maintenance.DRAINED)
    host = receive(host, m.RunSeen(1), 0).state
    assert host.maintenance == Maintenance.DOWN
    back = receive(receive(host, m.BackendUp()).state, m.RunsListed(())).state
    assert (back.state, back.maintenance) == (HostStates.UP, Maintenance.DOWN)
    assert receive(back, m.CompleteMaintenance()).state.grants


def test_a_lost_order_to_stop_is_repeated_after_a_poll() -> None:
    host = draining(0)
    begun = h.polls(host, h.HostNotes(HostStates.UP, 300.0), 10.0)
    assert h.KIND.recall_s(begun.notes) == 10.0 + DRAIN_POLL_EVERY_S, "not only in 290 s"
    due = h.polls(host, begun.notes, 20.0)
    assert [type(order) for order in h.orders(due)] == [m.ListRuns, SetUse]
    listed = receive(host, m.RunsListed((h.pod(0),)))
    assert [order.runs for order in h.orders(listed)] == [(h.pod(0),)]
