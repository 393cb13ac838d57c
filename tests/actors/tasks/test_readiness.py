"""What tasks decide about the readiness of their runs. Reports are made by hand."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from peloton.actors.job.slice.tally import NOT_READY_YET_TEXT, READY, UNREADY_TEXT, why
from peloton.actors.task import messages as m
from peloton.actors.task.facts import HealthTold
from peloton.actors.task.messages import TaskGoals
from peloton.actors.task.run_messages import LiveRun, RunChanged, TaskHealth
from peloton.actors.task.state import Task, TaskStates, is_available, is_well
from tests.actors.tasks import test_task as tasks

NEW, OFF = TaskHealth.UNKNOWN, TaskHealth.DISABLED
WELL, ILL = TaskHealth.HEALTHY, TaskHealth.UNHEALTHY
READY_NOW = RunChanged(1, 7, LiveRun(ready=WELL))
UNREADY = LiveRun(ready=ILL, unready_text="it loads")


def waiting(*, checked: bool = False, **fields: Any) -> Task:
    """A task whose run 1 runs, and of which nothing is known yet."""
    known: Any = {"health": NEW if checked else OFF, "ready": NEW, **fields}
    running = tasks.running(TaskGoals.RUNNING, **known)
    policy = replace(running.policy, checked=checked, awaits_ready=True)
    return replace(running, policy=policy)


def test_a_run_begins_as_one_that_is_not_known_to_be_ready_and_ends_as_any() -> None:
    begun = replace(waiting(), state=TaskStates.LAUNCHED, ready=OFF)
    state = tasks.receive(begun, m.Started(1)).state
    assert (state.health, state.ready) == (OFF, NEW) and not is_well(state)
    ended = tasks.receive(state, m.Ended(1, tasks.FAILED)).state
    assert (ended.health, ended.ready) == (OFF, OFF)


@pytest.mark.parametrize("checked", [False, True])
def test_it_is_available_once_it_is_ready_and_well(checked: bool) -> None:
    turn = tasks.receive(waiting(checked=checked), READY_NOW)
    assert turn.facts == (HealthTold(NEW if checked else OFF, "", WELL),)
    assert is_available(turn.state) == (not checked)
    well = RunChanged(1, 9, LiveRun(True, ready=WELL))
    assert is_available(tasks.receive(turn.state, well).state)


def test_one_that_is_not_ready_runs_on_and_says_why() -> None:
    turn = tasks.receive(waiting(ready=WELL), RunChanged(1, 8, UNREADY))
    assert turn.facts == (HealthTold(OFF, "it loads", ILL),)
    assert turn.state.state == TaskStates.RUNNING and not is_available(turn.state)
    assert turn.state.failures == 0
    assert why(turn.state, tasks.AT) == (READY, UNREADY_TEXT)
    assert why(waiting(), tasks.AT) == (READY, NOT_READY_YET_TEXT)


def test_a_change_of_its_health_says_nothing_of_a_readiness_that_is_not_known() -> None:
    """Whoever checks it may have begun anew."""
    ready = waiting(checked=True, ready=WELL)
    turn = tasks.receive(ready, RunChanged(1, 9, LiveRun(True, "GET x")))
    assert turn.state.ready == WELL and turn.facts == (HealthTold(WELL, "GET x", WELL),)
    same = tasks.receive(turn.state, replace(READY_NOW, number=10))
    assert same.state.health == WELL and not same.facts


def test_the_text_is_that_of_the_health_where_both_fail() -> None:
    both = replace(UNREADY, healthy=False, text="it is ill")
    turn = tasks.receive(waiting(checked=True), RunChanged(1, 8, both))
    assert turn.facts == (HealthTold(ILL, "it is ill", ILL),)
