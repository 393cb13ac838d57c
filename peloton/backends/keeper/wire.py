"""Lines of JSON between the keeper and a daemon.

Turns bytes from a socket into messages and messages into bytes. It must not know what any
message means, and must not wait: who reads a socket is somebody else's affair.
"""

from __future__ import annotations

import json
from typing import Any

KeeperMessage = dict[str, Any]

# A peer that sends more than this without a line's end is not one of ours.
LINE_BYTES_MAX = 32 * 1024 * 1024


class BadLine(Exception):
    """The peer said something that is no message; the connection cannot be trusted any more."""


def encode(message: KeeperMessage) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


class Lines:
    """Bytes as they come in, messages as they are complete."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._held_bytes = 0

    def feed(self, data: bytes) -> list[KeeperMessage]:
        """Pieces are joined only at a line's end: joining each time would be quadratic."""
        head, newline, rest = data.rpartition(b"\n")
        if not newline:
            self._hold(data)
            return []
        whole = b"".join([*self._pieces, head])
        self._pieces, self._held_bytes = [], 0
        self._hold(rest)
        return [_decode(line) for line in whole.split(b"\n")]

    def _hold(self, data: bytes) -> None:
        self._held_bytes += len(data)
        if self._held_bytes > LINE_BYTES_MAX:
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
