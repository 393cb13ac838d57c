"""Goal tables of a task: state by goal or order, a step in every cell; and one of its admission.

The tables are total: a missing pair would silently mean "do nothing", which is how instances get
stuck.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping

from peloton.actors.host.messages import KillRun
from peloton.actors.respool.lot.messages import Enqueue, ReleaseTicket
from peloton.actors.task.facts import (
    AdmissionReleasing,
    AdmissionRequested,
    TaskForgotten,
    TaskKilling,
    TaskRenewed,
    TaskRetried,
    TaskThrottled,
    TaskWithdrawn,
)
from peloton.actors.task.messages import KillCause, TaskGoals
from peloton.actors.task.state import (
    PREEMPTIONS,
    Admission,
    Task,
    TaskStates,
    may_retry,
    pause_s,
)
from peloton.runtime.vocabulary import SETTLED, WAITING, At, Column, Decision, Fact, Rest, Send

TaskStep = Callable[[Task], Decision | Rest]
HOST, LOT = Column("host"), Column("lot")
RESTART_TEXT = "restarted on request"
GANG_RETRY = "its gang forms anew"


def wait(task: Task) -> Decision | Rest:
    """Return that a message or a deadline is awaited."""
    return WAITING


def settle(task: Task) -> Decision | Rest:
    """Return that nothing is left to do."""
    return SETTLED


def queueing(task: Task, *facts: Fact, because: str = "") -> Decision:
    """Join the pool's queue with a new ticket, by one of these facts."""
    return Decision(facts, (Send(LOT, Enqueue(task.ticket + 1)),), because=because)


def request_ticket(task: Task) -> Decision | Rest:
    """Join the pool's queue, for the same run."""
    return queueing(task, AdmissionRequested())


def release_ticket(task: Task) -> Decision | Rest:
    """Give up the admission, or the position in the queue."""
    release = Send(LOT, ReleaseTicket(task.ticket))
    return Decision(facts=(AdmissionReleasing(),), sends=(release,))


class AdmissionGoals(enum.StrEnum):
    """Whether a task should have a ticket in its pool."""

    ADMITTED = "admitted"
    RELEASED = "released"


ADMISSION_TABLE: Mapping[Admission, Mapping[AdmissionGoals, TaskStep]] = {
    Admission.NONE: {AdmissionGoals.ADMITTED: request_ticket, AdmissionGoals.RELEASED: settle},
    Admission.REQUESTED: {
        AdmissionGoals.ADMITTED: wait,
        AdmissionGoals.RELEASED: release_ticket,
    },  # waits for the lot to queue it
    Admission.QUEUED: {
        AdmissionGoals.ADMITTED: wait,
        AdmissionGoals.RELEASED: release_ticket,
    },  # waits for the pool to admit it
    Admission.ADMITTED: {
        AdmissionGoals.ADMITTED: wait,
        AdmissionGoals.RELEASED: release_ticket,
    },  # waits for a host
    Admission.RELEASING: {
        AdmissionGoals.ADMITTED: request_ticket,
        AdmissionGoals.RELEASED: wait,
    },  # waits for the lot to release it
    Admission.PARKING: {
        AdmissionGoals.ADMITTED: request_ticket,
        AdmissionGoals.RELEASED: release_ticket,
    },  # waits for the lot to park it
    Admission.PARKED: {
        AdmissionGoals.ADMITTED: request_ticket,
        AdmissionGoals.RELEASED: release_ticket,
    },  # there is a host now, else it would still be unschedulable
}


def request_admission(task: Task) -> Decision | Rest:
    """Wait for admission and a host; request admission first, unless no host could run it."""
    return (
        WAITING
        if task.unschedulable
        else ADMISSION_TABLE[task.admission][AdmissionGoals.ADMITTED](task)
    )


def withdraw(task: Task) -> Decision | Rest:
    """End as killed: nothing was launched, so only the lot's release is left to wait for."""
    return Decision(facts=(TaskWithdrawn(),), because="stopped before it was launched")


def killing(task: Task, because: str, *, cause: KillCause = KillCause.NONE) -> Decision:
    """Kill the run: it may exist, and only its host can report that it ended."""
    notice = because if cause in PREEMPTIONS else ""
    kill_run = Send(HOST, KillRun(task.run, task.policy.kill_grace_s, notice))
    return Decision(facts=(TaskKilling(because, cause),), sends=(kill_run,), because=because)


def kill(task: Task) -> Decision | Rest:
    """End the run, and the instance."""
    return killing(task, "stopped on request")


def release_admission(task: Task) -> Decision | Rest:
    """Release the ticket of an instance that has reached its goal."""
    return ADMISSION_TABLE[task.admission][AdmissionGoals.RELEASED](task)


def pause(task: Task) -> Decision | Rest:
    """Wait for what begins the next run, which may take an hour; others have its room meanwhile."""
    return WAITING if task.admission == Admission.NONE else release_admission(task)


def forget(task: Task) -> Decision | Rest:
    """Forget the instance, once the lot has released its ticket."""
    if task.admission != Admission.NONE:
        return release_admission(task)
    return Decision(facts=(TaskForgotten(),), because="deleted")


