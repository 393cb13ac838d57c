"""The two connections to an agent: the stream of its events, and the calls.

Calls are sent one behind the other without waiting for the answers, so a slow agent does not hold
up the processes. A failure of either ends both: then the executor subscribes anew.
"""

from __future__ import annotations

import json
import selectors
import socket
from typing import Any

from .http_pieces import ACCEPTED, AnswerReader, BadAnswer, EventReader, NotRecovered, StreamRefused

CONNECT_S = 2.0
PATH = "/api/v1/executor"
_READ_BYTES = 262144


class AgentGone(Exception):
    """The connection is lost; the text says why."""


class NotTaken(AgentGone):
    """The agent is there, and does not take our calls, or sends what cannot be read."""


class AgentRefuses(AgentGone):
    """The agent does not know us, and will not."""


class _Pipe:
    """A connection: the bytes that wait to be sent, and the reader of its answers."""

    def __init__(self, sock: socket.socket, reader: AnswerReader | EventReader) -> None:
        self.sock, self.reader = sock, reader
        self.unsent = bytearray()


class AgentLink:
    """The connections to an agent at `HOST:PORT`; the selector has their sockets."""

    def __init__(self, endpoint: str, selector: selectors.BaseSelector, *, token: str = "") -> None:
        host, _, port = endpoint.rpartition(":")
        self._place = host.strip("[]"), int(port)
        self._endpoint, self._selector, self._token = endpoint, selector, token
        self._pipes: list[_Pipe] = []

    @property
    def open(self) -> bool:
        return bool(self._pipes)

    def connect(self) -> None:
        """Connect. Raises AgentGone."""
        try:
            for reader in (EventReader(), AnswerReader()):
                sock = socket.create_connection(self._place, timeout=CONNECT_S)
                sock.setblocking(False)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                pipe = _Pipe(sock, reader)
                self._pipes.append(pipe)
                self._selector.register(sock, selectors.EVENT_READ, pipe)
        except OSError as trouble:
            self.close()
            raise AgentGone(f"no connection: {trouble}") from trouble

    def close(self) -> None:
        """Close both connections."""
        for pipe in self._pipes:
            self._selector.unregister(pipe.sock)
            pipe.sock.close()
        self._pipes = []

    def subscribe(self, call: dict[str, Any]) -> None:
        """Send the first call, whose answer is the stream."""
        self._put(self._pipes[0], call)

    def send(self, calls: list[dict[str, Any]]) -> None:
        for call in calls:
            self._put(self._pipes[1], call)

    def _put(self, pipe: _Pipe, call: dict[str, Any]) -> None:
        body = json.dumps(call).encode()
        fields = {
            "Host": self._endpoint,
            "Content-Type": "application/json",
            "Accept": "application/json",
            "Content-Length": str(len(body)),
        }
        if self._token:
            fields["Authorization"] = f"Bearer {self._token}"
        lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        pipe.unsent += f"POST {PATH} HTTP/1.1\r\n{lines}\r\n".encode() + body

    def flush(self) -> None:
        """Write the bytes that can be sent now. Raises AgentGone."""
        for pipe in self._pipes:
            if pipe.unsent:
                self._flush(pipe)

    def _flush(self, pipe: _Pipe) -> None:
        try:
            while pipe.unsent:
                sent = pipe.sock.send(memoryview(pipe.unsent)[:_READ_BYTES])
                del pipe.unsent[:sent]
        except BlockingIOError:
            pass
        except OSError as trouble:
            raise AgentGone(f"sending: {trouble}") from trouble
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if pipe.unsent else 0)
        self._selector.modify(pipe.sock, wanted, pipe)

    def read(self, pipe: Any) -> list[dict[str, Any]]:
        """Return the events that came on what the selector found. Raises AgentGone."""
        if pipe not in self._pipes:  # closed since
            return []
        try:
            data = pipe.sock.recv(_READ_BYTES)
        except BlockingIOError:
            return []
        except OSError as trouble:
            raise AgentGone(f"reading: {trouble}") from trouble
        if not data:
            raise AgentGone("the agent has closed the connection")
        try:
            found = pipe.reader.feed(data)
        except StreamRefused as trouble:
            raise AgentRefuses(str(trouble)) from trouble
        except NotRecovered as trouble:
            raise AgentGone(str(trouble)) from trouble
        except BadAnswer as trouble:
            raise NotTaken(str(trouble)) from trouble
        if isinstance(pipe.reader, EventReader):
            return list(found)
        for answer in found:
            if answer.status != ACCEPTED:
                raise NotTaken(f"a call was refused: {answer.status} {answer.body[:500]}")
        return []
