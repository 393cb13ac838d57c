"""Messages and queries a job receives from clients and its slices, and its answers.

No message may grow with the number of instances, as a frame has a limit; configs of single
instances are sent in pieces.
"""

from __future__ import annotations

from typing import ClassVar

from peloton.actors.job.name.messages import NameFreed, NameGranted, NameRefused
from peloton.actors.job.notice_messages import NoticeHandled
from peloton.actors.job.slice.messages import SliceGone, SliceOpen, SliceTally
from peloton.actors.job.slice.rollout_messages import SpareAsked
from peloton.actors.job.slice.task_config import Override
from peloton.actors.job.spec import Deadline, JobSpec
from peloton.actors.job.stages import EntityVersion, JobGoals, JobStates
from peloton.actors.job.workflow.messages import (
    ControlWorkflow,
    ReplaceJob,
    RestartJob,
    WorkflowOptions,
    WorkflowOrdered,
    WorkflowView,
)
from peloton.runtime.vocabulary import Bits, Delivery, Key, Message, Query, Value, key

# Codes of refusals, and the text of one that clients know.
NOT_TERMINAL, OTHER_VERSION, TERMINATED = "NOT_TERMINAL", "OTHER_VERSION", "TERMINATED"
NONE_TO_START = "cannot start tasks in a terminated job"


class AddOverrides(Message, frozen=True, gc=False, array_like=True):
    """Client to a job that does not exist yet: configs of single instances of one slice.

    A job whose overrides do not fit one frame is sent in several messages; `CreateJob` is the last,
    and only its answer counts. Pieces that are not completed in time are forgotten; by a recovery,
    at once.
    """

    slice_number: int
    overrides: tuple[Override, ...]


class CreateJob(Message, frozen=True, gc=False, array_like=True):
    """Client to a job that does not exist yet. `pieces` counts the `AddOverrides` sent before.

    `drawn`: the id was generated for this call, so no ended job can have it, and the final states
    need not be searched. `options`: a workflow adds the instances; for services alone.
    """

    spec: JobSpec
    overrides: tuple[tuple[int, tuple[Override, ...]], ...] = ()
    pieces: int = 0
    pool_path: str = ""
    drawn: bool = False
    options: WorkflowOptions | None = None
    opaque: str = ""


class DropPieces(Message, frozen=True, gc=False, array_like=True):
    """An incomplete job to itself: forget its pieces, which do not belong together."""


class StopJob(Message, frozen=True, gc=False, array_like=True):
    """Client to a job: end these instances, or all when no range is given. Half-open ranges.

    `ended` are the instances that had ended before the call; used in the answer only.
    """

    ranges: tuple[tuple[int, int], ...] = ()
    ended: Bits = Bits()
    expected: EntityVersion | None = None  # refused if the job has another


class DeleteJob(Message, frozen=True, gc=False, array_like=True):
    """Client to a job: delete it; refused while it has not ended, unless `force`."""

    force: bool = False
    expected: EntityVersion | None = None  # refused if the job has another


class StartJob(Message, frozen=True, gc=False, array_like=True):
    """Client to a service: all instances that were stopped begin new runs."""

    expected: EntityVersion | None = None  # refused if the job has another


class StartInstances(Message, frozen=True, gc=False, array_like=True):
    """Client to a job: begin a new run with fresh attempts; no range means all. Half-open ranges.

    Only stopped instances begin; with `again`, only those that are not stopped, ended or not: those
    that run are killed first.
    """

    ranges: tuple[tuple[int, int], ...] = ()
    again: bool = False


class AddChange(Message, frozen=True, gc=False, array_like=True):
    """Client to a job: configs of single new instances of one slice, of an update to come.

    As `AddOverrides`, with `UpdateJob` as the last message.
    """

    slice_number: int
    overrides: tuple[Override, ...]


class UpdateJob(Message, frozen=True, gc=False, array_like=True):
    """Client to a job: more instances, and what the spec says of the job as a whole.

    Parts that may not be changed are taken from the present spec. `pieces` counts the `AddChange`
    sent before. `version` is the config version that the client has read, 0 if it named none.
    """

    spec: JobSpec
    overrides: tuple[tuple[int, tuple[Override, ...]], ...] = ()
    pieces: int = 0
    version: int = 0


class LeaveMemory(Message, frozen=True, gc=False, array_like=True):
    """Runtime to a job that has ended: leave memory, once this archive has the job."""

    archive: Key


class Archived(Message, frozen=True, gc=False, array_like=True):
    """Period of the archive to a job: the period has the job, as it was with this end."""

    completed_at: float


class ForgetJob(Message, frozen=True, gc=False, array_like=True):
    """Period of the archive to a job: be deleted, if you ended by then."""

    before: float


class AwaitEnd(Message, frozen=True, gc=False, array_like=True):
    """Job to another job: tell the sender how you end, or have ended."""

    delivery: ClassVar[Delivery] = Delivery.OWED


class AwaitNoted(Message, frozen=True, gc=False, array_like=True):
    """Answer of a job that has not ended: it will tell its end."""

    other: Key


