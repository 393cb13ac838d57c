"""Messages about holds: who wants a host whole, gives it back, or launches runs of its own there.

A hold has a name, by which its holder gives it back or uses it. None of these comes from a task of
a job: those launch without a hold. They must not name a run by anything but its caller's id.
"""

from __future__ import annotations

from collections.abc import Container, Iterable

from peloton.actors.host.messages import RunSpec
from peloton.actors.resources import Resources
from peloton.placement.filters import HostWant
from peloton.placement.messages import HostSummary
from peloton.runtime.vocabulary import Key, Message, Value

FOREIGN_GRACE_S = 30.0
TASK_HOLD_S = 180.0
"""How long a host waits for a task whose run was killed, as in the original."""
TASK_HOLDS_MAX = 100
"""Tasks for which one host is held: each launch there looks at all of them."""

PLACER = "placer"
"""The holder of those for tasks that have found no room for long: no client may take them over."""

# Codes of refusals.
NO_HOLD = "NO_HOLD"
CANNOT_LAUNCH = "CANNOT_LAUNCH"


class HostHold(Value, frozen=True, gc=False, array_like=True):
    """Who has all that runs leave free on a host, for how long, and what that was at the start."""

    name: str
    holder: str
    resources: Resources
    until: float
    seconds: float


class HoldHost(Message, frozen=True, gc=False, array_like=True):
    """Gateway to host: grant nothing to anybody else for so many seconds.

    Answered `HostHeld`, a repeat as well, or refused with the first reason why it does not suit.
    A host that is held for tasks suits if the caller's `hint` names one of them, or the host alone,
    which is the empty name.
    """

    name: str
    holder: str
    seconds: float
    want: HostWant = HostWant()
    hint: tuple[str, ...] = ()


class HostHeld(Value, frozen=True, gc=False, array_like=True):
    """Answer to `HoldHost`: what is held, until when, and the host as it is otherwise."""

    name: str
    resources: Resources
    until: float
    summary: HostSummary


class ReleaseHold(Message, frozen=True, gc=False, array_like=True):
    """Gateway to host: the hold of this name is not wanted any more."""

    name: str


class HoldReleased(Value, frozen=True, gc=False, array_like=True):
    """Answer to `ReleaseHold`; without such a hold there was nothing to do."""

    known: bool


class ForeignRun(Value, frozen=True, gc=False, array_like=True):
    """A run that its caller placed: the caller's id of it, and what to run."""

    task: str
    spec: RunSpec


class LaunchForeign(Message, frozen=True, gc=False, array_like=True):
    """Gateway to host: start these, all or none. The hold ends with it."""

    hold: str
    runs: tuple[ForeignRun, ...]


class ForeignLaunched(Value, frozen=True, gc=False, array_like=True):
    """Answer to `LaunchForeign`: the names of the runs, in order."""

    runs: tuple[str, ...]


class KillForeign(Message, frozen=True, gc=False, array_like=True):
    """Gateway to host: end the foreign runs of these ids."""

    tasks: tuple[str, ...]
    grace_s: float = FOREIGN_GRACE_S


class ForeignKilled(Value, frozen=True, gc=False, array_like=True):
    """Answer to `KillForeign`: the ids that the host has."""

    tasks: tuple[str, ...]


class TaskHold(Value, frozen=True, gc=False, array_like=True):
    """A task for which a host is held: who ordered it, what the task needs, and until when.

    `task` is its name without a run, `crowd` and `member` say which task that is. With `reserved`
    the room was not there yet when it was ordered.
    """

    task: str
    crowd: Key
    member: int
    holder: str
    need: Resources
    until: float
    reserved: bool = False


def comes_for(hint: Iterable[str], tasks: Container[str]) -> bool:
    """Whether a caller with this hint comes for one of the tasks for which a host is held."""
    return any(name == "" or name in tasks for name in hint)


class HoldForTask(Message, frozen=True, gc=False, array_like=True):
    """Gateway or slice to host: for so many seconds grant nothing to others than this task.

    Without `need` it is what the task's run on the host has. With `reserve` the host must be nobody
    else's. Answered `HeldForTask`; a repeat begins the time anew. Slices of daemon jobs say `until`
    when instead, so that a repeat of theirs changes nothing.
    """

    task: str
    crowd: Key
    member: int
    holder: str
    seconds: float
    need: Resources = Resources()
    reserve: bool = False
    until: float = 0.0


class HeldForTask(Value, frozen=True, gc=False, array_like=True):
    """Answer to `HoldForTask`: until when, and the host as it is otherwise."""

    task: str
    until: float
    summary: HostSummary


class ReleaseTaskHolds(Message, frozen=True, gc=False, array_like=True):
    """Gateway to host: it need not be held for these tasks any more."""

    tasks: tuple[str, ...]


class TaskHoldsReleased(Value, frozen=True, gc=False, array_like=True):
    """Answer to `ReleaseTaskHolds`: those for which it was held."""

    tasks: tuple[str, ...]


HOLD_MESSAGES: dict[int, type] = {
    17: HoldHost,
    18: ReleaseHold,
    19: LaunchForeign,
    20: KillForeign,
    21: HoldForTask,
    22: ReleaseTaskHolds,
}
"""Those of the host, beyond `MESSAGES`."""
