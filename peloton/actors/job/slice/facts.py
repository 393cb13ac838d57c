"""What a slice journals. Numbers are permanent, because journals hold them.

A fact must not hold more than its fold needs, nor ever change its meaning.
"""

from __future__ import annotations

from peloton.actors.job.slice.messages import SliceOpening
from peloton.actors.task.messages import TaskGoals
from peloton.runtime.vocabulary import Bits, Fact, Key


class SliceOpened(Fact, frozen=True, gc=False, array_like=True):
    """The slice exists, and its instances; those of a `limited` one exist only once they begin."""

    job: Key
    number: int
    opening: SliceOpening
    limited: bool = False


class SliceGoalSet(Fact, frozen=True, gc=False, array_like=True):
    """The goal of this version applies."""

    version: int
    goal: TaskGoals
    stopped: Bits
    grant: int | None = None


class MembersBegun(Fact, frozen=True, gc=False, array_like=True):
    """These instances of a limited slice begin to exist."""

    members: Bits


class SliceForgotten(Fact, frozen=True, gc=False, array_like=True):
    """The slice is deleted."""


FACTS: dict[int, type] = {1: SliceOpened, 2: SliceGoalSet, 3: SliceForgotten, 4: MembersBegun}
