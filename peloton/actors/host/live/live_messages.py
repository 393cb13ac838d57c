"""Messages about running runs: what has changed of them, and how long they may take.

The backend repeats a change until its task has seen it, so a host keeps nothing of it. A limit is
told once: if it is lost, the run keeps its old limit, and the task ends the run if the new one is
shorter. The module also has what a host says of its runs when it asks its backend for a list. A
health check that changed nothing is not reported, as there would be too many messages.
"""

from __future__ import annotations

from peloton.actors.task.run_messages import HealthCheck, LiveRun
from peloton.runtime.vocabulary import Bits, Key, Message, Value


class KnownSet(Value, frozen=True, gc=False, array_like=True):
    """The same run of many members of a crowd in the ledger, and since when they are there."""

    crowd: Key
    run: int
    members: Bits
    since: float


class CheckedSet(Value, frozen=True, gc=False, array_like=True):
    """The same run of members of a crowd, how its health is checked, and since when it is in the
    ledger."""

    crowd: Key
    run: int
    members: Bits
    check: HealthCheck
    since: float


class RunChange(Value, frozen=True, gc=False, array_like=True):
    """One run, the number of this change, and what is known of the run."""

    run: str
    number: int
    live: LiveRun


class RunsChanged(Message, frozen=True, gc=False, array_like=True):
    """Backend to host: what is known of these runs has changed."""

    runs: tuple[RunChange, ...]


class ChangeSeen(Message, frozen=True, gc=False, array_like=True):
    """Tasks to host: the tasks know of the change of this number."""

    run: int
    number: int


class ChangesNoted(Message, frozen=True, gc=False, array_like=True):
    """Host to backend: the tasks of these runs know of the change of this number.

    If it is not the last number, the last change was lost or overtaken.
    """

    host: Key
    runs: tuple[str, ...]
    number: int


class LimitRun(Message, frozen=True, gc=False, array_like=True):
    """Tasks to host: how long this run may take, from its start, or from now if it had no limit.

    With 0 it has no limit.
    """

    run: int
    max_running_s: float


class LimitRuns(Message, frozen=True, gc=False, array_like=True):
    """Host to backend: how long these runs may take.

    A backend that enforces no limits leaves it to the tasks.
    """

    host: Key
    epoch: int
    runs: tuple[str, ...]
    max_running_s: float


LIVE_MESSAGES: dict[int, type] = {46: RunsChanged, 47: ChangeSeen, 151: LimitRun}
"""Those of the host, beyond `messages.MESSAGES`."""
