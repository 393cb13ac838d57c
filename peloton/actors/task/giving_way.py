"""How a task gives up what it has, though it is to run: preempted, moved, restarted, or its gang.

The order ends its run, and the reported end becomes the outcome that is kept. The slice chooses the
tasks, and knows whether the job can spare them.
"""

from __future__ import annotations

from msgspec.structs import replace

from peloton.actors.task import facts as f
from peloton.actors.task import messages as m
from peloton.actors.task.goals import killing, queueing
from peloton.actors.task.run_messages import UNHEALTHY
from peloton.actors.task.state import (
    IN_PREPARATION,
    ON_HOST,
    PREEMPTIONS,
    Task,
    TaskStates,
    ready_for_host,
)
from peloton.runtime.vocabulary import At, Decision, Fact

_NOT_ENDING = ON_HOST - {TaskStates.KILLING}
_ENDED_IN = dict.fromkeys(PREEMPTIONS, frozenset((TaskStates.RUNNING,))) | {
    m.KillCause.GANG_RESTART: _NOT_ENDING,
    m.KillCause.MAINTENANCE: _NOT_ENDING,
    m.KillCause.SPARED_RESTART: _NOT_ENDING,
}
"""In which states a task has a run that is ended for a cause, where that is not only prepared."""
_OF_GANG = frozenset((m.KillCause.PREPARATION_DROPPED, m.KillCause.GANG_RESTART))


def give_way(task: Task, message: m.GiveWay, at: At) -> Decision:
    """End the run, which uses up no attempt, or give up what it has instead of one."""
    cause, because = message.cause, message.reason
    if task.state in IN_PREPARATION and cause in _OF_GANG:
        # The next attempt is a new run, once the host has said that it gave the room back.
        return killing(task, because, cause=m.KillCause.PREPARATION_DROPPED)
    other = message.run and (message.run != task.run or task.ends_for_next)
    if other or task.goal not in m.WANTED:
        return Decision(because="it has given way already, or is not to run")
    if task.state in _ENDED_IN.get(cause, ()):
        return killing(task, because, cause=cause)
    if cause in PREEMPTIONS and ready_for_host(task):
        return queueing(task, f.AdmissionRequested(), because=because)
    if cause == m.KillCause.SPARED_RESTART and task.state == TaskStates.THROTTLED:
        return queueing(task, f.TaskRetried(fresh=True), because=because)
    return Decision(because="it has nothing that it could give up")


def outcome_of(task: Task, reported: m.RunOutcome) -> m.RunOutcome:
    """Return the outcome as reported, except for a run that was killed by an order.

    These are runs that ran too long, were not well, or ended for another pool or for the
    maintenance of the host.
    """
    if task.state == TaskStates.KILLING and task.cause == m.KillCause.MAINTENANCE:
        return _moved(reported)
    if task.state == TaskStates.KILLING and task.cause == m.KillCause.UNHEALTHY:
        if reported.end == m.End.LOST:
            return reported
        # Also one that ended with exit code 0 when it was told to end: it was not well.
        code, signal = reported.exit_code, reported.signal
        return m.RunOutcome(m.End.FAILED, code, signal, UNHEALTHY, task.because)
    if task.state == TaskStates.KILLING and task.cause in PREEMPTIONS:
        if reported.end == m.End.SUCCEEDED:
            return reported
        return _killed(task, reported, reason=m.PREEMPTED)
    if reported.reason == m.DEADLINE_EXCEEDED and task.policy.max_running_s is None:
        text = "ended for a limit that was taken away from it"  # its host had not heard of that
        return replace(reported, end=m.End.LOST, message=text, system=True)
    too_long = task.state == TaskStates.KILLING and task.cause == m.KillCause.RUN_LIMIT
    if not too_long or reported.end == m.End.SUCCEEDED:
        return reported
    return _killed(task, reported, reason=m.DEADLINE_EXCEEDED)


def ended_for_limit(task: Task, outcome: m.RunOutcome) -> tuple[Fact, ...]:
    """Return the fact before the end of a run that its host has ended itself, as it ran too
    long."""
    too_long = (outcome.end, outcome.reason) == (m.End.KILLED, m.DEADLINE_EXCEEDED)
    if not too_long or task.state == TaskStates.KILLING:
        return ()
    return (f.TaskKilling(outcome.message, m.KillCause.RUN_LIMIT),)


def _killed(task: Task, reported: m.RunOutcome, *, reason: str) -> m.RunOutcome:
    return replace(reported, end=m.End.KILLED, reason=reason, message=task.because, system=False)


def _moved(reported: m.RunOutcome) -> m.RunOutcome:
    """Return the outcome as no fault of the program; a run that ended well, or with its host, is
    unchanged."""
    if reported.end in (m.End.SUCCEEDED, m.End.LOST):
        return reported
    text = f"ended by the maintenance of its host: {reported.message or 'killed'}"
    return replace(reported, end=m.End.KILLED, reason=m.HOST_MAINTENANCE, message=text, system=True)
