"""Requests to servers of others, in HTTP/1.1: h11 knows the protocol, here are the sockets.

`status_from` is for who lives on a loop, and `HttpConnection` for who has a thread. What comes is
read up to a number of bytes and within a time, whoever sends it how slowly, and no redirection is
followed. What is asked, and which certificates suffice, its callers say.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import math
import socket
import ssl
import time
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import h11

HEAD_BYTES_MAX = 64 * 1024
"""Of the status, and all headers."""
HANDSHAKE_S = 5.0
"""How long it may take until both ends of a kept connection have proven who they are."""
TEXT_MAX = 200
"""Letters of what is wrong with an answer."""
_PIECE_BYTES = 256 * 1024


class BrokenAnswer(Exception):
    """What came is no answer of HTTP, or ended before its end."""


class Request(NamedTuple):
    """What is asked. `authority`: host and port, as the server is to be told."""

    method: str
    target: str
    authority: str
    headers: Mapping[str, str]
    body: bytes = b""


class AnswerHead(NamedTuple):
    """What comes before a body. The names of headers are in small letters."""

    status: int
    reason: str
    headers: Mapping[str, str]


async def status_from(
    request: Request, address: tuple[str, int], *, tls: ssl.SSLContext | None = None
) -> int:
    """The status of the answer, of which nothing more is read than its head.

    Whoever asks limits the time. Raises `BrokenAnswer`, OSError, or ValueError for a request that
    cannot be sent.
    """
    reader, writer = await asyncio.open_connection(*address, ssl=tls)
    try:
        talk = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_BYTES_MAX)
        writer.write(_sent(talk, request, Connection="close"))
        await writer.drain()
        while (answer := _head(talk)) is None:
            talk.receive_data(await reader.read(HEAD_BYTES_MAX))
        return answer.status
    finally:
        writer.transport.abort()  # the rest of the answer is of no interest
        with contextlib.suppress(OSError):
            await writer.wait_closed()


class HttpConnection:
    """To one server, made when it is needed, and kept. For one thread, but for `abort`.

    Calls raise `BrokenAnswer` and OSError, and after an exception only `close` may follow.
    """

    def __init__(
        self, address: tuple[str, int], *, name: str, tls: ssl.SSLContext | None, silence_s: float
    ) -> None:
        """`name`: what its certificate must say. `silence_s`: how long nothing may come."""
        self.silence_s = silence_s
        self._address, self._name, self._tls = address, name, tls
        self._sock: socket.socket | None = None
        self._aborted = False
        self._talk = h11.Connection(h11.CLIENT)

    def close(self) -> None:
        """Hang up; it may be used again."""
        sock, self._sock = self._sock, None
        if sock is not None:
            sock.close()

    def abort(self) -> None:
        """Let who waits for the server, on another thread, wait no more, nor ask again."""
        self._aborted = True
        sock = self._sock
        with contextlib.suppress(OSError):
            if sock is not None:  # not as an SSLSocket does it, which is not for two threads
                socket.socket.shutdown(sock, socket.SHUT_RDWR)

    def ask(self, request: Request, until: float = math.inf) -> AnswerHead:
        """What its answer begins with; the body has to be read next."""
        sock = self._sock or self._connected()
        data = _sent(self._talk, request)
        try:
            sock.sendall(data)
        except OSError as error:
            raise _last_word(sock, error) from None
        while (answer := _head(self._talk)) is None:
            self._receive(until)
        return answer

    def body(self, until: float = math.inf) -> Iterator[bytes]:
        """The body of the answer, as it comes."""
        while not isinstance(event := _event(self._talk), h11.EndOfMessage):
            if isinstance(event, h11.Data):
                yield bytes(event.data)
            else:
                self._receive(until)
        if self._talk.our_state is self._talk.their_state is h11.DONE:
            self._talk.start_next_cycle()
        else:
            self.close()

    def _connected(self) -> socket.socket:
        self._talk = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_BYTES_MAX)
        sock = self._sock = socket.create_connection(self._address, self.silence_s)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._tls is not None:
            limit_s = min(HANDSHAKE_S, self.silence_s)
            sock.settimeout(limit_s)
            try:
                sock = self._sock = self._tls.wrap_socket(sock, server_hostname=self._name)
            except TimeoutError:
                raise TimeoutError(errno.ETIMEDOUT, f"no TLS in {limit_s:g} s") from None
        if self._aborted:
            raise ConnectionAbortedError(errno.ECONNABORTED, "given up meanwhile")
        return sock

    def _receive(self, until: float) -> None:
        left_s = until - time.monotonic()
        if left_s <= 0 or self._sock is None:
            raise TimeoutError(errno.ETIMEDOUT, "no answer in time")
        self._sock.settimeout(min(self.silence_s, left_s))
        self._talk.receive_data(self._sock.recv(_PIECE_BYTES))


def _sent(talk: h11.Connection, request: Request, **more: str) -> bytes:
    """The request as it is sent; nothing can be slipped in between its parts."""
    length = {"Content-Length": str(len(request.body))} if request.body else {}
    headers = {"Host": request.authority, **request.headers, **length, **more}
    try:
        head = talk.send(
            h11.Request(method=request.method, target=request.target, headers=[*headers.items()])
        )
    except h11.LocalProtocolError as error:
        raise ValueError(str(error)) from None
    body = talk.send(h11.Data(data=request.body))
    return b"".join((head or b"", body or b"", talk.send(h11.EndOfMessage()) or b""))


def _event(talk: h11.Connection) -> Any:
    """The next one, or NEED_DATA."""
    try:
        return talk.next_event()
    except h11.RemoteProtocolError as error:
        hung_up = talk.trailing_data[1]
        raise BrokenAnswer("it hung up" if hung_up else str(error)[:TEXT_MAX]) from None


def _head(talk: h11.Connection) -> AnswerHead | None:
    """What an answer begins with, once it is there."""
    event = _event(talk)
    while isinstance(event, h11.InformationalResponse):  # the answer proper comes after it
        event = _event(talk)
    if event is h11.NEED_DATA:
        return None
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in event.headers}
    return AnswerHead(event.status_code, event.reason.decode("latin-1"), headers)


def _last_word(sock: socket.socket, error: OSError) -> OSError:
    """Who hung up may have said why before that, as when we do not show a certificate."""
    if not isinstance(sock, ssl.SSLSocket) or isinstance(error, TimeoutError):
        return error
    try:
        sock.recv(1)
    except ssl.SSLWantReadError:
        return error
    except OSError as said:
        return said
    return error
