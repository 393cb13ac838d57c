"""A membership service within one process, for daemons that are objects of one test.

Turns the port's calls into news at once, on the caller's thread. It is as strict as the port in
what it is asked here: views are whole, versions are the same for all, a session that is over takes
its nodes with it. It is never suspended and answers nothing UNKNOWN: that is tested where chance is
drawn.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from peloton.runtime.ports import (
    MemberNode,
    MembershipNews,
    MembershipView,
    NodeAnswer,
    NodeOutcome,
    Session,
    SessionState,
    ShardId,
)


class Service:
    """The truth, and who is told of it."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.version = 0
        self.members: dict[str, MemberNode] = {}
        self.owners: dict[ShardId, str] = {}
        self.clients: list[LocalMembership] = []

    def changed(self) -> None:
        """Everybody reads everything."""
        self.version += 1
        for client in [*self.clients]:
            client.request_view()

    def forget(self, member: str) -> None:
        """A session is over, and with it all its nodes."""
        self.members.pop(member, None)
        self.owners = {shard: who for shard, who in self.owners.items() if who != member}
        self.changed()


class LocalMembership:
    """One daemon's side: a `Membership`."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._tell: Callable[[MembershipNews], object] = lambda news: None
        self.member = ""

    def listen(self, tell: Callable[[MembershipNews], object]) -> None:
        self._tell = tell

    def join(self, member: str, node: MemberNode) -> None:
        service = self._service
        with service.lock:
            self.leave()
            self.member = member
            service.members[member] = node
            service.version += 1
            self._tell(Session(member, SessionState.CONNECTED, service.version))
            service.clients.append(self)
            service.changed()

    def sure_for_s(self) -> float:
        return 5.0 if self.member else 0.0

    def announce(self, node: MemberNode) -> None:
        with self._service.lock:
            if self.member:
                self._service.members[self.member] = node
                self._service.changed()

    def request_view(self) -> None:
        service = self._service
        with service.lock:
            if self.member:
                view = MembershipView(
                    self.member, service.version, {**service.members}, {**service.owners}
                )
                self._tell(view)

    def create_owner(self, shard: ShardId) -> None:
        service = self._service
        with service.lock:
            if not self.member:
                return
            if shard not in service.owners:
                service.owners[shard] = self.member
                service.changed()
            owner = service.owners[shard]
            if owner == self.member:
                outcome, owner = NodeOutcome.OURS, ""
            else:
                outcome = NodeOutcome.TAKEN
            self._tell(NodeAnswer(self.member, shard, outcome, service.version, owner))

    def remove_owner(self, shard: ShardId) -> None:
        service = self._service
        with service.lock:
            if not self.member:
                return
            if service.owners.get(shard) == self.member:
                del service.owners[shard]
                service.changed()
            owner = service.owners.get(shard, "")
            gone = NodeOutcome.GONE
            self._tell(NodeAnswer(self.member, shard, gone, service.version, owner))

    def leave(self) -> None:
        with self._service.lock:
            member, self.member = self.member, ""
            if member:
                self._service.clients.remove(self)
                self._service.forget(member)

    def expire(self) -> None:
        """The session ends though nobody wanted it to; the daemon is told."""
        with self._service.lock:
            member = self.member
            self.leave()
            self._tell(Session(member, SessionState.LOST))
