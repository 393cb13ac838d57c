"""How fast instances of a job begin: at most so many within any period, exactly.

From what slices report of their starts follows how many members of each may have begun in all. A
slice begins that many and no more, and reports how many have begun, and when the last one did. What
is `open` was released and may begin at any moment; what is `recent` began less than a period ago.
Their sum never exceeds the count of the throttle, so neither does any period: whatever begins in it
is open at the last release before its end, or was recent then.

A start is that of an instance which did not run: its first run, or a new one by an order after it
had ended. Retries, and restarts of an instance that runs, are none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import immutables
import msgspec

from peloton.actors.job.slice.messages import StartsUsed, slices_of
from peloton.actors.job.spec import JobSpec, Throttle
from peloton.actors.task.messages import SLICE_SIZE
from peloton.runtime.vocabulary import Value

replace = msgspec.structs.replace

RECENT_MAX = 16
"""Starts are remembered as so many groups per period: each counts until its last one is over."""


class SliceStarts(Value, frozen=True, gc=False, array_like=True):
    """Members of a slice that may have begun in all, that have, and that are to begin."""

    released: int = 0
    begun: int = 0
    waiting: int = 0

    @property
    def open(self) -> int:
        """Return how many may begin at any moment."""
        return self.released - self.begun

    @property
    def wanting(self) -> int:
        """Return how many wait for the throttle."""
        return max(self.waiting - self.open, 0)


class StartGroup(Value, frozen=True, gc=False, array_like=True):
    """So many instances began between these moments."""

    first: float
    last: float
    count: int


class Throttled(Value, frozen=True, gc=False, array_like=True):
    """The starts of a job with a throttle; `open` and `wanting` are the sums over its slices."""

    slices: immutables.Map[int, SliceStarts] = immutables.Map()
    recent: tuple[StartGroup, ...] = ()
    open: int = 0
    wanting: int = 0


def first_starts(spec: JobSpec) -> Throttled | None:
    """Return what is known of a new job; None without a throttle."""
    return None if spec.throttle is None else grown(Throttled(), spec)


def grown(throttled: Throttled, spec: JobSpec) -> Throttled:
    """Return the starts with new slices; the next tally of the others says that they have grown."""
    for number in range(slices_of(spec.instances)):
        if number not in throttled.slices:
            count = max(min(SLICE_SIZE, spec.instances - number * SLICE_SIZE), 0)
            throttled = _with(throttled, number=number, starts=SliceStarts(waiting=count))
    return throttled


def told(throttled: Throttled, rule: Throttle, *, number: int, starts: StartsUsed) -> Throttled:
    """Return the starts after a tally of a slice."""
    known = throttled.slices.get(number, SliceStarts())
    begun = min(max(starts.begun, known.begun), known.released)
    throttled = _with(
        throttled, number=number, starts=replace(known, begun=begun, waiting=starts.waiting)
    )
    if begun == known.begun:
        return throttled
    recent = _joined(throttled.recent, rule, at=starts.begun_at, count=begun - known.begun)
    return replace(throttled, recent=recent)


def released(throttled: Throttled, totals: Iterable[tuple[int, int]]) -> Throttled:
    """Return the starts after a release."""
    for number, total in totals:
        known = throttled.slices.get(number, SliceStarts())
        throttled = _with(throttled, number=number, starts=replace(known, released=total))
    return throttled


def without_old(throttled: Throttled, rule: Throttle, *, now: float) -> Throttled:
    """Return the starts without those that are a period ago."""
    recent = throttled.recent
    while recent and recent[0].last + rule.period_s <= now:
        recent = recent[1:]
    return replace(throttled, recent=recent) if recent != throttled.recent else throttled


def to_release(
    throttled: Throttled, rule: Throttle, *, now: float, room: Callable[[int], int]
) -> tuple[tuple[int, int], ...]:
    """Return the new totals of slices in which more may begin now, the lowest first.

    `room`: how many a slice could begin at once. It is given no more: what is open where nothing
    can begin would be missing elsewhere.
    """
    throttled = without_old(throttled, rule, now=now)
    left = rule.count - throttled.open - _count(throttled)
    if left <= 0 or not throttled.wanting:
        return ()
    found: list[tuple[int, int]] = []
    for number in sorted(throttled.slices):
        starts = throttled.slices[number]
        more = min(starts.wanting, room(number) - starts.open, left) if starts.wanting else 0
        if more > 0:
            found.append((number, starts.released + more))
            left -= more
        if not left:
            break
    return tuple(found)


def next_release(throttled: Throttled, rule: Throttle) -> float | None:
    """Return when the next instance may begin; None if none waits, or if it waits for something
    else."""
    left = rule.count - throttled.open
    if not throttled.wanting or left <= 0:
        return None
    count, moment = _count(throttled), None
    for group in throttled.recent:
        if count < left:
            break
        count, moment = count - group.count, group.last + rule.period_s
    return moment


def _count(throttled: Throttled) -> int:
    return sum(group.count for group in throttled.recent)


def _joined(
    recent: tuple[StartGroup, ...], rule: Throttle, *, at: float, count: int
) -> tuple[StartGroup, ...]:
    """Return the groups with `count` more starts by then, joined to the last group if that is
    near."""
    if not recent:
        return (StartGroup(at, at, count),)
    last = recent[-1]
    at = max(at, last.last)
    if at - last.first >= rule.period_s / RECENT_MAX:
        return (*recent, StartGroup(at, at, count))
    return (*recent[:-1], StartGroup(last.first, at, last.count + count))


def _with(throttled: Throttled, *, number: int, starts: SliceStarts) -> Throttled:
    known = throttled.slices.get(number, SliceStarts())
    return replace(
        throttled,
        slices=throttled.slices.set(number, starts),
        open=throttled.open + starts.open - known.open,
        wanting=throttled.wanting + starts.wanting - known.wanting,
    )
