"""A line to ZooKeeper: one kazoo client for one session, whose every word goes into one queue.

Turns kazoo's threads (connection, completions, watches, listeners) into calls that one thread
makes in the order things happened, each answer with the position it is as of. It must not wait,
and must not outlive its session: kazoo would silently begin another one, under which nodes would
be made that nobody knows of.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.handlers.threading import AsyncResult, SequentialThreadingHandler
from kazoo.protocol.connection import ConnectionHandler
from kazoo.protocol.states import Callback, KazooState
from kazoo.retry import KazooRetry

from peloton.runtime.adapters.zookeeper_lease import now_s

REDIAL_FIRST_S = 0.05
REDIAL_S_MAX = 1.0

LOG = logging.getLogger("peloton.zookeeper")
# Without a handler Python would print each broken connection on the terminal; health tells it.
LOG.addHandler(logging.NullHandler())

Put = Callable[[Callable[[], None]], None]
Then = Callable[["RequestOutcome"], None]


class RequestOutcome(AsyncResult):  # type: ignore[misc]  # kazoo has no types
    """What became of a request: a value or kazoo's exception, and where history stood."""

    def __init__(self, handler: QueueHandler) -> None:
        super().__init__(handler)
        self.sent_s = 0.0
        self.zxid = 0
        self.then: Then | None = None
        self._connection = handler.connection

    def set(self, value: Any = None) -> None:
        """By kazoo, on its connection thread, which has noted the position just before."""
        self.zxid = self._connection.zxid
        super().set(value)
        self._connection.arrived(self)

    def set_exception(self, exception: Exception) -> None:
        """Likewise."""
        self.zxid = self._connection.zxid
        super().set_exception(exception)
        self._connection.arrived(self)


class QueueHandler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    """Kazoo's threads, but nothing is told on another thread than it was learned on.

    Else a watch could overtake the answer before it, and a suspension the answers that it lost.
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
        """Refused when the session is over: kazoo would begin a new one."""
        if self.lost:
            raise ConnectionRefusedError("the session is over")
        # Kazoo would try one server for a whole session, and the others too late.
        options["timeout"] = self.connection.dial_s_max
        self.connection.dialled_s = now_s()
        self.connection.socket = super().create_connection(*args, **options)
        return self.connection.socket


class TimedConnection(ConnectionHandler):  # type: ignore[misc]  # kazoo has no types
    """Kazoo's, which keeps to itself how long the server lets the session last."""

    session_s = 0.0

    def _connect(self, *args: Any) -> tuple[float, float]:
        read_timeout_ms, connect_timeout_ms = super()._connect(*args)
        self.session_s = read_timeout_ms * 3 / 2 / 1000  # kazoo reads for two thirds of it
        return read_timeout_ms, connect_timeout_ms


class ZooKeeperConnection:
    """To be used by the one thread that runs what is `put`; `zxid` and `lost` by any.

    `on_state` is told kazoo's states; the last one is LOST.
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
        self.dialled_s = 0.0
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
        self.dial_s_max = session_s / 3 / len(self.client.hosts)
        self.client.add_listener(self._state)

    def start(self) -> None:
        """Begin to dial; returns at once."""
        self.client.start_async()

    def stop(self) -> None:
        """End the session, if it stands and can be reached. Takes its time."""
        self.handler.lost = True
        try:
            self.client.stop()
            self.client.close()
        except (KazooException, OSError):
            pass  # out of reach: the session ends by its own time

    def cut(self) -> None:
        """Hang up: this server is silent, another may not be."""
        if self.socket is not None:
            try:
                self.socket.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # it is closed already

    @property
    def lost(self) -> bool:
        """Whether the session is over; may be so before `on_state` is told."""
        return self.handler.lost

    @property
    def zxid(self) -> int:
        """The newest position this line has seen; whatever is read from now on contains it."""
        return int(self.client.last_zxid)

    @property
    def session_s(self) -> float:
        """How long the server lets the session last; 0 until it is known."""
        return self._connection.session_s

    @property
    def session_id(self) -> int:
        """What the server calls the session: the owner of its nodes."""
        known = self.client.client_id
        return known[0] if known else 0

    def request(self, request: Callable[[KazooClient], RequestOutcome], then: Then) -> None:
        """Send a request; its reply is handed over later, exactly once."""
        sent_s = now_s()
        reply = request(self.client)
        # The reply may be here already, but what it put comes after what runs now.
        reply.sent_s, reply.then = sent_s, then

    def arrived(self, reply: RequestOutcome) -> None:
        """On any thread."""
        self._put(lambda: self._hand_over(reply))

    def _hand_over(self, reply: RequestOutcome) -> None:
        then, reply.then = reply.then, None  # kazoo may fail a request twice
        if then is not None:
            then(reply)

    def _state(self, state: str) -> None:
        if state == KazooState.LOST:
            self.handler.lost = True
        self._put(lambda: self._on_state(state))
