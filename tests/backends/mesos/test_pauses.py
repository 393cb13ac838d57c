"""How soon our executor connects to its agent again, and how often where that always refuses."""

from __future__ import annotations

import selectors
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from peloton.backends.mesos.executor.agent_link import AgentGone, AgentLink, NotTaken
from peloton.backends.mesos.executor.loop import LASTED_S, PAUSE_MAX_S, PAUSE_S, ConnectPauses

RECOVERY_S = 2.0
"""For so long a recovering agent waits for its executors, by default."""
STREAM = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def test_where_the_agent_refuses_the_pauses_grow_to_a_bound() -> None:
    pauses = ConnectPauses()
    found = [pauses.after(0.01, refused=True) for _ in range(6)]
    assert found == [PAUSE_S, 0.4, 0.8, PAUSE_MAX_S, PAUSE_MAX_S, PAUSE_MAX_S]
    assert PAUSE_MAX_S < RECOVERY_S


def test_an_agent_that_is_away_is_looked_for_at_once_and_without_end() -> None:
    pauses = ConnectPauses()
    for _ in range(3):
        pauses.after(0.01, refused=True)
    assert [pauses.after(0.01, refused=False) for _ in range(9)] == [PAUSE_S] * 9
    assert pauses.after(0.01, refused=True) == PAUSE_S, "that it was away begins it anew"


def test_a_connection_that_lasted_begins_it_anew() -> None:
    pauses = ConnectPauses()
    for _ in range(9):
        pauses.after(0.01, refused=True)
    assert pauses.after(LASTED_S, refused=True) == PAUSE_S


@contextmanager
def agent(*answers: bytes) -> Iterator[str]:
    """One that answers so, one connection after the other: the stream, and the calls."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            kept = [server.accept()[0] for _ in answers]
            for sock, answer in zip(kept, answers, strict=True):
                sock.sendall(answer)
            over.wait()
            for sock in kept:
                sock.close()

        over = threading.Event()
        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        over.set()
        thread.join()


@pytest.mark.parametrize(
    ("answers", "taken"),
    [
        ((STREAM, b"HTTP/1.1 400 Bad\r\nContent-Length: 2\r\n\r\nno"), False),
        ((b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n", b""), False),
        ((STREAM + b"zz\r\n", b""), False),
        ((b"HTTP/1.1 503 Recovering\r\nContent-Length: 0\r\n\r\n", b""), True),
    ],
)
def test_what_is_a_refusal_and_what_an_agent_that_is_not_ready(
    answers: tuple[bytes, ...], taken: bool
) -> None:
    with agent(*answers) as endpoint, selectors.DefaultSelector() as selector:
        link = AgentLink(endpoint, selector)
        link.connect()
        with pytest.raises(AgentGone) as gone:
            while True:
                for key, _ in selector.select():
                    link.read(key.data)
        link.close()
    assert isinstance(gone.value, NotTaken) != taken
