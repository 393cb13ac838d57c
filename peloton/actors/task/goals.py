"""Goal table of a task: state by goal, a step in every cell; and that of its room in the pool.

Turns (state, goal) into the next step, `SETTLED` or `WAITING`. The table is total: a missing pair
would silently mean "do nothing", which is how instances get stuck. Steps must not wait or send by
themselves: they return a decision.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping

from peloton.actors.delays import throttle_s
from peloton.actors.host.messages import KillRun
from peloton.actors.respool.lot.messages import Enqueue, ReleaseTicket
from peloton.actors.task.facts import (
    AdmissionReleasing,
    AdmissionRequested,
    TaskForgotten,
    TaskKilling,
    TaskRetried,
    TaskThrottled,
    TaskWithdrawn,
)
from peloton.actors.task.messages import TaskGoals
from peloton.actors.task.state import Admission, Task, TaskStates
from peloton.runtime.vocabulary import SETTLED, WAITING, At, Column, Decision, Rest, Send

TaskStep = Callable[[Task], Decision | Rest]
HOST, LOT = Column("host"), Column("lot")


def wait(task: Task) -> Decision | Rest:
    """Somebody else's word is awaited."""
    return WAITING


def settle(task: Task) -> Decision | Rest:
    """Nothing is left to do."""
    return SETTLED


def request_ticket(task: Task) -> Decision | Rest:
    """Stand in the pool's queue, under a number of its own."""
    ticket = Send(LOT, Enqueue(task.ticket + 1))
    return Decision(
        facts=(AdmissionRequested(),), sends=(ticket,), because="room asked of the pool"
    )


def release_ticket(task: Task) -> Decision | Rest:
    """Give the room back, or the place in the queue."""
    leave = Send(LOT, ReleaseTicket(task.ticket))
    return Decision(facts=(AdmissionReleasing(),), sends=(leave,), because="room given back")


class AdmissionGoals(enum.Enum):
    """What should be with a task's room in its pool."""

    HELD = "held"
    RETURNED = "returned"


ADMISSION_TABLE: Mapping[Admission, Mapping[AdmissionGoals, TaskStep]] = {
    Admission.NONE: {AdmissionGoals.HELD: request_ticket, AdmissionGoals.RETURNED: settle},
    Admission.REQUESTED: {
        AdmissionGoals.HELD: wait,
        AdmissionGoals.RETURNED: release_ticket,
    },  # for the lot to have it
    Admission.QUEUED: {
        AdmissionGoals.HELD: wait,
        AdmissionGoals.RETURNED: release_ticket,
    },  # for the pool to have room
    Admission.ADMITTED: {
        AdmissionGoals.HELD: wait,
        AdmissionGoals.RETURNED: release_ticket,
    },  # for a host
    Admission.RELEASING: {
        AdmissionGoals.HELD: request_ticket,
        AdmissionGoals.RETURNED: wait,
    },  # for the lot to let go
}


def request_admission(task: Task) -> Decision | Rest:
    """Wait for room in the pool and a host; ask first if no ask stands, and any host would do."""
    return (
        WAITING
        if task.unschedulable
        else ADMISSION_TABLE[task.admission][AdmissionGoals.HELD](task)
    )


def withdraw(task: Task) -> Decision | Rest:
    """End as killed: nothing was launched, so there is nothing to wait for but the lot."""
    return Decision(facts=(TaskWithdrawn(),), because="stopped before it was launched")


def kill(task: Task) -> Decision | Rest:
    """The run may exist: only its host can say that it is over."""
    return Decision(
        facts=(TaskKilling("stopped on request"),),
        sends=(Send(HOST, KillRun(task.run, task.policy.kill_grace_s)),),
        because="stopped on request",
    )


def rest(task: Task) -> Decision | Rest:
    """The instance is where it should be: give the room back."""
    return ADMISSION_TABLE[task.admission][AdmissionGoals.RETURNED](task)


def forget(task: Task) -> Decision | Rest:
    """The instance is to vanish, once the lot has let go of it."""
    if task.admission != Admission.NONE:
        return rest(task)
    return Decision(facts=(TaskForgotten(),), because="deleted")


def retry(task: Task) -> Decision | Rest:
    """A new run while tries last; a system failure does not use one up."""
    if not may_retry(task):
        return rest(task)
    ticket = Send(LOT, Enqueue(task.ticket + 1))
    return Decision(facts=(TaskRetried(),), sends=(ticket,), because="tried again")


def run_again(task: Task) -> Decision | Rest:
    """A service starts again whatever ended it, slower with every failure."""
    if throttle_s(task.failures) > 0:
        return Decision(facts=(TaskThrottled(),), because="throttled after a failure")
    ticket = Send(LOT, Enqueue(task.ticket + 1))
    return Decision(facts=(TaskRetried(),), sends=(ticket,), because="started again")


def may_retry(task: Task) -> bool:
    """Whether an ended batch task gets another run: a system failure is free up to its limit."""
    return task.free_try or task.failures < task.policy.max_failures


_RUN_ON: Mapping[TaskGoals, TaskStep] = {
    TaskGoals.SUCCEEDED: wait,
    TaskGoals.RUNNING: wait,
    TaskGoals.KILLED: kill,
    TaskGoals.DELETED: kill,
}
_ENDED_BADLY: Mapping[TaskGoals, TaskStep] = {
    TaskGoals.SUCCEEDED: retry,
    TaskGoals.RUNNING: run_again,
    TaskGoals.KILLED: rest,
    TaskGoals.DELETED: forget,
}

TABLE: Mapping[TaskStates, Mapping[TaskGoals, TaskStep]] = {
    TaskStates.WAITING: {
        TaskGoals.SUCCEEDED: request_admission,
        TaskGoals.RUNNING: request_admission,
        TaskGoals.KILLED: withdraw,
        TaskGoals.DELETED: withdraw,
    },
    TaskStates.LAUNCHING: _RUN_ON,
    TaskStates.LAUNCHED: _RUN_ON,
    TaskStates.STARTING: _RUN_ON,
    TaskStates.RUNNING: _RUN_ON,
    TaskStates.KILLING: {
        TaskGoals.SUCCEEDED: wait,
        TaskGoals.RUNNING: wait,
        TaskGoals.KILLED: wait,
        TaskGoals.DELETED: wait,
    },
    TaskStates.SUCCEEDED: {
        TaskGoals.SUCCEEDED: rest,
        TaskGoals.RUNNING: run_again,
        TaskGoals.KILLED: rest,
        TaskGoals.DELETED: forget,
    },
    TaskStates.FAILED: _ENDED_BADLY,
    TaskStates.LOST: _ENDED_BADLY,
    TaskStates.KILLED: _ENDED_BADLY,
    TaskStates.THROTTLED: {
        TaskGoals.SUCCEEDED: wait,
        TaskGoals.RUNNING: wait,
        TaskGoals.KILLED: withdraw,
        TaskGoals.DELETED: withdraw,
    },
}


def pursue(task: Task, at: At) -> Decision | Rest:
    """The next step towards the goal."""
    return TABLE[task.state][task.goal](task)
