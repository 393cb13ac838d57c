"""A connection to ZooKeeper: one kazoo client for one session, its lease and its heartbeat.

Turns kazoo's threads (connection, completions, watches, listeners) into calls that one thread makes
in the order of events, each reply with the zxid it is as of. A connection must not outlive its
session: kazoo would silently begin another one and create nodes that nobody tracks.

The lease is a lower bound for how long the session lives: up to then no other member can learn
that it ended. It is derived from the send times of committed writes. A reply to a ping proves
nothing:

1. A member is connected to server F, which follows leader L. Only L ends sessions.
2. F is cut off from L, and finds out only after `syncLimit` ticks.
3. Until then F answers pings and reads by itself.
4. L receives nothing from the member and ends its session; another member takes its shards.
5. The member, whose last ping was answered a moment ago, still believes its session alive.

A write is committed by L and a majority, so F and L were connected then. The session is kept alive
at L not by the write but by F's report of its clients, every half tick. ZooKeeper demands sessions
of at least two ticks, so L knows of all that F received a quarter of a session before the write;
what F received later is not certain.
"""

from __future__ import annotations

import logging
import socket
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.handlers.threading import AsyncResult, SequentialThreadingHandler
from kazoo.protocol.connection import ConnectionHandler
from kazoo.protocol.states import Callback, KazooState
from kazoo.retry import KazooRetry

REDIAL_FIRST_S = 0.05
REDIAL_S_MAX = 1.0

LOG = logging.getLogger("peloton.zookeeper")
# Without a handler Python would print each broken connection to stderr; health reports them.
LOG.addHandler(logging.NullHandler())

Put = Callable[[Callable[[], None]], None]
Then = Callable[["RequestOutcome"], None]


class RequestOutcome(AsyncResult):  # type: ignore[misc]  # kazoo has no types
    """The outcome of a request: a value or kazoo's exception, with its zxid."""

    def __init__(self, handler: QueueHandler) -> None:
        super().__init__(handler)
        self.sent_s = 0.0
        self.zxid = 0
        self.then: Then | None = None
        self._connection = handler.connection

    def set(self, value: Any = None) -> None:
        """Set the value; called by kazoo on its connection thread, after it set the zxid."""
        self.zxid = self._connection.zxid
        super().set(value)
        self._connection.arrived(self)

    def set_exception(self, exception: Exception) -> None:
        """Set the exception; called by kazoo on its connection thread."""
        self.zxid = self._connection.zxid
        super().set_exception(exception)
        self._connection.arrived(self)


class QueueHandler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    """Kazoo's thread handler, except that each callback runs on the thread that received its event.

    Otherwise a watch could overtake the reply before it, and a suspension the replies that it lost.
    """

    lost = False

    def __init__(self, connection: ZooKeeperConnection) -> None:
        super().__init__()
        self.connection = connection

    def async_result(self) -> RequestOutcome:
        return RequestOutcome(self)

    def dispatch_callback(self, callback: Callback) -> None:
        callback.func(*callback.args)

    def create_connection(self, *args: Any, **options: Any) -> socket.socket:
        """Refuse to connect after the session has ended: kazoo would begin a new one."""
        if self.lost:
            raise ConnectionRefusedError("the session is over")
        # Kazoo would try one server for the whole session timeout, and the others too late.
        options["timeout"] = self.connection.connect_s_max
        self.connection.connect_sent_s = now_s()
        self.connection.socket = super().create_connection(*args, **options)
        return self.connection.socket


class TimedConnection(ConnectionHandler):  # type: ignore[misc]  # kazoo has no types
    """Kazoo's connection handler with the session timeout that the server granted."""

    session_s = 0.0

    def _connect(self, *args: Any) -> tuple[float, float]:
        read_timeout_ms, connect_timeout_ms = super()._connect(*args)
        self.session_s = read_timeout_ms * 3 / 2 / 1000  # kazoo reads for two thirds of it
        return read_timeout_ms, connect_timeout_ms


