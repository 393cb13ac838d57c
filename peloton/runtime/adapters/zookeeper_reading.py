"""One reading of everything there is in ZooKeeper, made into a view.

Turns two lists of names and the data of each into a `MembershipView`, and leaves watches behind.
It must not be taken for a snapshot: what changes while it reads may be in it or not; a node that
vanished between the list and its own reading is left out, as it will be of the next view.

A view is dated by the last change of what it shows, which is the same for everybody who sees the
same, and not by how far its reader has come in the history of the service. What goes wrong else:

1. A owns a shard under a view that it read at 100: its beats had brought it there
2. B saw the same nodes when it stood at 90, nothing that it watches changes, so it reads no more
3. A refuses the mail of B as packed under a view from before it owned the shard: for ever
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
        self.torn = False
        """Something changed while we read, perhaps before it was watched: read again."""
        self._connection = connection
        self._paths = paths
        self._watch = watch
        self._done = done
        self._waits = 0
        self._broken = False
        self._member = ""
        self._members: dict[str, MemberNode] = {}
        self._owners: dict[ShardId, str] = {}
        self._surely = 0  # the position up to which nothing can be missing
        self._changed = 0  # the last change of anything that was read

    def begin(self, member: str) -> None:
        """Read, on behalf of this member."""
        self._member = member
        # A server answers in order: all that follows is at least as new as this answer's position.
        self._read(partial(_exists, path=self._paths.nowhere), self._stood)
        self._read(partial(_list, path=self._paths.members, watch=self._watch), self._got_members)
        self._read(partial(_list, path=self._paths.owners, watch=self._watch), self._got_owners)

    def _stood(self, nothing: None) -> None:
        """The one request whose answer is about no node."""

    def _got_members(self, found: tuple[list[str], Any]) -> None:
        names, stat = found
        self._saw(stat.pzxid)  # of the last node that came or went
        for name in names:
            path = self._paths.member(name)
            # Members say new things in the same node; owner nodes only come and go.
            self._read(partial(_get, path=path, watch=self._watch), partial(self._member_is, name))

    def _got_owners(self, found: tuple[list[str], Any]) -> None:
        names, stat = found
        self._saw(stat.pzxid)
        for name in names:
            shard = shard_of(name)
            if shard is not None:
                path = self._paths.owner(shard)
                self._read(partial(_get, path=path), partial(self._owner_is, shard))

    def _saw(self, changed: int) -> None:
        self._changed = max(self._changed, changed)

    def _member_is(self, name: str, found: tuple[bytes, Any]) -> None:
        self._saw(found[1].mzxid)
        node = member_of(found[0])
        if node is not None:
            self._members[name] = node

    def _owner_is(self, shard: ShardId, found: tuple[bytes, Any]) -> None:
        self._saw(found[1].mzxid)
        self._owners[shard] = owner_of(found[0])

    def _read(self, request: Callable[[Any], RequestOutcome], use: Callable[[Any], None]) -> None:
        self._waits += 1
        self._connection.request(request, partial(self._arrived, use))

    def _arrived(self, use: Callable[[Any], None], reply: RequestOutcome) -> None:
        self._waits -= 1
        if use == self._stood:
            self._surely = reply.zxid
        if reply.exception is None:
            use(reply.value)
        elif isinstance(reply.exception, NoNodeError):
            self.folder_missing |= use in (self._got_members, self._got_owners)
        else:
            assert isinstance(reply.exception, KazooException), reply.exception
            self._broken = True
        if not self._waits:
            self.torn = self._changed > self._surely
            version = self._surely if self.torn or self.folder_missing else self._changed
            view = MembershipView(self._member, version, self._members, self._owners)
            self._done(self, None if self._broken else view)


def _exists(client: Any, *, path: str) -> RequestOutcome:
    reply: RequestOutcome = client.exists_async(path)
    return reply


def _list(client: Any, *, path: str, watch: Callable[[Any], None]) -> RequestOutcome:
    reply: RequestOutcome = client.get_children_async(path, watch, include_data=True)
    return reply


def _get(client: Any, *, path: str, watch: Callable[[Any], None] | None = None) -> RequestOutcome:
    reply: RequestOutcome = client.get_async(path, watch)
    return reply
