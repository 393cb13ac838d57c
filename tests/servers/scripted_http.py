"""The HTTP side of what is scripted of Mesos: requests in, answers and streams of events out.

Each connection has a thread of its own, which writes what it is told. The master, or the agent,
says what a request is answered.
"""

from __future__ import annotations

import json
import queue
import socket
import threading
import uuid
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple, Self, TypeVar

from tests.servers.mesos_model.said import VERSION

PATH = "/api/v1/scheduler"
PATHS = (PATH, f"/master{PATH}")
"""A master that does not lead redirects to the second."""
OPERATORS = "/api/v1"
Event = dict[str, Any]
T = TypeVar("T")


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


HALF = {"type": "ERROR", "error": {"message": "x" * 1000}}
WAIT_S = 60.0


class Scripted:
    """A server on a port of its own, with one stream of events: `with` it, or `stop` it.

    Every call is kept in `calls`, and may be answered as a test says. `silent`: heartbeats stay
    away. It serves from `begin` on.
    """

    heartbeat_s = 15.0
    silent = False

    def __init__(self, paths: Sequence[str]) -> None:
        self.calls: list[Any] = []
        self.subscriber: Subscriber | None = None
        self._changed = threading.Condition(threading.RLock())
        self._replies: dict[str, list[Reply]] = {}
        self._stopping = threading.Event()
        self._server = ScriptedServer(self, paths)
        self.port = int(self._server.server_address[1])
        self.address = f"127.0.0.1:{self.port}"

    def begin(self) -> None:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End all streams, answer nobody any more."""
        self._stopping.set()
        self.drop_stream()
        self._server.shutdown()
        self._server.server_close()

    # ---- what a test asks for ----

    def reply(self, kind: str, *replies: Reply) -> None:
        """Answer the next calls of a type so, one each; each is done as little as it is said."""
        with self._changed:
            self._replies.setdefault(kind, []).extend(replies)

    def wait(self, fact: Callable[[], T | None]) -> T:
        """What this finds, as soon as it finds something."""
        with self._changed:
            assert self._changed.wait_for(fact, WAIT_S), self.calls
            found = fact()
            assert found is not None
            return found

    def wait_subscribed(self, *, but: Subscriber | None = None) -> Subscriber:
        """The stream that is open now, or another one than this."""
        return self.wait(lambda: self.subscriber if self.subscriber is not but else None)

    def send(self, *events: Event) -> None:
        """Events on the open stream."""
        subscriber = self.wait_subscribed()
        for event in events:
            subscriber.send(event)

    def send_record(self, data: bytes) -> None:
        """One record, whatever is in it."""
        self.send_bytes(record(data))

    def send_bytes(self, data: bytes) -> None:
        """Bytes of the stream that need not be a record, in a chunk of their own."""
        self.wait_subscribed().parts.put(data)

    def cut_in_record(self) -> None:
        """Send half of an event, and hang up."""
        with self._changed:
            subscriber, whole = self.wait_subscribed(), record(json.dumps(HALF).encode())
            subscriber.cut = True
            subscriber.parts.put(whole[: len(whole) // 2])
            subscriber.end()

    def drop_stream(self) -> None:
        """Hang up between two records, as who is killed."""
        with self._changed:
            if self.subscriber is not None:
                self.subscriber.cut = True
                self.subscriber.end()

    # ---- what it is asked ----

    def take(self, body: bytes, headers: dict[str, str]) -> Reply | Subscriber:
        """What a request is answered; for a subscription, its stream."""
        raise NotImplementedError

    def told(self, body: bytes) -> Reply:  # noqa: ARG002
        """What a question of an operator is answered."""
        return Reply(404)

    def closed(self, subscriber: Subscriber) -> bool:
        """A stream has ended, at whichever end. Whether it was the open one."""
        with self._changed:
            is_open = self.subscriber is subscriber
            if is_open:
                self.subscriber = None
            self._changed.notify_all()
            return is_open

    def wait_stop(self) -> None:
        """For those who are never answered: return when it stops."""
        self._stopping.wait()


class ScriptedServer(ThreadingHTTPServer):
    """A thread for each connection, on a free port."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, master: Scripted, paths: Sequence[str]) -> None:
        super().__init__(("127.0.0.1", 0), _handler(master, paths))

    def handle_error(self, *_: object) -> None:
        """A client that hung up is no failure of ours."""


def _handler(master: Scripted, paths: Sequence[str]) -> type[BaseHTTPRequestHandler]:
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
