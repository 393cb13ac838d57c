"""The client of HTTP against servers that misbehave: what it reads, and how long it waits."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from peloton.http_client import HEAD_BYTES_MAX, BrokenAnswer, HttpConnection, Request, status_from

ASKED = Request("POST", "/x", "here", {"Accept": "*/*"}, b"abc")
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
WAIT_S = 60.0


@contextmanager
def serving(*answers: bytes | None) -> Iterator[tuple[str, int]]:
    """To one who connects: a piece for each request, or silence."""
    held = threading.Event()

    def serve() -> None:
        peer, _ = server.accept()
        with peer:
            for answer in answers:
                peer.recv(65536)
                if answer is None:
                    held.wait(WAIT_S)
                else:
                    peer.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()
        held.set()
        thread.join(WAIT_S)


def connection(address: tuple[str, int]) -> HttpConnection:
    return HttpConnection(address, name="", tls=None, silence_s=WAIT_S)


def test_a_connection_is_kept_from_one_answer_to_the_next() -> None:
    head = b"HTTP/1.1 202 Fine\r\nTransfer-Encoding: chunked\r\nWho: me\r\n\r\n"
    chunked = head + b"1\r\no\r\n1\r\nk\r\n0\r\n\r\n"
    with serving(OK, chunked) as address:
        it = connection(address)
        assert it.ask(ASKED).status == 200 and b"".join(it.body()) == b"ok"
        found = it.ask(ASKED)
        assert (found.status, found.reason, found.headers["who"]) == (202, "Fine", "me")
        assert b"".join(it.body()) == b"ok"
        it.close()


def test_100_continue_is_not_the_answer() -> None:
    with serving(b"HTTP/1.1 100 Continue\r\n\r\n" + OK) as address:
        assert connection(address).ask(ASKED).status == 200


@pytest.mark.parametrize(
    "answer",
    [b"SSH-2.0\r\n", b"", OK[:-1], b"HTTP/1.1 200 OK\r\nx: " + b"y" * HEAD_BYTES_MAX * 2],
    ids=["no HTTP", "nothing", "cut", "a head without end"],
)
def test_what_is_no_answer(answer: bytes) -> None:
    with serving(answer) as address:
        it = connection(address)
        with pytest.raises(BrokenAnswer):
            it.ask(ASKED)
            assert not [*it.body()]
        it.close()


def test_a_time_for_all_counts_whatever_comes() -> None:
    with serving(b"HTTP/1.1 200 OK\r\n", None) as address:
        it = connection(address)
        with pytest.raises(TimeoutError):
            it.ask(ASKED, time.monotonic() + 0.05)
        it.close()


def test_who_waits_is_let_go_from_another_thread() -> None:
    with serving(None) as address:
        it = connection(address)
        threading.Timer(0.05, it.abort).start()
        with pytest.raises(BrokenAnswer, match="hung up"):
            it.ask(ASKED)
        it.close()
    with serving() as address:
        it = connection(address)
        it.abort()
        with pytest.raises(ConnectionAbortedError):
            it.ask(ASKED)
        it.close()


ASKS: dict[str, Callable[[tuple[str, int], Request], object]] = {
    "on a thread": lambda address, asked: connection(address).ask(asked),
    "on a loop": lambda address, asked: asyncio.run(status_from(asked, address)),
}


@pytest.mark.parametrize("how", ASKS)
def test_nothing_can_be_slipped_into_a_request(how: str) -> None:
    with serving() as address, pytest.raises(ValueError, match="target"):
        ASKS[how](address, ASKED._replace(target="/x HTTP/1.1\r\nHost: elsewhere"))
