"""HTTP connections: how many there may be, how long and how large a request may be.

Each connection has a thread that reads one request within limits of time and size. A client that is
slow, hangs up or sends an invalid request costs one of these threads for a limited time, and no
line in the log.
"""

from __future__ import annotations

import contextlib
import errno
import http.server
import io
import socket
import sys
import threading
import time
from http import HTTPStatus
from typing import Any

import structlog

CONNECTIONS_MAX = 64
"""Each has a thread. When all are taken, the one that has sent no request for longest is closed."""
FILES_MAX = 56
"""Of these so many may send files, whatever there is to send: health finds the others."""
HEAD_S_MAX = 10.0
"""How long a request may take to arrive, from the beginning of its connection."""
HEAD_BYTES_MAX = 16 * 1024
"""Of the request line and the headers together."""
WRITE_S_MAX = 30.0
"""How long a client may take for one piece of an answer."""
ACCEPT_PAUSE_S = 0.2
BACKLOG = 128
TOO_MANY = (
    b"HTTP/1.0 503 Service Unavailable\r\nContent-Length: 0\r\nRetry-After: 1\r\n"
    b"Connection: close\r\n\r\n"
)

log = structlog.get_logger("gateway")


class BoundedServer(http.server.ThreadingHTTPServer):
    """One thread for each connection, up to a limit of connections."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = BACKLOG

    def __init__(self, address: tuple[str, int], handler: type[LimitedHandler]) -> None:
        self._open: set[socket.socket] = set()
        self._waiting: dict[socket.socket, None] = {}  # for their requests; the oldest first
        self._lock = threading.Lock()
        super().__init__(address, handler)

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accept a connection."""
        try:
            return super().get_request()
        except OSError as error:
            # Its caller tries again at once, and for ever.
            if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                time.sleep(ACCEPT_PAUSE_S)
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        """Start the thread of a connection, or refuse it."""
        with self._lock:
            # One more while the thread of a closed one ends.
            full = len(self._open) >= CONNECTIONS_MAX
            oldest = next(iter(self._waiting), None) if full else None
            if oldest is not None:
                del self._waiting[oldest]
                with contextlib.suppress(OSError):
                    oldest.shutdown(socket.SHUT_RDWR)
            taken = not full or (oldest is not None and len(self._open) < 2 * CONNECTIONS_MAX)
            if taken:
                self._open.add(request)
                self._waiting[request] = None
        if taken:
            super().process_request(request, client_address)
            return
        with contextlib.suppress(OSError):
            request.setblocking(False)
            request.send(TOO_MANY)
        self.shutdown_request(request)

    def request_came(self, request: socket.socket) -> None:
        """Record that the request of a connection is complete, so that it is not closed for
        others."""
        with self._lock:
            self._waiting.pop(request, None)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection."""
        with self._lock:
            self._waiting.pop(request, None)
            self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that hang up; anything else is a bug."""
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            log.error("an HTTP connection failed", peer=str(client_address), exc_info=error)


class BoundedServer6(BoundedServer):
    """A `BoundedServer` on IPv6."""

    address_family = socket.AF_INET6


class HeadTooLarge(Exception):
    """A request is longer than it may be."""


class LimitedHandler(http.server.BaseHTTPRequestHandler):
    """The handler of one request, which arrives within limits.

    `request_came` is called before it is answered.
    """

    server_version, sys_version = "peloton", ""
    timeout = WRITE_S_MAX
    server: BoundedServer

    def setup(self) -> None:
        """Read through the limits."""
        super().setup()
        self.rfile.close()
        self.rfile = io.BufferedReader(_Head(self.connection))

    def handle(self) -> None:
        """Answer the one request."""
        try:
            super().handle()
        except HeadTooLarge:
            self.requestline = self.request_version = self.command = ""
            self.send_error(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)

    def request_came(self) -> None:
        """Record that the request is complete; each piece of the answer then has its own time."""
        self.server.request_came(self.connection)
        self.connection.settimeout(WRITE_S_MAX)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing, as there are too many requests."""


class _Head(io.RawIOBase):
    """The bytes of a request, as long as they are neither late nor too many."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._late_s = time.monotonic() + HEAD_S_MAX
        self._left = HEAD_BYTES_MAX

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Receive some bytes."""
        left_s = self._late_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        if not self._left:
            raise HeadTooLarge
        self._connection.settimeout(left_s)
        count = self._connection.recv_into(memoryview(buffer)[: self._left])
        self._left -= count
        return count
