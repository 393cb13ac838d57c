"""The state and the end of a run in an update of Mesos.

The states are those of the original's table, but that a task which is unreachable, gone or dropped
is not begun anew: it is lost, or nothing is known of it for now.
"""

from __future__ import annotations

import enum
import re
import signal
from collections.abc import Mapping
from typing import Any

from peloton.actors.task.messages import End, RunOutcome
from peloton.actors.task.run_messages import UNHEALTHY
from peloton.backends.mesos.runs.keeper_ends import keeper_outcome

_EXITED = re.compile(r"exited with status (\d+)")
_SIGNALLED = re.compile(r"terminated with signal (.+?)(?: \(core dumped\))?$")
_SIGNALS = {signal.strsignal(each): each.name for each in signal.Signals}
DUPLICATE = "Task has duplicate ID"


class RunAt(enum.Enum):
    """The phase of a run in its last update."""

    COMING = 1
    RUNNING = 2
    ENDED = 3
    UNKNOWN = 4  # nobody knows for now: its agent is out of reach


_PHASES = {
    "TASK_STAGING": RunAt.COMING,
    "TASK_STARTING": RunAt.COMING,
    "TASK_RUNNING": RunAt.RUNNING,
    "TASK_KILLING": RunAt.RUNNING,
    "TASK_UNREACHABLE": RunAt.UNKNOWN,
}
_ENDS = {
    "TASK_FINISHED": End.SUCCEEDED,
    "TASK_FAILED": End.FAILED,
    "TASK_ERROR": End.FAILED,
    "TASK_KILLED": End.KILLED,
}
_LOST = frozenset(
    ("TASK_LOST", "TASK_DROPPED", "TASK_GONE", "TASK_GONE_BY_OPERATOR", "TASK_UNKNOWN")
)


def phase_of(status: Mapping[str, Any]) -> RunAt:
    """Return the phase of the run. An unknown state gives UNKNOWN."""
    state = status.get("state", "")
    if state in _PHASES:
        return _PHASES[state]
    known = state in _ENDS or state in _LOST
    return RunAt.ENDED if known else RunAt.UNKNOWN


def is_hearsay(status: Mapping[str, Any]) -> bool:
    """Return whether the master reports an end whose own update, with more in it, is to come.

    It does come: the master forgets a task once that update is acknowledged. The master reports
    such an end when it is asked, and when an agent comes back on which a task has ended meanwhile.
    """
    known = status.get("reason") in ("REASON_RECONCILIATION", "REASON_AGENT_REREGISTERED")
    return known and status.get("state", "") in _ENDS and not status.get("uuid")


def tells_start(status: Mapping[str, Any]) -> bool:
    """Return whether the time of an update is the run's beginning, not a later one."""
    return status.get("source") == "SOURCE_EXECUTOR" and "reason" not in status


def mesos_outcome(status: Mapping[str, Any], *, began: bool = True) -> RunOutcome:
    """Return the end in a final update. A loss of the cluster is not the program's fault.

    `began`: its program is known to have run.
    """
    exact = keeper_outcome(status)
    if exact is not None:
        return exact
    state, message = status.get("state", ""), status.get("message", "")
    reason = _short(status.get("reason", ""))
    end = _ENDS.get(state)
    if end is None or (not began and _never_came(status)):
        return RunOutcome(End.LOST, reason=reason or "lost", message=message or state, system=True)
    if end is End.SUCCEEDED:
        return RunOutcome(end, 0, message=message)
    exited, killed = _EXITED.search(message), _SIGNALLED.search(message)
    code, name = int(exited[1]) if exited else None, killed[1] if killed else ""
    signal_name = _SIGNALS.get(name, name)
    if status.get("healthy") is False and status.get("source") == "SOURCE_EXECUTOR":
        # Only its executor says so, and only of what it has killed for its check.
        # Its message says how the task was ended; what the check found is in the task's files.
        text = "the check of Mesos failed too often in a row: its output is in the run's stderr"
        return RunOutcome(End.FAILED, code, signal_name, UNHEALTHY, text)
    short = reason or ("exited" if exited else "killed" if end is End.KILLED else "failed")
    return RunOutcome(end, code, signal_name, short, message)


def _never_came(status: Mapping[str, Any]) -> bool:
    """Return whether an agent reports that an executor has gone.

    What that should have started is gone with it, as when the agent dies right after the launch.
    """
    gone = str(status.get("reason", "")).startswith("REASON_EXECUTOR_")
    of_agent = status.get("source") == "SOURCE_AGENT"
    return gone and of_agent and status.get("state") == "TASK_FAILED"


def is_repeat_of_a_launch(status: Mapping[str, Any]) -> bool:
    """Return whether an update refuses a repeated launch: nothing has ended."""
    invalid = status.get("reason") in ("REASON_TASK_INVALID", "REASON_TASK_GROUP_INVALID")
    return invalid and DUPLICATE in status.get("message", "")


def _short(reason: str) -> str:
    return reason.removeprefix("REASON_").replace("_", " ").lower()
