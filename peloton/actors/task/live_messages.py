"""What a task is told of its run while that goes on: its health, its readiness, its containers.

Only changes are told, never each result of a check; how the run ended, and with it what became of
its containers, is told with its end. A message must not concern more than one run of a task.
"""

from __future__ import annotations

from collections.abc import Iterable

from peloton.actors.task.health_messages import TaskHealth
from peloton.actors.task.messages import ContainerEnd
from peloton.runtime.vocabulary import Message, Value


def steps_of(containers: Iterable[ContainerEnd]) -> int:
    """How many starts and ends these have behind them: the more, the newer, whoever tells it."""
    return sum((one.started_at > 0) + (one.ended_at > 0) for one in containers)


class LiveRun(Value, frozen=True, gc=False, array_like=True):
    """All that is known of a run that goes on.

    `healthy`: since its last check; None: no check of the health has ended yet, nor of the
    readiness if `ready` is not one of the two last; a text then says why the check could not be
    carried out so far. `over`: it has failed too often in a row. `unchecked`: nobody carries out
    the check of its health, and `ungated`: that of its readiness; the texts say why. `containers`:
    of a pod that has several, all of them, in order.
    """

    healthy: bool | None = None
    text: str = ""  # what the last check found
    over: bool = False
    ready: TaskHealth = TaskHealth.DISABLED
    unready_text: str = ""  # what the readiness check found, of one that is not ready
    unchecked: bool = False
    ungated: bool = False
    containers: tuple[ContainerEnd, ...] = ()

    @property
    def unjudged(self) -> LiveRun:
        """What is known of its containers alone."""
        return LiveRun(containers=self.containers)

    @property
    def is_judged(self) -> bool:
        """Whether anything is said of its health or its readiness."""
        return self != self.unjudged


class RunChanged(Message, frozen=True, gc=False, array_like=True):
    """Host to tasks: what is known of this run has changed.

    Repeated by the backend until the tasks have answered with the number, `ChangeSeen`.
    """

    run: int
    number: int
    live: LiveRun


class LiveContainers(Value, frozen=True, gc=False, array_like=True):
    """The last containers that a task was told of, and of which run."""

    run: int
    containers: tuple[ContainerEnd, ...]


TASK_LIVE_MESSAGES: dict[int, type] = {43: RunChanged}
"""Those of the task, beyond `messages.MESSAGES`."""
