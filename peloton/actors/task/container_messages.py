"""What a task is told of the containers of its run, of a pod that has several, while that goes on.

How the run ended is told with its end. Each change says all that is known of the containers; its
number is that of the steps they have made, so a later one is higher, whoever tells it. A message
must not concern more than one run of a task.
"""

from __future__ import annotations

from collections.abc import Iterable

from peloton.actors.task.messages import ContainerEnd
from peloton.runtime.vocabulary import Message, Value


def steps_of(containers: Iterable[ContainerEnd]) -> int:
    """How many starts and ends these have behind them."""
    return sum((one.started_at > 0) + (one.ended_at > 0) for one in containers)


class ContainersChanged(Message, frozen=True, gc=False, array_like=True):
    """Host to tasks: these are the containers of this run, in order, as far as they have come.

    Repeated by the backend until the tasks have answered with the number, `ContainersSeen`.
    """

    run: int
    number: int
    containers: tuple[ContainerEnd, ...]


class LiveContainers(Value, frozen=True, gc=False, array_like=True):
    """The last change that a task was told of, and of which run."""

    run: int
    number: int
    containers: tuple[ContainerEnd, ...]


TASK_CONTAINER_MESSAGES: dict[int, type] = {141: ContainersChanged}
"""Those of the task, beyond `messages.MESSAGES`."""
