"""Messages and queries a job receives from clients and its slices, and its answers.

None may grow with the number of instances, except configs of single instances, sent in pieces.
"""

from __future__ import annotations

import enum

from peloton.actors.job.slice.messages import SliceGone, SliceOpen, SliceTally
from peloton.actors.job.spec import JobSpec, Override
from peloton.runtime.vocabulary import Bits, Key, Message, Query, Value, key


class JobStates(enum.IntEnum):
    """What clients see; the numbers are those of the wire."""

    INITIALIZED = 1
    PENDING = 2
    RUNNING = 3
    SUCCEEDED = 4
    FAILED = 5
    KILLED = 6
    KILLING = 7
    DELETED = 9


class JobGoals(enum.IntEnum):
    """What should be."""

    SUCCEEDED = 1
    RUNNING = 2
    KILLED = 3
    DELETED = 4


class AddOverrides(Message, frozen=True, gc=False, array_like=True):
    """Client to a job that does not exist yet: configs of single instances of one slice.

    A job whose overrides do not fit one frame is sent in several messages; `CreateJob` is the
    last, and only its answer counts. Pieces that are not completed in time are forgotten; by a
    recovery, at once.
    """

    slice_number: int
    overrides: tuple[Override, ...]


class CreateJob(Message, frozen=True, gc=False, array_like=True):
    """Client to a job that does not exist yet. `pieces` counts the `AddOverrides` sent before.

    `drawn`: the id was generated for this call, so no ended job can have it, and the final states
    need not be searched.
    """

    spec: JobSpec
    overrides: tuple[tuple[int, tuple[Override, ...]], ...] = ()
    pieces: int = 0
    pool_path: str = ""
    drawn: bool = False


class DropPieces(Message, frozen=True, gc=False, array_like=True):
    """An incomplete job to itself: forget its pieces, which do not belong together."""


class StopJob(Message, frozen=True, gc=False, array_like=True):
    """Client to a job: end these instances, or all when no range is given. Half-open ranges.

    `ended` are those that had ended before the call; used in the answer only.
    """

    ranges: tuple[tuple[int, int], ...] = ()
    ended: Bits = Bits()


class DeleteJob(Message, frozen=True, gc=False, array_like=True):
    """Client to a job: delete it; refused while it has not ended, unless `force`."""

    force: bool = False


class GetJob(Query, frozen=True, gc=False, array_like=True):
    """The job, as `JobView`."""


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


class JobDeleted(Value, frozen=True, gc=False, array_like=True):
    """Answer to `DeleteJob`: the job is being deleted, or is deleted."""


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


class StopRecord(Value, frozen=True, gc=False, array_like=True):
    """A stop order: when, and by which principal; "" if the call named none."""

    at: float
    who: str = ""


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


MESSAGES: dict[int, type] = {
    1: AddOverrides,
    2: CreateJob,
    3: StopJob,
    4: DeleteJob,
    5: SliceOpen,
    6: SliceTally,
    7: SliceGone,
    8: DropPieces,
}
ANSWERS: dict[int, type] = {1: JobCreated, 2: OverridesAdded, 3: JobStopped, 4: JobDeleted}


def job_key(job_id: str) -> Key:
    """The key of a job by its id."""
    return key("job", job_id)
