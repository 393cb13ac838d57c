"""Nodes that die with a session: made, replaced and removed, whatever stands there before.

Turns "our node shall stand here" and "no node of ours shall" into the requests that lead there,
one after the other. It must not take a node for ours by what is written in it: only the session
that owns it says so. Nor can it remove a node on the condition that it is ours, because ZooKeeper
has no such condition: between looking and removing, only an operator can have put another there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from kazoo.exceptions import (
    KazooException,
    NodeExistsError,
    NoNodeError,
    RolledBackError,
    RuntimeInconsistency,
)

from peloton.runtime.adapters.zookeeper_connection import RequestOutcome, ZooKeeperConnection

WRITE_TRIES_MAX = 3
"""Somebody makes the node and removes it as often, just between our requests."""


class NodeStatus(NamedTuple):
    """How it is now, as of `zxid`; when `trouble` is set nobody knows."""

    ours: bool = False
    data: bytes = b""  # of another's node; empty: there is none, or it is ours
    zxid: int = 0
    trouble: KazooException | None = None


OnNodeStatus = Callable[[NodeStatus], None]


class Writes:
    """Through one line. `committed` is told when each write was sent that came through."""

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
        tell: OnNodeStatus,
        only_with: str = "",
        tries: int = WRITE_TRIES_MAX,
    ) -> None:
        """Our node, unless another's stands there; and only as long as `only_with` stands.

        Else a request that outlives its session could be done under the next.
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
            self._proves(reply, error)
            if error is None:
                tell(NodeStatus(ours=True, zxid=reply.zxid))
            elif not isinstance(error, NodeExistsError):
                tell(NodeStatus(zxid=reply.zxid, trouble=error))
            else:
                self._look(path, looked)

        def looked(found: NodeStatus) -> None:
            vanished = found.trouble is None and not found.ours and not found.data
            if vanished and tries > 1:
                self.create(path, data, tell=tell, only_with=only_with, tries=tries - 1)
            else:
                tell(found)

        self._connection.request(request, done)

    def put(
        self,
        path: str,
        data: bytes,
        *,
        tell: OnNodeStatus,
        only_with: str = "",
        tries: int = WRITE_TRIES_MAX,
    ) -> None:
        """Our node with these data, in place of whatever stands there."""

        def created(found: NodeStatus) -> None:
            if found.ours:
                self._connection.request(lambda c: c.set_async(path, data), set_done)
            elif found.trouble is None and found.data and tries > 1:
                self._connection.request(lambda c: c.delete_async(path), removed)
            else:
                tell(found)

        def removed(reply: RequestOutcome) -> None:
            if isinstance(reply.exception, NoNodeError | None):
                self.put(path, data, tell=tell, only_with=only_with, tries=tries - 1)
            else:
                tell(NodeStatus(zxid=reply.zxid, trouble=reply.exception))

        def set_done(reply: RequestOutcome) -> None:
            self._proves(reply, reply.exception)
            # Its own position: the reply's may be later, and no view need ever be as late as that.
            zxid = reply.zxid if reply.exception is not None else reply.value.mzxid
            tell(NodeStatus(ours=True, zxid=zxid, trouble=reply.exception))

        self.create(path, data, tell=created, only_with=only_with)

    def remove(self, path: str, tell: OnNodeStatus) -> None:
        """No node of ours; another's stays."""

        def looked(found: NodeStatus) -> None:
            if found.ours and found.trouble is None:
                self._connection.request(lambda c: c.delete_async(path), removed)
            else:
                tell(found)

        def removed(reply: RequestOutcome) -> None:
            self._proves(reply, reply.exception)
            error = None if isinstance(reply.exception, NoNodeError) else reply.exception
            tell(NodeStatus(zxid=reply.zxid, trouble=error))

        self._look(path, looked)

    def change(self, path: str, data: bytes, *, tell: OnNodeStatus) -> None:
        """Other data in a node of ours, if it still stands."""

        def done(reply: RequestOutcome) -> None:
            self._proves(reply, reply.exception)
            tell(NodeStatus(zxid=reply.zxid, trouble=reply.exception))

        self._connection.request(lambda c: c.set_async(path, data), done)

    def heartbeat(self, path: str, tell: OnNodeStatus) -> None:
        """A write that changes nothing: the path is nobody's."""

        def done(reply: RequestOutcome) -> None:
            self._proves(reply, reply.exception)
            error = None if isinstance(reply.exception, NoNodeError) else reply.exception
            tell(NodeStatus(zxid=reply.zxid, trouble=error))

        self._connection.request(lambda c: c.delete_async(path), done)

    def _look(self, path: str, tell: OnNodeStatus) -> None:
        def done(reply: RequestOutcome) -> None:
            if reply.exception is None:
                data, stat = reply.value
                ours = stat.ephemeralOwner == self._connection.session_id
                # An empty node is another's too.
                tell(NodeStatus(ours=ours, data=b"" if ours else data or b"?", zxid=reply.zxid))
            elif isinstance(reply.exception, NoNodeError):
                tell(NodeStatus(zxid=reply.zxid))
            else:
                tell(NodeStatus(trouble=reply.exception))

        self._connection.request(lambda c: c.get_async(path), done)

    def _proves(self, reply: RequestOutcome, error: Exception | None) -> None:
        """A write that was refused for what stands there went the whole way, too."""
        if error is None or isinstance(error, NodeExistsError | NoNodeError):
            self._committed(reply.sent_s)


def _error_among(results: list[Any] | None) -> KazooException | None:
    """Of a change of several steps: the step that failed, not those that were undone for it."""
    errors = [one for one in results or () if isinstance(one, KazooException)]
    for error in errors:
        if not isinstance(error, RolledBackError | RuntimeInconsistency):
            return error
    return errors[0] if errors else None