def throttle(task: Task) -> Decision:
    """Let the delay before the next run begin."""
    return Decision(facts=(TaskThrottled(),), because="throttled after a failure")


def retry(task: Task) -> Decision | Rest:
    """Start a new run while attempts are left, after a pause; a system failure uses none up.

    A task that is retried only with its gang releases its ticket and waits for the order of its
    slice.
    """
    if not may_retry(task):
        return release_admission(task)
    if task.policy.together:
        return pause(task)
    if pause_s(task) > 0:
        return throttle(task)
    return queueing(task, TaskRetried(), because="retried after a failure")


def run_again(task: Task) -> Decision | Rest:
    """Restart a service whatever ended it, with a longer delay after every failure."""
    if pause_s(task) > 0:
        return throttle(task)
    return queueing(task, TaskRetried(), because="restarted")


def restart(task: Task) -> Decision | Rest:
    """Start a new run with fresh attempts, because a client ordered it."""
    return queueing(task, TaskRetried(fresh=True), because=RESTART_TEXT)


def end_run(task: Task) -> Decision | Rest:
    """End the run: the next one begins once its host has reported the end."""
    return killing(task, RESTART_TEXT)


def end_old_run(task: Task) -> Decision | Rest:
    """End the run, which has the old config; the next one has the new."""
    assert task.renewal is not None
    return killing(task, task.renewal.because)


def take_config(task: Task) -> Decision | Rest:
    """Take the new config, once no lot holds a ticket: the next one may be of another lot."""
    if task.admission != Admission.NONE:
        return release_admission(task)
    assert task.renewal is not None
    return Decision(facts=(TaskRenewed(task.renewal),), because=task.renewal.because)


class TaskOrders(enum.StrEnum):
    """What an order to a task adds to its goal, and comes before it."""

    RESTARTED = "restarted"  # of a client
    RENEWED = "run with another config"
    CONFIGURED = "only have another config"


TaskRow = Mapping[TaskGoals | TaskOrders, TaskStep]
_ON_HOST: TaskRow = {
    TaskGoals.SUCCEEDED: wait,
    TaskGoals.RUNNING: wait,
    TaskGoals.KILLED: kill,
    TaskGoals.DELETED: kill,
    TaskOrders.RESTARTED: end_run,
    TaskOrders.RENEWED: end_old_run,
    TaskOrders.CONFIGURED: kill,
}
_BEFORE_START: TaskRow = {**_ON_HOST, TaskOrders.RESTARTED: wait, TaskOrders.RENEWED: wait}
_ENDED_BADLY: TaskRow = {
    TaskGoals.SUCCEEDED: retry,
    TaskGoals.RUNNING: run_again,
    TaskGoals.KILLED: release_admission,
    TaskGoals.DELETED: forget,
    TaskOrders.RESTARTED: restart,
    TaskOrders.RENEWED: take_config,
    TaskOrders.CONFIGURED: take_config,
}

TABLE: Mapping[TaskStates, TaskRow] = {
    TaskStates.WAITING: {
        TaskGoals.SUCCEEDED: request_admission,
        TaskGoals.RUNNING: request_admission,
        TaskGoals.KILLED: withdraw,
        TaskGoals.DELETED: withdraw,
        TaskOrders.RESTARTED: request_admission,
        TaskOrders.RENEWED: take_config,
        TaskOrders.CONFIGURED: withdraw,
    },
    TaskStates.LAUNCHING: _ON_HOST,
    TaskStates.LAUNCHED: _ON_HOST,
    TaskStates.STARTING: _ON_HOST,
    TaskStates.RUNNING: _ON_HOST,
    TaskStates.KILLING: {
        TaskGoals.SUCCEEDED: wait,
        TaskGoals.RUNNING: wait,
        TaskGoals.KILLED: wait,
        TaskGoals.DELETED: wait,
        TaskOrders.RESTARTED: wait,
        TaskOrders.RENEWED: wait,
        TaskOrders.CONFIGURED: wait,
    },
    TaskStates.SUCCEEDED: {**_ENDED_BADLY, TaskGoals.SUCCEEDED: release_admission},
    TaskStates.FAILED: _ENDED_BADLY,
    TaskStates.LOST: _ENDED_BADLY,
    TaskStates.KILLED: _ENDED_BADLY,
    TaskStates.THROTTLED: {
        TaskGoals.SUCCEEDED: pause,
        TaskGoals.RUNNING: pause,
        TaskGoals.KILLED: withdraw,
        TaskGoals.DELETED: withdraw,
        TaskOrders.RESTARTED: restart,
        TaskOrders.RENEWED: take_config,
        TaskOrders.CONFIGURED: withdraw,
    },
    TaskStates.PREPARING: _BEFORE_START,
    TaskStates.PREPARED: _BEFORE_START,
}


def pursue(task: Task, at: At) -> Decision | Rest:
    """The next step towards the goal, or towards what was ordered."""
    goal: TaskGoals | TaskOrders = task.goal
    if task.renewal is not None and task.goal != TaskGoals.DELETED:
        stopped = task.goal == TaskGoals.KILLED
        goal = TaskOrders.CONFIGURED if stopped else TaskOrders.RENEWED
    elif task.again:
        goal = TaskOrders.RESTARTED
    return TABLE[task.state][goal](task)
