"""Messages by which slices of daemon jobs follow the hosts of an inventory.

A slice asks once, and is told from then on which hosts match: all of them first, and then what has
changed.
"""

from __future__ import annotations

from typing import ClassVar

from peloton.placement.messages import Constraint
from peloton.runtime.vocabulary import Delivery, Key, Latest, Message, Value


class FollowTerms(Value, frozen=True, gc=False, array_like=True):
    """Which hosts are followed: those of one part of the names that the constraint allows."""

    constraint: Constraint | None = None
    part: int = 0
    parts: int = 1


class HostsOf(Value, frozen=True, gc=False, array_like=True):
    """The inventory whose hosts a slice of a daemon job has its instances on.

    `first`: these hosts keep room for the slice.
    """

    inventory: Key
    terms: FollowTerms
    first: bool = False


class FollowHosts(Message, frozen=True, gc=False, array_like=True):
    """Slice to inventory: tell the hosts that match.

    `asked` numbers the requests of the slice; a higher number is answered with all hosts anew.
    """

    delivery: ClassVar[Delivery] = Delivery.OWED

    asked: int
    terms: FollowTerms


class UnfollowHosts(Message, frozen=True, gc=False, array_like=True):
    """Slice to inventory: end what was asked for by this number."""

    asked: int


class HostsTold(Latest, frozen=True, gc=False, array_like=True):
    """Inventory to slice: which hosts match.

    `previous` is the version that the changes are based on; 0 if `joined` are all of them.
    """

    asked: int
    previous: int
    joined: tuple[Key, ...] = ()
    left: tuple[Key, ...] = ()
