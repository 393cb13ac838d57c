"""What the gRPC exchange promises beyond its port: TLS both ways, peers that die or fall silent.

The port's own promises are tested in tests/contracts.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from peloton.runtime.adapters import grpc_exchange_stream as streams
from peloton.runtime.adapters.grpc_exchange import CannotListen, GrpcExchange, Tls
from peloton.runtime.core.links.parcels import STREAM_FRAME_BYTES_MAX
from tests.adapters.listener import Diary
from tests.adapters.pems import Authority
from tests.contracts.memberships import wait

LOOPBACK = "127.0.0.1:0"
PING_S, PONG_S = 1.0, 60.0
"""gRPC sends no more pings than one a second; a busy machine has its time for the answer."""


class Open:
    """Exchanges that are stopped when the test is over."""

    def __init__(self) -> None:
        self.all: list[GrpcExchange] = []

    def __call__(
        self, tls: Tls | None = None, *, listen: str = LOOPBACK, **seconds: float
    ) -> tuple[GrpcExchange, Diary]:
        exchange, diary = GrpcExchange(listen, tls=tls, **seconds), Diary()
        self.all.append(exchange)
        exchange.listen(diary)
        return exchange, diary


@pytest.fixture
def begin() -> Iterator[Open]:
    begin = Open()
    yield begin
    for exchange in begin.all:
        exchange.stop()


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("pems") / "ours")


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("pems") / "theirs")


# ---- who may speak ----


def test_two_with_certificates_of_one_authority_speak(begin: Open, ours: Authority) -> None:
    (a, heard_a), (b, heard_b) = begin(ours.issue("a")), begin(ours.issue("b"))
    stream = a.dial(b.address)
    a.send(stream, b"hello")
    heard_b.wait(lambda: bool(heard_b.frames))
    b.send(heard_b.accepts[0], b"welcome")
    heard_a.wait(lambda: heard_a.frames == [(stream, b"welcome")])


def test_nobody_gets_in_with_a_certificate_of_another_authority(
    begin: Open, ours: Authority, theirs: Authority
) -> None:
    """He trusts us, so that it is for us to refuse him."""
    stranger = theirs.issue("stranger")._replace(ca=ours.ca)
    (a, heard_a), (b, heard_b) = begin(stranger), begin(ours.issue("b2"))
    a.send(a.dial(b.address), b"let me in")
    heard_a.wait(lambda: bool(heard_a.ends))
    assert not heard_b.accepts and not heard_b.frames


def test_nobody_gets_in_without_a_certificate(begin: Open, ours: Authority) -> None:
    (a, heard_a), (b, heard_b) = begin(), begin(ours.issue("b3"))
    a.send(a.dial(b.address), b"let me in")
    heard_a.wait(lambda: bool(heard_a.ends))
    assert not heard_b.accepts and not heard_b.frames


def test_we_tell_nothing_to_one_with_a_certificate_of_another_authority(
    begin: Open, ours: Authority, theirs: Authority
) -> None:
    """He would take anybody in; it is for us not to speak to him."""
    stranger = theirs.issue("listener")._replace(ca=ours.ca)
    (a, heard_a), (b, heard_b) = begin(ours.issue("a4")), begin(stranger)
    a.send(a.dial(b.address), b"a secret")
    heard_a.wait(lambda: bool(heard_a.ends))
    assert not heard_b.accepts and not heard_b.frames


@pytest.mark.parametrize("server_name", ["", "peloton"])
def test_a_peer_must_be_who_was_dialled(begin: Open, ours: Authority, server_name: str) -> None:
    """Either its certificate has the address, or the name that all daemons share."""
    named = ours.issue("named", says="DNS:peloton")._replace(server_name=server_name)
    (a, heard_a), (b, heard_b) = begin(named), begin(named)
    stream = a.dial(b.address)
    if server_name:
        heard_b.wait(lambda: bool(heard_b.accepts))
    else:
        heard_a.wait(lambda: [at for at, _ in heard_a.ends] == [stream])
        assert not heard_b.accepts


@pytest.mark.parametrize("listen", ["0.0.0.0:0", "[::]:0", "10.1.2.3:0", "example.org:0"])
def test_without_tls_only_loopback_is_listened_on(listen: str) -> None:
    with pytest.raises(CannotListen, match="refused without TLS"):
        GrpcExchange(listen)


def test_with_tls_any_address_may_be_listened_on(begin: Open, ours: Authority) -> None:
    (a, _), (b, heard_b) = begin(ours.issue("a5")), begin(ours.issue("b5"), listen="0.0.0.0:0")
    a.dial(f"127.0.0.1:{b.address.rpartition(':')[2]}")
    heard_b.wait(lambda: bool(heard_b.accepts))


@pytest.mark.parametrize("bad", ["127.0.0.1", "127.0.0.1:x", ""])
def test_an_address_is_a_host_and_a_port(bad: str) -> None:
    with pytest.raises(CannotListen, match="HOST:PORT"):
        GrpcExchange(bad)


def test_a_busy_port_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        address = f"127.0.0.1:{busy.getsockname()[1]}"
        with pytest.raises(CannotListen, match=address):
            GrpcExchange(address)


def test_a_file_that_is_not_there_or_holds_something_else_is_named(
    ours: Authority, tmp_path: Path
) -> None:
    tls = ours.issue("files")
    with pytest.raises(CannotListen, match=r"tls\.key: .*nowhere"):
        GrpcExchange(LOOPBACK, tls=tls._replace(key=tmp_path / "nowhere"))
    with pytest.raises(CannotListen, match=r"tls\.certificate: .* holds no CERTIFICATE"):
        GrpcExchange(LOOPBACK, tls=tls._replace(certificate=tls.key))


# ---- peers that die, fall silent, or say too much ----


class Echo:
    """Another process that sends back what it hears, and dials who is given."""

    def __init__(self, *dials: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.adapters.echo", *dials],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.address = self.process.stdout.readline().strip()

    def __enter__(self) -> Echo:
        return self

    def __exit__(self, *error: object) -> None:
        self.process.kill()
        self.process.communicate()

    def freeze(self) -> None:
        os.kill(self.process.pid, signal.SIGSTOP)


def test_a_peer_that_was_killed_is_noticed(begin: Open) -> None:
    a, heard = begin()
    with Echo() as echo:
        stream = a.dial(echo.address)
        a.send(stream, b"x")
        heard.wait(lambda: heard.frames == [(stream, b"x")])
        echo.process.kill()
        heard.wait(lambda: [at for at, _ in heard.ends] == [stream])


@pytest.mark.parametrize("dials", ["we", "they"])
def test_a_peer_that_falls_silent_is_noticed(begin: Open, dials: str) -> None:
    """Its kernel still answers; nothing of ours does. Nobody has anything to say meanwhile."""
    # On a slow machine one may be taken for silent before it is: then it gets more time.
    assert any(is_frozen_noticed(begin, dials, pong_s=pong_s) for pong_s in (2.0, 8.0, 32.0))


def is_frozen_noticed(begin: Open, dials: str, *, pong_s: float) -> bool:
    """Whether a stream ends after its peer is frozen, and not before."""
    a, heard = begin(keepalive_s=PING_S, pong_s=pong_s)
    with Echo(*([a.address] if dials == "they" else [])) as echo:
        if dials == "we":
            stream = a.dial(echo.address)
        else:
            heard.wait(lambda: bool(heard.accepts))
            stream = heard.accepts[0]
        a.send(stream, b"x")
        heard.wait(lambda: bool(heard.frames or heard.ends))
        if heard.ends:
            return False
        echo.freeze()
        heard.wait(lambda: [at for at, _ in heard.ends] == [stream])
    return heard.frames == [(stream, b"x")]


@pytest.mark.slow
def test_a_stream_on_which_nobody_speaks_stays(begin: Open) -> None:
    """Pings are no attack: by default the other side would hang up after the third."""
    a, heard_a = begin(keepalive_s=PING_S, pong_s=PONG_S)
    b, heard_b = begin(keepalive_s=PING_S, pong_s=PONG_S)
    stream = a.dial(b.address)
    heard_b.wait(lambda: bool(heard_b.accepts))
    threading.Event().wait(6 * PING_S)
    a.send(stream, b"still there")
    heard_b.wait(lambda: bool(heard_b.frames))
    assert not heard_a.ends and not heard_b.ends


def test_frames_that_nobody_takes_are_bounded(begin: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "QUEUED_BYTES_MAX", 1000)
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        a, heard = begin()
        stream = a.dial(f"127.0.0.1:{deaf.getsockname()[1]}")
        for _ in range(11):
            a.send(stream, bytes(100))
        heard.wait(lambda: [at for at, _ in heard.ends] == [stream])
        assert "too many" in heard.ends[0][1]


def test_a_frame_that_no_stream_carries_ends_it(begin: Open) -> None:
    (a, heard_a), (b, heard_b) = begin(), begin()
    stream = a.dial(b.address)
    heard_b.wait(lambda: bool(heard_b.accepts))
    a.send(stream, bytes(STREAM_FRAME_BYTES_MAX + 1))
    heard_b.wait(lambda: bool(heard_b.ends))
    heard_a.wait(lambda: [at for at, _ in heard_a.ends] == [stream])


def test_no_call_waits_for_a_peer_that_does_not_answer(begin: Open) -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        a, heard = begin(keepalive_s=600.0)  # it would be waited for, for as long
        for _ in range(10):
            stream = a.dial(f"127.0.0.1:{deaf.getsockname()[1]}")
            a.send(stream, bytes(1_000_000))
            a.close(stream)
        a.stop()
        assert not heard.ends


def test_ears_may_close_the_stream_they_hear(begin: Open) -> None:
    """What came in the same message is not told them any more."""
    (a, _), (b, heard_b) = begin(), begin()
    heard_b.on_frame = lambda stream, data: b.close(stream)
    stream = a.dial(b.address)
    for number in range(1000):
        a.send(stream, b"%d" % number)
    heard_b.wait(lambda: bool(heard_b.frames))
    b.stop()
    assert len(heard_b.frames) == 1 and not heard_b.ends


def test_nothing_is_left_of_streams_that_ended(begin: Open) -> None:
    (a, heard_a), (b, heard_b) = begin(), begin()
    for number in range(20):
        stream = a.dial(b.address)
        heard_b.wait(lambda number=number: len(heard_b.accepts) > number)  # type: ignore[misc]
        if number % 2:
            a.close(stream)
        else:
            b.close(heard_b.accepts[-1])
    heard_a.wait(lambda: len(heard_a.ends) == 10)
    heard_b.wait(lambda: len(heard_b.ends) == 10)
    a.stop()
    b.stop()

    def left() -> list[str]:
        names = [thread.name for thread in threading.enumerate()]
        return [name for name in names if name.startswith(("dial-", "heard-"))]

    wait(lambda: not left())
    assert not a._streams and not b._streams and not a._dials
