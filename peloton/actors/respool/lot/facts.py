"""The facts of a lot. Numbers and meanings are permanent, because journals hold them."""

from __future__ import annotations

from peloton.actors.resources import Resources
from peloton.actors.respool.lot.messages import Displacement, GangTerms, LotShape
from peloton.runtime.vocabulary import Bits, Fact, Key


class LotOpened(Fact, frozen=True, gc=False, array_like=True):
    """A lot exists for these tasks; `at` sets its queue position within its priority."""

    shape: LotShape
    crowd: Key
    at: float


class LotEnqueued(Fact, frozen=True, gc=False, array_like=True):
    """Members are in the queue with this ticket, and with no lower one."""

    members: Bits
    ticket: int
    at: float


class LotAdmitted(Fact, frozen=True, gc=False, array_like=True):
    """The pool admitted members."""

    members: Bits


class LotReleased(Fact, frozen=True, gc=False, array_like=True):
    """Members neither wait nor are admitted with this ticket or a lower one."""

    members: Bits
    ticket: int


class ReclaimOrdered(Fact, frozen=True, gc=False, array_like=True):
    """So many admitted members are to give up what they hold; sent to the slice until answered.

    `number` is higher than that of any earlier order to this lot, also one that was emptied since.
    """

    number: int
    count: int
    need: Resources
    reason: str
    inside: Displacement | None = None
    hosts: tuple[Key, ...] | None = None


class ReclaimAnswered(Fact, frozen=True, gc=False, array_like=True):
    """The order is carried out: these members will give up what they hold."""

    members: Bits
    because: str = ""


class LotGangSet(Fact, frozen=True, gc=False, array_like=True):
    """These members are to be admitted together; those of an earlier round count no more."""

    terms: GangTerms


class LotParked(Fact, frozen=True, gc=False, array_like=True):
    """Members have given back what they were admitted to with this ticket, and keep their place."""

    members: Bits
    ticket: int


FACTS: dict[int, type] = {
    1: LotOpened,
    2: LotEnqueued,
    3: LotAdmitted,
    4: LotReleased,
    5: ReclaimOrdered,
    6: ReclaimAnswered,
    7: LotGangSet,
    8: LotParked,
}
