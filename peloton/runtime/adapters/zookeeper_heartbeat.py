"""The beats of a session: small writes that prove it lives, and find out a silent server.

Turns "nothing was asked for a while" into one write that changes nothing, never two at once, and a
silence into a cut of the line. It must not be left to kazoo's pings: those are answered by a server
that lost its leader, and are put off for ever by other requests that nobody answers.
"""

from __future__ import annotations

from collections.abc import Callable

from peloton.runtime.adapters.zookeeper_connection import ZooKeeperConnection
from peloton.runtime.adapters.zookeeper_lease import BEATS_PER_SESSION, now_s
from peloton.runtime.adapters.zookeeper_writes import NodeStatus, Writes

SILENT_SHARE = 1 / 3
"""Of a session: a server that has not answered for so long is hung up on, while there is time to
find another."""


class Heartbeat:
    """From `begin` until `stop`, which is for good; `at` is how it waits."""

    def __init__(
        self,
        connection: ZooKeeperConnection,
        *,
        writes: Writes,
        path: str,
        at: Callable[[float, Callable[[], None]], None],
    ) -> None:
        self._connection = connection
        self._writes = writes
        self._path = path
        self._at = at
        self._stopped = False
        self._sent = 0
        self._answered = 0

    def begin(self) -> None:
        """The line stands."""
        self._beat()

    def stop(self) -> None:
        """The line is broken."""
        self._stopped = True

    def _beat(self) -> None:
        if self._stopped:
            return
        self._sent += 1
        number, session_s = self._sent, self._connection.session_s
        every_s = session_s / BEATS_PER_SESSION
        sent_s = now_s()

        def answered(found: NodeStatus) -> None:
            self._answered = number
            if found.trouble is None:
                self._at(sent_s + every_s, self._beat)

        def look(due_s: float) -> None:
            if self._answered >= number or self._stopped:
                return
            late_s = now_s() - due_s
            if late_s > every_s:  # it was us who stood still: the answer may be here, unread
                self._look_at(now_s() + every_s, look)
            else:
                self._connection.cut()

        self._writes.heartbeat(self._path, answered)
        self._look_at(sent_s + session_s * SILENT_SHARE, look)

    def _look_at(self, due_s: float, look: Callable[[float], None]) -> None:
        self._at(due_s, lambda: look(due_s))
