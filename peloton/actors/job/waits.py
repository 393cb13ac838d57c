"""What a job waits for besides its own instances, and what waits for it: jobs, its name, a URL.

Part of the state of a job, with the functions that its folds use.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable

import immutables
import msgspec

from peloton.actors.job.notice_messages import Notice
from peloton.actors.job.spec import JobSpec
from peloton.runtime.vocabulary import Key, Value

replace = msgspec.structs.replace


class NameStates(enum.IntEnum):
    """How far a job is with a name that no other job may have."""

    NONE = 0  # it wants none
    ASKED = 1
    GRANTED = 2
    FREED = 3


class Waits(Value, frozen=True, gc=False, array_like=True):
    """What a job waits for, and what waits for it.

    `others` are the jobs whose end is awaited, and whether each has noted that. `waiters` are the
    jobs that await the end of this one. `timed_from` is the moment from which the runtime counts
    the present deadline, and part of its name; `deadline_over`: the job was started again after it.
    `notice` is the end that is to be told outside; `notices` counts all there were.
    """

    others: immutables.Map[Key, bool] = immutables.Map()
    waiters: immutables.Map[Key, bool] = immutables.Map()
    name: NameStates = NameStates.NONE
    timed_from: float = 0.0
    deadline_over: bool = False
    notice: Notice | None = None
    notices: int = 0

    @property
    def blocks(self) -> bool:
        """Return whether the job may not begin yet."""
        return bool(self.others) or self.name == NameStates.ASKED

    @property
    def keeps(self) -> bool:
        """Return whether others have to be told something before the job may be deleted."""
        return bool(self.waiters) or self.has_name or self.notice is not None

    @property
    def has_name(self) -> bool:
        """Return whether the name may be the job's at its owner."""
        return self.name in (NameStates.ASKED, NameStates.GRANTED)


def first_waits(spec: JobSpec, at: float) -> Waits:
    """Return what a new job waits for."""
    name = NameStates.ASKED if spec.unique else NameStates.NONE
    others = immutables.Map(dict.fromkeys((after.job for after in spec.after), False))
    return Waits(others=others, name=name, timed_from=at)


def noted(waits: Waits, other: Key) -> Waits:
    """Record that another job will tell its end."""
    return replace(waits, others=waits.others.set(other, True))


def learned(waits: Waits, other: Key) -> Waits:
    """Record that the end of another job is known."""
    return replace(waits, others=_without(waits.others, other))


def awaited_by(waits: Waits, waiter: Key) -> Waits:
    """Record that one more job awaits the end."""
    return replace(waits, waiters=waits.waiters.set(waiter, True))


def told(waits: Waits, waiter: Key) -> Waits:
    """Record that a job that awaited the end knows it."""
    return replace(waits, waiters=_without(waits.waiters, waiter))


def named(waits: Waits, name: NameStates) -> Waits:
    """Record the answer of the owner of the name."""
    return replace(waits, name=name)


def timed(waits: Waits, at: float) -> Waits:
    """Record that the deadline may be another one from now on."""
    return replace(waits, timed_from=at) if at else waits


def started_again(waits: Waits, *, at: float, moment: float | None) -> Waits:
    """Record that instances begin a new run. A deadline that has passed does not hold for it."""
    over = waits.deadline_over or (moment is not None and at >= moment)
    return replace(waits, timed_from=at, deadline_over=over)


def noticed(waits: Waits, spec: JobSpec | None, *, end: Notice) -> Waits:
    """Record the end of the job.

    If it is to be told outside, it replaces an older end that was not told yet.
    """
    notify = spec.notify if spec is not None else None
    if notify is None or (notify.states and end.state.name not in notify.states):
        return waits
    number = waits.notices + 1
    return replace(waits, notice=replace(end, number=number), notices=number)


def told_outside(waits: Waits, number: int) -> Waits:
    """Record that the end of this number need not be told any more."""
    if waits.notice is None or waits.notice.number != number:
        return waits
    return replace(waits, notice=None)


def _without(some: immutables.Map[Key, bool], one: Key) -> immutables.Map[Key, bool]:
    return some.delete(one) if one in some else some


def unnoted(waits: Waits) -> Iterable[Key]:
    """Return the jobs that have not answered yet whether they will tell their end, in order."""
    return (other for other in sorted(waits.others) if not waits.others[other])
