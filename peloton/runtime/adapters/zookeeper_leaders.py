"""The nodes in which existing clients look for a leader: one per role, written by one owner.

Turns "the first shard of a group is ours, or is not" into a leader node that says where we are. It
must not decide who leads: whoever owns the shard does, and of what stands in its way only a node
of an owner before it can be.
"""

from __future__ import annotations

from collections.abc import Mapping

from peloton.runtime.adapters.zookeeper_connection import RequestOutcome, ZooKeeperConnection
from peloton.runtime.adapters.zookeeper_nodes import Leader, Paths, leader_bytes
from peloton.runtime.adapters.zookeeper_writes import NodeStatus, Writes
from peloton.runtime.ports import MembershipView, ShardId


class Leaders:
    """Those of one session; `roles` says what to write where: group → (role, what they find)."""

    def __init__(
        self,
        connection: ZooKeeperConnection,
        *,
        writes: Writes,
        paths: Paths,
        roles: Mapping[str, tuple[str, Leader]],
    ) -> None:
        self._connection = connection
        self._writes = writes
        self._paths = paths
        self._roles = roles
        self._since: dict[str, int] = {}  # group → the version as of which it is ours

    def ours(self, shard: ShardId, version: int) -> None:
        """We own this shard."""
        if not shard.number and shard.group in self._roles:
            self._since[shard.group] = version
            self._write(shard.group)

    def not_ours(self, shard: ShardId) -> None:
        """We do not, or soon shall not."""
        if not shard.number and self._since.pop(shard.group, None) is not None:
            self._writes.remove(self._path(shard.group), _whatever)

    def seen(self, view: MembershipView) -> None:
        """An operator may have removed the owner node of which we were told that it is ours."""
        for group, since in list(self._since.items()):
            first = ShardId(group, 0)
            if view.version >= since and view.owners.get(first) != view.member:
                self.not_ours(first)

    def write_all(self) -> None:
        """The line was broken: what was asked before may not have been done."""
        for group in self._since:
            self._write(group)

    def _write(self, group: str) -> None:
        path, leader = self._path(group), self._roles[group][1]

        def folder_made(reply: RequestOutcome) -> None:
            if reply.exception is None and group in self._since:
                self._writes.put(path, leader_bytes(leader), tell=written)

        def written(found: NodeStatus) -> None:
            if found.ours and group not in self._since:
                self._writes.remove(path, _whatever)

        folder = path.rpartition("/")[0]
        self._connection.request(lambda c: c.ensure_path_async(folder), folder_made)

    def _path(self, group: str) -> str:
        return self._paths.leader(self._roles[group][0])


def _whatever(found: NodeStatus) -> None:
    """If the line breaks all of them are written again, and what is not ours is taken over."""
