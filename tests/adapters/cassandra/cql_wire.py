"""The part of the CQL binary protocol, version 5, for a stub server: frames, results, errors.

Turns bytes into requests and answers into bytes.
"""

from __future__ import annotations

import io
import socket
import struct
import uuid
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from cassandra.segment import SegmentCodec

VERSION = 5
STARTUP, OPTIONS, QUERY, PREPARE = 0x01, 0x05, 0x07, 0x09
EXECUTE, REGISTER, BATCH = 0x0A, 0x0B, 0x0D
ERROR, READY, SUPPORTED, RESULT = 0x00, 0x02, 0x06, 0x08
HEADER_BYTES = 9
TYPES = {"int": 9, "bigint": 2, "blob": 3, "text": 13, "boolean": 4, "uuid": 12, "inet": 16}
TEXT_SET = "set<text>"
QUORUM, SERIAL = 4, 8


class Frame(NamedTuple):
    """One request or answer."""

    stream: int
    opcode: int
    body: bytes

    def packed(self, *, answer: bool = True) -> bytes:
        version = VERSION | (0x80 if answer else 0)
        return struct.pack("!BBhBi", version, 0, self.stream, self.opcode, len(self.body)) + (
            self.body
        )


class Wire:
    """Frames over one connection, bare until both sides are ready and in segments from then on."""

    def __init__(self, connection: socket.socket) -> None:
        self._file = connection.makefile("rb")
        self._connection = connection
        self._segments: SegmentCodec | None = None
        self._left = b""

    def begin_segments(self) -> None:
        self._segments = SegmentCodec()

    def read(self) -> Frame | None:
        """The next request; None at the end."""
        head = self._take(HEADER_BYTES)
        if len(head) < HEADER_BYTES:
            return None
        _, _, stream, opcode, length = struct.unpack("!BBhBi", head)
        return Frame(stream, opcode, self._take(length))

    def write(self, frame: Frame) -> None:
        data = frame.packed()
        if self._segments is not None:
            buffer = io.BytesIO()
            self._segments.encode(buffer, data)
            data = buffer.getvalue()
        self._connection.sendall(data)

    def _take(self, count: int) -> bytes:
        if self._segments is None:
            return self._file.read(count)
        while len(self._left) < count:
            head = self._file.read(self._segments.header_length_with_crc)
            if not head:
                return b""
            header = self._segments.decode_header(io.BytesIO(head))
            rest = self._file.read(header.payload_length + 4)
            self._left += self._segments.decode(io.BytesIO(rest), header).payload
        taken, self._left = self._left[:count], self._left[count:]
        return taken


class Reader:
    """Reads the protocol's values off a body."""

    def __init__(self, body: bytes) -> None:
        self._body = io.BytesIO(body)

    def number(self, code: str) -> int:
        (value,) = struct.unpack("!" + code, self._body.read(struct.calcsize(code)))
        return int(value)

    def short_bytes(self) -> bytes:
        return self._body.read(self.number("H"))

    def long_text(self) -> str:
        return self._body.read(self.number("i")).decode()

    def values(self) -> list[bytes]:
        return [self._body.read(self.number("i")) for _ in range(self.number("H"))]


def text(value: str) -> bytes:
    return struct.pack("!H", len(value.encode())) + value.encode()


def cell(kind: str, value: object) -> bytes:
    """A value of a column, with its length."""
    if value is None:
        return struct.pack("!i", -1)
    packed = _packed(kind, value)
    return struct.pack("!i", len(packed)) + packed


def _packed(kind: str, value: object) -> bytes:
    if kind == TEXT_SET:
        assert isinstance(value, (list, tuple))
        return struct.pack("!i", len(value)) + b"".join(cell("text", one) for one in value)
    if isinstance(value, uuid.UUID):
        return value.bytes
    if isinstance(value, bytes):
        return value
    if kind == "inet":
        return socket.inet_aton(str(value))
    if isinstance(value, str):
        return value.encode()
    return struct.pack({"int": "!i", "bigint": "!q", "boolean": "!?"}[kind], value)


def _columns(columns: Iterable[tuple[str, str]]) -> bytes:
    parts = [text("stub"), text("table")]
    for name, kind in columns:
        parts.append(text(name))
        parts.append(
            struct.pack("!HH", 34, TYPES["text"])
            if kind == TEXT_SET
            else struct.pack("!H", TYPES[kind])
        )
    return b"".join(parts)


def rows(columns: Sequence[tuple[str, str]], values: Sequence[Sequence[object]]) -> bytes:
    """A result with rows; columns are (name, type)."""
    cells = [
        cell(kind, value) for row in values for (_, kind), value in zip(columns, row, strict=True)
    ]
    head = struct.pack("!iii", 2, 1, len(columns)) + _columns(columns)
    return head + struct.pack("!i", len(values)) + b"".join(cells)


def supported() -> bytes:
    version = text("CQL_VERSION") + struct.pack("!H", 1) + text("3.4.7")
    return struct.pack("!H", 2) + version + text("COMPRESSION") + struct.pack("!H", 0)


def void() -> bytes:
    return struct.pack("!i", 1)


def used(keyspace: str) -> bytes:
    return struct.pack("!i", 3) + text(keyspace)


def prepared(name: bytes, columns: Sequence[tuple[str, str]]) -> bytes:
    """A statement's name, and what it is to be bound with; of its result it says nothing."""
    ids = struct.pack("!H", len(name)) + name
    head = struct.pack("!i", 4) + ids + ids
    bound = struct.pack("!iii", 1, len(columns), 0) + _columns(columns)
    return head + bound + struct.pack("!ii", 4, 0)


def error(code: int, rest: bytes = b"") -> bytes:
    return struct.pack("!i", code) + text("planted") + rest