class ZooKeeperConnection:
    """A connection for the thread that runs what is `put`; `zxid` and `lost` for any thread.

    `on_state` receives kazoo's states; the last one is LOST.
    """

    def __init__(
        self,
        hosts: str,
        *,
        session_s: float,
        put: Put,
        on_state: Callable[[str], None],
        options: dict[str, Any],
    ) -> None:
        self._put = put
        self._on_state = on_state
        self.connect_sent_s = 0.0
        self.socket: socket.socket | None = None
        self.handler = QueueHandler(self)
        retry = KazooRetry(
            max_tries=-1,
            delay=REDIAL_FIRST_S,
            max_delay=REDIAL_S_MAX,
            sleep_func=self.handler.sleep_func,
        )
        self.client = KazooClient(
            hosts,
            timeout=session_s,
            handler=self.handler,
            connection_retry=retry,
            logger=LOG,
            **options,
        )
        old = self.client._connection
        self._connection = TimedConnection(self.client, old.retry_sleeper, logger=LOG)
        self.client._connection = self._connection
        self.connect_s_max = session_s / 3 / len(self.client.hosts)
        self.client.add_listener(self._state)

    def start(self) -> None:
        """Start to connect; return at once."""
        self.client.start_async()

    def stop(self) -> None:
        """End the session, if there is one and a server is reachable. Blocks."""
        self.handler.lost = True
        try:
            self.client.stop()
            self.client.close()
        except (KazooException, OSError):
            pass  # unreachable: the session ends by its timeout

    def cut(self) -> None:
        """Close the socket to a silent server, so that kazoo tries another one."""
        if self.socket is not None:
            try:
                self.socket.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # already closed

    @property
    def lost(self) -> bool:
        """Whether the session has ended; may be true before `on_state` is called."""
        return self.handler.lost

    @property
    def zxid(self) -> int:
        """The newest zxid this connection has seen; all later reads include it."""
        return int(self.client.last_zxid)

    @property
    def session_s(self) -> float:
        """The session timeout granted by the server; 0 until it is known."""
        return self._connection.session_s

    @property
    def session_id(self) -> int:
        """The id of the session: the `ephemeralOwner` of its nodes."""
        known = self.client.client_id
        return known[0] if known else 0

    def request(self, request: Callable[[KazooClient], RequestOutcome], then: Then) -> None:
        """Send a request; `then` is called with its reply later, exactly once."""
        sent_s = now_s()
        reply = request(self.client)
        # The reply may have arrived already, but what it put runs after the current call.
        reply.sent_s, reply.then = sent_s, then

    def arrived(self, reply: RequestOutcome) -> None:
        """Deliver a reply; called on any thread."""
        self._put(lambda: self._deliver(reply))

    def _deliver(self, reply: RequestOutcome) -> None:
        then, reply.then = reply.then, None  # kazoo may fail a request twice
        if then is not None:
            then(reply)

    def _state(self, state: str) -> None:
        if state == KazooState.LOST:
            self.handler.lost = True
        self._put(lambda: self._on_state(state))


REPORTED_SHARE = 1 / 4
"""Of a session: within this time a server has reported its clients to its leader."""
SURE_SHARE = 2 / 3
BEATS_PER_SESSION = 12
"""Heartbeats per session: the last one reported is then a third of a session old at most."""


def now_s() -> float:
    """Return seconds of a monotonic clock that also counts while the machine is suspended."""
    return time.clock_gettime(_CLOCK)


_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Lease:
    """The lease of a session that lasts `session_s` from the last report of it to the leader."""

    def __init__(self) -> None:
        self.until_s = 0.0
        self._sent_s: deque[float] = deque()

    def reopened(self, sent_s: float) -> None:
        """Restart the lease: by a request of this time the leader created or confirmed
        the session."""
        self._sent_s.clear()
        self._sent_s.append(sent_s)

    def committed(self, sent_s: float, session_s: float) -> None:
        """Extend the lease by a committed write that was sent at `sent_s`."""
        sent = self._sent_s
        while len(sent) > 1 and sent[1] <= sent_s - session_s * REPORTED_SHARE:
            sent.popleft()
        if sent:
            self.until_s = min(sent_s + session_s * SURE_SHARE, sent[0] + session_s)
        sent.append(sent_s)

    def end(self) -> None:
        """End the lease: nothing is guaranteed any more."""
        self._sent_s.clear()
        self.until_s = 0.0


SILENT_SHARE = 1 / 3
"""Of a session: after such a silence the connection to the server is closed, while there is time
to find another."""


class Heartbeat:
    """Small writes that keep the lease up to date, and detect a silent server.

    They are sent from `begin` until `stop`, which is final. `write` sends one write that changes
    nothing and calls back with whether it was committed; `at` schedules a call. Never two writes at
    once. Kazoo's pings are not enough: a server that lost its leader answers them, and kazoo
    postpones them while other requests are in flight, even if nobody answers those.
    """

    def __init__(
        self,
        connection: ZooKeeperConnection,
        *,
        write: Callable[[Callable[[bool], None]], None],
        at: Callable[[float, Callable[[], None]], None],
    ) -> None:
        self._connection = connection
        self._write = write
        self._at = at
        self._stopped = False
        self._sent = 0
        self._answered = 0

    def begin(self) -> None:
        """Start to write: the connection is established."""
        self._beat()

    def stop(self) -> None:
        """Stop for good: the connection is broken."""
        self._stopped = True

    def _beat(self) -> None:
        if self._stopped:
            return
        self._sent += 1
        number, session_s = self._sent, self._connection.session_s
        every_s = session_s / BEATS_PER_SESSION
        sent_s = now_s()

        def answered(committed: bool) -> None:
            self._answered = number
            if committed:
                self._at(sent_s + every_s, self._beat)

        def check(due_s: float) -> None:
            if self._answered >= number or self._stopped:
                return
            late_s = now_s() - due_s
            if late_s > every_s:  # this process was suspended: the reply may be here, unread
                self._check_at(now_s() + every_s, check)
            else:
                self._connection.cut()

        self._write(answered)
        self._check_at(sent_s + session_s * SILENT_SHARE, check)

    def _check_at(self, due_s: float, check: Callable[[float], None]) -> None:
        self._at(due_s, lambda: check(due_s))
