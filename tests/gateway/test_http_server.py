"""The HTTP server against clients that are slow, many, rude or confused. Raw sockets only."""

from __future__ import annotations

import http.client
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from peloton.gateway import http_server as gateway_http
from peloton.gateway.cluster.files_anywhere import FileRoots
from peloton.gateway.http_server import OPEN, HttpAccess, HttpServer
from peloton.gateway.server import http_transport
from peloton.runtime.core.ended.retention import RetainedEnded
from peloton.runtime.core.health import DaemonHealth, NotReadyReason
from peloton.runtime.core.reading.listing import Listed, ListViews
from peloton.runtime.vocabulary import Key, key
from peloton.settings.config import Address
from tests.gateway.fleet_fixture import WAIT_S_MAX

REQUEST = b"GET /version HTTP/1.0\r\nHost: localhost\r\n\r\n"
DOWNLOAD = b"GET /files/run-1/stdout HTTP/1.0\r\nHost: localhost\r\n\r\n"
FILE_BYTES = 32 * 1024 * 1024


class Cluster:
    """A cluster with a strange name in its condition, and without metrics."""

    def shards_of(self, kind: str) -> list[Key]:
        return [key("shard", f"{kind}-0")]

    def read(self, shard: Key, query: Any) -> Any:
        return Listed(query.kind, (), matched=0) if isinstance(query, ListViews) else None

    def ended_retained(self, kind: str) -> list[RetainedEnded]:
        return []

    def daemon_health(self) -> DaemonHealth:
        return DaemonHealth(True, False, (NotReadyReason("host", "a\nb\x1b[2J\u202e"),))


class Served:
    """A server and raw connections to it."""

    def __init__(self, server: HttpServer) -> None:
        self.server = server
        self.bounded = server._server
        self.opened: list[socket.socket] = []

    def connect(self, sent: bytes = b"") -> socket.socket:
        link = socket.create_connection(at(self.server), timeout=WAIT_S_MAX)
        self.opened.append(link)
        link.sendall(sent)
        return link

    def answer(self, sent: bytes) -> bytes:
        """All that is answered, up to the end of the connection."""
        return received(self.connect(sent))

    def is_well(self) -> bool:
        return self.answer(REQUEST).startswith(b"HTTP/1.0 200 ")

    def until_closed(self) -> None:
        until(lambda: not self.bounded._open)


def at(server: HttpServer) -> tuple[str, int]:
    return server.address.host, server.address.port


def received(link: socket.socket) -> bytes:
    found = bytearray()
    try:
        while data := link.recv(65536):
            found += data
    except ConnectionError:
        pass
    return bytes(found)


def until(holds: Callable[[], object]) -> None:
    late_s = time.monotonic() + WAIT_S_MAX
    while not holds():
        assert time.monotonic() < late_s
        threading.Event().wait(0.005)


def reset(link: socket.socket) -> None:
    """Hang up as a process does that is killed."""
    link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    link.close()


