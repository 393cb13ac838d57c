"""The state of a task, and how facts change it.

Only what `decide` reads is state; what differs from member to member (host, times, the outcome of
the last run) is kept in columns, so that a thousand tasks in equal states are one value. `ticket`
and `admission` are not columns: they differ only where runs do, and as state they let one table
cover an instance from queue to end.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from peloton.actors.task import facts as f
from peloton.actors.task.messages import (
    HOST_MAINTENANCE,
    SECRET_NOT_FOUND,
    SECRETS_UNAVAILABLE,
    SLACK_TAKEN,
    WANTED,
    End,
    KillCause,
    Policy,
    Renewal,
    RunOutcome,
    TaskGoals,
)
from peloton.actors.task.run_messages import TaskHealth
from peloton.pauses import Pauses
from peloton.runtime.vocabulary import Value

THROTTLE = Pauses(30.0, 3600.0)
"""Before the next attempt of a service's instance: 30, 60, 120 … 3600 s."""
HEALTHY_AFTER_S = 600.0
"""A service that has run for so long begins anew with short delays, where its job says nothing."""
SYSTEM_FAILURES_FREE = 4
RUNS_KEPT_MAX = 10


class TaskStates(enum.IntEnum):
    """The states of a task."""

    WAITING = 1
    LAUNCHING = 2
    LAUNCHED = 3
    STARTING = 4  # for backends that report a start in progress; none of ours does yet
    RUNNING = 5
    KILLING = 6
    SUCCEEDED = 7
    FAILED = 8
    LOST = 9
    KILLED = 10
    THROTTLED = 11
    PREPARING = 12  # a host was asked for the room, to be started later
    PREPARED = 13  # it has granted it


class Admission(enum.IntEnum):
    """How far the current ticket is in the pool."""

    NONE = 0
    REQUESTED = 1
    QUEUED = 2
    ADMITTED = 3
    RELEASING = 4
    PARKING = 5  # its allocation goes back to the pool: no host was found in time
    PARKED = 6  # it has its place in the queue alone, until there is a host


PARKS = frozenset((Admission.PARKING, Admission.PARKED))
ENDED = frozenset((TaskStates.SUCCEEDED, TaskStates.FAILED, TaskStates.LOST, TaskStates.KILLED))
BAD_ENDS = frozenset((TaskStates.FAILED, TaskStates.LOST, TaskStates.KILLED))
ON_HOST = frozenset(
    (
        TaskStates.LAUNCHING,
        TaskStates.LAUNCHED,
        TaskStates.STARTING,
        TaskStates.RUNNING,
        TaskStates.KILLING,
        TaskStates.PREPARING,
        TaskStates.PREPARED,
    )
)
IN_PREPARATION = frozenset((TaskStates.PREPARING, TaskStates.PREPARED))
_WELL = frozenset((TaskHealth.DISABLED, TaskHealth.HEALTHY))
_UNCHECKED = TaskHealth.DISABLED, TaskHealth.DISABLED


class Task(Value, frozen=True, gc=False, array_like=True):
    """One instance, or all instances of a slice that are in equal states."""

    goal: TaskGoals
    state: TaskStates
    policy: Policy
    run: int = 1
    ticket: int = 0
    admission: Admission = Admission.NONE
    failures: int = 0
    system_failures: int = 0
    free_try: bool = False  # the last failure was no fault of the program: it uses no attempt up
    because: str = ""  # why it is being killed, or why its last launch was refused
    unschedulable: bool = False  # no host could run it: it requests no admission
    cause: KillCause = KillCause.NONE  # of the kill of this run
    restart: int = 0  # number of the last order to restart that it has seen
    again: bool = False  # that order is still to be carried out: its present run ends first
    gang_round: int = 0  # the last one for which it was told to join its gang
    renewal: Renewal | None = None  # the config that it is to have after its present run
    renewed: int = 0  # number of the last renewal that was carried out
    health: TaskHealth = TaskHealth.DISABLED  # of a run that is checked, while it runs
    ready: TaskHealth = TaskHealth.DISABLED  # HEALTHY: its readiness check passes
    spent: bool = False  # after how its last run ended there is no further attempt

    @property
    def ends_for_next(self) -> bool:
        """Return whether the present run ends only because the next one was ordered."""
        return self.again or self.renewal is not None


