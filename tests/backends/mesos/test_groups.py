"""What the tasks of a pod of several containers say, put together."""

from __future__ import annotations

from typing import Any

import pytest

from peloton.actors.host.holds.foreign_names import is_foreign_id
from peloton.actors.task.messages import End, RunOutcome, parse_pod
from peloton.actors.task.run_messages import ContainerEnd
from peloton.backends.mesos.runs.groups import (
    ContainerTaskId,
    Group,
    container_task_id,
    executor_id,
    run_of_executor,
    task_id,
)
from peloton.backends.mesos.runs.keeper_tasks import PREFIX
from tests.backends.mesos.bench import name
from tests.backends.mesos.words import Json, status

RUN = name(0)
A, B, C = (task_id(RUN, at, of=3) for at in range(3))
EXITED, KILLED = "Command exited with status {}", "Command terminated with signal {}"


def test_run_and_count_are_found_by_the_ids_alone() -> None:
    own = {"executor_id": {"value": executor_id(RUN, of=3)}}
    assert A == RUN, "who asks for the run is answered"
    assert container_task_id(status(A, "RUNNING", **own)) == ContainerTaskId(RUN, 3)
    for task in (B, C):
        assert container_task_id(status(task, "GONE")) == container_task_id(
            status(task, "RUNNING", **own)
        )
        assert container_task_id(status(task, "GONE")) == ContainerTaskId(RUN, 3)
    assert run_of_executor(executor_id(RUN, of=3)) == RUN
    for id_ in (A, B, C, executor_id(RUN, of=3)):
        assert "/" not in id_ and len(id_) < 255
    assert parse_pod(B) is parse_pod(executor_id(RUN, of=3)) is None
    assert not is_foreign_id("a.b"), "no name of a run has a dot"


@pytest.mark.parametrize("id_", [RUN, "", f"{PREFIX}0123-4567", "a.b.c", "another-0-1.0.3"])
def test_others_are_alone(id_: str) -> None:
    assert container_task_id(status(RUN, "RUNNING", executor_id={"value": id_})) == ContainerTaskId(
        RUN
    )
    assert container_task_id(status(RUN, "RUNNING")) == ContainerTaskId(RUN)


def test_it_has_begun_when_all_run() -> None:
    group = Group(RUN, 3)
    group.begin(A, status(A, "RUNNING", timestamp=5.0))
    group.begin(B, status(B, "RUNNING", timestamp=7.0))
    assert (group.has_begun, group.runs(A), group.runs(C)) == (False, True, False)
    group.begin(C, status(C, "RUNNING", timestamp=6.0))
    assert (group.has_begun, group.started_at, group.knows_start) == (True, 7.0, True)


def test_what_ended_before_it_was_known_to_run_has_begun() -> None:
    group = Group(RUN, 2)
    group.begin(task_id(RUN, 1, of=2), status("b", "RUNNING", timestamp=7.0))
    group.end(RUN, status(RUN, "FINISHED", timestamp=8.0))
    assert group.has_begun and not group.is_over and not group.knows_start


def finished(code: int, at: float) -> Json:
    return status("x", "FAILED" if code else "FINISHED", message=EXITED.format(code), timestamp=at)


def killed(at: float, signal: str = "Terminated") -> Json:
    return status("x", "KILLED", message=KILLED.format(signal), timestamp=at)


def gone(at: float) -> Json:
    return status("x", "GONE", source="SOURCE_MASTER", timestamp=at)


ENDS: list[tuple[list[Json], End, Any]] = [
    ([finished(0, 1.0), finished(0, 2.0), finished(0, 3.0)], End.SUCCEEDED, 0),
    ([killed(9.0), finished(3, 8.0), killed(9.0)], End.FAILED, 3),
    ([finished(4, 9.0), finished(3, 8.0), finished(5, 9.0)], End.FAILED, 3),
    ([finished(4, 8.0), finished(3, 8.0), killed(7.0)], End.FAILED, 4),
    ([finished(0, 1.0), killed(9.0), finished(0, 2.0)], End.KILLED, None),
    ([finished(0, 1.0), finished(7, 9.0), gone(5.0)], End.FAILED, 7),
    ([killed(1.0), finished(0, 9.0), gone(5.0)], End.LOST, None),
]


@pytest.mark.parametrize(("updates", "end", "code"), ENDS)
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_the_end_is_that_of_the_first_that_failed(
    updates: list[Json], end: End, code: int | None, order: tuple[int, ...]
) -> None:
    """In whatever order the updates come."""
    group = Group(RUN, 3, names=("a", "b", "c"))
    for at, task in enumerate((A, B, C)):
        group.begin(task, status(task, "RUNNING", timestamp=0.5 + at))
    for at in order:
        group.end((A, B, C)[at], updates[at])
    assert group.is_over and group.open == ()
    assert group.ended_at == max(one["timestamp"] for one in updates)
    outcome = group.outcome()
    assert (outcome.end, outcome.exit_code, outcome.system) == (end, code, end is End.LOST)
    assert [one.name for one in outcome.containers] == ["a", "b", "c"]
    assert [one.started_at for one in outcome.containers] == [0.5, 1.5, 2.5]
    assert [one.ended_at for one in outcome.containers] == [one["timestamp"] for one in updates]


def test_each_container_has_its_own_end() -> None:
    group = Group(RUN, 3, names=("a", "b", "c"))
    group.begin(A, status(A, "RUNNING", timestamp=1.0))
    group.end(A, killed(9.0))
    group.end(B, finished(3, 8.0))
    group.end(B, finished(0, 9.0))
    assert not group.is_over and group.open == (C,)
    group.end(C, status("c", "FAILED", timestamp=9.0, message="no such image"))
    assert group.outcome() == RunOutcome(
        End.FAILED, 3, reason="exited", message="container b: Command exited with status 3",
        containers=(
            ContainerEnd("a", False, 1.0, 9.0, None, "SIGTERM"),
            ContainerEnd("b", False, 8.0, 8.0, 3),
            ContainerEnd("c", False, 0.0, 9.0),
        ),
    )  # fmt: skip


def test_with_one_that_is_lost_all_are() -> None:
    group = Group(RUN, 2)
    group.begin(RUN, status(RUN, "RUNNING", timestamp=1.0))
    group.end(task_id(RUN, 1, of=2), gone(5.0))
    assert group.is_over and group.open == (RUN,)
    outcome = group.outcome()
    assert (outcome.end, outcome.system, outcome.message) == (
        End.LOST, True, "container 2: TASK_GONE"
    )  # fmt: skip
    assert outcome.containers == (ContainerEnd("", False, 1.0), ContainerEnd("", False, 0.0, 5.0))


def test_with_an_executor_that_went_before_they_ran_nobody_has_failed() -> None:
    group = Group(RUN, 2)
    over: Json = {"source": "SOURCE_AGENT", "reason": "REASON_EXECUTOR_TERMINATED"}
    for task in group.open:
        group.end(task, status(task, "FAILED", **over))
    assert group.outcome().end is End.LOST
