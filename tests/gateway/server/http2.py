"""Calls as raw frames of HTTP/2, for what no client library sends.

Frames and literal headers only: no flow control, no compression.
"""

from __future__ import annotations

import contextlib
import socket
import struct

DATA, HEADERS, RESET, SETTINGS, PING, CONTINUATION = 0, 1, 3, 4, 6, 9
END_STREAM, END_HEADERS = 1, 4
SEND_BYTES = 16_000
"""Less than the largest frame that every server takes."""


def frame(kind: int, flags: int, stream: int, body: bytes = b"") -> bytes:
    return (
        struct.pack(">I", len(body))[1:] + bytes((kind, flags)) + struct.pack(">I", stream) + body
    )


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, 0, 0)


def literals(*fields: tuple[str, str]) -> bytes:
    """Headers, each as it is."""
    found = b""
    for name, value in fields:
        found += b"\0" + bytes((len(name),)) + name.encode()
        found += bytes((len(value),)) + value.encode()
    return found


def call_headers(path: str, *more: tuple[str, str], content: str = "application/grpc") -> bytes:
    """The headers of a call."""
    return literals(
        (":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "localhost"),
        ("te", "trailers"), ("content-type", content), *more,
    )  # fmt: skip


def message(body: bytes, *, compressed: bool = False) -> bytes:
    """A message of gRPC."""
    return bytes((compressed,)) + struct.pack(">I", len(body)) + body


class Link:
    """One connection."""

    def __init__(self, port: int, *, timeout_s: float = 20.0) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=timeout_s)
        self.heard = b""

    def __enter__(self) -> Link:
        self.socket.sendall(PREFACE)
        return self

    def __exit__(self, *error: object) -> None:
        self.socket.close()

    def send(self, *frames: bytes) -> bool:
        """Whether the server still takes them."""
        try:
            self.socket.sendall(b"".join(frames))
        except OSError:
            return False
        return True

    def call(self, headers: bytes, body: bytes, *, stream: int = 1) -> bool:
        """A whole call, whose body may be larger than a frame."""
        pieces = [body[at : at + SEND_BYTES] for at in range(0, len(body), SEND_BYTES)] or [b""]
        frames = [frame(DATA, 0, stream, piece) for piece in pieces[:-1]]
        frames.append(frame(DATA, END_STREAM, stream, pieces[-1]))
        return self.send(frame(HEADERS, END_HEADERS, stream, headers), *frames)

    def hear(self, what: bytes) -> bool:
        """Whether the server says that before it hangs up or the time is over."""
        with contextlib.suppress(OSError):
            while what not in self.heard:
                data = self.socket.recv(65536)
                if not data:
                    break
                self.heard += data
        return what in self.heard
