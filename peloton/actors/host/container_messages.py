"""Messages about the containers of runs that go on: a backend reports changes, hosts pass them on.

A change is repeated by the backend until its task has seen it, so a host keeps nothing of it. Runs
of a single container have no such messages.
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


CONTAINER_MESSAGES: dict[int, type] = {141: ContainersReported, 142: ContainersSeen}
"""Those of the host, beyond `messages.MESSAGES`."""
