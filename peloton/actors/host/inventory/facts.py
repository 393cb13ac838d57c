"""The facts of an inventory: that it exists, who follows its hosts, and which host pools there are.

All else is derived from its hosts. A sum must not be a fact: it could drift from the hosts.
"""

from __future__ import annotations

from peloton.actors.host.inventory.messages import FollowTerms
from peloton.runtime.vocabulary import Fact, Key


class InventoryOpened(Fact, frozen=True, gc=False, array_like=True):
    """The inventory exists."""


class HostPoolMade(Fact, frozen=True, gc=False, array_like=True):
    """There is a host pool of this name."""

    name: str


class HostPoolDropped(Fact, frozen=True, gc=False, array_like=True):
    """No host may join the pool any more, and its hosts are to leave."""

    name: str


class HostPoolEmptied(Fact, frozen=True, gc=False, array_like=True):
    """Every host of a dropped pool was assigned elsewhere."""

    name: str


class HostAssigned(Fact, frozen=True, gc=False, array_like=True):
    """The host belongs to the pool, and is to be told so."""

    host: Key
    pool: str


class HostTold(Fact, frozen=True, gc=False, array_like=True):
    """The host knows its pool."""

    host: Key


class FollowerNoted(Fact, frozen=True, gc=False, array_like=True):
    """The slice is to be told which hosts match; `asked` numbers its requests."""

    follower: Key
    asked: int
    terms: FollowTerms


class FollowerGone(Fact, frozen=True, gc=False, array_like=True):
    """The slice is no longer told which hosts match."""

    follower: Key


FACTS: dict[int, type] = {
    1: InventoryOpened,
    2: HostPoolMade,
    3: HostPoolDropped,
    4: HostPoolEmptied,
    5: HostAssigned,
    6: HostTold,
    67: FollowerNoted,
    68: FollowerGone,
}
