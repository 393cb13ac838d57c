"""What updates of Mesos say of a run."""

from __future__ import annotations

from typing import Any

import pytest

from peloton.actors.task.messages import End, RunOutcome
from peloton.actors.task.run_messages import UNHEALTHY
from peloton.backends.mesos.runs.statuses import (
    RunAt,
    is_hearsay,
    is_repeat_of_a_launch,
    mesos_outcome,
    phase_of,
    tells_start,
)
from tests.backends.mesos.words import reconciled, status

EXECUTOR, AGENT, MASTER = "SOURCE_EXECUTOR", "SOURCE_AGENT", "SOURCE_MASTER"


@pytest.mark.parametrize(
    ("state", "phase"),
    [
        ("STAGING", RunAt.COMING),
        ("STARTING", RunAt.COMING),
        ("RUNNING", RunAt.RUNNING),
        ("KILLING", RunAt.RUNNING),
        ("UNREACHABLE", RunAt.UNKNOWN),
        *((state, RunAt.ENDED) for state in ("FINISHED", "FAILED", "KILLED", "ERROR", "LOST")),
        *((state, RunAt.ENDED) for state in ("DROPPED", "GONE", "GONE_BY_OPERATOR", "UNKNOWN")),
        ("OF_A_LATER_MESOS", RunAt.UNKNOWN),
    ],
)
def test_where_a_run_is(state: str, phase: RunAt) -> None:
    assert phase_of(status("r", state)) is phase


def test_an_update_without_a_state_says_nothing() -> None:
    assert phase_of({}) is RunAt.UNKNOWN


def end(
    state: str, message: str = "", source: str = EXECUTOR, reason: str = "", **more: Any
) -> RunOutcome:
    named = {"reason": f"REASON_{reason}"} if reason else {}
    return mesos_outcome(status("r", state, source=source, message=message, **named, **more))


CODE, TERM = "Command exited with status 3", "Command terminated with signal Terminated"
CORE = "Command terminated with signal Segmentation fault (core dumped)"
MEMORY = "Memory limit exceeded: Requested: 32MB"


@pytest.mark.parametrize(
    ("found", "outcome"),
    [
        (end("FINISHED", "Command exited with status 0"),
         RunOutcome(End.SUCCEEDED, 0, message="Command exited with status 0")),
        (end("FINISHED"), RunOutcome(End.SUCCEEDED, 0)),
        (end("FAILED", CODE), RunOutcome(End.FAILED, 3, reason="exited", message=CODE)),
        (end("FAILED", TERM), RunOutcome(End.FAILED, None, "SIGTERM", "failed", TERM)),
        (end("FAILED", CORE), RunOutcome(End.FAILED, None, "SIGSEGV", "failed", CORE)),
        (end("FAILED", "Command terminated with signal Real-time 7"),
         RunOutcome(End.FAILED, None, "Real-time 7", "failed",
                    "Command terminated with signal Real-time 7")),
        (end("FAILED", MEMORY, AGENT, "CONTAINER_LIMITATION_MEMORY"),
         RunOutcome(End.FAILED, reason="container limitation memory", message=MEMORY)),
        (end("FAILED"), RunOutcome(End.FAILED, reason="failed")),
        (end("KILLED", TERM), RunOutcome(End.KILLED, None, "SIGTERM", "killed", TERM)),
        (end("KILLED", CODE), RunOutcome(End.KILLED, 3, reason="exited", message=CODE)),
        (end("KILLED", "Killed before delivery", MASTER, "TASK_KILLED_DURING_LAUNCH"),
         RunOutcome(End.KILLED, reason="task killed during launch",
                    message="Killed before delivery")),
        # It would be as invalid at the next attempt: that is to be counted.
        (end("ERROR", "Task uses invalid", MASTER, "TASK_INVALID"),
         RunOutcome(End.FAILED, reason="task invalid", message="Task uses invalid")),
        (end("LOST", "", AGENT, "AGENT_DISCONNECTED"),
         RunOutcome(End.LOST, reason="agent disconnected", message="TASK_LOST", system=True)),
        (end("LOST", "Offer", MASTER, "INVALID_OFFERS"),
         RunOutcome(End.LOST, reason="invalid offers", message="Offer", system=True)),
        *(
            (end(state), RunOutcome(End.LOST, reason="lost", message=f"TASK_{state}", system=True))
            for state in ("LOST", "DROPPED", "GONE", "GONE_BY_OPERATOR", "UNKNOWN")
        ),
    ],
)  # fmt: skip
def test_how_it_ended(found: RunOutcome, outcome: RunOutcome) -> None:
    assert found == outcome


