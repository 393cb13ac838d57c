"""Where everything lives: shards and soft machines here, and which peer has what is elsewhere.

Turns a key into the actor that gets its mail. It must not decide where a shard lives: the root
places those of this daemon, the membership names the owners of all others.

    host/h1         the shard of the key, here or at its owner
    placer/any      a soft machine of that kind: ours, else one of a member with its role
    placer/all      every one
    placer/<member> that member's
    backend/x       a soft machine without a role is always ours; one that is registered under its
                    whole key comes before a kind of the same name
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from peloton.runtime.core.inspection import SHARD_KIND
from peloton.runtime.core.packing import Route
from peloton.runtime.core.sharding import Sharding
from peloton.runtime.ports import ShardId
from peloton.runtime.shells.claim import MembershipStatus
from peloton.runtime.shells.shell_messages import Ref, Renamed
from peloton.runtime.vocabulary import Key, Kind, kind_of

ANY, ALL = "any", "all"


class RemoteRoute(NamedTuple):
    """A place at another daemon. `peer` is empty where no owner is known."""

    peer: str
    place: Route


class RoutingTable:
    """What one daemon knows. Read from any thread, written on the root's alone."""

    def __init__(self, kinds: Mapping[str, Kind], sharding: Sharding) -> None:
        self.shards: dict[ShardId, Ref] = {}
        self.since: dict[ShardId, int] = {}  # the view under which each came here
        self.services: dict[str, Ref] = {}
        self.roles: dict[str, str] = {}  # of soft machines that other members have too
        self.membership_status: MembershipStatus | None = None  # None: there are no others
        self.sure_for_s: Callable[[], float] = lambda: 1.0
        """For how long our session surely lives: we may have stood still without knowing."""
        self._kinds = kinds
        self._sharding = sharding
        self._turn = 0

    def of(self, key: Key) -> tuple[Ref | RemoteRoute, ...]:
        """Where mail for this key goes; several for `all`, none where nobody would know it."""
        local = self.services.get(key)
        if local is not None:
            return (local,)
        kind = kind_of(key)
        if kind in self._kinds or kind == SHARD_KIND:
            shard = self._sharding.shard_of(key)
            here = self.shards.get(shard)
            return (here if here is not None else RemoteRoute(self._owner(shard), shard),)
        return tuple(self._soft(kind, key[len(kind) + 1 :]))

    def here(self, place: Route) -> Ref | None:
        """The actor of a place that somebody believes to be ours."""
        return self.shards.get(place) if isinstance(place, ShardId) else self.services.get(place)

    def place(self, shard: ShardId, ref: Ref | None) -> None:
        """The shard lives there from now on; None: no more here."""
        if ref is None:
            self.shards.pop(shard, None)
        else:
            self.shards[shard] = ref
            self.since[shard] = self.view

    def named(self, soft: str) -> Renamed:
        """What a soft machine of ours is to know of itself."""
        role = self.roles.get(soft)
        members = self._members(role) if role is not None else []
        if self.me not in members:
            return Renamed(self.me)
        return Renamed(self.me, members.index(self.me), len(members))

    def is_late(self, place: Route, view: int) -> bool:
        """Whether a letter was packed for an earlier stay of the shard: it went and came back.

        What its sender said later may have been heard meanwhile, so this must not be.
        """
        return isinstance(place, ShardId) and view < self.since.get(place, 0)

    @property
    def me(self) -> str:
        """Our member id; empty where there are no others."""
        return self.membership_status.member if self.membership_status is not None else ""

    @property
    def current(self) -> bool:
        """Whether what is answered here may be called current, and new work may be begun."""
        return self.membership_status is None or (
            self.membership_status.current and self.sure_for_s() > 0
        )

    @property
    def view(self) -> int:
        """The version of the view that all this is by."""
        membership_status = self.membership_status
        return (
            membership_status.view.version
            if membership_status is not None and membership_status.view is not None
            else 0
        )

    def _owner(self, shard: ShardId) -> str:
        owner = (
            self.membership_status.owner_of(shard) if self.membership_status is not None else None
        )
        return owner if owner is not None and owner != self.me else ""

    def _soft(self, kind: str, name: str) -> Iterator[Ref | RemoteRoute]:
        ours = self.services.get(kind)
        role = self.roles.get(kind)
        if role is None or self.membership_status is None:
            if ours is not None:
                yield ours
            return
        members = self._members(role)
        if self.me not in members:
            ours = None  # we have the machine but not the role: nobody would tell it anything
        others = [member for member in members if member != self.me]
        if name == ALL:
            if ours is not None:
                yield ours
            yield from (RemoteRoute(member, kind) for member in others)
        elif name == ANY:
            if ours is not None:
                yield ours
            elif others:
                self._turn += 1
                yield RemoteRoute(others[self._turn % len(others)], kind)
        elif name == self.me and ours is not None:
            yield ours
        elif name in others:
            yield RemoteRoute(name, kind)

    def _members(self, role: str) -> list[str]:
        view = self.membership_status.view if self.membership_status is not None else None
        if view is None:
            return []
        return [name for name, node in sorted(view.members.items()) if role in node.roles]
