"""One reading of everything there is in ZooKeeper, made into a view.

Turns two lists of names and the data of each into a `MembershipView`, and leaves watches behind.
It must not be taken for a snapshot: what changes while it reads may be in it or not, but is
watched; a node that vanished between the list and its own reading is left out, as it will be of
the next view.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from kazoo.exceptions import KazooException, NoNodeError

from peloton.runtime.adapters.zookeeper_connection import RequestOutcome, ZooKeeperConnection
from peloton.runtime.adapters.zookeeper_nodes import Paths, member_of, owner_of, shard_of
from peloton.runtime.ports import MemberNode, MembershipView, ShardId


class ViewReading:
    """`done` is told the view, or None when the connection broke meanwhile."""

    def __init__(
        self,
        connection: ZooKeeperConnection,
        *,
        paths: Paths,
        watch: Callable[[Any], None],
        done: Callable[[ViewReading, MembershipView | None], None],
    ) -> None:
        self.folder_missing = False
        """Nothing watches a folder that is not there."""
        self._connection = connection
        self._paths = paths
        self._watch = watch
        self._done = done
        self._waits = 0
        self._broken = False
        self._member = ""
        self._members: dict[str, MemberNode] = {}
        self._owners: dict[ShardId, str] = {}
        self._version = 0

    def begin(self, member: str) -> None:
        """Read, on behalf of this member."""
        self._member = member
        # Before the first request: what it finds is at least as new.
        self._version = self._connection.zxid
        watch = self._watch
        self._read(lambda c: c.get_children_async(self._paths.members, watch), self._got_members)
        self._read(lambda c: c.get_children_async(self._paths.owners, watch), self._got_owners)

    def _got_members(self, names: list[str]) -> None:
        for name in names:
            path = self._paths.member(name)
            # Members say new things in the same node; owner nodes only come and go.
            self._read(partial(_get, path=path, watch=self._watch), partial(self._member_is, name))

    def _got_owners(self, names: list[str]) -> None:
        for name in names:
            shard = shard_of(name)
            if shard is not None:
                path = self._paths.owner(shard)
                self._read(partial(_get, path=path), partial(self._owner_is, shard))

    def _member_is(self, name: str, found: tuple[bytes, Any]) -> None:
        node = member_of(found[0])
        if node is not None:
            self._members[name] = node

    def _owner_is(self, shard: ShardId, found: tuple[bytes, Any]) -> None:
        self._owners[shard] = owner_of(found[0])

    def _read(self, request: Callable[[Any], RequestOutcome], use: Callable[[Any], None]) -> None:
        self._waits += 1
        self._connection.request(request, partial(self._arrived, use))

    def _arrived(self, use: Callable[[Any], None], reply: RequestOutcome) -> None:
        self._waits -= 1
        if reply.exception is None:
            use(reply.value)
        elif isinstance(reply.exception, NoNodeError):
            self.folder_missing |= use in (self._got_members, self._got_owners)
        else:
            assert isinstance(reply.exception, KazooException), reply.exception
            self._broken = True
        if not self._waits:
            view = MembershipView(self._member, self._version, self._members, self._owners)
            self._done(self, None if self._broken else view)


def _get(client: Any, *, path: str, watch: Callable[[Any], None] | None = None) -> RequestOutcome:
    reply: RequestOutcome = client.get_async(path, watch)
    return reply
