"""Messages a lot receives from tasks and from the tree of pools.

All messages between tasks and a lot name members and a ticket: without it a repeat could not be
told from a new request. A ticket is one queueing of a member; a new one releases every lower one.
"""

from __future__ import annotations

from typing import ClassVar

from peloton.actors.resources import Resources
from peloton.runtime.vocabulary import Bits, Delivery, Key, Message, Query, Value, key


class LotShape(Value, frozen=True, gc=False, array_like=True):
    """What the pool needs to know of the members; equal for all members of a lot."""

    pool: Key
    resources: Resources  # of one member
    priority: int = 0
    preemptible: bool = True
    revocable: bool = False
    controller: bool = False
    gang: bool = False  # members of the gang of their job: they have lots of their own

    @property
    def on_slack(self) -> bool:
        """Return whether the members run on slack."""
        return self.revocable and self.resources.slack > 0


class GangTerms(Value, frozen=True, gc=False, array_like=True):
    """Which members of a lot are to be admitted together, and with how many other lots.

    Higher numbers are newer: `round` counts how often the gang was formed or complete, `version` is
    that of the slice's goal. No lots: the members are admitted one by one, as those of any other
    lot.
    """

    round: int
    version: int
    lots: int = 0
    members: Bits = Bits()


class Enqueue(Message, frozen=True, gc=False, array_like=True):
    """Tasks to lot: queue this ticket. `shape` and `gang` are filled in when the message leaves."""

    delivery: ClassVar[Delivery] = Delivery.OWED

    ticket: int
    shape: LotShape | None = None
    gang: GangTerms | None = None


class ReleaseTicket(Message, frozen=True, gc=False, array_like=True):
    """Tasks to lot: release this ticket, whether it was admitted or not."""

    delivery: ClassVar[Delivery] = Delivery.OWED

    ticket: int


class ParkTicket(Message, frozen=True, gc=False, array_like=True):
    """Tasks to lot: take the allocation of this ticket back, and keep the place in the queue."""

    delivery: ClassVar[Delivery] = Delivery.OWED

    ticket: int


class Admit(Message, frozen=True, gc=False, array_like=True):
    """Tree to lot: these members are admitted."""

    members: Bits


class Displacement(Value, frozen=True, gc=False, array_like=True):
    """The lot for which another of its own pool gives back: one of this higher priority.

    Runs that have lasted less than `min_run_s` seconds are left alone.
    """

    lot: Key
    priority: int
    min_run_s: float


class Reclaim(Message, frozen=True, gc=False, array_like=True):
    """Tree to lot: so many of the admitted members are to give up what they hold.

    `after` is the last order that the tree knows of: an order that was decided before the last one
    was known is void. `need` is what one task needs for which host room is made; none if a limit of
    a pool is short, which any member frees. `reason` is for people.
    """

    after: int
    count: int
    need: Resources
    reason: str
    inside: Displacement | None = None  # not for another pool, but for a lot of the same
    hosts: tuple[Key, ...] | None = (
        None  # one for each run that is to end; the rest wait for a host
    )


class Yielded(Message, frozen=True, gc=False, array_like=True):
    """Slice to lot, in answer to `Evict`: these give up what they hold, each with its ticket.

    `because` says why they are fewer than ordered, if they are.
    """

    number: int
    going: tuple[tuple[int, Bits], ...]
    because: str = ""


class RegroupLot(Message, frozen=True, gc=False, array_like=True):
    """Slice to lot: the members to be admitted together have changed. Tickets say so, too."""

    terms: GangTerms


class GetLot(Query, frozen=True, gc=False, array_like=True):
    """Asks why the waiting members wait, answered `LotWaits`."""


class PoolBlocker(Value, frozen=True, gc=False, array_like=True):
    """One thing of the pools that keeps the next member of a lot, or its gang, from admission.

    `rule`: "limit", "controllers" (their limit), "capacity" (of the cluster), "entitlement",
    "queue", "gang" (it is not complete yet) or "deleted" (the pool). `pool` is a path. Amounts are
    millionths of one `kind`: the limit, what is used of it, what is wanted now, what is missing.
    `in_all` is what all that waits of the lot wants. For "gang" they count members.
    """

    rule: str
    pool: str
    kind: str = ""
    limit: int = 0
    used: int = 0
    wanted: int = 0
    missing: int = 0
    in_all: int = 0
    never: bool = False  # more is wanted than this limit, whatever others release


class QueuePosition(Value, frozen=True, gc=False, array_like=True):
    """The entries before a lot in the queue of its pool.

    `gangs` are counted among the first `looked_at` entries, of which there may be more.
    """

    tasks: int
    higher: int  # of these tasks, those of a higher priority; the others came before
    gangs: int
    looked_at: int
    head: str  # the job of the first
    head_priority: int


class Outlook(Value, frozen=True, gc=False, array_like=True):
    """When the next member of a lot may be admitted, if as much is released as lately.

    Without `after_s` there is nothing to estimate from, and `basis` says what is missing.
    """

    after_s: float | None
    basis: str


class LotWaits(Value, frozen=True, gc=False, array_like=True):
    """Answer to `GetLot`. `position` counts the tickets before this lot's first one in its pool.

    `rule` is the cause as one word: "turn", "limit" (of a pool), "capacity" (of the cluster),
    "deleted" (the pool), "gang" (it is not complete yet). `never`: one member, or its gang, needs
    more than that limit or capacity in all.
    """

    pool: Key
    path: str
    waiting: Bits
    position: int
    because: str
    since: float
    rule: str = ""
    never: bool = False
    blockers: tuple[PoolBlocker, ...] = ()  # all of them; the first is that of `because`
    place: QueuePosition | None = None  # None: nobody is before it
    outlook: Outlook | None = None


MESSAGES: dict[int, type] = {
    1: Enqueue,
    2: ReleaseTicket,
    3: Admit,
    4: Reclaim,
    5: Yielded,
    6: RegroupLot,
    7: ParkTicket,
}


def lot_key(job: str, slice_number: int, *, shape_number: int) -> Key:
    """Return the key of one lot of a slice."""
    return key("lot", job, slice_number, shape_number)
