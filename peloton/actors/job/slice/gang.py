"""How the first slice of a job brings its gang to hosts: all of it, or none.

The states of the members determine the next step of the gang: wish for hosts for all, have all
hosts prepare the runs, and once all are prepared, start. The slice owns the gang, because all its
members are its own: whether all have room is seen in one place, and the order to start is one fact.

Nothing is waited for while room is granted: one refusal, or too long a time, and all of it is given
back. So two gangs cannot wait for each other. That they do not prevent each other for ever follows
from `backoff_s`: pauses double, and are drawn from the job's id and the number of the attempt, so
that sooner or later one is alone for longer than an attempt takes. No member may start before all
are prepared.
"""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple

import msgspec

from peloton.actors.job.slice.facts import GangComplete, GangFormed
from peloton.actors.job.slice.looks import (
    KEPT_REPEAT_S,
    WISH_TIMEOUT_S,
    by_shape,
    looks_for_host,
)
from peloton.actors.job.slice.state import NO_MEMBERS, GangNotes, Slice, WishNotes
from peloton.actors.task.messages import (
    GiveWay,
    JoinGang,
    KillCause,
    PlaceTasks,
    TaskGoals,
)
from peloton.actors.task.state import (
    IN_PREPARATION,
    ON_HOST,
    Task,
    TaskStates,
    is_prepared,
    waits_for_gang,
)
from peloton.pauses import Pauses
from peloton.placement.messages import PLACER_ANY, GangPart, GangWish
from peloton.runtime.vocabulary import At, Bits, Decision, Key, Send, counted

PREPARE_LIMIT_S = 15.0
"""If not all members have room after so long, all give back: a host may be out of reach."""
PAUSES = Pauses(0.1, 25.6)
NO_GANG = GangNotes()
RESTARTED = "a member of the gang failed, and the gang restarts as one"
replace = msgspec.structs.replace


def backoff_s(job: Key, attempt: int) -> float:
    """Return how long a gang pauses after so many failed attempts; not at all after the first."""
    if attempt < 2:
        return 0.0
    # Not a checksum: those of two ids differ alike in every attempt.
    digest = hashlib.sha256(f"{job} {attempt}".encode()).digest()
    drawn = int.from_bytes(digest[:4], "big") / 2**32
    return PAUSES.after(attempt - 1) * (0.5 + drawn)


class GangStates(NamedTuple):
    """Members that look for a host, that wait for a host to prepare their run, and that have one
    which has."""

    looking: Bits
    preparing: Bits
    prepared: Bits


def states_of(index: Any, forming: Bits) -> GangStates:
    """Return the forming members by state; those in any other state are left out."""

    def some(test: Any) -> Bits:
        return Bits(index.where(test)) & forming

    return GangStates(some(looks_for_host), some(_is_preparing), some(is_prepared))


def gang_step(slice_: Slice, at: At) -> Decision | None:
    """Return the next step of the gang; None while it waits, or has none to take."""
    if not slice_.gang_lots or at.index is None:
        return None
    notes: WishNotes = at.notes if at.notes is not None else WishNotes()
    gang = notes.gang if notes.gang is not None else NO_GANG
    forming = slice_.forming
    if not slice_.gang_open:
        return _start_left(slice_, at, gang=gang) or _form_again(slice_, at, gang=gang)
    if not forming:
        # A time of what nobody waits for any more would hide those of the other members.
        return None if gang == NO_GANG else _decided(at, NO_GANG)
    seen = states_of(at.index, forming)
    if seen.prepared == forming:
        go = Send(slice_.crowd, PlaceTasks(), forming)
        because = counted(len(forming), "member is prepared", many="members are prepared")
        after = GangNotes(told=forming, prepare_at=at.now)
        return _decided(at, after, facts=(GangComplete(),), sends=(go,), because=because)
    if seen.preparing or seen.prepared:
        return _await_prepared(slice_, at, gang=gang, seen=seen)
    return _look(slice_, at, gang=gang, seen=seen)


# ---- before it is complete ----


def _await_prepared(slice_: Slice, at: At, *, gang: GangNotes, seen: GangStates) -> Decision | None:
    """Continue only while all others may soon be prepared, as some members are."""
    moving = gang.assigned & seen.looking
    lost = slice_.forming - seen.preparing - seen.prepared - moving
    late = gang.prepare_at > 0.0 and at.now >= gang.prepare_at + PREPARE_LIMIT_S
    if not lost and not late:
        if gang.prepare_at and gang.assigned == moving:
            return None
        return _decided(at, replace(gang, assigned=moving, prepare_at=gang.prepare_at or at.now))
    drop = (seen.preparing | seen.prepared) - gang.told
    if not drop:
        # They were told, and have not heard of it: they are told once more.
        return _decided(at, replace(gang, told=NO_MEMBERS, prepare_at=at.now)) if late else None
    reason = _why_dropped(gang, lost=len(lost))
    attempt = gang.attempt + (not gang.told)
    after = replace(
        gang,
        assigned=NO_MEMBERS,
        told=gang.told | drop,
        prepare_at=at.now,
        attempt=attempt,
        rest_until=at.now + backoff_s(slice_.job, attempt),
        because=reason,
    )
    give_back = Send(slice_.crowd, GiveWay(KillCause.PREPARATION_DROPPED, reason), drop)
    return _decided(at, after, sends=(give_back,), because=reason)


def _why_dropped(gang: GangNotes, *, lost: int) -> str:
    if not lost:
        return f"not all hosts of the gang answered within {PREPARE_LIMIT_S:g} s"
    found = counted(lost, "member of the gang has", many="members of the gang have") + " no host"
    return f"{found}: {gang.because}" if gang.because else found


