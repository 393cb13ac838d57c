"""What tasks and hosts make of the containers of a run that goes on.

Must not run anything: reports are made by hand.
"""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from peloton.actors.host import messages as hm
from peloton.actors.host.live.container_messages import (
    ContainersNoted,
    ContainersReported,
    ContainersSeen,
    RunContainers,
)
from peloton.actors.host.state import Host
from peloton.actors.task import messages as m
from peloton.actors.task.columns import ARCHIVE, WRITE
from peloton.actors.task.container_messages import ContainersChanged, LiveContainers, steps_of
from peloton.actors.task.containers import told_of_no_task
from peloton.actors.task.facts import ContainersTold, RunEnded
from peloton.actors.task.messages import ContainerEnd, End, RunOutcome
from peloton.actors.task.state import TaskStates
from tests.actors.hosts import test_host as hosts
from tests.actors.tasks import test_task as tasks

PREPARES = (ContainerEnd("first", True, 1.0), ContainerEnd("web"))
SERVES = (ContainerEnd("first", True, 1.0, 2.0, 0), ContainerEnd("web", False, 2.0))


def test_a_number_counts_starts_and_ends() -> None:
    assert steps_of((ContainerEnd("first", True), ContainerEnd("web"))) == 0
    assert (steps_of(PREPARES), steps_of(SERVES)) == (1, 3)


# ---- a task ----


@pytest.mark.parametrize("state", [TaskStates.LAUNCHED, TaskStates.RUNNING, TaskStates.KILLING])
def test_a_task_keeps_what_it_is_told_and_answers(state: TaskStates) -> None:
    task = replace(tasks.running(), state=state)
    turn = tasks.receive(task, ContainersChanged(1, 3, SERVES))
    assert turn.facts == (ContainersTold(3, SERVES),) and turn.state == task
    assert tasks.replies(turn) == [ContainersSeen(1, 3)]


def test_what_is_told_of_another_run_or_of_nobody_is_answered_only() -> None:
    ended = tasks.receive(tasks.running(), m.Ended(1, tasks.FAILED)).state
    for task, run in ((replace(tasks.running(), run=2), 1), (ended, ended.run)):
        turn = tasks.receive(task, ContainersChanged(run, 3, SERVES))
        assert not turn.facts and tasks.replies(turn) == [ContainersSeen(run, 3)]
    (send,) = told_of_no_task(ContainersChanged(1, 3, SERVES), tasks.AT).sends
    assert send.message == ContainersSeen(1, 3)


@pytest.mark.parametrize(
    ("known", "kept"),
    [
        (None, True),
        (LiveContainers(1, 1, PREPARES), True),
        (LiveContainers(1, 3, SERVES), False),
        (LiveContainers(1, 4, SERVES), False),
        (LiveContainers(7, 4, SERVES), True),  # of an earlier run, whatever its number
    ],
)
def test_only_a_newer_change_is_kept(known: LiveContainers | None, kept: bool) -> None:
    columns: dict[str, Any] = {"containers": known}
    found = ARCHIVE[ContainersTold](tasks.running(), ContainersTold(3, SERVES), read=columns.get)
    assert found == ({"containers": LiveContainers(1, 3, SERVES)} if kept else {})


def test_an_end_takes_its_place_and_costs_others_nothing() -> None:
    ended = WRITE[RunEnded](RunEnded(RunOutcome(End.FAILED, 1, containers=SERVES)), 9.0)
    assert ended["containers"] is None
    assert "containers" not in WRITE[RunEnded](RunEnded(tasks.FAILED), 9.0)


# ---- a host ----


def host_with(*members: int) -> Host:
    host: Host = hosts.receive(hosts.up(), hm.Launch(1, hosts.SPEC), *members).state
    return host


def name(member: int) -> str:
    return m.pod_id(hosts.CROWD, member, run=1)


def test_a_host_passes_on_what_is_told_from_the_first_container_on() -> None:
    """A pod has not started before all of its containers have."""
    host = hosts.receive(host_with(0, 1, 2), hm.KillRun(1, 5.0), 2).state
    changes = (
        RunContainers(name(0), 1, PREPARES),
        RunContainers(name(1), 1, PREPARES),
        RunContainers(name(2), 3, SERVES),
    )
    turn = hosts.receive(host, ContainersReported(changes))
    assert not turn.facts
    assert hosts.replies(turn) == [
        (ContainersChanged(1, 1, PREPARES), [0, 1]),
        (ContainersChanged(1, 3, SERVES), [2]),
    ]


def test_a_host_answers_of_runs_that_concern_nobody() -> None:
    host = host_with(0)
    host = hosts.receive(host, hm.RunsEnded((hm.RunEnd(name(0), hosts.DONE),))).state
    changes = RunContainers(name(0), 3, SERVES), RunContainers("odd", 1, PREPARES)
    turn = hosts.receive(host, ContainersReported(changes))
    assert [send.message for send in turn.sends] == [
        ContainersNoted(hosts.HOST, (name(0),), 3),
        ContainersNoted(hosts.HOST, ("odd",), 1),
    ]


def test_the_backend_is_told_what_tasks_have_seen() -> None:
    (send,) = hosts.receive(host_with(0, 1), ContainersSeen(1, 3), 0, 1).sends
    assert send.to == hosts.BACKEND
    assert send.message == ContainersNoted(hosts.HOST, (name(0), name(1)), 3)