def is_well(task: Task) -> bool:
    """Return whether the task runs, its last health check has passed, and it is ready, as far as
    it has checks."""
    return task.state == TaskStates.RUNNING and task.health in _WELL and task.ready in _WELL


def is_let_pass(task: Task) -> bool:
    """Return whether the task runs, and no backend carries out a check that it has: it counts as
    without."""
    unchecked = task.policy.checked and task.health == TaskHealth.DISABLED
    ungated = task.policy.awaits_ready and task.ready == TaskHealth.DISABLED
    return task.state == TaskStates.RUNNING and (unchecked or ungated)


def may_retry(task: Task) -> bool:
    """Return whether an ended batch task gets another run: system failures up to a limit are
    free."""
    if task.spent or task.cause in (KillCause.RUN_LIMIT, KillCause.PREEMPTED_FOR_GOOD):
        return False
    return task.free_try or task.failures < task.policy.max_failures


def pause_s(task: Task) -> float:
    """Return the seconds from the end of a run until the task requests the next one."""
    if is_wanted(task):
        return THROTTLE.after(task.failures)
    rules = task.policy.retry
    return rules.pause_after(task.failures) if rules is not None and not task.free_try else 0.0


def ready_for_host(task: Task) -> bool:
    """Return whether the task is admitted by its pool, wanted, and not launched."""
    admitted = task.state == TaskStates.WAITING and task.admission == Admission.ADMITTED
    return admitted and task.goal in WANTED


def is_prepared(task: Task) -> bool:
    """Whether a host has granted its room; one that is to end gives that back by itself."""
    return task.state == TaskStates.PREPARED and task.goal in WANTED


def is_wanted(task: Task) -> bool:
    """Return whether the task is to run for ever: the disruption budget of a service counts
    these."""
    return task.goal == TaskGoals.RUNNING


def is_available(task: Task) -> bool:
    """Return whether an instance of a service does its work, and nothing is about to end its run.

    Budgets, workflows and drains all use this definition.
    """
    return is_well(task) and is_wanted(task) and not task.ends_for_next


def waits_for_gang(task: Task) -> bool:
    """Return whether the task has ended badly, and would be retried, but only with its gang."""
    if not task.policy.together or task.state not in BAD_ENDS:
        return False
    return task.goal == TaskGoals.SUCCEEDED and not task.again and may_retry(task)


def dropped_runs(read: Callable[[str], Any]) -> tuple[tuple[int, float], ...]:
    """Return the single runs whose events are hidden, by number, and until when; the newest
    ones."""
    known = dict(read("dropped_before") or ())
    if newest := read("dropped_run"):
        known[newest[0]] = newest[1]
    # Of no more runs than these is anything kept that could be shown.
    return tuple(sorted(known.items()))[-RUNS_KEPT_MAX - 1 :]


_STATE_OF_END = {
    End.SUCCEEDED: TaskStates.SUCCEEDED,
    End.FAILED: TaskStates.FAILED,
    End.KILLED: TaskStates.KILLED,
    End.LOST: TaskStates.LOST,
}

FREE_ENDS = frozenset((HOST_MAINTENANCE, SLACK_TAKEN, SECRETS_UNAVAILABLE))
PREEMPTIONS = frozenset((KillCause.PREEMPTED, KillCause.PREEMPTED_FOR_GOOD))
_GIVE_WAY = frozenset((KillCause.PREEMPTED, KillCause.MAINTENANCE))
_LOST_OR_KILLED = frozenset((TaskStates.LOST, TaskStates.KILLED))

replace = msgspec.structs.replace


_FRESH_ATTEMPTS = {
    "failures": 0,
    "system_failures": 0,
    "free_try": False,
    "again": False,
    "spent": False,
}


def _goal_set(task: Task, fact: f.TaskGoalSet) -> Task:
    ordered = fact.restart > task.restart
    task = replace(task, goal=fact.goal, restart=max(task.restart, fact.restart))
    if fact.goal in (TaskGoals.KILLED, TaskGoals.DELETED):
        return replace(task, again=False)
    if fact.fresh:
        return replace(task, unschedulable=False, **_FRESH_ATTEMPTS)
    if not ordered:
        return task
    if task.state == TaskStates.WAITING or task.state in IN_PREPARATION:
        return replace(task, **_FRESH_ATTEMPTS)  # its next run has not been launched yet
    return replace(task, again=True)