def _look(slice_: Slice, at: At, *, gang: GangNotes, seen: GangStates) -> Decision | None:
    """Wish for hosts for all members, once all are admitted and none is prepared."""
    clean = replace(gang, told=NO_MEMBERS)
    if gang.assigned:
        if at.now < gang.prepare_at + WISH_TIMEOUT_S:
            return None  # they are told to ask for room, and learn of it in this very frame
        clean = replace(clean, assigned=NO_MEMBERS)
    clean = replace(clean, prepare_at=0.0)
    if at.now >= gang.rest_until:
        clean = replace(clean, rest_until=0.0)
    if gang.prepare_at and not gang.told:
        # Nobody has anything to give back, as all were refused at once.
        attempt = gang.attempt + 1
        pause_s = backoff_s(slice_.job, attempt)
        clean = replace(clean, attempt=attempt, rest_until=at.now + pause_s if pause_s else 0.0)
    if at.now >= next_wish_at(gang):
        clean = replace(clean, number=0, kept=False)
    if seen.looking != slice_.forming:
        clean = replace(clean, number=0, kept=False)
        return None if clean == gang else _decided(at, clean)
    if clean.number or clean.rest_until:
        return None if clean == gang else _decided(at, clean)
    notes: WishNotes = at.notes if at.notes is not None else WishNotes()
    number = notes.number + 1
    shapes = by_shape(slice_, slice_.forming, at)
    parts = tuple(GangPart(members, row.shape) for row, members in shapes)
    priority = shapes[0][0].lot_shape.priority
    avoid = tuple(host for host, until in notes.avoid if until > at.now)
    wish = GangWish(at.key, number, parts, clean.refused, priority, avoid)
    after = replace(clean, number=number, asked_at=at.now)
    because = f"a gang of {len(slice_.forming)} waits for hosts"
    noted = replace(notes, gang=after, number=number)
    return Decision(sends=(Send(PLACER_ANY, wish),), because=because, notes=noted)


def next_wish_at(gang: GangNotes) -> float:
    """Return when a wish that was not answered, or is kept, is repeated."""
    return gang.asked_at + (KEPT_REPEAT_S if gang.kept else WISH_TIMEOUT_S)


# ---- once it is complete ----


def _start_left(slice_: Slice, at: At, *, gang: GangNotes) -> Decision | None:
    """Start members that are still only prepared though all may start; an earlier owner may have
    told them already."""
    there = Bits(at.index.where(_in_preparation)) & members_of_gang(slice_)
    late = at.now >= gang.prepare_at + PREPARE_LIMIT_S
    told = NO_MEMBERS if late else gang.told & there
    left = Bits(at.index.where(is_prepared)) & members_of_gang(slice_) - told
    if left:
        go = Send(slice_.crowd, PlaceTasks(), left)
        after = GangNotes(told=told | left, prepare_at=at.now, ending=gang.ending)
        return _decided(at, after, sends=(go,))
    if gang.told and not told:
        return _decided(at, GangNotes(ending=gang.ending))
    return None


def _form_again(slice_: Slice, at: At, *, gang: GangNotes) -> Decision | None:
    """End all members of a gang that restarts as one after a failure, then form with all of
    them."""
    if not any(row.policy.together for row in slice_.specs):
        return None
    if slice_.goal != TaskGoals.SUCCEEDED:
        return None
    wanted = members_of_gang(slice_) - slice_.stopped
    failed = Bits(at.index.where(waits_for_gang)) & wanted
    if not failed:
        return None if not gang.ending else _decided(at, replace(gang, ending=NO_MEMBERS))
    there = Bits(at.index.where(_on_host)) & wanted
    running = Bits(at.index.where(_may_be_ended)) & wanted - gang.ending
    if running:
        end = Send(slice_.crowd, GiveWay(KillCause.GANG_RESTART, RESTARTED), running)
        after = replace(gang, ending=gang.ending | running)
        return _decided(at, after, sends=(end,), because=RESTARTED)
    if there:
        return None
    joining = failed | (Bits(at.index.where(_waits)) & wanted)
    join = Send(slice_.crowd, JoinGang(slice_.gang_round + 1), joining)
    return _decided(at, NO_GANG, facts=(GangFormed(joining),), sends=(join,), because=RESTARTED)


def members_of_gang(slice_: Slice) -> Bits:
    """Return all members of the job's gang, in whatever state."""
    found = NO_MEMBERS
    for _, members in slice_.gang_lots:
        found = found | members
    return found


def _decided(
    at: At, gang: GangNotes, *, facts: Any = (), sends: Any = (), because: str = ""
) -> Decision:
    notes: WishNotes = at.notes if at.notes is not None else WishNotes()
    return Decision(facts=facts, sends=sends, because=because, notes=replace(notes, gang=gang))


def recall_at(gang: GangNotes | None) -> list[float]:
    """Return when the gang is looked at again without a message."""
    times: list[float] = []
    if gang is None:
        return times
    if gang.number:
        times.append(next_wish_at(gang))
    if gang.rest_until:
        times.append(gang.rest_until)
    if gang.prepare_at:
        times.append(gang.prepare_at + (WISH_TIMEOUT_S if gang.assigned else PREPARE_LIMIT_S))
    return times


def _is_preparing(task: Task) -> bool:
    return task.state == TaskStates.PREPARING


def _in_preparation(task: Task) -> bool:
    return task.state in IN_PREPARATION


def _on_host(task: Task) -> bool:
    return task.state in ON_HOST


def _may_be_ended(task: Task) -> bool:
    return task.state in ON_HOST and task.state != TaskStates.KILLING


def _waits(task: Task) -> bool:
    return task.state == TaskStates.WAITING and not task.again
