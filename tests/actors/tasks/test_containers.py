"""What tasks make of the containers of a run that goes on; reports are made by hand."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from peloton.actors.host.live.live_messages import ChangeSeen
from peloton.actors.task import messages as m
from peloton.actors.task.columns import ARCHIVE, WRITE
from peloton.actors.task.facts import ContainersTold, RunEnded
from peloton.actors.task.messages import End, RunOutcome
from peloton.actors.task.run_changes import told_of_nobody
from peloton.actors.task.run_messages import (
    ContainerEnd,
    LiveContainers,
    LiveRun,
    RunChanged,
    steps_of,
)
from peloton.actors.task.state import TaskStates
from tests.actors.tasks import test_task as tasks

PREPARES = (ContainerEnd("first", True, 1.0), ContainerEnd("web"))
SERVES = (ContainerEnd("first", True, 1.0, 2.0, 0), ContainerEnd("web", False, 2.0))
OVER = (SERVES[0], ContainerEnd("web", False, 2.0, 3.0, 0))


def test_steps_are_starts_and_ends() -> None:
    assert steps_of((ContainerEnd("first", True), ContainerEnd("web"))) == 0
    assert (steps_of(PREPARES), steps_of(SERVES)) == (1, 3)


@pytest.mark.parametrize("state", [TaskStates.LAUNCHED, TaskStates.RUNNING, TaskStates.KILLING])
def test_a_task_keeps_what_it_is_told_and_answers(state: TaskStates) -> None:
    task = replace(tasks.running(), state=state)
    turn = tasks.receive(task, RunChanged(1, 3, LiveRun(containers=SERVES)))
    assert turn.facts == (ContainersTold(SERVES),) and turn.state == task
    assert tasks.replies(turn) == [ChangeSeen(1, 3)]


def test_what_is_told_of_another_run_or_of_nobody_is_answered_only() -> None:
    ended = tasks.receive(tasks.running(), m.Ended(1, tasks.FAILED)).state
    for task, run in ((replace(tasks.running(), run=2), 1), (ended, ended.run)):
        turn = tasks.receive(task, RunChanged(run, 3, LiveRun(containers=SERVES)))
        assert not turn.facts and tasks.replies(turn) == [ChangeSeen(run, 3)]
    (send,) = told_of_nobody(RunChanged(1, 3, LiveRun(containers=SERVES)), tasks.AT).sends
    assert send.message == ChangeSeen(1, 3)


@pytest.mark.parametrize(
    ("known", "kept"),
    [
        (None, True),
        (LiveContainers(1, PREPARES), True),
        (LiveContainers(1, SERVES), False),
        (LiveContainers(1, OVER), False),
        (LiveContainers(7, OVER), True),  # of an earlier run, however far it came
    ],
)
def test_only_a_newer_change_is_kept(known: LiveContainers | None, kept: bool) -> None:
    columns: dict[str, Any] = {"containers": known}
    found = ARCHIVE[ContainersTold](tasks.running(), ContainersTold(SERVES), read=columns.get)
    assert found == ({"containers": LiveContainers(1, SERVES)} if kept else {})


def test_an_end_takes_its_place_and_costs_others_nothing() -> None:
    ended = WRITE[RunEnded](RunEnded(RunOutcome(End.FAILED, 1, containers=SERVES)), 9.0)
    assert ended["containers"] is None
    assert "containers" not in WRITE[RunEnded](RunEnded(tasks.FAILED), 9.0)
