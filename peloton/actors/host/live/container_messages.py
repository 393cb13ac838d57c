"""Messages about runs that go on: what their containers do, and how long they may.

What a host is told of either it passes on, and keeps nothing. A change of containers is repeated by
the backend until its task has seen it; runs of a single container have no such messages. A limit is
told once: where it is lost, the run has the limit that it had, and the task ends it where the new
one is shorter.
"""

from __future__ import annotations

from peloton.actors.task.messages import ContainerEnd
from peloton.runtime.vocabulary import Key, Message, Value


class RunContainers(Value, frozen=True, gc=False, array_like=True):
    """One run, and what it is with its containers, as in `ContainersChanged`."""

    run: str
    number: int
    containers: tuple[ContainerEnd, ...]


class ContainersReported(Message, frozen=True, gc=False, array_like=True):
    """Backend to host: containers of these runs have begun, or ended."""

    runs: tuple[RunContainers, ...]


class ContainersSeen(Message, frozen=True, gc=False, array_like=True):
    """Tasks to host: they know of the change of this number."""

    run: int
    number: int


class ContainersNoted(Message, frozen=True, gc=False, array_like=True):
    """Host to backend: the tasks of these runs know of the change of this number."""

    host: Key
    runs: tuple[str, ...]
    number: int


class LimitRun(Message, frozen=True, gc=False, array_like=True):
    """Tasks to host: how long this run may take, from its start, or from now where it had no limit;
    0 for as long as it likes."""

    run: int
    max_running_s: float


class LimitRuns(Message, frozen=True, gc=False, array_like=True):
    """Host to backend: the same of these runs. One that holds no limits leaves it to the tasks."""

    host: Key
    epoch: int
    runs: tuple[str, ...]
    max_running_s: float


CONTAINER_MESSAGES: dict[int, type] = {
    141: ContainersReported,
    142: ContainersSeen,
    151: LimitRun,
}
"""Those of the host, beyond `messages.MESSAGES`."""