class EndTold(Message, frozen=True, gc=False, array_like=True):
    """Job to those that await its end: the job ended in this state.

    DELETED: the end will never be known; `text` says why.
    """

    delivery: ClassVar[Delivery] = Delivery.OWED

    other: Key
    state: JobStates
    text: str = ""


class EndHeard(Message, frozen=True, gc=False, array_like=True):
    """Answer to `EndTold`: the waiting job knows the end, or does not wait any more."""

    waiter: Key


class MakeJob(Message, frozen=True, gc=False, array_like=True):
    """Schedule to the job of one of its moments: exist. `who` is the principal that wants it."""

    delivery: ClassVar[Delivery] = Delivery.OWED

    spec: JobSpec
    overrides: tuple[tuple[int, tuple[Override, ...]], ...]
    pool_path: str
    who: str


class MakeHandled(Message, frozen=True, gc=False, array_like=True):
    """Answer to `MakeJob`: the job exists; or there cannot be such a job, and `text` says why."""

    job: Key
    text: str = ""


class SpecStored(Message, frozen=True, gc=False, array_like=True):
    """Owner to job: the spec of this number is kept."""

    number: int


class SpecDropped(Message, frozen=True, gc=False, array_like=True):
    """Owner to job: the spec of this number is not kept any more."""

    number: int


class GetJob(Query, frozen=True, gc=False, array_like=True):
    """Asks for the job, answered `JobView`."""


class JobCreated(Value, frozen=True, gc=False, array_like=True):
    """Answer to `CreateJob`."""

    job: Key


class OverridesAdded(Value, frozen=True, gc=False, array_like=True):
    """Answer to `AddOverrides` and `AddChange`."""

    slice_number: int


class JobStopped(Value, frozen=True, gc=False, array_like=True):
    """Answer to `StopJob`: the instances that were ordered to stop, as half-open ranges.

    Those of `ended` do not count. They are part of the answer because the answer is stored: a
    repeat that computed it again would count instances that ended by this very stop.
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


class JobUpdated(Value, frozen=True, gc=False, array_like=True):
    """Answer to `UpdateJob`: how many instances were added, and the config version then."""

    added: int
    version: int


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


class KeptSpec(Value, frozen=True, gc=False, array_like=True):
    """An earlier spec of a job, by the config versions that had it: `first` to `last`.

    `stored` is the number under which it is found, 0 if it was too large to be kept.
    """

    first: int
    last: int
    stored: int


class JobView(Value, frozen=True, gc=False, array_like=True):
    """A job as clients see it. `counts` are instances by the name of their state."""

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
    blocked_by: str = ""  # what the job waits for before it begins
    next_start_at: float | None = None  # of an instance that waits for the throttle
    version: EntityVersion = EntityVersion(1, 1, 1)
    workflows: tuple[WorkflowView, ...] = ()  # the newest first; all but that one are over
    span: int = 0  # one past the highest instance there may be, where the spec says less
    since: int = 0  # the config version with which the spec began; 0: this one
    past: tuple[KeptSpec, ...] = ()  # earlier specs, the newest last
    stored: int = 0  # the number under which this spec is kept as it was written; 0: it is not

    @property
    def adds(self) -> bool:
        """Return whether a workflow adds the instances, which exist only as far as it has come
        to them."""
        return bool(self.workflows) and not self.spec.is_daemon

    @property
    def unadded(self) -> int:
        """Return how many instances a workflow has still to add, or had when it was over."""
        there = sum(count for _, count in self.summary.counts)
        return max(self.spec.instances - there, 0) if self.adds else 0

    @property
    def reach(self) -> int:
        """Return one past the highest instance there may be.

        An update that removes instances and is aborted leaves some beyond the count of the spec.
        """
        return max(self.spec.instances, self.span)


MESSAGES: dict[int, type] = {
    1: AddOverrides,
    2: CreateJob,
    3: StopJob,
    4: DeleteJob,
    5: SliceOpen,
    6: SliceTally,
    7: SliceGone,
    8: DropPieces,
    9: StartInstances,
    10: AddChange,
    11: UpdateJob,
    13: LeaveMemory,
    14: Archived,
    15: ForgetJob,
    16: AwaitEnd,
    17: AwaitNoted,
    18: EndTold,
    19: EndHeard,
    20: NameGranted,
    21: NameRefused,
    22: NameFreed,
    23: NoticeHandled,
    24: MakeJob,
    25: StartJob,
    26: ReplaceJob,
    27: RestartJob,
    28: ControlWorkflow,
    29: SpareAsked,
    30: SpecStored,
    31: SpecDropped,
}
ANSWERS: dict[int, type] = {
    1: JobCreated,
    2: OverridesAdded,
    3: JobStopped,
    4: JobDeleted,
    5: InstancesOrdered,
    7: JobUpdated,
    9: JobStarted,
    10: WorkflowOrdered,
}


def job_key(job_id: str) -> Key:
    """Return the key of a job by its id."""
    return key("job", job_id)


def moment_of(deadline: Deadline | None, created_at: float) -> float | None:
    """Return when a job has to have ended, or None."""
    if deadline is None:
        return None
    return deadline.at or created_at + deadline.after_s
