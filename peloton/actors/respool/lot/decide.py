"""How a lot decides tickets and releases of its members, and admissions of its pool.

They change its bitmaps, from which every repeat is answered. Only the tree of pools knows what is
available, so a lot does not admit by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from peloton.actors.job.slice.messages import Evict
from peloton.actors.respool.lot import facts as f
from peloton.actors.respool.lot import messages as m
from peloton.actors.respool.lot.state import Lot, LotOrder, last_tickets, takes
from peloton.actors.task.messages import (
    Admitted,
    Queued,
    TicketParked,
    TicketReleased,
    slice_of_crowd,
)
from peloton.runtime.vocabulary import SENDER, At, Bits, Decision, Fact, Message, Send

ORDERS_PER_FRAME = 1024
"""Orders to one lot in one frame, more than there can be: each waits for an answer."""


def enqueue(lot: Lot, message: m.Enqueue, at: At) -> Decision:
    """Queue new tickets; repeats of the last are answered by what became of it, older ones not at
    all."""
    assert at.members is not None
    facts: tuple[Fact, ...] = _newer_terms(lot, message.gang) if message.gang is not None else ()
    sends: tuple[Send, ...] = ()
    for last, members in last_tickets(lot, at.members):
        if last < message.ticket:
            # Who was parked comes back to its place: waiting for a host costs nobody a turn.
            back = lot.place if members & lot.parked else None
            since = at.now if back is None else min(back, at.now)
            facts = (*facts, f.LotEnqueued(members, message.ticket, since))
            sends = (*sends, _reply(Queued(message.ticket), members))
        elif last == message.ticket:
            sends = (*sends, *_answers(lot, members, ticket=message.ticket))
    return Decision(facts=facts, sends=sends)


def opened(message: m.Enqueue, at: At) -> Decision:
    """Open the lot for its first ticket."""
    if message.shape is None or at.members is None or at.sender is None:
        return Decision(because="a ticket without `shape` opens no lot")
    gang = (f.LotGangSet(message.gang),) if message.gang is not None else ()
    return Decision(
        facts=(
            f.LotOpened(message.shape, at.sender, at.now),
            *gang,
            f.LotEnqueued(at.members, message.ticket, at.now),
        ),
        sends=(_reply(Queued(message.ticket), at.members),),
    )


def regroup(lot: Lot, message: m.RegroupLot, at: At) -> Decision:
    """Change the gang."""
    return Decision(facts=_newer_terms(lot, message.terms))


def _newer_terms(lot: Lot, terms: m.GangTerms | None) -> tuple[f.LotGangSet, ...]:
    if terms is None:
        return ()
    known = (lot.gang.round, lot.gang.version) if lot.gang is not None else (-1, -1)
    return (f.LotGangSet(terms),) if (terms.round, terms.version) > known else ()


def release(lot: Lot, message: m.ReleaseTicket, at: At) -> Decision:
    """Release tickets: always answered, but a change only if the ticket is still held."""
    assert at.members is not None
    facts: tuple[Fact, ...] = ()
    for last, members in last_tickets(lot, at.members):
        if last <= message.ticket and (
            last < message.ticket or members & (lot.waiting | lot.admitted | lot.parked)
        ):
            facts = (*facts, f.LotReleased(members, message.ticket))
    return Decision(facts=facts, sends=(_reply(TicketReleased(message.ticket), at.members),))


def release_absent(message: m.ReleaseTicket, at: At) -> Decision:
    """Answer that a lot that does not exist holds no ticket."""
    return Decision(sends=(Send(SENDER, TicketReleased(message.ticket), at.members),))


def park(lot: Lot, message: m.ParkTicket, at: At) -> Decision:
    """Park tickets: always answered, but a change only if the ticket is admitted."""
    assert at.members is not None
    members = Bits()
    for last, group in last_tickets(lot, at.members & lot.admitted):
        if last == message.ticket:
            members = members | group
    facts = (f.LotParked(members, message.ticket),) if members else ()
    return Decision(facts=facts, sends=(_reply(TicketParked(message.ticket), at.members),))


def park_absent(message: m.ParkTicket, at: At) -> Decision:
    """Answer that a lot that does not exist holds no place."""
    return Decision(sends=(Send(SENDER, TicketParked(message.ticket), at.members),))


def admit(lot: Lot, message: m.Admit, at: At) -> Decision:
    """Admit members: those that still wait are sent `Admitted` with their ticket."""
    members = message.members & lot.waiting
    if not members:
        return Decision(because="none of them waits any more")
    sends = tuple(
        Send(lot.crowd, Admitted(ticket), group) for ticket, group in last_tickets(lot, members)
    )
    return Decision(facts=(f.LotAdmitted(members),), sends=sends)


def empty(message: m.Admit | m.RegroupLot, at: At) -> Decision:
    """All tickets were released before; the next one says its gang again."""
    return Decision(because="the lot is empty")


def reclaim(lot: Lot, message: m.Reclaim, at: At) -> Decision:
    """Order so many members to give up what they hold: the slice knows which cost the least."""
    if not takes(lot, message):
        return Decision(because="an order that came too late")
    count = min(message.count, len(lot.admitted - lot.leaving))
    # A lot that was empty in between must not use a number again that its slice has answered.
    number = max(lot.orders + 1, at.position * ORDERS_PER_FRAME)
    terms = message.need, message.reason, message.inside, message.hosts
    order = _order(lot, LotOrder(number, count, *terms))
    fact = f.ReclaimOrdered(number, count, *terms)
    return Decision(facts=(fact,), sends=(order,), because=message.reason)


def yielded(lot: Lot, message: m.Yielded, at: At) -> Decision:
    """Record the choice of the slice: these members keep their tickets until their runs have
    ended."""
    if lot.order is None or message.number != lot.order.number:
        return Decision(because="answer to another order")
    members = Bits()
    for last, group in last_tickets(lot, lot.admitted):
        for ticket, going in message.going:
            if ticket == last:
                members = members | (going & group)
    fact = f.ReclaimAnswered(members, message.because)
    return Decision(facts=(fact,), because=message.because or "members give back what they hold")


def _order(lot: Lot, order: LotOrder) -> Send:
    min_run_s = order.inside.min_run_s if order.inside is not None else 0.0
    evict = Evict(order.number, order.count, order.need, order.reason, min_run_s, order.hosts)
    return Send(slice_of_crowd(lot.crowd), evict)


def owed(lot: Lot) -> tuple[Send, ...]:
    """Return the order to give back, repeated until the slice has answered it."""
    return (_order(lot, lot.order),) if lot.order is not None else ()


def _answers(lot: Lot, members: Bits, *, ticket: int) -> tuple[Send, ...]:
    answers = (
        (Queued(ticket), members & lot.waiting),
        (Admitted(ticket), members & lot.admitted),
        (TicketParked(ticket), members & lot.parked),
        (TicketReleased(ticket), members - lot.waiting - lot.admitted - lot.parked),
    )
    return tuple(_reply(message, group) for message, group in answers if group)


def _reply(message: Message, members: Bits) -> Send:
    return Send(SENDER, message, members)


def waits(lot: Lot, query: m.GetLot, at: At) -> m.LotWaits:
    """Return why the waiting members wait, from the tree of pools, which is the lot's index."""
    found: m.LotWaits = at.index.waits(at.key, at.now)
    tree = at.index
    verdict = tree.lot_verdict(at.key)
    if not verdict or not found.waiting:
        return found
    return msgspec.structs.replace(found, because=f"{found.because}; {verdict}")


DECIDE: Mapping[type, Callable[[Any, Any, At], Decision]] = {
    m.Enqueue: enqueue,
    m.ReleaseTicket: release,
    m.Admit: admit,
    m.Reclaim: reclaim,
    m.Yielded: yielded,
    m.RegroupLot: regroup,
    m.ParkTicket: park,
}

ABSENT: Mapping[type, Callable[[Any, At], Decision]] = {
    m.Enqueue: opened,
    m.ReleaseTicket: release_absent,
    m.Admit: empty,
    m.RegroupLot: empty,
    m.ParkTicket: park_absent,
}
