"""How a lot decides tickets and releases of its members, and admissions of its pool.

Turns them into its bitmaps, and answers every repeat from those. Must not admit by itself: only
the tree of pools knows what is available.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from peloton.actors.respool.lot import facts as f
from peloton.actors.respool.lot import messages as m
from peloton.actors.respool.lot.state import Lot, last_tickets
from peloton.actors.task.messages import LEVEL_GANGS, Admitted, Queued, TicketReleased
from peloton.runtime.vocabulary import SENDER, At, Bits, Decision, Fact, Message, Send

TOO_EARLY = f"this owner has not read yet that the feature level is {LEVEL_GANGS}"
"""The ticket is sent again until it is answered."""


def enqueue(lot: Lot, message: m.Enqueue, at: At) -> Decision:
    """Queue new tickets; known ones are answered by what became of them."""
    assert at.members is not None
    if message.gang is not None and at.level < LEVEL_GANGS:
        return Decision(because=TOO_EARLY)
    facts: tuple[Fact, ...] = _newer_terms(lot, message.gang) if message.gang is not None else ()
    sends: tuple[Send, ...] = ()
    for last, members in last_tickets(lot, at.members):
        if last < message.ticket:
            facts = (*facts, f.LotEnqueued(members, message.ticket, at.now))
            sends = (*sends, _reply(Queued(message.ticket), members))
        elif last == message.ticket:
            sends = (*sends, *_answers(lot, members, ticket=message.ticket))
    return Decision(facts=facts, sends=sends)


def opened(message: m.Enqueue, at: At) -> Decision:
    """The first ticket opens the lot."""
    if message.shape is None or at.members is None or at.sender is None:
        return Decision(because="a ticket without `shape` opens no lot")
    if message.gang is not None and at.level < LEVEL_GANGS:
        return Decision(because=TOO_EARLY)
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
    """The gang is another."""
    if at.level < LEVEL_GANGS:
        return Decision(because=TOO_EARLY)
    return Decision(facts=_newer_terms(lot, message.terms))


def _newer_terms(lot: Lot, terms: m.GangTerms | None) -> tuple[f.LotGangSet, ...]:
    if terms is None:
        return ()
    known = (lot.gang.round, lot.gang.version) if lot.gang is not None else (-1, -1)
    return (f.LotGangSet(terms),) if (terms.round, terms.version) > known else ()


def no_group(message: m.RegroupLot, at: At) -> Decision:
    """Nobody waits here; the next ticket says it again."""
    return Decision(because="the lot is empty")


def release(lot: Lot, message: m.ReleaseTicket, at: At) -> Decision:
    """Release tickets: always answered, but a change only if the ticket is still held."""
    assert at.members is not None
    facts: tuple[Fact, ...] = ()
    for last, members in last_tickets(lot, at.members):
        if last <= message.ticket and (
            last < message.ticket or members & (lot.waiting | lot.admitted)
        ):
            facts = (*facts, f.LotReleased(members, message.ticket))
    return Decision(facts=facts, sends=(_reply(TicketReleased(message.ticket), at.members),))


def release_absent(message: m.ReleaseTicket, at: At) -> Decision:
    """A lot that does not exist holds no ticket."""
    return Decision(sends=(Send(SENDER, TicketReleased(message.ticket), at.members),))


def admit(lot: Lot, message: m.Admit, at: At) -> Decision:
    """The tree admits members: those that still wait are sent `Admitted` with their ticket."""
    members = message.members & lot.waiting
    if not members:
        return Decision(because="none of them waits any more")
    sends = tuple(
        Send(lot.crowd, Admitted(ticket), group) for ticket, group in last_tickets(lot, members)
    )
    return Decision(facts=(f.LotAdmitted(members),), sends=sends)


def admit_absent(message: m.Admit, at: At) -> Decision:
    """All tickets were released before they were admitted."""
    return Decision(because="the lot is empty")


def _answers(lot: Lot, members: Bits, *, ticket: int) -> tuple[Send, ...]:
    answers = (
        (Queued(ticket), members & lot.waiting),
        (Admitted(ticket), members & lot.admitted),
        (TicketReleased(ticket), members - lot.waiting - lot.admitted),
    )
    return tuple(_reply(message, group) for message, group in answers if group)


def _reply(message: Message, members: Bits) -> Send:
    return Send(SENDER, message, members)


def waits(lot: Lot, query: m.GetLot, at: At) -> m.LotWaits:
    """Why the waiting members wait, from the tree of pools, which is the lot's index."""
    found: m.LotWaits = at.index.waits(at.key)
    return found


DECIDE: Mapping[type, Callable[[Any, Any, At], Decision]] = {
    m.Enqueue: enqueue,
    m.ReleaseTicket: release,
    m.Admit: admit,
    m.RegroupLot: regroup,
}

ABSENT: Mapping[type, Callable[[Any, At], Decision]] = {
    m.Enqueue: opened,
    m.ReleaseTicket: release_absent,
    m.Admit: admit_absent,
    m.RegroupLot: no_group,
}
