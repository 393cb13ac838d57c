"""What a task decides when it is told of its health: one that fails too often is ended.

Turns (task, change) into a fact, and the answer that it was seen, upon which the backend repeats it
no more. What it believes need not be the newest for a moment: the answer names the change that was
seen, and a backend that sees another one than its last repeats that. Must not judge single results.
"""

from __future__ import annotations

from peloton.actors.host.live.health_messages import HealthSeen
from peloton.actors.host.messages import KillRun
from peloton.actors.task.facts import HealthTold, TaskKilling
from peloton.actors.task.goals import HOST
from peloton.actors.task.health_messages import HealthChanged, TaskHealth, over_text
from peloton.actors.task.messages import KillCause, TaskGoals
from peloton.actors.task.state import Task, TaskStates
from peloton.runtime.vocabulary import SENDER, At, Decision, Send

_NOT_BEGUN = frozenset((TaskStates.LAUNCHING, TaskStates.LAUNCHED, TaskStates.STARTING))


def health_changed(task: Task, message: HealthChanged, at: At) -> Decision:
    """Believe it; end the run if it has failed too often, as a failure of the program."""
    if message.run == task.run and task.state in _NOT_BEGUN:
        return Decision(because="its start was not reported yet: this is told again")
    seen = Send(SENDER, HealthSeen(message.run, message.number))
    if message.run != task.run or task.state != TaskStates.RUNNING:
        return Decision(sends=(seen,), because="health of another run, or of one that is ending")
    health = _health_in(message, task)
    ready = _ready_in(message, task)
    unready = ready == TaskHealth.UNHEALTHY or message.ungated
    unready = unready and health != TaskHealth.UNHEALTHY
    text = message.unready_text if unready else message.text or _trouble_in(message)
    told = HealthTold(health, text, ready)
    wanted = task.goal in (TaskGoals.SUCCEEDED, TaskGoals.RUNNING)
    if message.over and wanted:
        because = over_text(message.text)
        facts = told, TaskKilling(because, KillCause.UNHEALTHY)
        kill = Send(HOST, KillRun(task.run, task.policy.kill_grace_s))
        return Decision(facts=facts, sends=(seen, kill), because=because)
    if (health, ready) == (task.health, task.ready) and not _trouble_in(message):
        return Decision(sends=(seen,))
    return Decision(facts=(told,), sends=(seen,), because=text)


def _health_in(message: HealthChanged, task: Task) -> TaskHealth:
    if message.unchecked:
        return TaskHealth.DISABLED
    if message.unknown:  # whoever checks it has begun anew, or has found out the readiness first
        return task.health
    return TaskHealth.HEALTHY if message.healthy else TaskHealth.UNHEALTHY


def _ready_in(message: HealthChanged, task: Task) -> TaskHealth:
    if message.ungated:
        return TaskHealth.DISABLED
    return message.ready if message.ready > TaskHealth.UNKNOWN else task.ready


def _trouble_in(message: HealthChanged) -> str:
    """Why a check has found nothing yet: it could not be carried out so far."""
    if message.unknown and message.text and not message.unchecked:
        return message.text
    known = message.ungated or message.ready > TaskHealth.UNKNOWN
    return "" if known else message.unready_text


def told_of_nobody(message: HealthChanged, at: At) -> Decision:
    """The instance does not exist any more: nothing is to be repeated to it."""
    seen = Send(SENDER, HealthSeen(message.run, message.number))
    return Decision(sends=(seen,), because="no such instance")
