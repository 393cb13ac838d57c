"""The state of a lot: members that wait, that are admitted, and the last ticket of each.

Its size is limited by the members of a slice. The last ticket is kept of released members, too: by
it a late repeat of an old ticket is recognised.

Neither the pool's use nor the order of its queue may be stored here: `tree.Tree` derives both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import immutables
import msgspec

from peloton.actors.resources import Resources
from peloton.actors.respool.lot import facts as f
from peloton.actors.respool.lot.messages import Displacement, GangTerms, LotShape, Reclaim
from peloton.runtime.vocabulary import Bits, Key, Value


class LotOrder(Value, frozen=True, gc=False, array_like=True):
    """An order to give back that the slice has not answered yet."""

    number: int
    count: int
    need: Resources
    reason: str
    inside: Displacement | None = None
    hosts: tuple[Key, ...] | None = None  # one for each run that is to end, if that is settled


class Lot(Value, frozen=True, gc=False, array_like=True):
    """Members of one slice with the same shape."""

    shape: LotShape
    crowd: Key
    arrived: float  # when its first waiting member was queued; the order within a priority
    tickets: immutables.Map[int, Bits]  # ticket → members whose last ticket it is
    waiting: Bits = Bits()
    admitted: Bits = Bits()
    order: LotOrder | None = None
    orders: int = 0  # number of the last order to give back
    leaving: Bits = Bits()  # admitted members that give up what they hold
    spared: str = ""  # why the last order was not carried out in full
    gang: GangTerms | None = None  # who is to be admitted together
    joined: Bits = Bits()  # members that have come since that round began
    parked: Bits = Bits()  # members that gave back their allocation, for want of a host
    place: float | None = None  # when the first of these came

    @property
    def coming(self) -> int:
        """Return how many members will give up what they hold, as far as that is known."""
        left = len(self.admitted) - len(self.leaving)
        return len(self.leaving) + (min(self.order.count, left) if self.order is not None else 0)

    @property
    def forming(self) -> bool:
        """Return whether members of a gang are to be admitted together."""
        return self.gang is not None and self.gang.lots > 0 and bool(self.gang.members)


def admitted_and_wanted(lot: Lot | None) -> tuple[int, int]:
    """Return how many members are admitted, and how many wait; none of a lot that does not
    exist."""
    if lot is None:
        return 0, 0
    return lot.admitted.raw.bit_count(), lot.waiting.raw.bit_count()


def takes(lot: Lot, order: Reclaim) -> bool:
    """Return whether an order to give back counts: not one that was decided before the last one
    was known, nor where nothing is left to give."""
    return order.after == lot.orders and lot.order is None and bool(lot.admitted - lot.leaving)


def last_tickets(lot: Lot, members: Bits) -> list[tuple[int, Bits]]:
    """Return `members` by their last ticket, ascending; 0 for those without one."""
    found = []
    rest = members
    for ticket in sorted(lot.tickets):
        hit = lot.tickets[ticket] & rest
        if hit:
            found.append((ticket, hit))
            rest = rest - hit
    return [(0, rest), *found] if rest else found


def _raise_tickets(lot: Lot, members: Bits, *, ticket: int) -> immutables.Map[int, Bits]:
    tickets = lot.tickets
    for number in sorted(tickets):
        kept = tickets[number] - members
        tickets = tickets.set(number, kept) if kept else tickets.delete(number)
    return tickets.set(ticket, tickets.get(ticket, Bits()) | members)


def _opened(lot: Lot | None, fact: f.LotOpened) -> Lot:
    return Lot(fact.shape, fact.crowd, fact.at, immutables.Map())


def _enqueued(lot: Lot, fact: f.LotEnqueued) -> Lot:
    return msgspec.structs.replace(
        lot,
        tickets=_raise_tickets(lot, fact.members, ticket=fact.ticket),
        waiting=lot.waiting | fact.members,
        admitted=lot.admitted - fact.members,
        leaving=lot.leaving - fact.members,
        arrived=lot.arrived if lot.waiting else fact.at,
        joined=lot.joined | fact.members if lot.gang is not None else lot.joined,
        parked=lot.parked - fact.members,
        place=lot.place if lot.parked - fact.members else None,
    )


def _gang_set(lot: Lot, fact: f.LotGangSet) -> Lot:
    same = lot.gang is not None and lot.gang.round == fact.terms.round
    return msgspec.structs.replace(lot, gang=fact.terms, joined=lot.joined if same else Bits())


def with_admitted(lot: Lot, members: Bits) -> Lot:
    """Return the lot once these members are admitted."""
    return msgspec.structs.replace(
        lot, waiting=lot.waiting - members, admitted=lot.admitted | members
    )


def _admitted(lot: Lot, fact: f.LotAdmitted) -> Lot:
    return with_admitted(lot, fact.members)


def _released(lot: Lot, fact: f.LotReleased) -> Lot | None:
    waiting, admitted = lot.waiting - fact.members, lot.admitted - fact.members
    parked = lot.parked - fact.members
    if not waiting and not admitted and not parked:
        # No ticket is left. A late repeat of one would open the lot again, and is then released.
        return None
    return msgspec.structs.replace(
        lot,
        tickets=_raise_tickets(lot, fact.members, ticket=fact.ticket),
        waiting=waiting,
        admitted=admitted,
        leaving=lot.leaving - fact.members,
        joined=lot.joined - fact.members,
        parked=parked,
        place=lot.place if parked else None,
    )


def _parked(lot: Lot, fact: f.LotParked) -> Lot:
    return msgspec.structs.replace(
        lot,
        tickets=_raise_tickets(lot, fact.members, ticket=fact.ticket),
        waiting=lot.waiting - fact.members,
        admitted=lot.admitted - fact.members,
        leaving=lot.leaving - fact.members,
        joined=lot.joined - fact.members,
        parked=lot.parked | fact.members,
        place=lot.arrived if lot.place is None else min(lot.place, lot.arrived),
    )


def _ordered(lot: Lot, fact: f.ReclaimOrdered) -> Lot:
    order = LotOrder(fact.number, fact.count, fact.need, fact.reason, fact.inside, fact.hosts)
    return msgspec.structs.replace(lot, order=order, orders=fact.number, spared="")


def _answered(lot: Lot, fact: f.ReclaimAnswered) -> Lot:
    leaving = lot.leaving | (fact.members & lot.admitted)
    return msgspec.structs.replace(lot, order=None, leaving=leaving, spared=fact.because)


EVOLVE: Mapping[type, Callable[[Any, Any], Lot | None]] = {
    f.LotOpened: _opened,
    f.LotEnqueued: _enqueued,
    f.LotAdmitted: _admitted,
    f.LotReleased: _released,
    f.ReclaimOrdered: _ordered,
    f.ReclaimAnswered: _answered,
    f.LotGangSet: _gang_set,
    f.LotParked: _parked,
}
