"""What a job journals. Numbers are permanent, because journals hold them.

A fact must not hold more than its fold needs, nor ever change its meaning.
"""

from __future__ import annotations

from peloton.actors.job.slice.messages import Tally
from peloton.actors.job.spec import JobSpec, Override
from peloton.runtime.vocabulary import Bits, Fact, Key


class OverridesGiven(Fact, frozen=True, gc=False, array_like=True):
    """Configs of single instances of one slice; they apply only once the job is created.

    `who` is the principal that sent them, "" if unknown.
    """

    slice_number: int
    overrides: tuple[Override, ...]
    who: str = ""


class JobMade(Fact, frozen=True, gc=False, array_like=True):
    """The job exists. `who` is the principal that created it, "" if unknown."""

    job: Key
    spec: JobSpec
    pool_path: str
    at: float
    who: str = ""


class StopOrdered(Fact, frozen=True, gc=False, array_like=True):
    """All instances are to end. `who` is the principal that ordered it, "" if unknown."""

    at: float
    who: str = ""


class InstancesStopped(Fact, frozen=True, gc=False, array_like=True):
    """These members of a slice are to end. `who` is the principal, "" if unknown."""

    slice_number: int
    members: Bits
    who: str = ""
    at: float = 0.0


class DeletionOrdered(Fact, frozen=True, gc=False, array_like=True):
    """The job is to be deleted, with its slices and tasks."""

    at: float


class SliceConfirmed(Fact, frozen=True, gc=False, array_like=True):
    """A slice holds the goal of this version."""

    number: int
    version: int


class JobTallied(Fact, frozen=True, gc=False, array_like=True):
    """The tally of a slice."""

    number: int
    version: int
    tally: Tally
    at: float


class SliceVanished(Fact, frozen=True, gc=False, array_like=True):
    """A slice and its tasks are deleted."""

    number: int


class GrantsRaised(Fact, frozen=True, gc=False, array_like=True):
    """How many instances these slices may have active at once."""

    grants: tuple[tuple[int, int], ...]


class JobForgotten(Fact, frozen=True, gc=False, array_like=True):
    """The job is deleted."""


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
}
