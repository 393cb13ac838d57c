"""One member's session with ZooKeeper: its node, its watches, its heartbeat, and its state.

Turns the port's calls, and events of the connection, into news, all on one thread of its own. No
caller blocks on it. The object must not outlive its session: after a loss the member joins again,
with a new one. Otherwise:

1. The session of A ends while A is unreachable; B creates the owner node of a shard.
2. A reconnects. Its client has a new session, and everything looks as before.
3. A trusts what it knew under the old one, and goes on as owner beside B.
4. Only the journal's fence stops it, and readers of A get stale data as current.
"""

from __future__ import annotations

import heapq
import itertools
import queue
import threading
from collections.abc import Callable, Mapping
from typing import Any

from kazoo.protocol.states import KazooState
from msgspec import Struct

from peloton.runtime.adapters.zookeeper_connection import (
    Heartbeat,
    Lease,
    ZooKeeperConnection,
    now_s,
)
from peloton.runtime.adapters.zookeeper_nodes import (
    DEFAULT_ROOT,
    ClusterMark,
    Leader,
    Paths,
    RootClaim,
    ViewReading,
    claim_root,
    member_bytes,
)
from peloton.runtime.adapters.zookeeper_owners import (
    NodeStatus,
    OwnerNodeContext,
    Owners,
    Writes,
)
from peloton.runtime.ports import (
    MemberNode,
    MembershipNews,
    MembershipView,
    Session,
    SessionState,
    ShardId,
)

RECONNECT_PAUSE_S = 0.5
"""Pause after ZooKeeper refused unexpectedly, for instance because of a node of an operator."""
VIEW_EVERY_S = 0.05
"""Least time between views: else each daemon would read everything for each of many changes."""


class ZooKeeperConfig(Struct, frozen=True):
    """The address of ZooKeeper, and the cluster's place in it. `options` go to kazoo's client.

    `leaders`: what to write for existing clients, and under which role, while this daemon owns
    the first shard of a group: group → (role, leader). `cluster_id` is that of the journal: a root
    is used by one only. Without it the root is not checked.
    """

    hosts: str
    cluster: str
    session_s: float = 6.0
    root: str = DEFAULT_ROOT
    leaders: Mapping[str, tuple[str, Leader]] = {}
    options: Mapping[str, Any] = {}
    cluster_id: str = ""


