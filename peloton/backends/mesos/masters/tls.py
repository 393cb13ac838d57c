"""TLS to masters and agents: the other end has proven its name before it is told anything.

Wraps sockets, and has words for what fails. There is no connection in which a certificate or the
name in it is not verified. It must not read a file, nor know what is said.
"""

from __future__ import annotations

import errno
import http.client
import socket
import ssl
import time
from collections.abc import Callable
from typing import Any, TypeVar

HANDSHAKE_S = 5.0
"""How long it may take until both have proven who they are."""
_WANTS_OURS = ("CERTIFICATE_REQUIRED", "HANDSHAKE_FAILURE", "BAD_CERTIFICATE", "UNKNOWN_CA")
_NO_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNKNOWN_PROTOCOL")

T = TypeVar("T")


class NamedConnection(http.client.HTTPSConnection):
    """One whose other end has another name than the address at which it is."""

    def __init__(
        self, host: str, port: int, *, name: str, context: ssl.SSLContext, timeout_s: float
    ) -> None:
        super().__init__(host, port, context=context, timeout=timeout_s)
        self._name, self._tls = name, context

    def connect(self) -> None:
        """As of a plain one, and then TLS."""
        http.client.HTTPConnection.connect(self)
        self.sock = self._tls.wrap_socket(self.sock, server_hostname=self._name)

    def send(self, data: Any) -> None:
        """Send all of it."""
        try:
            super().send(data)
        except OSError as error:
            said = _last_word(self.sock, error)
            if said is error:
                raise
            raise said from None


class TlsSocket:
    """A socket that begins to connect, and never blocks: as a plain one it raises BlockingIOError.

    Once it is connected the first to send or receive begins the handshake. `failed` is told of a
    failure before that is raised.
    """

    def __init__(
        self,
        plain: socket.socket,
        context: ssl.SSLContext,
        *,
        name: str,
        failed: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._sock, self._context, self._name = plain, context, name
        self._failed, self._clock = failed, clock
        self._tls: ssl.SSLSocket | None = None
        self._until = float("inf")
        self._proven = False
        self._waits = False

    @property
    def waits_to_read(self) -> bool:
        """Whether nothing can be sent before something came, for which there is time."""
        return self._waits and self._clock() < self._until

    @property
    def pending(self) -> int:
        """Bytes that came, and that no selector shows."""
        return self._tls.pending() if self._tls is not None else 0

    def fileno(self) -> int:
        """For selectors."""
        return self._sock.fileno()

    def getsockopt(self, level: int, option: int) -> int:
        """Of the socket below."""
        return self._sock.getsockopt(level, option)

    def close(self) -> None:
        """Hang up, without a word."""
        self._sock.close()

    def send(self, data: bytes) -> int:
        """How many of these were sent."""
        return self._done(lambda tls: tls.send(data), sends=True)

    def recv(self, count: int) -> bytes:
        """So many at most; none at the end."""
        return self._done(lambda tls: tls.recv(count), sends=False)

    def _done(self, what: Callable[[ssl.SSLSocket], T], *, sends: bool) -> T:
        try:
            tls = self._shaken()
            self._waits = False
            return what(tls)
        except ssl.SSLWantReadError:
            self._waits = sends or not self._proven
            raise BlockingIOError(errno.EAGAIN, "nothing came") from None
        except ssl.SSLWantWriteError:
            self._waits = False
            raise BlockingIOError(errno.EAGAIN, "nothing can be sent") from None
        except OSError as error:
            self._failed(told_failure(_last_word(self._tls, error) if self._proven else error))
            raise

    def _shaken(self) -> ssl.SSLSocket:
        """With both sides proven."""
        if self._tls is None:
            self._until = self._clock() + HANDSHAKE_S
            self._sock = self._tls = self._context.wrap_socket(
                self._sock, server_hostname=self._name, do_handshake_on_connect=False
            )
        if not self._proven:
            if self._clock() >= self._until:
                raise TimeoutError(errno.ETIMEDOUT, f"no TLS in {HANDSHAKE_S:g} s")
            self._tls.do_handshake()
            self._proven, self._until = True, float("inf")
        return self._tls


def _last_word(sock: socket.socket | None, error: OSError) -> OSError:
    """Who hung up may have said why before that, as when we do not show a certificate."""
    if not isinstance(sock, ssl.SSLSocket) or isinstance(error, TimeoutError):
        return error
    try:
        sock.recv(1)
    except (BlockingIOError, ssl.SSLWantReadError):
        return error
    except OSError as said:
        return said
    return error


def told_failure(error: OSError) -> str:
    """What failed, for a person."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {error.verify_message.rstrip('.')}"
    if not isinstance(error, ssl.SSLError):
        return str(error) or type(error).__name__
    if isinstance(error, ssl.SSLEOFError):
        return "it hung up before there was TLS: it may speak none"
    reason = error.reason or ""
    if any(word in reason for word in _NO_TLS):
        return f"it does not speak TLS ({reason})"
    if any(word in reason for word in _WANTS_OURS):
        return f"it does not accept us: see `certificate` and `key` of `tls` ({reason})"
    return f"no TLS with it: {reason or error.args[-1]}"
