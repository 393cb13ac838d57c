"""The ephemeral nodes of one session: owner nodes, leader nodes, and the writes that make them.

Turns the port's two calls (create and remove an owner) into requests, one after the other per
shard, and their outcomes into exactly one answer each. A request made while the connection was
broken, or whose reply was lost, may have been done, and is answered UNKNOWN. The owner of the first
shard of a group leads.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from kazoo.exceptions import (
    KazooException,
    NodeExistsError,
    NoNodeError,
    RolledBackError,
    RuntimeInconsistency,
)

from peloton.runtime.adapters.zookeeper_connection import (
    Put,
    RequestOutcome,
    ZooKeeperConnection,
)
from peloton.runtime.adapters.zookeeper_nodes import (
    Leader,
    Paths,
    leader_bytes,
    owner_bytes,
    owner_of,
)
from peloton.runtime.ports import MembershipView, NodeAnswer, NodeOutcome, ShardId

Do = Callable[[ShardId], None]


class OwnerNodeContext:
    """The member, paths and writes that the owner nodes of a session need."""

    def __init__(
        self,
        connection: ZooKeeperConnection,
        *,
        member: str,
        paths: Paths,
        writes: Writes,
        put: Put,
    ) -> None:
        self.connection = connection
        self.member = member
        self.paths = paths
        self.writes = writes
        self.put = put


class Owners:
    """The owner nodes of one connection.

    `answer` receives the answers; `read_view` is called when the caller should read a view.
    """

    def __init__(
        self,
        context: OwnerNodeContext,
        *,
        roles: Mapping[str, tuple[str, Leader]],
        answer: Callable[[NodeAnswer], None],
        read_view: Callable[[], None],
    ) -> None:
        self._context = context
        self._on_answer = answer
        self._read_view = read_view
        self._open = False
        self._queues: dict[ShardId, deque[Do]] = {}  # behind the call in progress
        self.leaders = Leaders(
            context.connection, writes=context.writes, paths=context.paths, roles=roles
        )

    def open(self) -> None:
        """Accept requests: the member node exists."""
        self._open = True
        self.leaders.write_all()

    def shut(self) -> None:
        """Answer UNKNOWN from now on: the connection is broken."""
        self._open = False

    def create(self, shard: ShardId) -> None:
        self._in_turn(shard, self._create)

    def remove(self, shard: ShardId) -> None:
        self._in_turn(shard, self._remove)

    def _create(self, shard: ShardId) -> None:
        context = self._context

        def done(found: NodeStatus) -> None:
            another = owner_of(found.data) not in ("", context.member)
            if found.trouble is None and found.ours:
                self._answer(shard, NodeOutcome.OURS, found=found)
                self.leaders.ours(shard, found.zxid)
            elif found.trouble is None and another:
                self._answer(shard, NodeOutcome.TAKEN, found=found)
            else:
                self._answer(shard, NodeOutcome.UNKNOWN)
                self._read_view()

        if not self._open:
            self._answer(shard, NodeOutcome.UNKNOWN)
            return
        path, data = context.paths.owner(shard), owner_bytes(context.member)
        context.writes.create(
            path, data, on_done=done, only_with=context.paths.member(context.member)
        )

    def _remove(self, shard: ShardId) -> None:
        def done(found: NodeStatus) -> None:
            gone = found.trouble is None
            self._answer(shard, NodeOutcome.GONE if gone else NodeOutcome.UNKNOWN, found=found)

        if not self._open:
            self._answer(shard, NodeOutcome.UNKNOWN)
            return
        self.leaders.not_ours(shard)
        self._context.writes.remove(self._context.paths.owner(shard), done)

    def _answer(
        self, shard: ShardId, outcome: NodeOutcome, *, found: NodeStatus | None = None
    ) -> None:
        if found is None or outcome is NodeOutcome.UNKNOWN:
            self._on_answer(NodeAnswer(self._context.member, shard, outcome))
        else:
            owner = owner_of(found.data)
            self._on_answer(NodeAnswer(self._context.member, shard, outcome, found.zxid, owner))
        waiting = self._queues.pop(shard)
        if waiting:
            do = waiting.popleft()
            self._queues[shard] = waiting
            self._context.put(lambda: do(shard))

    def _in_turn(self, shard: ShardId, do: Do) -> None:
        """Run the calls of one shard in sequence: each takes several requests."""
        waiting = self._queues.get(shard)
        if waiting is None:
            self._queues[shard] = deque()
            do(shard)
        else:
            waiting.append(do)


class Leaders:
    """The nodes in which existing clients look for a leader, one per role.

    A node is written while this member owns the first shard of the group. `roles`: what to write
    where, group → (role, leader). A leader node of another session is replaced.
    """

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
        """Write the leader node if the shard is the first of its group."""
        if not shard.number and shard.group in self._roles:
            self._since[shard.group] = version
            self._write(shard.group)

    def not_ours(self, shard: ShardId) -> None:
        """Remove the leader node: this member does not own the shard, or is about to give it up."""
        if not shard.number and self._since.pop(shard.group, None) is not None:
            self._writes.remove(self._path(shard.group), _ignore)

    def seen(self, view: MembershipView) -> None:
        """Compare with a view: an operator may have removed an owner node of ours."""
        for group, since in list(self._since.items()):
            first = ShardId(group, 0)
            if view.version >= since and view.owners.get(first) != view.member:
                self.not_ours(first)

    def write_all(self) -> None:
        """Write all leader nodes after a reconnect: earlier requests may not have been done."""
        for group in self._since:
            self._write(group)

    def _write(self, group: str) -> None:
        path, leader = self._path(group), self._roles[group][1]

        def folder_made(reply: RequestOutcome) -> None:
            if reply.exception is None and group in self._since:
                self._writes.put(path, leader_bytes(leader), on_done=written)

        def written(found: NodeStatus) -> None:
            if found.ours and group not in self._since:
                self._writes.remove(path, _ignore)

        folder = path.rpartition("/")[0]
        self._connection.request(lambda c: c.ensure_path_async(folder), folder_made)

    def _path(self, group: str) -> str:
        return self._paths.leader(self._roles[group][0])


def _ignore(found: NodeStatus) -> None:
    """Ignore the outcome: after a reconnect all are written again."""


WRITE_TRIES_MAX = 3
"""More are needed only if others create and remove the node between our requests."""


class NodeStatus(NamedTuple):
    """The state of a node as of `zxid`; unknown if `trouble` is set."""

    ours: bool = False
    data: bytes = b""  # of a node of another session; empty: there is none, or it is ours
    zxid: int = 0
    trouble: KazooException | None = None


OnNodeStatus = Callable[[NodeStatus], None]


class Writes:
    """Creates, replaces and removes ephemeral nodes, whatever exists at the path before.

    `committed` is called with the send time of each write that was committed. Whether a node is
    ours is known by the session that owns it, never by its data. ZooKeeper cannot delete a node on
    the condition that it is ours; only an operator can put another there between check and delete.
    """

    def __init__(
        self, connection: ZooKeeperConnection, *, committed: Callable[[float], None]
    ) -> None:
        self._connection = connection
        self._committed = committed

    def create(
        self,
        path: str,
        data: bytes,
        *,
        on_done: OnNodeStatus,
        only_with: str = "",
        tries: int = WRITE_TRIES_MAX,
    ) -> None:
        """Create our node, unless another's exists, and only while the node `only_with` exists.

        Otherwise a request that outlives its session could be done under the next.
        """

        def request(client: Any) -> RequestOutcome:
            change = client.transaction()
            if only_with:
                change.check(only_with, -1)
            change.create(path, data, ephemeral=True)
            reply: RequestOutcome = change.commit_async()
            return reply

        def done(reply: RequestOutcome) -> None:
            error = reply.exception or _error_among(reply.value)
            self._prove(reply, error)
            if error is None:
                on_done(NodeStatus(ours=True, zxid=reply.zxid))
            elif not isinstance(error, NodeExistsError):
                on_done(NodeStatus(zxid=reply.zxid, trouble=error))
            else:
                self._check(path, checked)

        def checked(found: NodeStatus) -> None:
            vanished = found.trouble is None and not found.ours and not found.data
            if vanished and tries > 1:
                self.create(path, data, on_done=on_done, only_with=only_with, tries=tries - 1)
            else:
                on_done(found)

        self._connection.request(request, done)

    def put(
        self,
        path: str,
        data: bytes,
        *,
        on_done: OnNodeStatus,
        only_with: str = "",
        tries: int = WRITE_TRIES_MAX,
    ) -> None:
        """Write our node with these data, replacing whatever exists there."""

        def created(found: NodeStatus) -> None:
            if found.ours:
                self._connection.request(lambda c: c.set_async(path, data), set_done)
            elif found.trouble is None and found.data and tries > 1:
                self._connection.request(lambda c: c.delete_async(path), removed)
            else:
                on_done(found)

        def removed(reply: RequestOutcome) -> None:
            if isinstance(reply.exception, NoNodeError | None):
                self.put(path, data, on_done=on_done, only_with=only_with, tries=tries - 1)
            else:
                on_done(NodeStatus(zxid=reply.zxid, trouble=reply.exception))

        def set_done(reply: RequestOutcome) -> None:
            self._prove(reply, reply.exception)
            # The zxid of the write: the reply's may be later than that of any view to come.
            zxid = reply.zxid if reply.exception is not None else reply.value.mzxid
            on_done(NodeStatus(ours=True, zxid=zxid, trouble=reply.exception))

        self.create(path, data, on_done=created, only_with=only_with)

    def remove(self, path: str, on_done: OnNodeStatus) -> None:
        """Remove our node; a node of another session stays."""

        def checked(found: NodeStatus) -> None:
            if found.ours and found.trouble is None:
                self._connection.request(lambda c: c.delete_async(path), removed)
            else:
                on_done(found)

        def removed(reply: RequestOutcome) -> None:
            self._prove(reply, reply.exception)
            error = None if isinstance(reply.exception, NoNodeError) else reply.exception
            on_done(NodeStatus(zxid=reply.zxid, trouble=error))

        self._check(path, checked)

    def change(self, path: str, data: bytes, *, on_done: OnNodeStatus) -> None:
        """Change the data of our node, if it still exists."""

        def done(reply: RequestOutcome) -> None:
            self._prove(reply, reply.exception)
            on_done(NodeStatus(zxid=reply.zxid, trouble=reply.exception))

        self._connection.request(lambda c: c.set_async(path, data), done)

    def heartbeat(self, path: str, on_done: OnNodeStatus) -> None:
        """Send a write that changes nothing, by a path that never exists."""

        def done(reply: RequestOutcome) -> None:
            self._prove(reply, reply.exception)
            error = None if isinstance(reply.exception, NoNodeError) else reply.exception
            on_done(NodeStatus(zxid=reply.zxid, trouble=error))

        self._connection.request(lambda c: c.delete_async(path), done)

    def _check(self, path: str, on_done: OnNodeStatus) -> None:
        def done(reply: RequestOutcome) -> None:
            if reply.exception is None:
                data, stat = reply.value
                ours = stat.ephemeralOwner == self._connection.session_id
                # A node without data counts as another's, too.
                on_done(NodeStatus(ours=ours, data=b"" if ours else data or b"?", zxid=reply.zxid))
            elif isinstance(reply.exception, NoNodeError):
                on_done(NodeStatus(zxid=reply.zxid))
            else:
                on_done(NodeStatus(trouble=reply.exception))

        self._connection.request(lambda c: c.get_async(path), done)

    def _prove(self, reply: RequestOutcome, error: Exception | None) -> None:
        """Report a write as committed, also a refused one: the leader has ordered it."""
        if error is None or isinstance(error, NodeExistsError | NoNodeError):
            self._committed(reply.sent_s)


def _error_among(results: list[Any] | None) -> KazooException | None:
    """Return the error of the failed step, not of those rolled back because of it."""
    errors = [one for one in results or () if isinstance(one, KazooException)]
    for error in errors:
        if not isinstance(error, RolledBackError | RuntimeInconsistency):
            return error
    return errors[0] if errors else None
