"""What a job answers: to commands, and to those who look at it.

None may grow with the number of instances. Must not hold what is sent to a job: `messages.py`.
"""

from __future__ import annotations

from peloton.actors.job.messages import EntityVersion, JobGoals, JobStates
from peloton.actors.job.spec import JobSpec
from peloton.runtime.vocabulary import Bits, Key, Value


class JobCreated(Value, frozen=True, gc=False, array_like=True):
    """Answer to `CreateJob`."""

    job: Key


class OverridesAdded(Value, frozen=True, gc=False, array_like=True):
    """Answer to `AddOverrides`."""

    slice_number: int


class JobStopped(Value, frozen=True, gc=False, array_like=True):
    """Answer to `StopJob`: the instances that were ordered to stop, as half-open ranges.

    Less those of `ended`, which is part of the answer because the answer is stored: a repeat that
    computed it again would count instances that ended by this very stop.
    """

    ranges: tuple[tuple[int, int], ...]
    ended: Bits = Bits()
    version: EntityVersion | None = None  # since services are known; the job's by then


class JobStarted(Value, frozen=True, gc=False, array_like=True):
    """Answer to `StartJob`: the job's version by then."""

    version: EntityVersion


class JobDeleted(Value, frozen=True, gc=False, array_like=True):
    """Answer to `DeleteJob`: the job is being deleted, or is deleted."""


class InstancesOrdered(Value, frozen=True, gc=False, array_like=True):
    """Answer to `StartInstances`: the instances that begin a new run, as half-open ranges."""

    ranges: tuple[tuple[int, int], ...]


class ChangeAdded(Value, frozen=True, gc=False, array_like=True):
    """Answer to `AddChange`."""

    slice_number: int


class JobUpdated(Value, frozen=True, gc=False, array_like=True):
    """Answer to `UpdateJob`: how many instances were added, and the config version then."""

    added: int
    version: int


class JobRefreshed(Value, frozen=True, gc=False, array_like=True):
    """Answer to `RefreshJob`."""


class JobSummary(Value, frozen=True, gc=False, array_like=True):
    """A job in a listing. Times are seconds since the epoch, 0.0 if not yet reached."""

    job: Key
    name: str
    owner: str
    state: JobStates
    instances: int
    pool: Key
    pool_path: str
    created_at: float
    started_at: float
    completed_at: float
    updated_at: float
    labels: tuple[tuple[str, str], ...]
    job_type: str
    counts: tuple[tuple[str, int], ...]
    created_by: str = ""  # the text of a principal
    usage: tuple[float, ...] = ()  # of ended runs, by `USAGE_KINDS`
    config_version: int = 1
    versions: tuple[tuple[int, int], ...] = ()  # instances by config version, if not all have 1


class StopRecord(Value, frozen=True, gc=False, array_like=True):
    """A stop order: when, and by which principal; "" if the call named none."""

    at: float
    who: str = ""
    reason: str = ""  # why the job ordered it itself


class JobView(Value, frozen=True, gc=False, array_like=True):
    """A job as clients see it. `counts` are instances by their state's name."""

    summary: JobSummary
    spec: JobSpec
    goal: JobGoals
    desired_state_version: int
    slices: int
    because: str
    reasons: tuple[tuple[str, int], ...] = ()
    stop: StopRecord | None = None  # of the whole job
    part_stops: tuple[tuple[int, StopRecord], ...] = ()  # the last one of each slice, by its number
    created_by: str = ""  # the text of a principal
    held: str = ""  # what the job waits for before it begins
    next_start_at: float | None = None  # of an instance that waits for the throttle
    version: EntityVersion = EntityVersion(1, 1, 1)


ANSWERS: dict[int, type] = {
    1: JobCreated,
    2: OverridesAdded,
    3: JobStopped,
    4: JobDeleted,
    5: InstancesOrdered,
    6: ChangeAdded,
    7: JobUpdated,
    8: JobRefreshed,
    9: JobStarted,
}
