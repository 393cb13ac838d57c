"""How a slice handles answers of placers, hosts and its job about its gang.

A proposal for all becomes orders to prepare; everything else becomes what the next step of the gang
is decided on (`gang.py`). Only that step starts members.
"""

from __future__ import annotations

import msgspec

from peloton.actors.job.slice.facts import GangFormed
from peloton.actors.job.slice.gang import NO_GANG, members_of_gang
from peloton.actors.job.slice.looks import (
    PLACE_RETRY_S,
    by_shape,
    looks_for_host,
)
from peloton.actors.job.slice.messages import ProveGang
from peloton.actors.job.slice.state import GangNotes, Slice, WishNotes
from peloton.actors.respool.lot.messages import RegroupLot
from peloton.actors.task.messages import JoinGang, MarkUnschedulable, PlaceTasks, RunRefused
from peloton.actors.task.state import PARKS, Task, TaskStates, ready_for_host
from peloton.placement.messages import (
    PLACER_ANY,
    AskGangRoom,
    Declined,
    GangPart,
    GangPlaced,
    Unplaced,
)
from peloton.runtime.vocabulary import SENDER, At, Bits, Decision, Fact, Send

REFUSALS_KEPT_MAX = 16
replace = msgspec.structs.replace


def prove_gang(slice_: Slice, message: ProveGang, at: At) -> Decision:
    """Ask a placer whether all that forms would have hosts; it answers the sender of this
    message."""
    if at.sender is None or at.index is None or not slice_.forming:
        return Decision(because="no gang forms")
    shapes = by_shape(slice_, slice_.forming, at)
    parts = tuple(GangPart(members, row.shape) for row, members in shapes)
    ask = AskGangRoom(at.sender, message.number, parts, message.hosts, message.rooms)
    return Decision(sends=(Send(PLACER_ANY, ask),))


def gang_placed(slice_: Slice, message: GangPlaced, at: At) -> Decision:
    """Order the proposed hosts to prepare. Proposals for another set are declined."""
    notes, gang = _noted(at)
    members = Bits()
    for part in message.parts:
        members = members | part.members
    looking = Bits(at.index.where(looks_for_host)) if at.index is not None else Bits()
    fits = bool(gang.number) and members == slice_.forming and members & looking == members
    if not fits or gang.assigned:
        return Decision(sends=_declined(message, looking, at), because="not what the gang needs")
    ready = Bits(at.index.where(ready_for_host))
    after = replace(gang, number=0, kept=False, never=False, because="", reasons=())
    if members - ready:
        # Hosts for all of it have come: it is admitted first, and wishes again.
        again = Send(slice_.crowd, MarkUnschedulable(False), members - ready)
        sends = (again, *_declined(message, looking, at))
        return Decision(sends=sends, notes=replace(notes, gang=after), because="it fits now")
    after = replace(after, assigned=members, prepare_at=at.now)
    orders = tuple(
        Send(slice_.crowd, PlaceTasks(part.shares, prepare=True), part.members, part.hosts)
        for part in message.parts
    )
    because = f"hosts for a gang of {len(members)}: to be prepared first"
    return Decision(sends=orders, notes=replace(notes, gang=after), because=because)


def _declined(message: GangPlaced, wanted: Bits, at: At) -> tuple[Send, ...]:
    return tuple(
        Send(SENDER, Declined(at.key, wanted, part.hosts, part.shape)) for part in message.parts
    )


def gang_unknown(message: GangPlaced, at: At) -> Decision:
    """Answer that there is no such slice."""
    return Decision(sends=_declined(message, Bits(), at), because="no such slice")


def gang_unplaced(slice_: Slice, message: Unplaced, at: At) -> Decision:
    """Record that there are no hosts for all: the placer keeps the wish, or the slice repeats it
    later."""
    notes, gang = _noted(at)
    forming = slice_.forming
    sends: tuple[Send, ...] = ()
    if message.never:
        some = Bits(at.index.where(ready_for_host)) & forming
    else:
        some = Bits(at.index.where(had_no_chance)) & forming
    if some:
        sends = (Send(slice_.crowd, MarkUnschedulable(message.never), some),)
    if message.kept and gang.placer not in (None, at.sender):
        assert gang.placer is not None
        others = Bits(at.index.where(looks_for_host)) - forming
        sends = (*sends, Send(gang.placer, Declined(at.key, others)))
    after = replace(
        gang,
        number=gang.number if message.kept else 0,
        kept=message.kept,
        placer=at.sender if message.kept else gang.placer,
        rest_until=gang.rest_until if message.kept else at.now + PLACE_RETRY_S,
        because=message.text,
        reasons=message.reasons,
        reasons_at=at.now,
        never=message.never,
    )
    return Decision(sends=sends, because=message.text, notes=replace(notes, gang=after))


def gang_refused(slice_: Slice, message: RunRefused, at: At) -> Decision:
    """A host grants no room: the next wish says so. The room of others is given back at once."""
    notes, gang = _noted(at)
    members = at.members if at.members is not None else Bits()
    known = {summary.host: summary for summary in gang.refused}
    if message.summary is not None:
        known.pop(message.summary.host, None)
        known[message.summary.host] = message.summary
    after = replace(
        gang,
        assigned=gang.assigned - members,
        refused=tuple(known.values())[-REFUSALS_KEPT_MAX:],
        because=message.reason,
    )
    return Decision(because=message.reason, notes=replace(notes, gang=after))


def reopened(
    slice_: Slice, restarted: Bits, *, at: At, stopped: Bits
) -> tuple[list[Fact], list[Send]]:
    """Form a gang anew of which all members are restarted by one order."""
    gang = members_of_gang(slice_) - stopped
    if slice_.gang_open or not gang or gang - restarted:
        return [], []
    waiting = Bits(at.index.where(_waits)) & gang if at.index is not None else Bits()
    join = [Send(slice_.crowd, JoinGang(slice_.gang_round + 1), waiting)] if waiting else []
    return [GangFormed(members_of_gang(slice_))], join


def told_lots(before: Slice, after: Slice) -> list[Send]:
    """Return what lots have to know of a gang that has changed; tickets and their repeats say
    so, too."""
    if not after.gang_lots or after.forming == before.forming:
        return []
    terms = ((lot, after.gang_terms(lot)) for lot, _ in after.gang_lots)
    return [Send(lot, RegroupLot(each)) for lot, each in terms if each is not None]


def _noted(at: At) -> tuple[WishNotes, GangNotes]:
    notes: WishNotes = at.notes if at.notes is not None else WishNotes()
    return notes, notes.gang if notes.gang is not None else NO_GANG


def had_no_chance(task: Task) -> bool:
    """Return whether no host could run the task, as far as is known: a parked one waits for a
    proposal."""
    return task.unschedulable and task.admission not in PARKS


def _waits(task: Task) -> bool:
    return task.state == TaskStates.WAITING