def _renewed(task: Task, fact: f.TaskRenewed) -> Task:
    renewal = fact.renewal
    task = replace(task, policy=renewal.policy, renewal=None, renewed=renewal.number)
    if not fact.runs or task.goal in (TaskGoals.KILLED, TaskGoals.DELETED):
        return task
    if task.state == TaskStates.WAITING:
        return replace(task, unschedulable=False, because="", **_FRESH_ATTEMPTS)
    return replace(task, again=True)


def _created(task: Task | None, fact: f.TaskCreated) -> Task:
    return Task(fact.goal, TaskStates.WAITING, fact.policy, fact.past + 1, fact.past)


def _launch_refused(task: Task, fact: f.LaunchRefused) -> Task:
    if task.goal in (TaskGoals.KILLED, TaskGoals.DELETED):
        return replace(task, state=TaskStates.KILLED, because=fact.reason)
    waiting = replace(
        task,
        state=TaskStates.WAITING,
        run=task.run + 1,
        because=fact.reason,
        cause=KillCause.NONE,
    )
    # A run that was to be restarted never began: the next one is what was ordered.
    return replace(waiting, **_FRESH_ATTEMPTS) if task.ends_for_next else waiting


def _started(task: Task, fact: f.TaskStarted) -> Task:
    policy, known = task.policy, (TaskHealth.DISABLED, TaskHealth.UNKNOWN)
    if not (policy.checked or policy.awaits_ready):
        return replace(task, state=TaskStates.RUNNING)
    health, ready = known[policy.checked], known[policy.awaits_ready]
    return replace(task, state=TaskStates.RUNNING, health=health, ready=ready)


def _ended(task: Task, fact: f.RunEnded) -> Task:
    outcome = fact.outcome
    if (task.health, task.ready) != _UNCHECKED:
        task = replace(task, health=TaskHealth.DISABLED, ready=TaskHealth.DISABLED)
    state = _STATE_OF_END[outcome.end]
    if task.goal in (TaskGoals.KILLED, TaskGoals.DELETED) and state != TaskStates.SUCCEEDED:
        return replace(task, state=TaskStates.KILLED)
    if task.again or task.renewal is not None:
        return replace(task, state=state)  # how it ended decides nothing: it is restarted
    if task.state == TaskStates.KILLING and is_wanted(task):
        # Nor does it count against a service how it ended, where it was told to end.
        if task.cause == KillCause.SPARED_RESTART:
            return replace(task, state=state, because="", **_FRESH_ATTEMPTS)
        if task.cause in _GIVE_WAY:
            return replace(task, state=state, free_try=True, because="")
    if task.state == TaskStates.KILLING and task.cause == KillCause.RUN_LIMIT:
        if state != TaskStates.SUCCEEDED:
            return replace(task, state=TaskStates.KILLED, free_try=False, because="")
    elif task.state == TaskStates.KILLING and task.cause in PREEMPTIONS:
        if state != TaskStates.SUCCEEDED:
            again = task.cause == KillCause.PREEMPTED
            return replace(task, state=TaskStates.KILLED, free_try=again, because="")
    elif task.state == TaskStates.KILLING and state in _LOST_OR_KILLED:
        if task.cause == KillCause.GANG_RESTART:
            return replace(task, state=TaskStates.KILLED, free_try=True, because="")
        # Killed by us though it should run: it did not start in time, which is a system failure.
        state = TaskStates.LOST
    if state == TaskStates.SUCCEEDED:
        # A service must not end, so every end counts as a failure.
        failures = task.failures + (task.goal == TaskGoals.RUNNING)
        return replace(task, state=state, failures=failures, because="")
    if not is_wanted(task) and _is_for_good(task, outcome):
        failures = task.failures + 1
        return replace(task, state=state, failures=failures, free_try=False, because="", spent=True)
    if outcome.system and outcome.reason in FREE_ENDS and state == TaskStates.KILLED:
        if outcome.reason == SLACK_TAKEN and task.policy.ends_with_slack:
            for_good = KillCause.PREEMPTED_FOR_GOOD
            return replace(task, state=state, cause=for_good, free_try=False, because="")
        # However often hosts go down or take slack back, or a store does, the task is not charged.
        return replace(task, state=TaskStates.LOST, free_try=True, because="")
    if task.policy.stays and outcome.end == End.LOST:
        return replace(task, state=state, free_try=True, because="")
    if outcome.system or state == TaskStates.LOST:
        count = task.system_failures + 1
        if count <= SYSTEM_FAILURES_FREE:
            return replace(task, state=state, system_failures=count, free_try=True, because="")
    return replace(task, state=state, failures=task.failures + 1, free_try=False, because="")


