"""The facts of a job. Numbers and meanings are permanent, because journals hold them."""

from __future__ import annotations

from peloton.actors.job.slice.messages import Tally
from peloton.actors.job.slice.task_config import Override
from peloton.actors.job.spec import JobSpec
from peloton.actors.job.workflow.facts import (
    LeavesRaised,
    OpaqueChanged,
    WorkflowBegun,
    WorkflowMoved,
    WorkflowUndone,
)
from peloton.actors.job.workflow.messages import WorkflowOptions
from peloton.runtime.vocabulary import Bits, Fact, Key, Value


class OverridesGiven(Fact, frozen=True, gc=False, array_like=True):
    """Configs of single instances of one slice; they apply only once the job is created.

    `who` is the principal that sent them, "" if unknown.
    """

    slice_number: int
    overrides: tuple[Override, ...]
    who: str = ""


class JobMade(Fact, frozen=True, gc=False, array_like=True):
    """The job exists. `who` is the principal that created it, "" if unknown.

    `options`: a workflow adds its instances, with these data of its client.
    """

    job: Key
    spec: JobSpec
    pool_path: str
    at: float
    who: str = ""
    options: WorkflowOptions | None = None
    opaque: str = ""


class StopOrdered(Fact, frozen=True, gc=False, array_like=True):
    """All instances are to end. `who` is the principal that ordered it, "" if unknown."""

    at: float
    who: str = ""
    tallied: bool = False  # the job has not ended before its slices have tallied this goal
    reason: str = ""  # why the job ordered it itself


class InstancesStopped(Fact, frozen=True, gc=False, array_like=True):
    """These members of a slice are to end. `who` is the principal, "" if unknown."""

    slice_number: int
    members: Bits
    who: str = ""
    at: float = 0.0
    tallied: bool = False  # as above


class DeletionOrdered(Fact, frozen=True, gc=False, array_like=True):
    """The job is to be deleted, with its slices and tasks."""

    at: float


class SliceConfirmed(Fact, frozen=True, gc=False, array_like=True):
    """A slice has the goal of this version."""

    number: int
    version: int


class JobTallied(Fact, frozen=True, gc=False, array_like=True):
    """The tally of a slice."""

    number: int
    version: int
    tally: Tally
    at: float
    goal: int = 0  # the version of the goal that the slice had


class SliceVanished(Fact, frozen=True, gc=False, array_like=True):
    """A slice and its tasks are deleted."""

    number: int


class StartsReleased(Value, frozen=True, gc=False, array_like=True):
    """How many instances of these slices may have begun in all, by the throttle of their job."""

    at: float
    totals: tuple[tuple[int, int], ...]


class GrantsRaised(Fact, frozen=True, gc=False, array_like=True):
    """How many instances these slices may have active at once, and how many may have begun."""

    grants: tuple[tuple[int, int], ...]
    released: StartsReleased | None = None


class InstancesStarted(Fact, frozen=True, gc=False, array_like=True):
    """These members of slices begin a new run; all others of a stopped job stay stopped."""

    members: tuple[tuple[int, Bits], ...]
    at: float
    who: str = ""
    whole: bool = False  # ordered of the job, not of instances: its goal has a new version


class JobChanged(Fact, frozen=True, gc=False, array_like=True):
    """The job has a new spec, and configs of single new instances, by slice."""

    spec: JobSpec
    overrides: tuple[tuple[int, tuple[Override, ...]], ...]
    at: float
    who: str = ""


class ChangePieceGiven(Fact, frozen=True, gc=False, array_like=True):
    """Configs of single new instances of one slice; they apply once the job is changed."""

    slice_number: int
    overrides: tuple[Override, ...]
    who: str = ""
    at: float = 0.0


class ChangePiecesDropped(Fact, frozen=True, gc=False, array_like=True):
    """The pieces of an update that was not completed are forgotten."""

    at: float = 0.0


class OtherNoted(Fact, frozen=True, gc=False, array_like=True):
    """Another job will tell this one its end."""

    other: Key


class OtherEnded(Fact, frozen=True, gc=False, array_like=True):
    """The end of another job is known, or not awaited any more."""

    other: Key


class WaiterNoted(Fact, frozen=True, gc=False, array_like=True):
    """Another job awaits the end of this one."""

    waiter: Key


class WaiterTold(Fact, frozen=True, gc=False, array_like=True):
    """A job that awaited the end of this one knows it."""

    waiter: Key


class NameSettled(Fact, frozen=True, gc=False, array_like=True):
    """The job has its name, or no longer has it."""

    granted: bool


class NoticeSettled(Fact, frozen=True, gc=False, array_like=True):
    """The notice of this number was delivered, or given up."""

    number: int
    posted: bool


class JobForgotten(Fact, frozen=True, gc=False, array_like=True):
    """The job is deleted."""


class ArchivedIn(Fact, frozen=True, gc=False, array_like=True):
    """This period of the archive has the job, as it was with this end."""

    period: Key
    completed_at: float


class BudgetShared(Fact, frozen=True, gc=False, array_like=True):
    """These slices may have so many members down from now on."""

    allowances: tuple[tuple[int, int], ...]


class SpareHeard(Fact, frozen=True, gc=False, array_like=True):
    """A slice wishes for more members to be down: it is to tell how many, by a tally."""

    number: int
    asks: int


class SpecConfirmed(Fact, frozen=True, gc=False, array_like=True):
    """The owner of an earlier spec has stored it."""

    number: int


class SpecGone(Fact, frozen=True, gc=False, array_like=True):
    """The owner of an earlier spec has deleted it."""

    number: int


FACTS: dict[int, type] = {
    1: OverridesGiven,
    2: JobMade,
    3: StopOrdered,
    4: InstancesStopped,
    5: DeletionOrdered,
    6: SliceConfirmed,
    7: JobTallied,
    8: SliceVanished,
    9: JobForgotten,
    10: GrantsRaised,
    11: InstancesStarted,
    12: JobChanged,
    13: ChangePieceGiven,
    14: ChangePiecesDropped,
    15: ArchivedIn,
    16: OtherNoted,
    17: OtherEnded,
    18: WaiterNoted,
    19: WaiterTold,
    20: NameSettled,
    21: NoticeSettled,
    22: WorkflowBegun,
    23: WorkflowMoved,
    24: WorkflowUndone,
    25: LeavesRaised,
    26: OpaqueChanged,
    27: BudgetShared,
    28: SpareHeard,
    29: SpecConfirmed,
    30: SpecGone,
}
