"""What tasks and hosts decide about the health of runs.

Reports are made by hand.
"""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from peloton.actors.host import messages as hm
from peloton.actors.host.live.live_messages import ChangeSeen, CheckedSet
from peloton.actors.host.live.run_changes import checked_sets
from peloton.actors.host.orders import list_runs
from peloton.actors.host.state import Host
from peloton.actors.task import messages as m
from peloton.actors.task.facts import ContainersTold, HealthTold, TaskKilling
from peloton.actors.task.messages import End, KillCause, RunOutcome, TaskGoals
from peloton.actors.task.run_changes import told_of_nobody
from peloton.actors.task.run_messages import (
    UNHEALTHY,
    ContainerEnd,
    HealthCheck,
    LiveRun,
    RunChanged,
    TaskHealth,
)
from peloton.actors.task.state import Task, TaskStates, is_let_pass, is_well
from peloton.runtime.core.turning.turn import TurnOutcome as Turn
from peloton.runtime.vocabulary import At, Bits
from tests.actors.hosts import test_host as hosts
from tests.actors.tasks import test_task as tasks

CHECK = HealthCheck("check")
WELL, ILL = RunChanged(1, 7, LiveRun(True)), RunChanged(1, 8, LiveRun(False, "it is ill"))
OVER = RunChanged(1, 9, LiveRun(False, "it is ill", over=True))


def checked(**fields: Any) -> Task:
    """A task whose run 1 runs and is checked."""
    running = tasks.running(TaskGoals.RUNNING, health=TaskHealth.UNKNOWN, **fields)
    return replace(running, policy=replace(running.policy, checked=True))


def receive(task: Task, message: Any) -> Turn:
    return tasks.receive(task, message)


# ---- a task ----


def test_a_run_that_is_checked_begins_unknown_and_ends_as_if_it_were_not() -> None:
    begun = replace(checked(), state=TaskStates.LAUNCHED, health=TaskHealth.DISABLED)
    turn = receive(begun, m.Started(1))
    assert turn.state.health == TaskHealth.UNKNOWN and not is_well(turn.state)
    ended = receive(turn.state, m.Ended(1, tasks.FAILED)).state
    assert ended.health == TaskHealth.DISABLED, "so that the ended are alike"
    plain = replace(begun, policy=m.Policy())
    assert is_well(receive(plain, m.Started(1)).state)


@pytest.mark.parametrize(
    ("before", "message", "after"),
    [
        (TaskHealth.UNKNOWN, WELL, TaskHealth.HEALTHY),
        (TaskHealth.UNKNOWN, ILL, TaskHealth.UNHEALTHY),
        (TaskHealth.HEALTHY, ILL, TaskHealth.UNHEALTHY),
        (TaskHealth.UNHEALTHY, WELL, TaskHealth.HEALTHY),
    ],
)
def test_a_change_is_believed_and_answered_with_its_number(
    before: TaskHealth, message: RunChanged, after: TaskHealth
) -> None:
    turn = receive(replace(checked(), health=before), message)
    assert turn.state.health == after and turn.facts == (HealthTold(after, message.live.text),)
    assert tasks.replies(turn) == [ChangeSeen(1, message.number)]
    again = receive(turn.state, replace(message, number=99))
    assert not again.facts and tasks.replies(again) == [ChangeSeen(1, 99)]


@pytest.mark.parametrize(
    "message",
    [
        RunChanged(1, 7, LiveRun(text="it cannot be run")),
        RunChanged(1, 7, LiveRun(unready_text="it cannot be run")),
    ],
    ids=["health", "readiness"],
)
def test_why_nothing_is_known_yet_is_kept_though_nothing_has_changed(
    message: RunChanged,
) -> None:
    before = checked()
    turn = receive(before, message)
    assert turn.facts == (HealthTold(TaskHealth.UNKNOWN, "it cannot be run"),)
    assert (turn.state, tasks.replies(turn)) == (before, [ChangeSeen(1, 7)])


def test_one_that_has_failed_too_often_is_ended_with_its_grace() -> None:
    turn = receive(replace(checked(), health=TaskHealth.HEALTHY), OVER)
    assert turn.state.state == TaskStates.KILLING
    assert [type(fact) for fact in turn.facts] == [HealthTold, TaskKilling]
    kill = hm.KillRun(1, turn.state.policy.kill_grace_s)
    assert tasks.replies(turn) == [ChangeSeen(1, 9), kill]


@pytest.mark.parametrize(
    "reported",
    [
        RunOutcome(End.KILLED, None, "SIGTERM", "killed"),
        RunOutcome(End.SUCCEEDED, 0),
        RunOutcome(End.FAILED, 3),
    ],
)
def test_its_end_is_a_failure_whatever_its_exit_code(reported: RunOutcome) -> None:
    killing = receive(checked(), OVER).state
    turn = receive(killing, m.Ended(1, reported))
    assert turn.state.failures == 1
    (outcome,) = (fact.outcome for fact in turn.facts if hasattr(fact, "outcome"))
    assert (outcome.end, outcome.reason) == (End.FAILED, UNHEALTHY)
    assert (outcome.exit_code, outcome.signal) == (reported.exit_code, reported.signal)
    assert outcome.message == "health check failed too often in a row, at last: it is ill"


