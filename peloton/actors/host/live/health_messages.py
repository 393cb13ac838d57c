"""Messages about the health of runs: a backend reports changes, hosts pass them to their tasks.

A change is repeated by the backend until its task has seen it, so a host keeps nothing of it. A
message must not carry the result of a check that changed nothing. Here is also what a host says of
its runs when it asks its backend for a list.
"""

from __future__ import annotations

from peloton.actors.task.health_messages import HealthCheck, TaskHealth
from peloton.runtime.vocabulary import Bits, Key, Message, Value


class KnownSet(Value, frozen=True, gc=False, array_like=True):
    """The same run of many members of a crowd, in the ledger, and since when."""

    crowd: Key
    run: int
    members: Bits
    since: float


class RunHealth(Value, frozen=True, gc=False, array_like=True):
    """One run, the number of this change, and what it is, as in `HealthChanged`."""

    run: str
    number: int
    healthy: bool
    text: str = ""
    over: bool = False
    unknown: bool = False
    ready: TaskHealth = TaskHealth.DISABLED
    unready_text: str = ""
    unchecked: bool = False
    ungated: bool = False


class HealthReported(Message, frozen=True, gc=False, array_like=True):
    """Backend to host: the health of these runs has changed."""

    runs: tuple[RunHealth, ...]


class HealthSeen(Message, frozen=True, gc=False, array_like=True):
    """Tasks to host: they know of the change of this number."""

    run: int
    number: int


class HealthNoted(Message, frozen=True, gc=False, array_like=True):
    """Host to backend: the tasks of these runs know of the change of this number.

    It is another than the last one if that was lost, or was overtaken by it.
    """

    host: Key
    runs: tuple[str, ...]
    number: int


class CheckedSet(Value, frozen=True, gc=False, array_like=True):
    """The same run of members of a crowd, how it is checked, and since when it is in the ledger."""

    crowd: Key
    run: int
    members: Bits
    check: HealthCheck
    since: float


HEALTH_MESSAGES: dict[int, type] = {46: HealthReported, 47: HealthSeen}
"""Those of the host, beyond `messages.MESSAGES`."""
