"""The end of a run of our own executor, from an update that carries the executor's record.

The executor's own loss is distinguished from its tasks': a task that ends because the executor did
is lost, without fault of its program.
"""

from __future__ import annotations

import base64
import json
import signal
from collections.abc import Mapping
from typing import Any

from peloton.actors.task.messages import End, RunOutcome
from peloton.backends.mesos.executor.talk import EXECUTOR_LOST
from peloton.backends.mesos.runs.keeper_tasks import PREFIX

_SHORT = "required by task and its executor is more than available"
"""What the master says where an executor is not there any more of which we thought it was."""


def is_keepers(status: Mapping[str, Any]) -> bool:
    """Return whether an update is of a task of our own executor."""
    return bool((status.get("executor_id") or {}).get("value", "").startswith(PREFIX))


def speaks(status: Mapping[str, Any]) -> bool:
    """Return whether our own executor itself sent this update."""
    return is_keepers(status) and status.get("source") == "SOURCE_EXECUTOR"


def killed_before_it(status: Mapping[str, Any]) -> bool:
    """Return whether a task of our own executor was killed before that was there.

    An agent that starts an executor for nothing else ends it then.
    """
    return is_keepers(status) and status.get("state") == "TASK_KILLED" and not speaks(status)


def why_not_there(status: Mapping[str, Any]) -> str:
    """Return an agent's reason why our own executor is not there, or has ended at once.

    Empty if an update is of something else.
    """
    failed = is_keepers(status) and status.get("source") == "SOURCE_AGENT"
    return str(status.get("message", "")) if failed and not killed_before_it(status) else ""


def lacks_executor(status: Mapping[str, Any]) -> bool:
    """Return whether a launch was refused because its executor is not there, and has no room."""
    return status.get("reason") == "REASON_TASK_INVALID" and _SHORT in status.get("message", "")


def keeper_outcome(status: Mapping[str, Any]) -> RunOutcome | None:
    """Return the end in a final update of our own executor; None for other updates."""
    if lacks_executor(status):
        text = "the executor of the agent had just ended"
        return RunOutcome(End.LOST, reason=EXECUTOR_LOST, message=text, system=True)
    if not is_keepers(status):
        return None
    if not speaks(status):
        return _lost_with(status)
    return _told(status.get("data", ""))


def _told(data: str) -> RunOutcome | None:
    try:
        end = json.loads(base64.b64decode(data, validate=True))
        number = end["signal"]
        return RunOutcome(
            End[end["outcome"]],
            end["exit_code"],
            _signal_name(number) if number else "",
            end["reason"],
            end["message"],
            system=end["outcome"] == "LOST",
        )
    except (ValueError, LookupError, TypeError):
        return None  # a master's memory of it has no data


def _lost_with(status: Mapping[str, Any]) -> RunOutcome | None:
    reason = status.get("reason", "")
    if not reason.startswith(("REASON_EXECUTOR_", "REASON_CONTAINER_")):
        return None
    if killed_before_it(status):
        return None
    words = reason.removeprefix("REASON_").replace("_", " ").lower()
    text = f"{words}: {status.get('message', '')}"
    return RunOutcome(End.LOST, reason=EXECUTOR_LOST, message=text, system=True)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIG{number}"  # a real-time signal has a number only