def test_one_that_is_lost_meanwhile_is_lost() -> None:
    killing = receive(checked(), OVER).state
    turn = receive(killing, m.Ended(1, tasks.LOST))
    assert turn.state.failures == 0 and turn.state.system_failures == 1


def test_one_that_is_stopped_anyway_is_not_ended_for_its_health() -> None:
    stopping = replace(checked(), goal=TaskGoals.KILLED, state=TaskStates.KILLING)
    turn = receive(stopping, OVER)
    assert not turn.facts and tasks.replies(turn) == [ChangeSeen(1, 9)]
    assert turn.state.cause == KillCause.NONE


def test_what_comes_before_the_start_is_told_again_later() -> None:
    """But for its containers, of which the first begin before that."""
    early = replace(checked(), state=TaskStates.LAUNCHED, health=TaskHealth.DISABLED)
    turn = receive(early, WELL)
    assert not turn.facts and not tasks.replies(turn)
    containers = (ContainerEnd("web", False, 2.0),)
    turn = receive(early, RunChanged(1, 7, LiveRun(True, containers=containers)))
    assert turn.facts == (ContainersTold(containers),) and not tasks.replies(turn)


def test_the_health_of_a_run_that_is_ending_is_answered_and_forgotten() -> None:
    turn = receive(replace(checked(), state=TaskStates.KILLING), OVER)
    assert not turn.facts and tasks.replies(turn) == [ChangeSeen(1, 9)]


@pytest.mark.parametrize("message", [WELL, ILL, OVER])
def test_the_health_of_an_earlier_run_is_answered_and_forgotten(message: RunChanged) -> None:
    turn = receive(replace(checked(), run=2), message)
    assert not turn.facts and tasks.replies(turn) == [ChangeSeen(1, message.number)]
    (send,) = told_of_nobody(message, tasks.AT).sends
    assert send.message == ChangeSeen(1, message.number)


# ---- a host ----

SPEC = replace(hosts.SPEC, check=CHECK, environment=(("LONG", "x" * 1000),))


def host_with(*members: int) -> Host:
    """A host that was ordered to start run 1 of these, which are checked."""
    host: Host = hosts.receive(hosts.up(), hm.Launch(1, SPEC), *members).state
    return host


def name(member: int) -> str:
    return m.pod_id(hosts.CROWD, member, run=1)


def started(host: Host, *members: int) -> Host:
    after: Host = hosts.receive(host, hm.RunsStarted(tuple(map(name, members)))).state
    return after


def test_what_is_checked_is_known_as_long_as_it_runs() -> None:
    host = host_with(0, 1)
    (some,) = checked_sets(host)
    assert some == CheckedSet(hosts.CROWD, 1, Bits.of(0, 1), CHECK, some.since)
    host = started(host, 0, 1)
    (some,) = checked_sets(host)
    assert some.members == Bits.of(0, 1) and some.check == CHECK
    (kept,) = (one.spec for _, one in host.runs.sets())
    assert kept is not None and kept.environment == (), "of the spec nothing else is kept"
    host = hosts.receive(host, hm.KillRun(1, 5.0), 0).state
    (some,) = checked_sets(host)
    assert some.members == Bits.of(1), "what is to end is not checked"
    done = hm.RunEnd(name(1), hosts.DONE)
    assert checked_sets(hosts.receive(host, hm.RunsEnded((done,))).state) == ()


def test_a_list_is_asked_for_with_what_is_to_be_checked() -> None:
    host = started(host_with(0), 0)
    asked = list_runs(host, At(now=9.0, key=hosts.HOST, epoch=1)).message
    assert isinstance(asked, hm.ListRuns)
    assert [(some.members, some.check) for some in asked.checked] == [(Bits.of(0), CHECK)]


@pytest.mark.parametrize("awaits_ready", [False, True])
def test_a_run_whose_check_nobody_carries_out_is_as_one_without_it(awaits_ready: bool) -> None:
    """Else no update would get past it. It has two checks, or that of its health."""
    ready = TaskHealth.UNKNOWN if awaits_ready else TaskHealth.DISABLED
    task = checked(ready=ready)
    task = replace(task, policy=replace(task.policy, awaits_ready=awaits_ready))
    live = LiveRun(text="not checked", unchecked=True)
    turn = receive(task, RunChanged(1, 7, live))
    assert turn.facts == (HealthTold(TaskHealth.DISABLED, "not checked", ready),)
    assert is_well(turn.state) != awaits_ready and is_let_pass(turn.state)
    assert not receive(turn.state, RunChanged(1, 8, live)).facts, "it is said once"
    both = replace(live, unready_text="not checked", ungated=True)
    assert is_well(receive(turn.state, RunChanged(1, 9, both)).state)