def _is_for_good(task: Task, outcome: RunOutcome) -> bool:
    """Return whether a batch task that ended so ends the same way again, whatever attempts are
    left."""
    if outcome.reason == SECRET_NOT_FOUND:
        return True
    rules = task.policy.retry
    if rules is None or outcome.system or outcome.end != End.FAILED:
        return False
    return rules.rule_out(outcome.exit_code, outcome.signal)


def _requested(task: Task, fact: f.AdmissionRequested) -> Task:
    return replace(task, ticket=task.ticket + 1, admission=Admission.REQUESTED)


def _retried(task: Task, fact: f.TaskRetried) -> Task:
    if fact.fresh:
        task = replace(task, because="", unschedulable=False, **_FRESH_ATTEMPTS)
    return replace(
        task,
        state=TaskStates.WAITING,
        run=task.run + 1,
        ticket=task.ticket + 1,
        admission=Admission.REQUESTED,
        cause=KillCause.NONE,
    )


def _launching(task: Task, fact: f.TaskLaunching) -> Task:
    state = TaskStates.PREPARING if fact.prepare else TaskStates.LAUNCHING
    return replace(task, state=state, because="")


def _killing(task: Task, fact: f.TaskKilling) -> Task:
    return replace(task, state=TaskStates.KILLING, because=fact.reason, cause=fact.cause)


def _limited(task: Task, fact: f.RunLimitSet) -> Task:
    return replace(task, policy=replace(task.policy, max_running_s=fact.max_running_s))


def _admission(admission: Admission) -> Callable[[Task, Any], Task]:
    return lambda task, fact: replace(task, admission=admission)


def _state(state: TaskStates) -> Callable[[Task, Any], Task]:
    return lambda task, fact: replace(task, state=state)


EVOLVE: Mapping[type, Callable[[Any, Any], Task | None]] = {
    f.TaskCreated: _created,
    f.TaskGoalSet: _goal_set,
    f.AdmissionRequested: _requested,
    f.AdmissionQueued: _admission(Admission.QUEUED),
    f.AdmissionGranted: _admission(Admission.ADMITTED),
    f.AdmissionReleasing: _admission(Admission.RELEASING),
    f.AdmissionReleased: _admission(Admission.NONE),
    f.AdmissionParking: lambda t, fact: replace(t, admission=Admission.PARKING, unschedulable=True),
    f.AdmissionParked: _admission(Admission.PARKED),
    f.TaskLaunching: _launching,
    f.LaunchAccepted: _state(TaskStates.LAUNCHED),
    f.LaunchRefused: _launch_refused,
    f.TaskStarted: _started,
    f.TaskKilling: _killing,
    f.RunEnded: _ended,
    f.TaskRetried: _retried,
    f.TaskThrottled: _state(TaskStates.THROTTLED),
    f.TaskWithdrawn: _state(TaskStates.KILLED),
    f.TaskUnschedulable: lambda t, fact: replace(t, unschedulable=fact.unschedulable),
    f.TaskForgotten: lambda task, fact: None,
    f.RunLimitSet: _limited,
    f.EventsDropped: lambda task, fact: task,
    f.TaskPrepared: _state(TaskStates.PREPARED),
    f.GangJoined: lambda t, fact: replace(t, gang_round=fact.round, unschedulable=False),
    f.RenewalOrdered: lambda task, fact: replace(task, renewal=fact.renewal),
    f.TaskRenewed: _renewed,
    f.ContainersTold: lambda task, fact: task,
    f.HealthTold: lambda task, fact: replace(task, health=fact.health, ready=fact.ready),
}
