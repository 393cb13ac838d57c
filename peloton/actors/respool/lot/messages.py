"""What a lot hears: from tasks, and from the tree of its pools.

All words between tasks and lot name (members, ask). An ask is one queueing of a member: a new one
implies leaving every lower one.

No word may go without its ask: a repeat could not be told from a new one.
"""

from __future__ import annotations

from typing import ClassVar

from peloton.actors.resources import Resources
from peloton.runtime.vocabulary import Bits, Delivery, Key, Message, Query, Value, key


class LotShape(Value, frozen=True, gc=False, array_like=True):
    """What all members of a lot share: what the pool needs to know of them."""

    pool: Key
    resources: Resources  # of one member
    priority: int = 0
    preemptible: bool = True
    revocable: bool = False
    controller: bool = False


class Enqueue(Message, frozen=True, gc=False, array_like=True):
    """Tasks to lot: room for us, under this ask. `shape` is filled in when the message leaves."""

    delivery: ClassVar[Delivery] = Delivery.OWED

    ticket: int
    shape: LotShape | None = None


class ReleaseTicket(Message, frozen=True, gc=False, array_like=True):
    """Tasks to lot: this ask is over, whether it was admitted or not."""

    delivery: ClassVar[Delivery] = Delivery.OWED

    ticket: int


class Admit(Message, frozen=True, gc=False, array_like=True):
    """Tree to lot: there is room for these."""

    members: Bits


class GetLot(Query, frozen=True, gc=False, array_like=True):
    """Why the members that wait do wait: `LotWaits`."""


class LotWaits(Value, frozen=True, gc=False, array_like=True):
    """Answer to `GetLot`. `position` counts the asks before this lot's first in its pool.

    `rule` is why it waits as one word: "turn", "limit" (of a pool), "capacity" (of the cluster),
    "deleted" (the pool). `never`: it wants more than that rule will ever give.
    """

    pool: Key
    path: str
    waiting: Bits
    position: int
    because: str
    since: float
    rule: str = ""
    never: bool = False


MESSAGES: dict[int, type] = {1: Enqueue, 2: ReleaseTicket, 3: Admit}


def lot_key(job: str, slice_number: int, *, shape_number: int) -> Key:
    """The key of one lot of a slice."""
    return key("lot", job, slice_number, shape_number)
