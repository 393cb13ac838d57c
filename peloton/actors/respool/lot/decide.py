"""What a lot makes of what it hears.

Turns asks and leaves of members into its bitmaps, and answers every repeat from them. It must not
admit by itself: the tree of pools knows the room.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from peloton.actors.respool.lot import facts as f
from peloton.actors.respool.lot import messages as m
from peloton.actors.respool.lot.state import Lot, last_tickets
from peloton.actors.task.messages import Admitted, Queued, TicketReleased
from peloton.runtime.vocabulary import SENDER, At, Bits, Decision, Fact, Message, Send


def enqueued(lot: Lot, message: m.Enqueue, at: At) -> Decision:
    """Members ask: new asks join the queue, known ones are answered from what became of them."""
    assert at.members is not None
    facts: tuple[Fact, ...] = ()
    sends: tuple[Send, ...] = ()
    for last, members in last_tickets(lot, at.members):
        if last < message.ticket:
            facts = (*facts, f.LotEnqueued(members, message.ticket, at.now))
            sends = (*sends, _say(Queued(message.ticket), members))
        elif last == message.ticket:
            sends = (*sends, *_answers(lot, members, ticket=message.ticket))
    return Decision(facts=facts, sends=sends)


def opened(message: m.Enqueue, at: At) -> Decision:
    """The first ask of these members opens the lot."""
    if message.shape is None or at.members is None or at.sender is None:
        return Decision(because="an ask without its shape opens no lot")
    return Decision(
        facts=(
            f.LotOpened(message.shape, at.sender, at.now),
            f.LotEnqueued(at.members, message.ticket, at.now),
        ),
        sends=(_say(Queued(message.ticket), at.members),),
    )


def left(lot: Lot, message: m.ReleaseTicket, at: At) -> Decision:
    """Members leave: always answered, changed only where the ask still stands."""
    assert at.members is not None
    facts: tuple[Fact, ...] = ()
    for last, members in last_tickets(lot, at.members):
        if last <= message.ticket and (
            last < message.ticket or members & (lot.waiting | lot.admitted)
        ):
            facts = (*facts, f.LotReleased(members, message.ticket))
    return Decision(facts=facts, sends=(_say(TicketReleased(message.ticket), at.members),))


def gone(message: m.ReleaseTicket, at: At) -> Decision:
    """Nobody is held by a lot that does not exist."""
    return Decision(sends=(Send(SENDER, TicketReleased(message.ticket), at.members),))


def admit(lot: Lot, message: m.Admit, at: At) -> Decision:
    """The tree found room: the members that still wait are told, by their ask."""
    members = message.members & lot.waiting
    if not members:
        return Decision(because="nobody of them waits any more")
    sends = tuple(
        Send(lot.crowd, Admitted(ticket), group) for ticket, group in last_tickets(lot, members)
    )
    return Decision(facts=(f.LotAdmitted(members),), sends=sends)


def nobody(message: m.Admit, at: At) -> Decision:
    """All had left before they were admitted."""
    return Decision(because="the lot is empty")


def _answers(lot: Lot, members: Bits, *, ticket: int) -> tuple[Send, ...]:
    answers = (
        (Queued(ticket), members & lot.waiting),
        (Admitted(ticket), members & lot.admitted),
        (TicketReleased(ticket), members - lot.waiting - lot.admitted),
    )
    return tuple(_say(message, group) for message, group in answers if group)


def _say(message: Message, members: Bits) -> Send:
    return Send(SENDER, message, members)


def waits(lot: Lot, query: m.GetLot, at: At) -> m.LotWaits:
    """Why the waiting members wait; the tree of pools, which is the lot's index, knows."""
    found: m.LotWaits = at.index.waits(at.key)
    return found


DECIDE: Mapping[type, Callable[[Any, Any, At], Decision]] = {
    m.Enqueue: enqueued,
    m.ReleaseTicket: left,
    m.Admit: admit,
}

ABSENT: Mapping[type, Callable[[Any, At], Decision]] = {
    m.Enqueue: opened,
    m.ReleaseTicket: gone,
    m.Admit: nobody,
}
