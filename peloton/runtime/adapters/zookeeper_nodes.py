"""The nodes of a cluster in ZooKeeper: their paths, their data, and how to read all of them.

Turns members, shards and owners into paths and bytes, and back; claims the root for one cluster;
reads all nodes into a view. An operator can write anything there, so a node with invalid data is no
member and no owner, and must not crash every daemon that reads it. Member and owner nodes are
created in `zookeeper_session` and `zookeeper_owners`.

    /peloton/<cluster>/members/<member>          JSON of the member; ephemeral
    /peloton/<cluster>/owners/<group>-<number>   the owner's member id; ephemeral
    /peloton/<role>/leader                       JSON for clients that look for a leader; ephemeral
    /peloton/.cluster                            JSON of the one cluster whose leaders these are
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import msgspec
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NodeExistsError, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError
from msgspec import Struct

from peloton.runtime.adapters.zookeeper_connection import RequestOutcome, ZooKeeperConnection
from peloton.runtime.ports import MemberNode, MembershipView, ShardId, Unreachable

DEFAULT_ROOT = "/peloton"


class Leader(Struct, frozen=True, rename={"http_port": "http", "grpc_port": "grpc"}):
    """The data of a leader node, for existing clients: they dial `ip` and `grpc_port`."""

    hostname: str
    ip: str
    http_port: int
    grpc_port: int
    version: str = ""


class Paths:
    """The node paths of one cluster."""

    def __init__(self, cluster: str, *, root: str = DEFAULT_ROOT) -> None:
        self.root = root
        self.mark = f"{root}/.cluster"
        """No clash with a cluster: a name must not contain a dot."""
        self.members = f"{root}/{cluster}/members"
        self.owners = f"{root}/{cluster}/owners"
        self.nowhere = f"{root}/{cluster}/nowhere"
        """Never created: deleting it is a write that changes nothing."""

    def member(self, member: str) -> str:
        return f"{self.members}/{member}"

    def owner(self, shard: ShardId) -> str:
        return f"{self.owners}/{shard.group}-{shard.number}"

    def leader(self, role: str) -> str:
        return f"{self.root}/{role}/leader"


class ClusterMark(Struct, frozen=True):
    """The cluster that a root belongs to: the id of its journal, and its name."""

    id: str
    name: str


def mark_bytes(mark: ClusterMark) -> bytes:
    return msgspec.json.encode(mark)


def mark_of(data: bytes) -> ClusterMark | None:
    """Decode a mark; None if the data are invalid."""
    try:
        return msgspec.json.decode(data, type=ClusterMark)
    except msgspec.DecodeError:
        return None


def shard_of(name: str) -> ShardId | None:
    """Return the shard of an owner node's name; None if the name is invalid."""
    group, dash, number = name.rpartition("-")
    if not dash or not group or not (number.isascii() and number.isdecimal()):
        return None
    return ShardId(group, int(number))


def member_bytes(node: MemberNode) -> bytes:
    """Encode a member as JSON, so that an operator can read it."""
    return msgspec.json.encode(node)


def member_of(data: bytes) -> MemberNode | None:
    """Decode a member's data, without fields of a later version; None if they are invalid."""
    try:
        return msgspec.json.decode(data, type=MemberNode)
    except msgspec.DecodeError:  # no JSON, no UTF-8, or a field is missing
        return None


def owner_bytes(member: str) -> bytes:
    return member.encode()


def owner_of(data: bytes) -> str:
    """Return the owner's member id; invalid data give an id that no member has."""
    return data.decode(errors="replace")


def leader_bytes(leader: Leader) -> bytes:
    return msgspec.json.encode(leader)


class RootClaim(NamedTuple):
    """The outcome of a claim: why the root is not ours, or unknown if `trouble` is set."""

    refused: str = ""
    trouble: KazooException | None = None


def claim_root(
    connection: ZooKeeperConnection,
    paths: Paths,
    *,
    ours: ClusterMark,
    done: Callable[[RootClaim], None],
) -> None:
    """Claim the root for this cluster, unless another has it, before any node below it is made.

    A mark that exists is never changed: two clusters below one root would write each other's
    leader nodes, and two journals under one name would share members and owners. Only a person
    knows that a cluster no longer exists.
    """

    def root_made(reply: RequestOutcome) -> None:
        if reply.exception is None:
            connection.request(lambda c: c.create_async(paths.mark, mark_bytes(ours)), created)
        else:
            done(RootClaim(trouble=reply.exception))

    def created(reply: RequestOutcome) -> None:
        if reply.exception is None:
            done(RootClaim())
        elif isinstance(reply.exception, NodeExistsError):
            connection.request(lambda c: c.get_async(paths.mark), read)
        else:
            done(RootClaim(trouble=reply.exception))

    def read(reply: RequestOutcome) -> None:
        if reply.exception is not None:  # also if it was removed just now: the caller retries
            done(RootClaim(trouble=reply.exception))
        else:
            done(RootClaim(other_cluster(reply.value[0], paths=paths, ours=ours)))

    connection.request(lambda c: c.ensure_path_async(paths.root), root_made)


