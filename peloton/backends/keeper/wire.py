"""Lines of JSON between the keeper and a daemon, and lines of pipes.

Turns bytes from a socket into messages and messages into bytes. Nothing here blocks: others read
the socket, and close a pipe.
"""

from __future__ import annotations

import json
import os
from typing import Any

KeeperMessage = dict[str, Any]
VERSION = 2
"""Of what the messages mean. A keeper outlives daemons: one of another version is asked nothing."""

# `json.dumps` with separators builds an encoder at every call.
_ENCODE = json.JSONEncoder(separators=(",", ":")).encode

# No peer of ours sends more than this without a newline.
LINE_BYTES_MAX = 32 * 1024 * 1024
READ_BYTES = 65536


class BadLine(Exception):
    """The peer sent bytes that are no message; the connection cannot be used any more."""


def encode(message: KeeperMessage) -> bytes:
    return f"{_ENCODE(message)}\n".encode()


class Lines:
    """Collects bytes; returns messages as they are complete."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._partial_bytes = 0

    def feed(self, data: bytes) -> list[KeeperMessage]:
        """Return the complete messages. Pieces are joined only at a line's end: else
        quadratically."""
        head, newline, rest = data.rpartition(b"\n")
        if not newline:
            self._buffer(data)
            return []
        whole = b"".join([*self._pieces, head])
        self._pieces, self._partial_bytes = [], 0
        self._buffer(rest)
        return [_decode(line) for line in whole.split(b"\n")]

    def _buffer(self, data: bytes) -> None:
        self._partial_bytes += len(data)
        if self._partial_bytes > LINE_BYTES_MAX:
            raise BadLine(f"a line of more than {LINE_BYTES_MAX} bytes")
        if data:
            self._pieces.append(data)


def _decode(line: bytes) -> KeeperMessage:
    try:
        message = json.loads(line)
    except ValueError as trouble:
        raise BadLine(f"not JSON: {trouble}") from trouble
    if not isinstance(message, dict):
        raise BadLine("not an object")
    return message


class PipeLines:
    """The lines read from one pipe, whose reading end must not block.

    `over`: the other end is closed, and all was read.
    """

    def __init__(self) -> None:
        self._begun = b""
        self.over = False

    def read(self, descriptor: int) -> list[bytes]:
        """Return the lines that are whole by now, without their ends."""
        try:
            while data := os.read(descriptor, READ_BYTES):
                self._begun += data
            self.over = True
        except BlockingIOError:
            pass
        lines = self._begun.split(b"\n")
        self._begun = lines.pop()
        return lines
