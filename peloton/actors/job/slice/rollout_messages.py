"""What a job orders of a slice in a workflow and by its disruption budget, and what that reports.

A workflow gives instances another config, or a new run, a bounded number of them at a time. The
part of one slice is its rollout. The states of the workflow stay with the job.

A service may say how many of its instances may be down at once. The job owns that number. A slice
has an allowance of it: so many of its members may be down for what somebody wants; what fails is
down without asking, and counts.
"""

from __future__ import annotations

import enum
from typing import ClassVar

from peloton.runtime.vocabulary import Bits, Delivery, Message, Query, Value


class RolloutOrder(Value, frozen=True, gc=False, array_like=True):
    """Job to slice, with each goal: the newest rollout, and how far it may go.

    `number` rises with each rollout of the job. `leave`: how many members may be under way or have
    failed: a member that fails gives no leave for the next one, before the job has seen it. `over`:
    members that have not begun do not begin any more.
    """

    number: int
    config_version: int
    because: str
    leave: int = 0
    over: bool = False
    members: Bits | None = None  # that begin a new run; None: those whose config is another one
    max_attempts: int = 0  # failures with which an instance has failed; 0: it never fails
    starts: bool = False  # members that were stopped are started, too
    back: int = 0  # to the configs before the rollout of this number, not to those of the opening
    keeps: bool = False  # the configs before are kept, for a rollout that goes back
    quiet: bool = False  # of `members`, only those that were stopped begin a new run
    stops: bool = False  # `members` are stopped
    in_place: bool = False  # hosts wait for the next runs of members that they run
    healthy_s: float = 0.0  # for so long all have to do their work, once all are through


class StepStates(enum.IntEnum):
    """What a rollout did with members; the numbers are those of workflows on the wire."""

    TAKEN = 2
    DONE = 4
    FAILED = 6


class RolloutStep(Value, frozen=True, gc=False, array_like=True):
    """The rollout of this number began with these members, or was through, at this moment."""

    number: int
    state: StepStates
    at: float
    members: Bits


class GetRollout(Query, frozen=True, gc=False, array_like=True):
    """Asks what the last rollout of a slice does with which members; answered `RolloutView`."""


class RolloutView(Value, frozen=True, gc=False, array_like=True):
    """The members of the last rollout of a slice, by how far they are and what is done with them.

    `steps`: of this rollout and of those before it, the oldest first.
    """

    number: int = 0
    waiting: Bits = Bits()
    current: Bits = Bits()
    done: Bits = Bits()
    failed: Bits = Bits()
    added: Bits = Bits()
    updated: Bits = Bits()
    removed: Bits = Bits()
    steps: tuple[RolloutStep, ...] = ()


class RolloutTally(Value, frozen=True, gc=False, array_like=True):
    """How many members of a slice the rollout of this number has treated in which way.

    `waiting` have not begun, `current` are under way, `done` and `failed` are not any more. Of all
    these, `added` are new, `removed` are to exist no more, and `updated` are the others. Of those
    that are done, `fallen` do their work no more. `steady`: nothing is left to be waited for, and
    those that are done have done their work for as long as they have to.
    """

    number: int
    waiting: int = 0
    current: int = 0
    done: int = 0
    failed: int = 0
    added: int = 0
    updated: int = 0
    removed: int = 0
    downed: Bits = Bits()  # that it has stopped: nobody else knows who they are
    fallen: int = 0
    steady: bool = True

    @property
    def left(self) -> int:
        """Return how many are to be under way, or are."""
        return self.waiting + self.current


class RunNotStarted(Message, frozen=True, gc=False, array_like=True):
    """Tasks to slice: the last run did not start in time; the next one is to go elsewhere."""


VIOLATES_SLA, ASKED_JOB = "VIOLATES_SLA", "ASKED_JOB"
VIOLATES_TEXT = "pod restart would violate SLA"
"""The original's text."""


class DownBudget(Value, frozen=True, gc=False, array_like=True):
    """Job to slice, with each goal: how many members may be down at once.

    `most`: of the whole job, if several slices share it; 0 if this slice has all of it. `heard`:
    the number of the last wish of the slice that the job has heard of.
    """

    allowance: int
    most: int = 0
    heard: int = 0


class DownTally(Value, frozen=True, gc=False, array_like=True):
    """Slice to job: how many members are down, for any reason, and how many more it wishes to
    take down and may not."""

    down: int = 0
    disruption_wanted: int = 0


class SparedFor(enum.IntEnum):
    """The reason for which an instance is taken down."""

    WORKFLOW = 1
    MAINTENANCE = 2
    PREEMPTION = 3
    RESTART = 4


class AskToEnd(Message, frozen=True, gc=False, array_like=True):
    """Host in maintenance to slice: these runs, by number, are to end as soon as possible.

    Those that the job can spare end at once, the others later. The host repeats this until the runs
    are ending.
    """

    delivery: ClassVar[Delivery] = Delivery.OWED

    runs: tuple[tuple[int, Bits], ...]


class SpareAsked(Message, frozen=True, gc=False, array_like=True):
    """Slice to job: there is a wish of this number; repeated until a goal names it.

    How many are wished for, and are down by then, is told by the tally that the job asks for.
    """

    delivery: ClassVar[Delivery] = Delivery.OWED

    number: int
    asks: int


class RestartIfSpared(Message, frozen=True, gc=False, array_like=True):
    """Client to slice: begin a new run of this member, if the job can spare it now.

    Answered `MemberRestarted`, or refused: as `VIOLATES_SLA`; or as `ASKED_JOB` if the slice has
    asked its job for a higher allowance, and the same request may succeed in a moment.
    """

    member: int


class WantDisruption(Message, frozen=True, gc=False, array_like=True):
    """Slice to itself: ask the job for so many more, for a time."""

    count: int


class MemberRestarted(Value, frozen=True, gc=False, array_like=True):
    """Answer to `RestartIfSpared`.

    `wanted`: the member is to run at all; else nothing was done.
    """

    wanted: bool
