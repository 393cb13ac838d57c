"""What a task decides when it is told of its run: one that fails its check too often is ended.

Each change is answered, upon which the backend repeats it no more. What the task believes need not
be the newest for a moment: the answer names the change that was seen, and a backend that sees
another one than its last repeats that. The newest containers are chosen when they are folded.
"""

from __future__ import annotations

from peloton.actors.host.live.live_messages import ChangeSeen
from peloton.actors.task.facts import ContainersTold, HealthTold
from peloton.actors.task.goals import killing
from peloton.actors.task.messages import WANTED, KillCause
from peloton.actors.task.run_messages import LiveRun, RunChanged, TaskHealth, over_text
from peloton.actors.task.state import ON_HOST, Task, TaskStates
from peloton.runtime.vocabulary import SENDER, At, Decision, Fact, Send


def run_changed(task: Task, message: RunChanged, at: At) -> Decision:
    """Keep the containers as long as the run goes on; believe its health once it has started."""
    live, seen = message.live, _seen(message)
    if message.run != task.run or task.state not in ON_HOST:
        return Decision(sends=(seen,), because="of another run, or of one that has ended")
    kept = (ContainersTold(live.containers),) if live.containers else ()
    if not live.is_judged or task.state == TaskStates.KILLING:
        return Decision(facts=kept, sends=(seen,))
    if task.state != TaskStates.RUNNING:
        return Decision(facts=kept, because="its start was not reported yet: this is told again")
    return _judged(task, live, kept=kept, seen=seen)


def _judged(task: Task, live: LiveRun, *, kept: tuple[Fact, ...], seen: Send) -> Decision:
    """Believe the health; end the run if it has failed too often, as a failure of the program."""
    health, ready = _health_in(live, task), _ready_in(live, task)
    unready = ready == TaskHealth.UNHEALTHY or live.ungated
    unready = unready and health != TaskHealth.UNHEALTHY
    text = live.unready_text if unready else live.text or _trouble_in(live)
    told = (*kept, HealthTold(health, text, ready))
    if live.over and task.goal in WANTED:
        done = killing(task, over_text(live.text), cause=KillCause.UNHEALTHY)
        return Decision((*told, *done.facts), (seen, *done.sends), because=done.because)
    if (health, ready) == (task.health, task.ready) and not _trouble_in(live):
        return Decision(facts=kept, sends=(seen,))
    return Decision(facts=told, sends=(seen,), because=text)


def _health_in(live: LiveRun, task: Task) -> TaskHealth:
    if live.unchecked:
        return TaskHealth.DISABLED
    if live.healthy is None:  # whoever checks it has begun anew, or knows the readiness first
        return task.health
    return TaskHealth.HEALTHY if live.healthy else TaskHealth.UNHEALTHY


def _ready_in(live: LiveRun, task: Task) -> TaskHealth:
    if live.ungated:
        return TaskHealth.DISABLED
    return live.ready if live.ready > TaskHealth.UNKNOWN else task.ready


def _trouble_in(live: LiveRun) -> str:
    """Return why a check has found nothing yet: it could not be carried out so far."""
    if live.healthy is None and live.text and not live.unchecked:
        return live.text
    known = live.ungated or live.ready > TaskHealth.UNKNOWN
    return "" if known else live.unready_text


def told_of_nobody(message: RunChanged, at: At) -> Decision:
    """Answer that the instance does not exist any more, so nothing needs to be repeated."""
    return Decision(sends=(_seen(message),), because="no such instance")


def _seen(message: RunChanged) -> Send:
    return Send(SENDER, ChangeSeen(message.run, message.number))
