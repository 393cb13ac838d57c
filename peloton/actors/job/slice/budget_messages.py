"""What a job says of its disruption budget to its slices, and who asks them to take instances down.

A service may say how many of its instances may be down at once. The job owns that number. A slice
has an allowance of it: so many of its members may be down for what somebody wants; what fails is
down without asking, and counts. Must not know who of the members is down.
"""

from __future__ import annotations

import enum
from typing import ClassVar

from peloton.runtime.vocabulary import Bits, Delivery, Message, Value

VIOLATES_SLA, ASKED_JOB = "VIOLATES_SLA", "ASKED_JOB"
VIOLATES_TEXT = "pod restart would violate SLA"
"""The original's text."""


class DownBudget(Value, frozen=True, gc=False, array_like=True):
    """Job to slice, with each goal: how many members may be down at once.

    `most`: of the whole job, where several slices share it; 0 where this slice has all of it.
    `heard`: the number of the last wish of the slice that the job has heard of.
    """

    allowance: int
    most: int = 0
    heard: int = 0


class DownTally(Value, frozen=True, gc=False, array_like=True):
    """Slice to job: so many members are down, whatever took them down; and so many more are wanted
    to be, and may not."""

    down: int = 0
    wished: int = 0


class SparedFor(enum.IntEnum):
    """What an instance is taken down for."""

    WORKFLOW = 1
    MAINTENANCE = 2
    PREEMPTION = 3
    RESTART = 4


class AskToEnd(Message, frozen=True, gc=False, array_like=True):
    """Host in maintenance to slice: these runs, by number, are to end as soon as can be.

    Those that the job can spare end at once, the others as it can. Owed until the runs are ending.
    """

    delivery: ClassVar[Delivery] = Delivery.OWED

    runs: tuple[tuple[int, Bits], ...]


class SpareAsked(Message, frozen=True, gc=False, array_like=True):
    """Slice to job: there is a wish of this number; owed until a goal names it.

    What is wished for, and who is down by then, is told by the tally that the job asks for.
    """

    delivery: ClassVar[Delivery] = Delivery.OWED

    number: int
    asks: int


class RestartIfSpared(Message, frozen=True, gc=False, array_like=True):
    """Client to slice: a new run of this member, if the job can spare it now.

    Answered `MemberRestarted`, or refused: as `VIOLATES_SLA`; or as `ASKED_JOB` where the slice has
    asked its job for a higher allowance, and the same request may succeed in a moment.
    """

    member: int


class WishToSpare(Message, frozen=True, gc=False, array_like=True):
    """A slice to itself: ask the job for so many more, for a time."""

    count: int


class MemberRestarted(Value, frozen=True, gc=False, array_like=True):
    """Answer to `RestartIfSpared`. `wanted`: it is to run at all; else nothing was done."""

    wanted: bool
