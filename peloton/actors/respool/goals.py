"""Goal table of a pool: it should serve its queue. The root takes the steps for all pools.

The table is total. Only the root acts, because only it has the index of all pools and lots: it
admits while lots wait, which lends what others leave idle, as that is part of what a pool is
entitled to; if nothing more fits, it reclaims what was lent. The slice of a lot that is to give
back chooses the tasks.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping

import msgspec

from peloton.actors.respool.admission import admissions
from peloton.actors.respool.lot.messages import Admit
from peloton.actors.respool.messages import ROOT, KeepHour, OpenRoot
from peloton.actors.respool.proving import hear
from peloton.actors.respool.state import Pool, PoolNotes
from peloton.actors.respool.taking_back import take_back
from peloton.actors.respool.tree import Tree
from peloton.runtime.vocabulary import SETTLED, WAITING, At, Decision, Rest, Send, counted

HEADS_PER_TURN_MAX = 32
"""Queues whose head is looked at in one turn: after a recovery that may be all there are."""

AGAIN = Send(ROOT, OpenRoot())
"""To itself: the rest is done in its next turn, and others have theirs in between."""


class PoolGoals(enum.StrEnum):
    """What a pool should do."""

    SERVING = "serving"


class PoolStates(enum.StrEnum):
    """The state of the tree, which the root serves, or of any other pool."""

    UNREAD = "unread"  # the tree has not been read yet
    IDLE = "idle"  # nobody waits in any queue
    QUEUED = "queued"  # somebody does
    POOL = "pool"


def admit_or_reclaim(at: At) -> Decision | Rest:
    """Admit what fits, in any pool of the tree; if nothing does, let others give back."""
    return _with_hours(at, _admit(at))


def keep_hours(at: At) -> Decision | Rest:
    """Let pools keep the hours that are over."""
    return _with_hours(at, SETTLED)


def _with_hours(at: At, step: Decision | Rest) -> Decision | Rest:
    """Add the hours that pools have not kept yet to a step; they are sent until they have."""
    lending = at.index.lending
    kept = tuple(
        Send(pool, KeepHour(hour)) for pool, hours in lending.closed.items() for hour in hours
    )
    if isinstance(step, Decision):
        return msgspec.structs.replace(step, sends=(*kept, *step.sends)) if kept else step
    if lending.is_behind:
        return Decision(sends=(*kept, AGAIN))
    return Decision(sends=kept) if kept else step


def _admit(at: At) -> Decision | Rest:
    found = admissions(at.index, HEADS_PER_TURN_MAX, now=at.now)
    if not found and at.index.waiting.unfinished:
        return Decision(sends=(AGAIN,))
    if not found:
        return _take_back(at)
    sends = tuple(Send(lot, Admit(members)) for lot, members in found)
    because = counted(len(found), "lot is admitted", many="lots are admitted")
    return Decision(sends=sends, because=because)


def _take_back(at: At) -> Decision | Rest:
    """Let others give back what a pool is entitled to, as nothing more can be admitted."""
    tree: Tree = at.index
    if not tree.policy.enabled:
        return WAITING
    known = at.notes if at.notes is not None else PoolNotes()
    for message in known.heard:
        hear(tree, message)
    orders, proofs = take_back(tree, at.now), tree.proofs
    asks = proofs.asks if proofs.asked != known.asked else ()
    notes = PoolNotes(tree.reclaims.wake_at, asked=proofs.asked)
    overdue = notes.wake_at is not None and notes.wake_at <= at.now
    if not orders and notes == known and not overdue:
        return WAITING  # those that are overdue have the next turn: the alarm has rung for others
    sends = (*(Send(lot, order) for lot, order in orders), *asks)
    because = counted(len(orders), "lot gives back", many="lots give back") if orders else ""
    return Decision(sends=sends, because=because, notes=notes)


def settled(at: At) -> Decision | Rest:
    """Do nothing, because the root serves this pool's queue."""
    return SETTLED


TABLE: Mapping[PoolStates, Mapping[PoolGoals, Callable[[At], Decision | Rest]]] = {
    PoolStates.UNREAD: {PoolGoals.SERVING: settled},
    PoolStates.IDLE: {PoolGoals.SERVING: keep_hours},
    PoolStates.QUEUED: {PoolGoals.SERVING: admit_or_reclaim},
    PoolStates.POOL: {PoolGoals.SERVING: settled},
}


def pursue(pool: Pool, at: At) -> Decision | Rest:
    """Take the next step towards the goal."""
    state = _state(at)
    if state in (PoolStates.IDLE, PoolStates.QUEUED):
        known = at.index.pools.get(ROOT)
        if known is not pool and known != pool:
            # This turn has changed the root but not the tree yet, which still has the old
            # capacity. The root pursues its goal again once the tree is updated.
            return WAITING
        at.index.note(at.now)
    return TABLE[state][PoolGoals.SERVING](at)


def keep(pool: Pool, at: At) -> Decision | Rest:
    """Admit nothing and take nothing back while at rest; pools still keep their hours."""
    if _state(at) not in (PoolStates.IDLE, PoolStates.QUEUED):
        return SETTLED
    known = at.index.pools.get(ROOT)
    if known is not pool and known != pool:
        return WAITING
    at.index.note(at.now)
    return keep_hours(at)


def _state(at: At) -> PoolStates:
    if at.key != ROOT:
        return PoolStates.POOL
    if at.index is None:
        return PoolStates.UNREAD
    return PoolStates.QUEUED if at.index.pending else PoolStates.IDLE
