"""How long members may keep an allocation without a host before they give it back.

The policy sets times in the notes of the slice; what is overdue becomes an order to its tasks. The
placer goes on keeping the wishes, and its next proposal makes the members ask for admission again,
at their place in the queue. A gang that forms gives back as one, or not at all.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from msgspec.structs import replace

from peloton.actors.job.slice import goals
from peloton.actors.job.slice.state import NO_MEMBERS, Slice, WishNotes
from peloton.actors.task.messages import MarkUnschedulable
from peloton.actors.task.state import ready_for_host
from peloton.runtime.vocabulary import WAITING, At, Bits, Decision, Rest, Send

STEPS = 8
"""Members whose times differ by less than this part of the whole are given back together."""


class ParkingPolicy(NamedTuple):
    """How long an admitted member waits for a host.

    It waits for `attempts` of `timeout_s`, each after the first `backoff_s` longer than the one
    before.
    """

    enabled: bool = True
    attempts: int = 3
    timeout_s: float = 600.0
    backoff_s: float = 300.0

    def attempt_s(self, attempt: int) -> float:
        """Return how long an attempt takes, counted from 0 over all cycles."""
        return self.timeout_s + attempt % self.attempts * self.backoff_s

    @property
    def patience_s(self) -> float:
        """Return how long a cycle takes: so long an allocation is kept without a host."""
        return math.fsum(self.attempt_s(attempt) for attempt in range(self.attempts))


def pursue_with(policy: ParkingPolicy) -> Callable[[Slice, At], Decision | Rest]:
    """Return `pursue` for a policy: the next step towards the goal, or else giving back what is
    overdue."""
    patience_s = policy.patience_s if policy.enabled else 0.0
    if not patience_s:
        return goals.pursue

    def pursue(slice_: Slice, at: At) -> Decision | Rest:
        step = goals.pursue(slice_, at)
        if isinstance(step, Decision):
            return _noted(slice_, step, at=at, patience_s=patience_s)
        if step is not WAITING or at.notes is None or not at.notes.unplaced_since:
            return step
        return _give_back(slice_, at.notes, at=at, patience_s=patience_s) or step

    return pursue


def recall_with(policy: ParkingPolicy) -> Callable[[WishNotes], float | None]:
    """Return when to wake the slice without a message: also once the first allocation is
    overdue."""
    patience_s = policy.patience_s if policy.enabled else 0.0

    def recall_s(notes: WishNotes) -> float | None:
        times = [until for until in (goals.recall_s(notes),) if until is not None]
        return min(
            [*times, *(since + patience_s for since, _ in notes.unplaced_since)], default=None
        )

    return recall_s if patience_s else goals.recall_s


def _noted(slice_: Slice, step: Decision, *, at: At, patience_s: float) -> Decision:
    """Return the step, noting the members that begin or cease to wait for a host by it."""
    if not isinstance(step.notes, WishNotes):
        return step
    before: WishNotes = at.notes if at.notes is not None else WishNotes()
    after = step.notes
    gang = slice_.forming if after.gang is not None and after.gang.number else NO_MEMBERS
    looks = after.wished | after.kept | after.resting | slice_.forming
    unplaced_since = tuple(
        (since, left) for since, each in after.unplaced_since if (left := each & looks)
    )
    fresh = ((after.wished - before.wished) | gang) - _all(unplaced_since)
    fresh = fresh & Bits(at.index.where(ready_for_host)) if fresh else fresh
    if fresh:
        part_s = patience_s / STEPS
        since = math.ceil(at.now / part_s) * part_s
        known = dict(unplaced_since)
        unplaced_since = tuple(sorted({**known, since: known.get(since, Bits()) | fresh}.items()))
    if unplaced_since == after.unplaced_since:
        return step
    return replace(step, notes=replace(after, unplaced_since=unplaced_since))


def _give_back(slice_: Slice, notes: WishNotes, *, at: At, patience_s: float) -> Decision | None:
    """Order overdue members to give their allocations back; None while none is overdue."""
    late = [each for since, each in notes.unplaced_since if since + patience_s <= at.now]
    if not late:
        return None
    rest = tuple(pair for pair in notes.unplaced_since if pair[0] + patience_s > at.now)
    after = replace(notes, unplaced_since=rest)
    members = _all([(0.0, each) for each in late]) & Bits(at.index.where(ready_for_host))
    if slice_.forming - members:
        members = members - slice_.forming
    if not members:
        return Decision(notes=after)
    reason = f"no host for {patience_s:g} s: the pool has its allocation back until there is one"
    park = Send(slice_.crowd, MarkUnschedulable(True, reason), members)
    return Decision(sends=(park,), because=reason, notes=after)


def _all(unplaced_since: tuple[tuple[float, Bits], ...] | list[tuple[float, Bits]]) -> Bits:
    raw = 0
    for _, members in unplaced_since:
        raw |= members.raw
    return Bits(raw)
