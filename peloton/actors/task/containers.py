"""What a task does when it is told of its containers: it keeps that, for those who ask.

Nothing follows from it: what becomes of the run is decided by its end. Whether a change is newer
than the one that is kept is found where it is folded. It must not take what is told of another run.
"""

from __future__ import annotations

from peloton.actors.host.live.container_messages import ContainersSeen
from peloton.actors.task.container_messages import ContainersChanged
from peloton.actors.task.facts import ContainersTold
from peloton.actors.task.state import ON_HOST, Task
from peloton.runtime.vocabulary import SENDER, At, Decision, Send


def containers_changed(task: Task, message: ContainersChanged, at: At) -> Decision:
    """Keep it, as long as the run has not ended."""
    seen = Send(SENDER, ContainersSeen(message.run, message.number))
    if message.run != task.run or task.state not in ON_HOST:
        return Decision(sends=(seen,), because="containers of another run, or of one that ended")
    told = ContainersTold(message.number, message.containers)
    return Decision(facts=(told,), sends=(seen,))


def told_of_no_task(message: ContainersChanged, at: At) -> Decision:
    """The instance does not exist any more: nothing is to be repeated to it."""
    seen = Send(SENDER, ContainersSeen(message.run, message.number))
    return Decision(sends=(seen,), because="no such instance")
