"""How a task decides each message it receives.

A late or repeated message is recognised by its run or ticket number and answered from the state. No
decision may read a column or the task's own name, as equal tasks are decided as one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec.structs import replace

from peloton.actors.host.live.live_messages import LimitRun
from peloton.actors.host.messages import KillRun, Launch, RunSeen
from peloton.actors.job.slice.rollout_messages import RunNotStarted
from peloton.actors.respool.lot.messages import Enqueue, ParkTicket, ReleaseTicket
from peloton.actors.task import facts as f
from peloton.actors.task import messages as m
from peloton.actors.task.admitting import (
    admitted,
    mark_unschedulable,
    parked,
    queued,
    released,
)
from peloton.actors.task.giving_way import ended_for_limit, give_way, outcome_of
from peloton.actors.task.goals import GANG_RETRY, HOST, LOT, killing, queueing
from peloton.actors.task.run_changes import run_changed, told_of_nobody
from peloton.actors.task.run_messages import RunChanged
from peloton.actors.task.state import (
    HEALTHY_AFTER_S,
    IN_PREPARATION,
    ON_HOST,
    PREEMPTIONS,
    Admission,
    Task,
    TaskStates,
    is_prepared,
    is_wanted,
    pause_s,
    ready_for_host,
    waits_for_gang,
)
from peloton.runtime.vocabulary import PARENT, SENDER, At, Decision, Due, Fact, Send

LAUNCH_TIMEOUT_S = 1200.0
"""In which a host has to answer a launch; it has longer to start the run."""
_BROKEN = frozenset((m.End.KILLED, m.End.LOST))
START, THROTTLE, RUN_LIMIT, HEALTHY = "start", "throttle", "run_limit", "healthy"
_WAITS_FOR_START = frozenset((TaskStates.LAUNCHING, TaskStates.LAUNCHED, TaskStates.STARTING))


def goal_set(task: Task, message: m.SetTaskGoal, at: At) -> Decision:
    """Set the goal, which is absolute; deletion is never undone, a restart is obeyed once."""
    known = message.goal == task.goal and message.restart <= task.restart
    if known or task.goal == m.TaskGoals.DELETED:
        return Decision()
    fact = f.TaskGoalSet(message.goal, message.reason, message.restart, message.fresh)
    return Decision(facts=(fact,), because=message.reason)


def limit_set(task: Task, message: m.SetRunLimit, at: At) -> Decision:
    """Limit this run, too: from its start, or from now on if it had no limit."""
    if task.policy.max_running_s == message.max_running_s:
        return Decision()
    told = LimitRun(task.run, message.max_running_s or 0.0)
    return Decision(
        facts=(f.RunLimitSet(message.max_running_s),),
        sends=(Send(HOST, told),) if task.state in ON_HOST else (),
        because="its job was updated",
    )


def renew(task: Task, message: m.Renew, at: At) -> Decision:
    """Take another config: the run ends first, unless nothing of it changes."""
    renewal = message.renewal
    newest = task.renewal.number if task.renewal is not None else task.renewed
    if renewal.number <= newest or task.goal == m.TaskGoals.DELETED:
        return Decision(because="a later renewal is known, or it is to be deleted")
    # One that was to have another config may be ending for it: it has none that still applies.
    if message.runs or task.renewal is not None:
        return Decision(facts=(f.RenewalOrdered(renewal),), because=renewal.because)
    return Decision(facts=(f.TaskRenewed(renewal, runs=False),), because=renewal.because)


def drop_events(task: Task, message: m.DropEvents, at: At) -> Decision:
    """Show nobody any more what happened to the runs up to this one, or to it alone."""
    if message.alone and not 0 < message.run <= task.run:
        return Decision(because="there was no such run")
    return Decision(facts=(f.EventsDropped(min(message.run, task.run), message.alone),))


def created(message: m.SetTaskGoal, at: At) -> Decision:
    """Begin to exist, because the slice opens, unless the goal is deletion."""
    if message.goal == m.TaskGoals.DELETED:
        return Decision(because="deleted before it was created")
    created = message.goal, message.policy, message.spec, message.lot, message.past
    return Decision(facts=(f.TaskCreated(*created, message.config_version),))


def place(task: Task, message: m.PlaceTasks, at: At) -> Decision:
    """A host was found, or all of a gang are prepared; the launch is owed until the run
    starts or the host refuses it."""
    if not (ready_for_host(task) if at.values else is_prepared(task)):
        return Decision(because="told to launch when no host was awaited, nor a run prepared")
    launch = Launch(task.run, shares=message.shares, prepare=message.prepare)
    return Decision(facts=(f.TaskLaunching(message.prepare),), sends=(Send(HOST, launch),))


def prepared(task: Task, message: m.Prepared, at: At) -> Decision:
    """Record that the host has granted the room, or answer whether the task still wants it."""
    if message.run != task.run or task.state not in ON_HOST:
        return _cancel(task, message.run)
    if task.state == TaskStates.PREPARING:
        return Decision(facts=(f.TaskPrepared(),))
    return Decision()


def join_gang(task: Task, message: m.JoinGang, at: At) -> Decision:
    """Request admission with the others: with a new run, if the last one has ended."""
    if task.goal not in m.WANTED or task.again or message.round <= task.gang_round:
        return Decision(because="it is not to run, or has joined already")
    waits = task.state == TaskStates.WAITING
    if not waits and not waits_for_gang(task):
        return Decision(because="it does not wait for its gang")
    queued = f.AdmissionRequested() if waits else f.TaskRetried()
    return queueing(task, queued, f.GangJoined(message.round), because=GANG_RETRY)


def accepted(task: Task, message: m.Accepted, at: At) -> Decision:
    """Record that the host granted resources."""
    if message.run != task.run or task.state not in ON_HOST:
        return _cancel(task, message.run)
    if task.state == TaskStates.LAUNCHING:
        return Decision(facts=(f.LaunchAccepted(),))
    return Decision()


def started(task: Task, message: m.Started, at: At) -> Decision:
    """Record that the process has started."""
    if message.run != task.run or task.state not in ON_HOST:
        return _cancel(task, message.run)
    if task.state in _WAITS_FOR_START:
        return Decision(facts=(f.TaskStarted(message.at),))
    return Decision()


def refused(task: Task, message: m.RunRefused, at: At) -> Decision:
    """Record that the run never started. The next attempt is a new run under the same ticket."""
    seen = (Send(SENDER, RunSeen(message.run)),)
    if message.run != task.run or task.state not in ON_HOST:
        return Decision(sends=seen, because="refusal of another run")
    assert at.sender is not None
    report = Send(PARENT, replace(message, host=at.sender))
    fact = f.LaunchRefused(message.reason)
    return Decision(facts=(fact,), sends=(*seen, report), because=message.reason)


def ended(task: Task, message: m.Ended, at: At) -> Decision:
    """Record that the run ended; the host keeps it until it receives `RunSeen`."""
    seen = (Send(SENDER, RunSeen(message.run)),)
    if message.run != task.run or task.state not in ON_HOST:
        return Decision(sends=seen, because="end of another run")
    outcome = outcome_of(task, message.outcome)
    because = outcome.message or outcome.reason
    if task.state in IN_PREPARATION or _gives_back(task):
        # Nothing was started: no attempt was made.
        report = Send(PARENT, m.RunRefused(task.run, because))
        return Decision(facts=(f.LaunchRefused(because),), sends=(*seen, report), because=because)
    sends = (*seen, *_not_started(task, outcome))
    facts: tuple[Fact, ...] = (*ended_for_limit(task, outcome), f.RunEnded(outcome, message.at))
    if task.state in _WAITS_FOR_START and _had_started(outcome):
        # So short that the end overtook the report of its start: it has started nevertheless.
        known = message.started_at is not None
        facts = (f.TaskStarted(message.started_at if known else message.at), *facts)
    return Decision(facts=facts, sends=sends, because=because)


def _had_started(outcome: m.RunOutcome) -> bool:
    """Return whether, of several containers, one that is no init container had started."""
    if outcome.containers:
        return any(one.started_at and not one.init for one in outcome.containers)
    return outcome.exit_code is not None or bool(outcome.signal)


def gone(task: Task, message: m.RunGone, at: At) -> Decision:
    """Record that the host does not know the run, so the run that was to be cancelled never
    began."""
    if message.run != task.run or task.state != TaskStates.KILLING:
        return Decision(because="another run is unknown to its host")
    if _gives_back(task):
        return Decision(facts=(f.LaunchRefused(task.because),), because="the room is given back")
    outcome = m.RunOutcome(m.End.KILLED, reason="cancelled", message="cancelled before it started")
    sends = _not_started(task, outcome)
    return Decision(facts=(f.RunEnded(outcome),), sends=sends, because=outcome.message)


def _not_started(task: Task, outcome: m.RunOutcome) -> tuple[Send, ...]:
    """Tell the slice that a host did not start the run in time: no other run ends so by itself."""
    late = task.state == TaskStates.KILLING and task.cause == m.KillCause.NONE
    late = late and not task.ends_for_next and task.goal in m.WANTED
    return (Send(PARENT, RunNotStarted()),) if late and outcome.end in _BROKEN else ()


def due(task: Task, message: Due, at: At) -> Decision:
    """Act on a deadline that has passed.

    The start or the run took too long, the throttle delay is over, or the run has lasted.
    """
    if message.name == THROTTLE:
        return queueing(task, f.TaskRetried(), because="retried after its throttle delay")
    if message.name == HEALTHY:
        reason = f"has run for {_healthy_s(task):g} s"
        return Decision(facts=(f.TaskGoalSet(task.goal, reason, fresh=True),), because=reason)
    if message.name == RUN_LIMIT:
        reason = f"{m.DEADLINE_EXCEEDED}: ran longer than {task.policy.max_running_s:g} s"
        return killing(task, reason, cause=m.KillCause.RUN_LIMIT)
    return killing(task, f"did not start within {_start_s(task):g} s")


def _start_s(task: Task) -> float:
    """Return how long the host may take to answer the launch, or then to start the run."""
    most = task.policy.start_timeout_s
    return min(LAUNCH_TIMEOUT_S, most) if task.state == TaskStates.LAUNCHING else most


def _gives_back(task: Task) -> bool:
    return task.state == TaskStates.KILLING and task.cause == m.KillCause.PREPARATION_DROPPED


def _cancel(task: Task, run: int) -> Decision:
    kill = Send(SENDER, KillRun(run, task.policy.kill_grace_s))
    return Decision(sends=(kill,), because=f"run {run} is not the current run: cancelled")


DECIDE: Mapping[type, Callable[[Any, Any, At], Decision]] = {
    m.SetTaskGoal: goal_set,
    m.Queued: queued,
    m.Admitted: admitted,
    m.TicketReleased: released,
    m.PlaceTasks: place,
    m.Accepted: accepted,
    m.RunRefused: refused,
    m.Started: started,
    m.Ended: ended,
    m.RunGone: gone,
    m.MarkUnschedulable: mark_unschedulable,
    m.SetRunLimit: limit_set,
    m.DropEvents: drop_events,
    m.Prepared: prepared,
    m.JoinGang: join_gang,
    m.TicketParked: parked,
    m.Renew: renew,
    RunChanged: run_changed,
    m.GiveWay: give_way,
    Due: due,
}


def _cancel_unknown(message: m.Accepted | m.Started | m.Prepared, at: At) -> Decision:
    return Decision(sends=(Send(SENDER, KillRun(message.run, 0.0)),), because="no such instance")


def _seen(message: m.RunRefused | m.Ended, at: At) -> Decision:
    return Decision(sends=(Send(SENDER, RunSeen(message.run)),), because="no such instance")


def _release(message: m.Admitted, at: At) -> Decision:
    return Decision(
        sends=(Send(SENDER, ReleaseTicket(message.ticket)),), because="no such instance"
    )


ABSENT: Mapping[type, Callable[[Any, At], Decision]] = {
    m.SetTaskGoal: created,
    m.Admitted: _release,
    m.Accepted: _cancel_unknown,
    m.RunRefused: _seen,
    m.Started: _cancel_unknown,
    m.Ended: _seen,
    m.Prepared: _cancel_unknown,
    RunChanged: told_of_nobody,
}


def owed(task: Task) -> tuple[Send, ...]:
    """Return what is sent again until it is answered: first of admission, then of the run."""
    sends: tuple[Send, ...] = ()
    if task.admission in (Admission.REQUESTED, Admission.QUEUED):
        sends = (Send(LOT, Enqueue(task.ticket)),)
    elif task.admission == Admission.RELEASING:
        sends = (Send(LOT, ReleaseTicket(task.ticket)),)
    elif task.admission == Admission.PARKING:
        sends = (Send(LOT, ParkTicket(task.ticket)),)
    if task.state in _WAITS_FOR_START:
        # Also once the host has accepted: its answer to a repeat replaces a lost `Started`.
        return (*sends, Send(HOST, Launch(task.run)))
    if task.state == TaskStates.PREPARING:
        return (*sends, Send(HOST, Launch(task.run, prepare=True)))
    if task.state == TaskStates.KILLING:
        notice = task.because if task.cause in PREEMPTIONS else ""
        return (*sends, Send(HOST, KillRun(task.run, task.policy.kill_grace_s, notice)))
    return sends


def deadline(task: Task) -> tuple[str, float] | None:
    """Return the next deadline and its seconds, or None.

    A run must start or end by then, the next attempt is delayed until then, or the failures of a
    service count no more after it.
    """
    if task.state in _WAITS_FOR_START:
        return START, _start_s(task)
    if task.state == TaskStates.RUNNING and task.policy.max_running_s is not None:
        return RUN_LIMIT, task.policy.max_running_s
    if task.state == TaskStates.THROTTLED:
        return THROTTLE, pause_s(task)
    failed = task.failures or task.system_failures
    if task.state == TaskStates.RUNNING and is_wanted(task) and failed:
        return HEALTHY, _healthy_s(task)
    return None


def _healthy_s(task: Task) -> float:
    return task.policy.healthy_after_s or HEALTHY_AFTER_S