def test_what_its_executor_killed_for_its_check_has_failed() -> None:
    text = "the check of Mesos failed too often in a row: its output is in the run's stderr"
    failed = RunOutcome(End.FAILED, None, "SIGTERM", UNHEALTHY, text)
    assert end("KILLED", TERM, healthy=False) == failed
    assert end("KILLED", TERM, healthy=True).end is End.KILLED
    assert end("KILLED", TERM, MASTER, "RECONCILIATION", healthy=False).end is End.KILLED


def test_what_goes_with_its_executor_before_it_began_is_lost() -> None:
    """As when an agent is killed right after a launch: no program has failed."""
    gone = status("r", "FAILED", source="SOURCE_AGENT", reason="REASON_EXECUTOR_TERMINATED")
    lost = mesos_outcome(gone, began=False)
    assert (lost.end, lost.system, lost.reason) == (End.LOST, True, "executor terminated")
    ended = mesos_outcome(gone)
    assert (ended.end, ended.system) == (End.FAILED, False), "a program may have brought it down"
    for other in (
        status("r", "FAILED", source="SOURCE_AGENT", reason="REASON_CONTAINER_LAUNCH_FAILED"),
        status("r", "KILLED", source="SOURCE_AGENT", reason="REASON_EXECUTOR_TERMINATED"),
        status("r", "FAILED", message=CODE),
    ):
        assert mesos_outcome(other, began=False).end is not End.LOST


@pytest.mark.parametrize("state", ["FINISHED", "FAILED", "KILLED", "ERROR"])
def test_an_end_that_the_master_was_asked_for_is_hearsay(state: str) -> None:
    assert is_hearsay(reconciled("r", state))
    back = status("r", state, source=MASTER, reason="REASON_AGENT_REREGISTERED")
    assert is_hearsay(back), "an agent is back on which it has ended"
    assert not is_hearsay(status("r", state, uuid="u"))
    assert not is_hearsay(status("r", state, source=MASTER, reason="REASON_TASK_INVALID"))


@pytest.mark.parametrize("state", ["GONE", "LOST", "UNKNOWN", "RUNNING", "UNREACHABLE"])
def test_the_master_knows_itself_what_is_lost(state: str) -> None:
    assert not is_hearsay(reconciled("r", state))


def test_a_launch_that_is_refused_as_a_repeat() -> None:
    refusal = {"source": MASTER, "reason": "REASON_TASK_INVALID"}
    assert is_repeat_of_a_launch(
        status("r", "ERROR", message="Task has duplicate ID: r", **refusal)
    )
    assert not is_repeat_of_a_launch(status("r", "ERROR", message="Task uses more", **refusal))
    of_group = {**refusal, "reason": "REASON_TASK_GROUP_INVALID"}
    text = "Task 'r' is invalid: Task has duplicate ID: r"
    assert is_repeat_of_a_launch(status("r.1.2", "ERROR", message=text, **of_group))
    assert not is_repeat_of_a_launch(status("r", "FAILED", message="Task has duplicate ID: r"))


def test_the_start_is_told_by_the_first_update_that_it_runs() -> None:
    assert tells_start(status("r", "RUNNING"))
    assert not tells_start(reconciled("r", "RUNNING"))
    checked = "REASON_TASK_HEALTH_CHECK_STATUS_UPDATED"
    assert not tells_start(status("r", "RUNNING", reason=checked, healthy=True))