class MemberSession:
    """A session begun by `start`; methods other than `wait` return at once, on any thread."""

    def __init__(
        self,
        config: ZooKeeperConfig,
        *,
        member: str,
        node: MemberNode,
        listener: Callable[[MembershipNews], object],
        refused: Callable[[str], object] = lambda why: None,
    ) -> None:
        self._refused = refused
        self._config = config
        self._paths = Paths(config.cluster, root=config.root)
        self._member = member
        self._node = node  # the newest announced
        self._listener = listener
        self._lease = Lease()
        self._queue: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._news_lock = threading.RLock()
        self._over = False
        self._reported: SessionState | None = None
        self._connected = False
        self._registered = False  # connected, and the member node exists: requests are accepted
        self._reading: ViewReading | None = None
        self._read_again = False
        self._read_s = 0.0
        self._thread = threading.Thread(target=self._run, name=f"zk-{member}", daemon=True)
        self._connection = self._new_connection()
        self._writes = self._new_writes()
        self._heartbeat = self._new_heartbeat()
        self._owners = self._new_owners()

    # ---- the port's calls ----

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        """Stop the news; the session ends as soon as ZooKeeper can be reached."""
        with self._news_lock:
            self._over = True
        self._put(lambda: None)

    def wait(self, timeout_s: float) -> None:
        """Block until an ended session is closed, or for `timeout_s`."""
        self._thread.join(timeout_s)

    @property
    def ending(self) -> bool:
        """Whether the session is still being closed."""
        return self._thread.is_alive()

    def sure_for_s(self) -> float:
        if self._over or self._connection.lost:
            return 0.0
        return self._lease.until_s - now_s()

    def announce(self, node: MemberNode) -> None:
        self._put(lambda: self._announce(node))

    def request_view(self) -> None:
        self._put(self._read_view)

    def create_owner(self, shard: ShardId) -> None:
        self._put(lambda: self._owners.create(shard))

    def remove_owner(self, shard: ShardId) -> None:
        self._put(lambda: self._owners.remove(shard))

    # ---- the thread ----

    def _put(self, do: Callable[[], None]) -> None:
        self._queue.put(do)

    def _at(self, at_s: float, do: Callable[[], None]) -> None:
        heapq.heappush(self._timers, (at_s, next(self._numbers), do))

    def _run(self) -> None:
        try:
            self._connection.start()
            while not self._over:
                self._step()
        finally:
            # Also after a bug here: then no state of this object can be trusted.
            self._lose()
            self._connection.stop()

    def _step(self) -> None:
        wait_s = max(self._timers[0][0] - now_s(), 0.0) if self._timers else None
        try:
            self._queue.get(timeout=wait_s)()
        except queue.Empty:
            pass
        while self._timers and self._timers[0][0] <= now_s() and not self._over:
            heapq.heappop(self._timers)[2]()

    def _send_news(self, news: MembershipNews) -> None:
        with self._news_lock:
            if not self._over:
                self._listener(news)

    # ---- the connection ----

    def _new_connection(self) -> ZooKeeperConnection:
        config = self._config
        connection: ZooKeeperConnection

        def on_state(state: str) -> None:
            if connection is self._connection:
                self._state(state)

        connection = ZooKeeperConnection(
            config.hosts,
            session_s=config.session_s,
            put=self._put,
            on_state=on_state,
            options=dict(config.options),
        )
        return connection

    def _new_writes(self) -> Writes:
        connection, lease = self._connection, self._lease
        return Writes(
            connection, committed=lambda sent_s: lease.committed(sent_s, connection.session_s)
        )

    def _new_heartbeat(self) -> Heartbeat:
        writes, path = self._writes, self._paths.nowhere

        def write(done: Callable[[bool], None]) -> None:
            writes.heartbeat(path, lambda found: done(found.trouble is None))

        return Heartbeat(self._connection, write=write, at=self._at)

    def _new_owners(self) -> Owners:
        context = OwnerNodeContext(
            self._connection,
            member=self._member,
            paths=self._paths,
            writes=self._writes,
            put=self._put,
        )
        return Owners(
            context, roles=self._config.leaders, answer=self._send_news, read_view=self._read_view
        )

    def _state(self, state: str) -> None:
        self._connected = state == KazooState.CONNECTED and not self._connection.lost
        self._registered = False
        self._reading, self._read_again = None, False
        self._heartbeat.stop()
        self._owners.shut()
        if self._connected:
            self._heartbeat = self._new_heartbeat()
            self._lease.reopened(self._connection.connect_sent_s)
            self._register()
        elif state == KazooState.LOST:
            if self._reported is None:
                self._at(now_s() + RECONNECT_PAUSE_S, self._begin_again)
            else:
                self._lose()
        elif self._reported is SessionState.CONNECTED:
            self._report_state(SessionState.SUSPENDED)

    def _begin_again(self) -> None:
        """Connect again: the session ended before the member node existed and was reported."""
        self._connection.stop()
        self._lease = Lease()
        self._connection = self._new_connection()
        self._writes = self._new_writes()
        self._owners = self._new_owners()
        self._connection.start()

    def _lose(self) -> None:
        if self._reported is SessionState.CONNECTED:
            self._report_state(SessionState.SUSPENDED)
        if not self._over:
            self._report_state(SessionState.LOST)
        self._over = True
        self._lease.end()

    def _report_state(self, state: SessionState, version: int = 0) -> None:
        if state is not self._reported:
            self._reported = state
            self._send_news(Session(self._member, state, version))

    # ---- our node ----

    def _register(self) -> None:
        """Create the folders and the member node; after that this is a member."""
        connection = self._connection

        def again() -> None:
            if connection is self._connection and self._connected and not self._registered:
                self._register()

        def root_claimed(found: RootClaim) -> None:
            if found.refused:
                self._refuse(found.refused)
            elif found.trouble is not None:
                self._at(now_s() + RECONNECT_PAUSE_S, again)
            else:
                self._folders(folders_made)

        def folders_made(trouble: Exception | None) -> None:
            if trouble is not None:
                self._at(now_s() + RECONNECT_PAUSE_S, again)
            else:
                data = member_bytes(node)
                self._writes.put(self._paths.member(self._member), data, on_done=written)

        def written(found: NodeStatus) -> None:
            if found.trouble is not None or not found.ours:
                self._at(now_s() + RECONNECT_PAUSE_S, again)
            elif self._connected and not self._registered:
                self._registered = True
                if node != self._node:
                    self._announce(self._node)
                self._report_state(SessionState.CONNECTED, found.zxid)
                self._heartbeat.begin()
                self._owners.open()
                self._read_view()

        node = self._node
        self._claim_root(root_claimed)

    def _claim_root(self, then: Callable[[RootClaim], None]) -> None:
        """Claim the root before any other node is created below it."""
        config = self._config
        if config.cluster_id:
            ours = ClusterMark(config.cluster_id, config.cluster)
            claim_root(self._connection, self._paths, ours=ours, done=then)
        else:
            then(RootClaim())

    def _refuse(self, why: str) -> None:
        """Stop news and requests, and report why this daemon must not become a member."""
        with self._news_lock:
            self._over = True
        self._refused(why)

    def _folders(self, then: Callable[[Exception | None], None]) -> None:
        request, paths = self._connection.request, self._paths
        request(
            lambda c: c.ensure_path_async(paths.members),
            lambda one: request(
                lambda c: c.ensure_path_async(paths.owners),
                lambda other: then(one.exception or other.exception),
            ),
        )

    def _announce(self, node: MemberNode) -> None:
        self._node = node
        if self._registered:
            # A view shows the outcome; after a reconnect the node is written again.
            path = self._paths.member(self._member)
            self._writes.change(path, member_bytes(node), on_done=lambda found: None)

    # ---- views ----

    def _changed(self, event: Any) -> None:  # noqa: ARG002
        """Read a view: a watch fired, on the connection's thread."""
        self._put(self._read_view)

    def _read_view(self) -> None:
        if not self._registered:
            return  # registering reads a view
        if self._reading is not None:
            self._read_again = True
            return
        reading = self._reading = ViewReading(
            self._connection, paths=self._paths, watch=self._changed, done=self._read
        )
        at_s = self._read_s + VIEW_EVERY_S
        if at_s <= now_s():
            self._begin_reading(reading)
        else:
            self._at(at_s, lambda: self._begin_reading(reading))

    def _begin_reading(self, reading: ViewReading) -> None:
        if reading is self._reading:
            self._read_s = now_s()
            self._read_again = False
            reading.begin(self._member)

    def _read(self, reading: ViewReading, view: MembershipView | None) -> None:
        if reading is not self._reading:
            return
        self._reading = None
        if view is None:
            return  # broken: the next state of the connection decides
        self._owners.leaders.seen(view)
        self._send_news(view)
        if reading.folder_missing:
            self._folders(self._folders_again)
        elif self._read_again or reading.torn:
            self._read_view()

    def _folders_again(self, trouble: Exception | None) -> None:
        """Read a view once the folders that others deleted exist again."""
        if trouble is None:
            self._read_view()
        else:
            self._at(now_s() + RECONNECT_PAUSE_S, self._read_view)