@pytest.fixture
def served(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Iterator[Served]:
    """A server that is well afterwards, without open connections, and that has printed nothing."""
    box = tmp_path / "run-1"
    box.mkdir()
    with (box / "stdout").open("wb") as file:
        file.truncate(FILE_BYTES)
    cluster: Any = Cluster()
    server = HttpServer(
        Address("127.0.0.1", 0), cluster, sandboxes=FileRoots(tmp_path), access=OPEN
    )
    made = Served(server)
    with capture_logs() as logged:
        yield made
        assert made.is_well()
        for link in made.opened:
            link.close()
        made.until_closed()
    server.close()
    assert logged == [] and capfd.readouterr() == ("", "")


def test_a_request_that_trickles_in_is_given_up(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_transport, "HEAD_S_MAX", 0.4)
    slow = served.connect()
    begun_s = time.monotonic()
    for byte in REQUEST * 10:
        try:
            slow.sendall(bytes([byte]))
        except OSError:
            break
        if not served.bounded._open and time.monotonic() > begun_s + 0.4:
            break
        assert time.monotonic() < begun_s + WAIT_S_MAX
        threading.Event().wait(0.05)
    served.until_closed()
    assert received(slow) == b""


@pytest.mark.parametrize(
    "head",
    [
        b"GET /" + b"x" * 100_000,
        b"GET / HTTP/1.0\r\nA: " + b"x" * 100_000,
        b"GET / HTTP/1.0\r\n" + b"A: b\r\n" * 10_000,
        b"GET / HTTP/1.0\r\nA: b\r\n" + b" c\r\n" * 10_000,
    ],
    ids=("line", "header", "headers", "folded"),
)
def test_a_head_that_is_too_large_is_refused(served: Served, head: bytes) -> None:
    link = served.connect()
    try:
        link.sendall(head)
    except ConnectionError:  # it was closed meanwhile
        return
    assert received(link)[:12] in (b"HTTP/1.0 431", b"HTTP/1.0 414", b"")


def test_the_largest_head_that_is_allowed(served: Served) -> None:
    padding = http_transport.HEAD_BYTES_MAX - len(REQUEST) - len("A: \r\n")
    sent = REQUEST[:-2] + b"A: " + b"x" * padding + b"\r\n\r\n"
    assert len(sent) == http_transport.HEAD_BYTES_MAX
    assert served.answer(sent).startswith(b"HTTP/1.0 200 ")


def test_silent_connections_are_closed_for_others(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_transport, "CONNECTIONS_MAX", 4)
    before = threading.active_count()
    silent = []
    for _ in range(50):
        silent.append(served.connect(b"GET /"))
        assert len(served.bounded._open) <= 8
        until(lambda: threading.active_count() <= before + 8)
    until(served.is_well)  # the threads of closed ones may still end
    assert received(silent[0]) == b"", "the oldest was closed"


def test_connections_that_are_all_at_work_are_not_closed(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_transport, "CONNECTIONS_MAX", 2)
    loading = [served.connect(DOWNLOAD) for _ in range(2)]
    for link in loading:
        assert link.recv(12) == b"HTTP/1.0 200"
    assert served.answer(REQUEST).startswith(b"HTTP/1.0 503 ")
    for link in loading:
        assert len(received(link)) > FILE_BYTES
    until(lambda: len(served.bounded._open) == 0)


def test_downloads_of_one_caller_leave_others_some(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway_http, "FILES_MAX", 4)
    knows = DOWNLOAD[:-2] + b"Authorization: Bearer right\r\n\r\n"
    served.bounded.RequestHandlerClass.access = HttpAccess(  # type: ignore[attr-defined]
        None, lambda authorization: authorization == "Bearer right"
    )
    loading = [served.connect(DOWNLOAD) for _ in range(2)]
    for link in loading:
        assert link.recv(12) == b"HTTP/1.0 200"
    refused = served.answer(DOWNLOAD)
    text = b"somebody at 127.0.0.1 has 2 of 4 HTTP connections for files"
    assert refused.startswith(b"HTTP/1.0 429 ") and text in refused
    assert served.server.places.note().endswith("somebody at 127.0.0.1 has 2")
    loading.append(served.connect(knows))
    assert loading[-1].recv(12) == b"HTTP/1.0 200"
    assert served.is_well()
    for link in loading:
        assert len(received(link)) > FILE_BYTES
    until(lambda: not served.server.places.taken)


def test_a_client_that_does_not_read_is_cut_off(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_transport, "WRITE_S_MAX", 0.3)
    link = served.connect(DOWNLOAD)
    assert link.recv(12) == b"HTTP/1.0 200"
    served.until_closed()
    assert len(received(link)) < FILE_BYTES


def test_clients_that_hang_up_leave_nothing(served: Served) -> None:
    for _ in range(5):
        for sent in (b"", b"GET", b"GET /version HTTP/1.0\r\nHo", REQUEST, DOWNLOAD):
            reset(served.connect(sent))
        link = served.connect(DOWNLOAD)
        assert link.recv(1000)
        reset(link)
        served.connect(b"GET /ver").shutdown(socket.SHUT_WR)
    for link in served.opened:
        link.close()
    served.until_closed()


@pytest.mark.parametrize(
    "sent",
    [
        b"\r\n\r\n",
        b"\x00\x01\x02\xff\xfe\r\n\r\n",
        b"GET //[ HTTP/1.0\r\nHost: localhost\r\n\r\n",
        b"GET http://[/ HTTP/1.0\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET / HTTP/1.0 x y\r\n\r\n",
        b"GET /\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"BREW /\x1b[2J HTTP/1.0\r\n\r\n",
        b"GET / HTTP/1.0\r\nHost\r\n: x\r\n\x00\r\n\r\n",
        b"GET /files/%00 HTTP/1.0\r\nHost: localhost\r\n\r\n",
        b"GET /files/browse?path=%ff%fe%00 HTTP/1.0\r\nHost: localhost\r\n\r\n",
        b"GET /files/run-1/stdout HTTP/1.0\r\nHost: localhost\r\nRange: bytes=-\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    ],
)
def test_what_is_no_request_is_refused(served: Served, sent: bytes) -> None:
    link = served.connect(sent)
    link.shutdown(socket.SHUT_WR)
    found = received(link)
    assert b"Traceback" not in found and b"HTTP/1.0 500" not in found
    assert b"\x1b" not in found


def test_control_characters_are_escaped(served: Served) -> None:
    found = served.answer(b"GET /a\x1b[2Jb\x9b HTTP/1.0\r\nHost: localhost\r\n\r\n")
    assert found.endswith(rb"nothing at /a\x1b[2Jb\x9b" + b"\n")
    found = served.answer(b"GET /ready HTTP/1.0\r\nHost: localhost\r\n\r\n")
    assert found.endswith(rb"host: a\nb\x1b[2J\u202e" + b"\n")
    found = served.answer(b"GET /ready?format=json HTTP/1.0\r\nHost: localhost\r\n\r\n")
    assert rb'"a\nb\u001b[2J\u202e"' in found, "for programs it is exact"


def test_a_bug_is_logged_and_answered_without_its_text(tmp_path: Path) -> None:
    class Broken(Cluster):
        def daemon_health(self) -> DaemonHealth:
            raise KeyError("secret")

    cluster: Any = Broken()
    server = HttpServer(
        Address("127.0.0.1", 0), cluster, sandboxes=FileRoots(tmp_path), access=OPEN
    )
    with capture_logs() as logged:
        link = http.client.HTTPConnection(*at(server), timeout=WAIT_S_MAX)
        link.request("GET", "/health")
        answer = link.getresponse()
        assert (answer.status, b"secret" in answer.read()) == (500, False)
        link.close()
    server.close()
    assert [(one["event"], one["method"]) for one in logged] == [
        ("a call failed", "the HTTP request")
    ]
