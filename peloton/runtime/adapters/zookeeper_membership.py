"""Membership on ZooKeeper, through kazoo: a session for each `join`; no call blocks but `close`.

Passes the port's calls to the current session. Nothing outlives a session: what a lost one knew is
void.

    membership = ZooKeeperMembership(Config(hosts="zk1:2181,zk2:2181", cluster="west"))

Epochs are not here but in the journal's store, so a ZooKeeper that was emptied, or restored from
an old copy, costs a takeover and never a frame.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future

from peloton.runtime.adapters.zookeeper_session import MemberSession, ZooKeeperConfig
from peloton.runtime.ports import MemberNode, MembershipNews, ShardId

CLOSE_S_MAX = 10.0


class ZooKeeperMembership:
    """The port `Membership`; its methods are described there."""

    def __init__(self, config: ZooKeeperConfig) -> None:
        self._config = config
        self.refused: Future[str] = Future()
        """Set to the reason if the root belongs to another cluster: then this never becomes a
        member, and a person has to fix it."""
        self._listener: Callable[[MembershipNews], object] = lambda news: None
        self._session: MemberSession | None = None
        self._ending: list[MemberSession] = []

    def listen(self, listener: Callable[[MembershipNews], object]) -> None:
        self._listener = listener

    def join(self, member: str, node: MemberNode) -> None:
        self.leave()
        session = MemberSession(
            self._config, member=member, node=node, listener=self._listener, refused=self._refuse
        )
        self._session = session
        session.start()

    def _refuse(self, why: str) -> None:
        if not self.refused.done():  # an older session may report it, too
            self.refused.set_result(why)

    def sure_for_s(self) -> float:
        session = self._session
        return session.sure_for_s() if session is not None else 0.0

    def announce(self, node: MemberNode) -> None:
        if self._session is not None:
            self._session.announce(node)

    def request_view(self) -> None:
        if self._session is not None:
            self._session.request_view()

    def create_owner(self, shard: ShardId) -> None:
        if self._session is not None:
            self._session.create_owner(shard)

    def remove_owner(self, shard: ShardId) -> None:
        if self._session is not None:
            self._session.remove_owner(shard)

    def leave(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.end()
            self._ending = [one for one in self._ending if one.ending] + [session]

    def close(self, timeout_s: float = CLOSE_S_MAX) -> None:
        """Leave, and wait until ZooKeeper has ended the session: the last call of a process.

        Otherwise the others would wait for the session timeout.
        """
        self.leave()
        for session in self._ending:
            session.wait(timeout_s)
