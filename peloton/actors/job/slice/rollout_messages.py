"""What a job orders of a slice in a workflow, and what the slice reports of it.

A workflow gives instances another config, or a new run, a bounded number of them at a time. The
part of one slice is its rollout. Must not know of the workflow's states.
"""

from __future__ import annotations

import enum

from peloton.runtime.vocabulary import Bits, Message, Query, Value


class RolloutOrder(Value, frozen=True, gc=False, array_like=True):
    """Job to slice, with each goal: the newest rollout, and how far it may go.

    `number` rises with each rollout of the job. `leave`: how many members may be under way or have
    failed: what fails is no leave for the next one, before the job has seen it. `over`: what has
    not begun is not begun any more.
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
    """What a rollout did of members; the numbers are those of workflows on the wire."""

    TAKEN = 2
    DONE = 4
    FAILED = 6


class RolloutStep(Value, frozen=True, gc=False, array_like=True):
    """At this moment the rollout of this number began with these members, or was through."""

    number: int
    state: StepStates
    at: float
    members: Bits


class GetRollout(Query, frozen=True, gc=False, array_like=True):
    """What the last rollout of a slice does to whom: a `RolloutView`."""


class RolloutView(Value, frozen=True, gc=False, array_like=True):
    """The members of the last rollout of a slice by how far they are, and by what is done of them.

    `steps`: of this one and of those before it, the oldest first.
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
    """Members of a slice by what the rollout of this number has done of them.

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
        """How many are to be under way, or are."""
        return self.waiting + self.current


class RunNotStarted(Message, frozen=True, gc=False, array_like=True):
    """Tasks to slice: the last run did not start in time; the next one is to go elsewhere."""
