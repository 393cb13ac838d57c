"""Messages about holds: a client holds a host whole, releases it, or launches its own runs there.

A hold has a name, by which its holder releases or uses it. Tasks of jobs launch without a hold. A
message names a run only by its client's id.
"""

from __future__ import annotations

from collections.abc import Container, Iterable

from peloton.actors.host.run_spec import RunSpec
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
    """The holder of all that runs leave free on a host, for how long, and what that was at the
    start."""

    name: str
    holder: str
    resources: Resources
    until: float
    seconds: float


class HoldHost(Message, frozen=True, gc=False, array_like=True):
    """Gateway to host: grant nothing to anybody else for so many seconds.

    Answered `HostHeld`, a repeat as well, or refused with the first reason why the host does not
    suit. A host that is held for tasks suits if the client's `hint` names one of them, or the host
    itself, which is the empty name.
    """

    name: str
    holder: str
    seconds: float
    want: HostWant = HostWant()
    hint: tuple[str, ...] = ()


class HostHeld(Value, frozen=True, gc=False, array_like=True):
    """Answer to `HoldHost`: what is held, until when, and the summary of the host."""

    name: str
    resources: Resources
    until: float
    summary: HostSummary


class ReleaseHold(Message, frozen=True, gc=False, array_like=True):
    """Gateway to host: the hold of this name is not wanted any more."""

    name: str


class HoldReleased(Value, frozen=True, gc=False, array_like=True):
    """Answer to `ReleaseHold`; if the hold is not `known`, there was nothing to do."""

    known: bool


class ForeignRun(Value, frozen=True, gc=False, array_like=True):
    """A run that a client placed: the client's id of it, and what to run."""

    task: str
    spec: RunSpec


class LaunchForeign(Message, frozen=True, gc=False, array_like=True):
    """Gateway to host: start all of these runs, or none. The hold ends with it."""

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

    `task` is its name without a run; `crowd` and `member` identify it. `reserved`: the room was not
    there yet when the hold was ordered.
    """

    task: str
    crowd: Key
    member: int
    holder: str
    need: Resources
    until: float
    reserved: bool = False


def is_over(taken: HostHold | TaskHold, now: float) -> bool:
    """Return whether the time of a hold is over: it lasts until, and not at, `until`."""
    return now >= taken.until


def comes_for(hint: Iterable[str], tasks: Container[str]) -> bool:
    """Return whether a client with this hint comes for one of the tasks for which a host is
    held."""
    return any(name == "" or name in tasks for name in hint)


class HoldForTask(Message, frozen=True, gc=False, array_like=True):
    """Gateway or slice to host: for so many seconds grant nothing to others than this task.

    Without `need` it is what the task's run on the host has. With `reserve` the host must not be
    held by others. Answered `HeldForTask`; a repeat begins the time anew. Slices of daemon jobs
    give the end of the hold as `until` instead, so that a repeat changes nothing.
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
    """Answer to `HoldForTask`: until when the host is held, and its summary."""

    task: str
    until: float
    summary: HostSummary


class ReleaseTaskHolds(Message, frozen=True, gc=False, array_like=True):
    """Gateway to host: the host need not be held for these tasks any more."""

    tasks: tuple[str, ...]


class TaskHoldsReleased(Value, frozen=True, gc=False, array_like=True):
    """Answer to `ReleaseTaskHolds`: the tasks for which the host was held."""

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
