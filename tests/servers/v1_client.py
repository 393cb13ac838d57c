"""A plain client of the scheduler API of Mesos, version 1, in JSON: what a test wants to see.

Each call is one connection, and its answer is handed back as it is: nothing is retried, nothing
followed. A stream has a thread that reads its events. It waits where it is told to, and knows no
state.
"""

from __future__ import annotations

import http.client
import json
import queue
import socket
import threading
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

PATH = "/api/v1/scheduler"
WAIT_S = 60.0
JSON = "application/json"


class Answer(NamedTuple):
    """What came back."""

    code: int
    body: str
    headers: dict[str, str]


def post(
    port: int, call: Any, *, stream_id: str | None = None, headers: Mapping[str, str | None] = {},
    path: str = PATH,
) -> Answer:  # fmt: skip
    """Send a call; a text or bytes are sent as they are. A header of None is left out."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_S)
    try:
        _send(connection, call, stream_id=stream_id, headers=headers, path=path)
        got = connection.getresponse()
        return Answer(got.status, got.read().decode(), dict(got.getheaders()))
    finally:
        connection.close()


def _send(
    connection: http.client.HTTPConnection,
    call: Any,
    *,
    stream_id: str | None,
    headers: Mapping[str, str | None],
    path: str = PATH,
) -> None:
    body = call if isinstance(call, str | bytes) else json.dumps(call)
    given: dict[str, str | None] = {"Content-Type": JSON, "Accept": JSON}
    given |= {"Mesos-Stream-Id": stream_id} | dict(headers)
    told = {name: value for name, value in given.items() if value is not None}
    connection.request("POST", path, body=body, headers=told)


class Ended(Exception):
    """The stream ended; the text says how."""


class Stream:
    """A subscription. Raises Ended from `next` when nothing more comes."""

    def __init__(self, port: int, call: Any) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_S)
        _send(self._connection, call, stream_id=None, headers={})
        self._socket: socket.socket = self._connection.sock
        self._got = self._connection.getresponse()
        self.code = self._got.status
        self.stream_id = self._got.getheader("Mesos-Stream-Id")
        self._events: queue.Queue[dict[str, Any] | Ended] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        try:
            while True:
                self._events.put(json.loads(self._record()))
        except (OSError, ValueError, http.client.HTTPException) as error:
            self._events.put(Ended(f"{type(error).__name__}: {error}"))
        except Ended as end:
            self._events.put(end)

    def _record(self) -> bytes:
        line = b""
        while not line.endswith(b"\n"):
            byte = self._got.read(1)
            if not byte:
                raise Ended("cut in a record" if line else "closed")
            line += byte
        left, record = int(line), b""
        while left:
            part = self._got.read(left)
            if not part:
                raise Ended("cut in a record")
            record, left = record + part, left - len(part)
        return record

    def next(
        self, type_: str | None = None, *, where: Callable[[Any], bool] = lambda _: True
    ) -> dict[str, Any]:
        """The next event, of this type and of which this is true if said; others are dropped."""
        while True:
            event = self._events.get(timeout=WAIT_S)
            if isinstance(event, Ended):
                self._events.put(event)
                raise event
            if type_ in (None, event["type"]) and where(event):
                return event

    def end(self) -> str:
        """How it ends, once it does."""
        try:
            while True:
                self.next()
        except Ended as end:
            return str(end)

    def close(self) -> None:
        """Hang up."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)  # which wakes the thread that reads
        except OSError:  # the other end was first
            pass
        self._reader.join(WAIT_S)
        self._connection.close()
