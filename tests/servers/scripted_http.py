"""The HTTP side of what is scripted of Mesos: requests in, answers and streams of events out.

Each connection has a thread of its own, which writes what it is told. It must not know what a call
means: the master, or the agent, says what a request is answered.
"""

from __future__ import annotations

import json
import queue
import socket
import threading
import uuid
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple, Protocol

from tests.servers.mesos_model.said import VERSION

PATH = "/api/v1/scheduler"
PATHS = (PATH, f"/master{PATH}")
"""A master that does not lead redirects to the second."""
OPERATORS = "/api/v1"
Event = dict[str, Any]


class Reply(NamedTuple):
    """What a request is answered instead: a refusal, a redirect, or nothing at all (code 0).

    With a `gate` it is not answered before that is set.
    """

    code: int
    body: str = ""
    location: str = ""
    gate: threading.Event | None = None


class Subscriber:
    """One stream of events, written by the thread of its request."""

    def __init__(self) -> None:
        self.stream_id = str(uuid.uuid4())
        self.parts: queue.Queue[bytes | None] = queue.Queue()
        self.cut = False

    def send(self, event: Event) -> None:
        self.parts.put(record(json.dumps(event).encode()))

    def end(self) -> None:
        """In good order, behind what was sent."""
        self.parts.put(None)


def record(data: bytes) -> bytes:
    """RecordIO: the length in decimal digits, a line feed, the bytes."""
    return b"%d\n%s" % (len(data), data)


class Answers(Protocol):
    """What is asked of the master, or of an agent."""

    heartbeat_s: float
    silent: bool

    def take(self, body: bytes, headers: dict[str, str]) -> Reply | Subscriber:
        """What a request is answered; for a subscription, its stream."""

    def told(self, body: bytes) -> Reply:
        """What a question of an operator is answered."""

    def closed(self, subscriber: Subscriber) -> None:
        """A stream has ended."""

    def wait_stop(self) -> None:
        """Return when the master stops."""


class ScriptedServer(ThreadingHTTPServer):
    """A thread for each connection, on a free port."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, master: Answers, paths: Sequence[str] = PATHS) -> None:
        super().__init__(("127.0.0.1", 0), _handler(master, paths))

    def handle_error(self, *_: object) -> None:
        """A client that hung up is no failure of ours."""


def _handler(master: Answers, paths: Sequence[str]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True
        wbufsize = -1  # an answer goes in one piece, as that of a real one

        def do_GET(self) -> None:  # noqa: N802
            if self.path == "/version":
                self._answer(Reply(200, json.dumps({"version": VERSION})))
            else:
                text = "405 Method Not Allowed. Expecting one of { 'POST' }, but received 'GET'."
                self._answer(Reply(405, text) if self.path in paths else Reply(404))

        def do_POST(self) -> None:  # noqa: N802
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            if self.path not in (*paths, OPERATORS):
                self._answer(Reply(404))
                return
            headers = {name.lower(): value for name, value in self.headers.items()}
            asked = self.path == OPERATORS
            taken = master.told(body) if asked else master.take(body, headers)
            if isinstance(taken, Reply) and taken.gate is not None:
                taken.gate.wait()
            if isinstance(taken, Subscriber):
                self._stream(taken)
            elif taken.code:
                self._answer(taken)
            else:
                master.wait_stop()
                self.close_connection = True

        def _answer(self, reply: Reply) -> None:
            self.send_response(reply.code)
            if reply.location:
                self.send_header("Location", reply.location)
            if reply.body.startswith("{"):
                self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(reply.body.encode())))
            self.end_headers()
            self.wfile.write(reply.body.encode())

        def _stream(self, subscriber: Subscriber) -> None:
            self.close_connection = True
            self.send_response(200)
            for name, value in (
                ("Transfer-Encoding", "chunked"),
                ("Mesos-Stream-Id", subscriber.stream_id),
                ("Content-Type", "application/json"),
            ):
                self.send_header(name, value)
            self.end_headers()
            self.wfile.flush()
            threading.Thread(target=self._watch, args=(subscriber,), daemon=True).start()
            try:
                self._write_parts(subscriber)
            except OSError:  # it hung up
                pass
            finally:
                master.closed(subscriber)

        def _write_parts(self, subscriber: Subscriber) -> None:
            while True:
                try:
                    part = subscriber.parts.get(timeout=master.heartbeat_s)
                except queue.Empty:
                    if master.silent:
                        continue
                    part = record(b'{"type":"HEARTBEAT"}')
                if part is None:
                    break
                self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
                self.wfile.flush()
            if not subscriber.cut:
                self.wfile.write(b"0\r\n\r\n")
                self.wfile.flush()
            self.connection.shutdown(socket.SHUT_RDWR)

        def _watch(self, subscriber: Subscriber) -> None:
            """Notice that the client hangs up, though nothing is sent meanwhile."""
            try:
                while self.connection.recv(1):
                    pass
            except OSError:
                pass
            subscriber.cut = True
            subscriber.end()

        def log_message(self, *_: object) -> None:
            """The calls are kept; nobody reads a log."""

    return Handler
