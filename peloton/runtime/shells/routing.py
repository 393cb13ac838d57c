"""The routing table: local shards and ephemeral services, and the peers that have the others.

Maps a key to the actor or the peer that gets its mail. The root enters the shards of this daemon;
the membership names the owners of all others.

    host/h1         the shard of the key, here or at its owner
    placer/any      one instance of the service: ours, else that of a member with its role
    placer/all      all instances
    placer/<member> the instance of that member
    backend/x       a service without a role is always local; one that is registered under a whole
                    key takes precedence over a kind of the same name
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any, NamedTuple

from peloton.runtime.core.links.packing import Route
from peloton.runtime.core.reading.durable_reads import DurableReads
from peloton.runtime.core.reading.inspection import SHARD_KIND
from peloton.runtime.core.sharding import Sharding
from peloton.runtime.kinds import Kind
from peloton.runtime.ports import ShardId
from peloton.runtime.shells.claim import MembershipStatus
from peloton.runtime.shells.shell_messages import Ref, Renamed
from peloton.runtime.vocabulary import Key, Query, kind_of

ANY, ALL = "any", "all"


class RemoteRoute(NamedTuple):
    """A route at another daemon. `peer` is empty if no owner is known."""

    peer: str
    route: Route


class RoutingTable:
    """The routes that one daemon knows. Read from any thread, written only by the root's."""

    def __init__(self, kinds: Mapping[str, Kind], sharding: Sharding) -> None:
        self.shards: dict[ShardId, Ref] = {}
        self.reads: dict[ShardId, DurableReads] = {}  # of shards that are open here
        self.since: dict[ShardId, int] = {}  # the version of the view when the shard came here
        self.services: dict[str, Ref] = {}
        self.requesting: list[Ref] = []  # services that make requests of their own accord
        self.roles: dict[str, str] = {}  # of services that run on every member with the role
        self.membership_status: MembershipStatus | None = None  # None: the daemon is alone
        self.sure_for_s: Callable[[], float] = lambda: 1.0
        """For how many seconds our session is certainly valid; the process may have been paused."""
        self._kinds = kinds
        self.sharding = sharding
        self._turn = 0

    def of(self, key: Key) -> tuple[Ref | RemoteRoute, ...]:
        """Return the routes of a key: several for `all`, none for an unknown key."""
        local = self.services.get(key)
        if local is not None:
            return (local,)
        kind = kind_of(key)
        if kind in self._kinds or kind == SHARD_KIND:
            shard = self.sharding.shard_of(key)
            here = self.shards.get(shard)
            return (here if here is not None else RemoteRoute(self._owner(shard), shard),)
        return tuple(self._of_service(kind, key[len(kind) + 1 :]))

    def here(self, key: Key) -> tuple[Hashable, Ref | None]:
        """Return the route of a key, and the one local actor that gets its mail, if there is one.

        Unlike `of`, which takes other members by turns, a call advances nothing.
        """
        local = self.services.get(key)
        if local is not None:
            return key, local
        kind = kind_of(key)
        if kind in self._kinds or kind == SHARD_KIND:
            shard = self.sharding.shard_of(key)
            return shard, self.shards.get(shard)
        name, local, role = key[len(kind) + 1 :], self.services.get(kind), self.roles.get(kind)
        if role is not None and self.membership_status is not None:
            members = self.members_with(role)
            ours = members == [self.me] if name == ALL else name in (ANY, self.me)
            local = local if ours and self.me in members else None
        return kind, local

    def read(self, key: Key, query: Query) -> Any:
        """Return the answer that a local shard has published; None if the shard has to be asked."""
        kind = kind_of(key)
        if kind not in self._kinds and kind != SHARD_KIND:
            return None
        reads = self.reads.get(self.sharding.shard_of(key))
        answer = reads.answer(key, query) if reads is not None else None
        # Checked last: this process may have been paused, and another one owns the shard.
        return answer if self.current else None

    def local(self, route: Route) -> Ref | None:
        """Return the local actor of a route; None if a peer sent us mail that belongs elsewhere."""
        return self.shards.get(route) if isinstance(route, ShardId) else self.services.get(route)

    def set_shard(self, shard: ShardId, ref: Ref | None) -> None:
        """Route the mail of the shard to this actor; None: the shard is not local any more."""
        if ref is None:
            self.shards.pop(shard, None)
        else:
            self.shards[shard] = ref
            self.since[shard] = self.view

    def named(self, prefix: str) -> Renamed:
        """Return name and number of our instance of a service."""
        role = self.roles.get(prefix)
        members = self.members_with(role) if role is not None else []
        if self.me not in members:
            return Renamed(self.me)
        return Renamed(self.me, members.index(self.me), len(members))

    def is_late(self, route: Route, view: int) -> bool:
        """Return whether a batch was packed before the shard left this daemon and came back.

        The owner in between may have received later mail of the same sender, so accepting this
        batch would break the order.
        """
        return isinstance(route, ShardId) and view < self.since.get(route, 0)

    @property
    def me(self) -> str:
        """Our member id; empty if the daemon is alone."""
        return self.membership_status.member if self.membership_status is not None else ""

    @property
    def current(self) -> bool:
        """Whether answers from here are current and new work may be begun."""
        return self.membership_status is None or (
            self.membership_status.current and self.sure_for_s() > 0
        )

    @property
    def view(self) -> int:
        """The version of the view that these routes come from."""
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

    def _of_service(self, kind: str, name: str) -> Iterator[Ref | RemoteRoute]:
        local = self.services.get(kind)
        role = self.roles.get(kind)
        if role is None or self.membership_status is None:
            if local is not None:
                yield local
            return
        members = self.members_with(role)
        if self.me not in members:
            local = None  # we run the service without the role, so no member reports to it
        others = [member for member in members if member != self.me]
        if name == ALL:
            if local is not None:
                yield local
            yield from (RemoteRoute(member, kind) for member in others)
        elif name == ANY:
            if local is not None:
                yield local
            elif others:
                self._turn += 1
                yield RemoteRoute(others[self._turn % len(others)], kind)
        elif name == self.me and local is not None:
            yield local
        elif name in others:
            yield RemoteRoute(name, kind)

    def roles_of_members(self) -> list[str]:
        """Return the roles that members have, each once."""
        view = self.membership_status.view if self.membership_status is not None else None
        nodes = view.members.values() if view is not None else ()
        return [*dict.fromkeys(role for node in nodes for role in node.roles)]

    def members_with(self, role: str) -> list[str]:
        """Return the members that have a role, those aside only where all of them are."""
        view = self.membership_status.view if self.membership_status is not None else None
        if view is None:
            return []
        found = {name: node for name, node in sorted(view.members.items()) if role in node.roles}
        # Some do not reach who stands aside, and would wait for its answer.
        return [name for name, node in found.items() if not node.aside] or [*found]
