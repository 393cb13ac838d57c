"""Goal table of a workflow: its states by what is ordered.

The result is the state that follows, or None if the order changes nothing. Whether all instances
are through is known before the table is used.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping

from peloton.actors.job.workflow.messages import WorkflowStates
from peloton.actors.job.workflow.state import Workflow


class WorkflowGoals(enum.StrEnum):
    """What is to become of a workflow."""

    GO_ON = "go on"
    PAUSE = "pause"
    RESUME = "resume"
    ABORT = "abort"
    UNDO = "undo"
    FINISH = "finish"  # all instances are through
    FAIL = "fail"  # too many have failed, or it takes too long


def roll_forward(workflow: Workflow) -> WorkflowStates | None:
    """Begin with the first instances."""
    return WorkflowStates.ROLLING_FORWARD


def pause(workflow: Workflow) -> WorkflowStates | None:
    """Begin with no more instances; those under way go on."""
    return WorkflowStates.PAUSED


def go_back_to_it(workflow: Workflow) -> WorkflowStates | None:
    """Go on as before the pause."""
    return workflow.previous


def abort(workflow: Workflow) -> WorkflowStates | None:
    """Begin with no more instances; what was changed stays so."""
    return WorkflowStates.ABORTED


def succeed(workflow: Workflow) -> WorkflowStates | None:
    """Succeed: all instances have what they are to have, or have failed tolerably."""
    return WorkflowStates.SUCCEEDED


def roll_back(workflow: Workflow) -> WorkflowStates | None:
    """Give instances their configs before, if that was asked for; else it has failed."""
    back = workflow.options.back and workflow.before is not None
    return WorkflowStates.ROLLING_BACKWARD if back else WorkflowStates.FAILED


def undo(workflow: Workflow) -> WorkflowStates | None:
    """Give instances their configs before, if there are any to go back to."""
    return None if workflow.before is None else WorkflowStates.ROLLING_BACKWARD


def end_back(workflow: Workflow) -> WorkflowStates | None:
    """End the rollback: all instances have their configs before."""
    return WorkflowStates.ROLLED_BACK


def fail(workflow: Workflow) -> WorkflowStates | None:
    """Fail: the rollback failed as well, and nothing more is tried."""
    return WorkflowStates.FAILED


def keep(workflow: Workflow) -> WorkflowStates | None:
    """Return that nothing changes."""
    return None


WorkflowStep = Callable[[Workflow], WorkflowStates | None]
_IS_OVER: Mapping[WorkflowGoals, WorkflowStep] = {
    WorkflowGoals.GO_ON: keep,
    WorkflowGoals.PAUSE: keep,
    WorkflowGoals.RESUME: keep,
    WorkflowGoals.ABORT: keep,
    WorkflowGoals.UNDO: keep,
    WorkflowGoals.FINISH: keep,
    WorkflowGoals.FAIL: keep,
}

TABLE: Mapping[WorkflowStates, Mapping[WorkflowGoals, WorkflowStep]] = {
    WorkflowStates.INITIALIZED: {
        WorkflowGoals.GO_ON: roll_forward,
        WorkflowGoals.PAUSE: pause,
        WorkflowGoals.RESUME: keep,
        WorkflowGoals.ABORT: abort,
        WorkflowGoals.UNDO: undo,
        WorkflowGoals.FINISH: keep,
        WorkflowGoals.FAIL: keep,
    },
    WorkflowStates.ROLLING_FORWARD: {
        WorkflowGoals.GO_ON: keep,
        WorkflowGoals.PAUSE: pause,
        WorkflowGoals.RESUME: keep,
        WorkflowGoals.ABORT: abort,
        WorkflowGoals.UNDO: undo,
        WorkflowGoals.FINISH: succeed,
        WorkflowGoals.FAIL: roll_back,
    },
    WorkflowStates.PAUSED: {
        WorkflowGoals.GO_ON: keep,
        WorkflowGoals.PAUSE: keep,
        WorkflowGoals.RESUME: go_back_to_it,
        WorkflowGoals.ABORT: abort,
        WorkflowGoals.UNDO: undo,
        WorkflowGoals.FINISH: keep,  # a client resumes it first
        WorkflowGoals.FAIL: keep,
    },
    WorkflowStates.SUCCEEDED: _IS_OVER,
    WorkflowStates.ABORTED: _IS_OVER,
    WorkflowStates.FAILED: _IS_OVER,
    WorkflowStates.ROLLING_BACKWARD: {
        WorkflowGoals.GO_ON: keep,
        WorkflowGoals.PAUSE: pause,
        WorkflowGoals.RESUME: keep,
        WorkflowGoals.ABORT: abort,
        WorkflowGoals.UNDO: keep,
        WorkflowGoals.FINISH: end_back,
        WorkflowGoals.FAIL: fail,
    },
    WorkflowStates.ROLLED_BACK: _IS_OVER,
}


def next_state(workflow: Workflow, goal: WorkflowGoals) -> WorkflowStates | None:
    """Return the state that follows; None if it does not change."""
    return TABLE[workflow.state][goal](workflow)