def other_cluster(data: bytes, *, paths: Paths, ours: ClusterMark) -> str:
    """Return why a root whose mark has these data must not be used; empty if it is ours."""
    known = mark_of(data)
    if known is not None and known.id == ours.id:
        return ""
    whose = "a cluster that cannot be read"
    if known is not None:
        whose = f"cluster {known.name!r} (journal {known.id})"
    return (
        f"zookeeper.root {paths.root} belongs to {whose}, this daemon is of cluster {ours.name!r} "
        f"(journal {ours.id}). Name another root; or, if the other cluster no longer exists, "
        f"remove the node {paths.mark}"
    )


class ViewReading:
    """One reading of all nodes, made into a view; leaves watches behind.

    `done` receives the view, or None if the connection broke meanwhile. A view is no snapshot:
    what changes while it is read may be in it or not, and a node that vanished between the list
    and its own reading is left out.

    A view is dated by the last change of what it shows, which is the same for everybody who sees
    the same, and not by the reader's position in the history of ZooKeeper. Otherwise:

    1. A owns a shard under a view that it read at 100, a position its heartbeats had reached.
    2. B saw the same nodes at position 90; nothing that it watches changes, so it reads no more.
    3. A refuses the mail of B for ever, as sent under a view from before A owned the shard.
    """

    def __init__(
        self,
        connection: ZooKeeperConnection,
        *,
        paths: Paths,
        watch: Callable[[Any], None],
        done: Callable[[ViewReading, MembershipView | None], None],
    ) -> None:
        self.folder_missing = False
        """There is no watch on a folder that does not exist."""
        self.torn = False
        """Something changed during the reading, perhaps before it was watched: read again."""
        self._connection = connection
        self._paths = paths
        self._watch = watch
        self._done = done
        self._waits = 0
        self._broken = False
        self._member = ""
        self._members: dict[str, MemberNode] = {}
        self._owners: dict[ShardId, str] = {}
        self._complete_zxid = 0  # up to it nothing can be missing
        self._changed_zxid = 0  # of the last change of anything that was read

    def begin(self, member: str) -> None:
        """Start to read on behalf of this member."""
        self._member = member
        # A server replies in order: all later replies are at least as new as this one.
        self._read(partial(_exists, path=self._paths.nowhere), self._positioned)
        self._read(partial(_list, path=self._paths.members, watch=self._watch), self._got_members)
        self._read(partial(_list, path=self._paths.owners, watch=self._watch), self._got_owners)

    def _positioned(self, nothing: None) -> None:
        """Finish once the zxid is known, by a request that has no other purpose."""

    def _got_members(self, found: tuple[list[str], Any]) -> None:
        names, stat = found
        self._saw(stat.pzxid)  # of the last child created or removed
        for name in names:
            path = self._paths.member(name)
            # Members change the data of their node; owner nodes are only created and removed.
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
        self._changed_zxid = max(self._changed_zxid, changed)

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
        if use == self._positioned:
            self._complete_zxid = reply.zxid
        if reply.exception is None:
            use(reply.value)
        elif isinstance(reply.exception, NoNodeError):
            self.folder_missing |= use in (self._got_members, self._got_owners)
        else:
            assert isinstance(reply.exception, KazooException), reply.exception
            self._broken = True
        if not self._waits:
            self.torn = self._changed_zxid > self._complete_zxid
            version = (
                self._complete_zxid if self.torn or self.folder_missing else self._changed_zxid
            )
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


class ClusterNodes(NamedTuple):
    """The nodes of a cluster: `members` by their ids, None for a node with invalid data.

    `mark` is the data of the root's mark; None if no cluster has claimed the root.
    """

    members: dict[str, MemberNode | None]
    mark: bytes | None = None


def read_cluster_nodes(hosts: str, paths: Paths, *, timeout_s: float) -> ClusterNodes:
    """Read members and mark once, for commands.

    Raises Unreachable.
    """
    # The exceptions report lost connections in one line.
    quiet = logging.getLogger("peloton.zookeeper_nodes")
    quiet.addHandler(logging.NullHandler())
    quiet.propagate = False
    client = KazooClient(hosts=hosts, timeout=timeout_s, logger=quiet)
    try:
        client.start(timeout=timeout_s)
        found: dict[str, MemberNode | None] = {}
        for name in sorted(_children(client, paths.members)):
            try:
                found[name] = member_of(client.get(paths.member(name))[0])
            except NoNodeError:
                pass  # it left between the two requests
        return ClusterNodes(found, _data(client, paths.mark))
    except (KazooTimeoutError, KazooException, OSError) as error:
        text = f"ZooKeeper at {hosts}: {type(error).__name__} {error}".rstrip()
        raise Unreachable(text) from error
    finally:
        client.stop()
        client.close()


def _children(client: KazooClient, path: str) -> list[str]:
    try:
        return list(client.get_children(path))
    except NoNodeError:
        return []


def _data(client: KazooClient, path: str) -> bytes | None:
    try:
        return bytes(client.get(path)[0])
    except NoNodeError:
        return None
