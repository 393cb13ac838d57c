"""The facts of a task. Numbers and meanings are permanent, because journals hold them."""

from __future__ import annotations

from peloton.actors.task.messages import KillCause, Policy, Renewal, RunOutcome, TaskGoals
from peloton.actors.task.run_messages import ContainerEnd, TaskHealth
from peloton.runtime.vocabulary import Fact, Key


class TaskCreated(Fact, frozen=True, gc=False, array_like=True):
    """The instance exists; no run or ticket of its name has had a higher number than `past`."""

    goal: TaskGoals
    policy: Policy
    spec: int
    lot: Key
    past: int = 0
    config_version: int = 0


class TaskGoalSet(Fact, frozen=True, gc=False, array_like=True):
    """The goal changed, or the restart of this number was ordered (0: none).

    `fresh`: with fresh attempts.
    """

    goal: TaskGoals
    reason: str = ""
    restart: int = 0
    fresh: bool = False


class AdmissionRequested(Fact, frozen=True, gc=False, array_like=True):
    """A new ticket, numbered one higher than the last."""


class AdmissionQueued(Fact, frozen=True, gc=False, array_like=True):
    """The lot has the ticket in its queue."""


class AdmissionGranted(Fact, frozen=True, gc=False, array_like=True):
    """The pool admitted the ticket."""


class AdmissionReleasing(Fact, frozen=True, gc=False, array_like=True):
    """The ticket is no longer wanted; its release is owed to the lot until it answers."""


class AdmissionReleased(Fact, frozen=True, gc=False, array_like=True):
    """The lot holds no ticket of this task."""


class TaskLaunching(Fact, frozen=True, gc=False, array_like=True):
    """The launch of the current run is owed to the host in the `host` column; with `prepare`, first
    of all that the host grants the room for it."""

    prepare: bool = False


class LaunchAccepted(Fact, frozen=True, gc=False, array_like=True):
    """The host has the run; journaled only if the launch had to be repeated."""


class LaunchRefused(Fact, frozen=True, gc=False, array_like=True):
    """The run never started; the next attempt is a new run under the same ticket."""

    reason: str


class TaskStarted(Fact, frozen=True, gc=False, array_like=True):
    """The run's process has started; `at` is when, if this is journaled long after it."""

    at: float | None = None


class TaskKilling(Fact, frozen=True, gc=False, array_like=True):
    """The run is to end; its kill is owed to the host until it answers."""

    reason: str
    cause: KillCause = KillCause.NONE


class RunEnded(Fact, frozen=True, gc=False, array_like=True):
    """The run ended; `at` is when, if that is long before this was journaled."""

    outcome: RunOutcome
    at: float | None = None


class TaskRetried(Fact, frozen=True, gc=False, array_like=True):
    """A new run under a new ticket; with `fresh` attempts, because a client ordered it."""

    fresh: bool = False


class TaskThrottled(Fact, frozen=True, gc=False, array_like=True):
    """The next run waits for its throttle delay."""


class TaskWithdrawn(Fact, frozen=True, gc=False, array_like=True):
    """The instance ends as killed without its current run ever having been launched."""


class TaskUnschedulable(Fact, frozen=True, gc=False, array_like=True):
    """No host can run the task, or one can again; while none can, it requests no admission."""

    unschedulable: bool


class TaskForgotten(Fact, frozen=True, gc=False, array_like=True):
    """The instance does not exist any more."""


class RunLimitSet(Fact, frozen=True, gc=False, array_like=True):
    """One run may take so long from now on."""

    max_running_s: float | None


class EventsDropped(Fact, frozen=True, gc=False, array_like=True):
    """Nobody is shown any more what happened until now to the runs up to this one, or to it
    `alone`."""

    run: int
    alone: bool = False


class TaskPrepared(Fact, frozen=True, gc=False, array_like=True):
    """The host has granted the room."""


class GangJoined(Fact, frozen=True, gc=False, array_like=True):
    """It is one of its gang in this round, for which it requests admission; the fact beside this
    one has the ticket."""

    round: int


class AdmissionParking(Fact, frozen=True, gc=False, array_like=True):
    """No host was found in time: the allocation goes back to the pool, the place is kept."""


class AdmissionParked(Fact, frozen=True, gc=False, array_like=True):
    """The lot has parked the ticket."""


class RenewalOrdered(Fact, frozen=True, gc=False, array_like=True):
    """The task is to have this config once its run has ended and it holds no ticket."""

    renewal: Renewal


class TaskRenewed(Fact, frozen=True, gc=False, array_like=True):
    """The task has this config; with `runs`, the next run is to begin, unless the task was
    stopped."""

    renewal: Renewal
    runs: bool = True


class HealthTold(Fact, frozen=True, gc=False, array_like=True):
    """The health or the readiness of the present run has changed.

    `text` is what the failed check found, of its health if both did; or, while nothing is known
    yet, why it could not be checked.
    """

    health: TaskHealth
    text: str = ""
    ready: TaskHealth = TaskHealth.DISABLED


class ContainersTold(Fact, frozen=True, gc=False, array_like=True):
    """How far the containers of the present run have come, of a pod with several.

    Empty if they were known to have come as far.
    """

    containers: tuple[ContainerEnd, ...]


FACTS: dict[int, type] = {
    1: TaskCreated,
    2: TaskGoalSet,
    3: AdmissionRequested,
    4: AdmissionQueued,
    5: AdmissionGranted,
    6: AdmissionReleasing,
    7: AdmissionReleased,
    8: TaskLaunching,
    9: LaunchAccepted,
    10: LaunchRefused,
    11: TaskStarted,
    12: TaskKilling,
    13: RunEnded,
    14: TaskRetried,
    15: TaskThrottled,
    16: TaskWithdrawn,
    17: TaskForgotten,
    18: TaskUnschedulable,
    20: RunLimitSet,
    21: EventsDropped,
    23: TaskPrepared,
    26: GangJoined,
    27: AdmissionParking,
    28: AdmissionParked,
    29: RenewalOrdered,
    30: TaskRenewed,
    51: HealthTold,
    141: ContainersTold,
}
