"""What is wrong with bytes that are no message: the field, the place and the fault.

Turns bytes that the parser of protobuf refused into a text; that parser says only that it did.
Pure. It must look at a bounded part of the bytes, as they come from anybody.
"""

from __future__ import annotations

from google.protobuf.descriptor import Descriptor, FieldDescriptor

LOOKED_AT_BYTES_MAX = 64 * 1024
DEPTH_MAX = 100
"""The limit of the parser."""
VARINT_BYTES_MAX = 10
NUMBER_MAX = 2**29 - 1
VARINT, FIXED64, LENGTH, START_GROUP, END_GROUP, FIXED32 = range(6)
SIZES = {FIXED64: 8, FIXED32: 4}


class _Fault(Exception):
    """The bytes are no message."""


class _Looked(Exception):
    """The fault lies beyond the part that is looked at."""


def first_fault(described: Descriptor, data: bytes) -> str:
    """The first fault in the bytes of a message of this type."""
    try:
        _Reader(data).message(described, len(data), path=(), depth=0)
    except _Fault as fault:
        return str(fault)
    except _Looked:
        return f"the fault lies beyond the first {LOOKED_AT_BYTES_MAX} bytes"
    return "the parser refused them"


class _Reader:
    """Goes through the bytes once."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def message(
        self, described: Descriptor | None, end: int, *, path: tuple[str, ...], depth: int
    ) -> None:
        """The fields up to `end`; `described` is None for a group, which no field of ours is."""
        if depth > DEPTH_MAX:
            raise _Fault(f"{_named(path[:3])} … is nested deeper than {DEPTH_MAX} messages")
        while self._at < end:
            if self._at > LOOKED_AT_BYTES_MAX:
                raise _Looked
            start = self._at
            tag = self._varint(end, path=path)
            number, wire = tag >> 3, tag & 7
            if not 0 < number <= NUMBER_MAX or wire > FIXED32:
                raise _Fault(f"{_named(path)}: byte {start} begins no field (tag {tag})")
            field = described.fields_by_number.get(number) if described is not None else None
            below = (*path, field.name if field is not None else f"field {number}")
            if wire == END_GROUP:
                if described is None and path and path[-1] == f"group {number}":
                    return
                raise _Fault(f"{_named(path)}: byte {start} ends a group that did not begin")
            self._value(field, wire, end=end, path=below, depth=depth)
        if described is None:
            raise _Fault(f"{_named(path)} is truncated: the group does not end")

    def _value(
        self,
        field: FieldDescriptor | None,
        wire: int,
        *,
        end: int,
        path: tuple[str, ...],
        depth: int,
    ) -> None:
        if wire == VARINT:
            self._varint(end, path=path)
        elif wire == START_GROUP:
            number = path[-1].rpartition(" ")[2] if field is None else str(field.number)
            self.message(None, end, path=(*path[:-1], f"group {number}"), depth=depth + 1)
        elif wire in SIZES:
            self._skip(SIZES[wire], end, path=path)
        else:
            self._bytes(field, self._varint(end, path=path), end=end, path=path, depth=depth)

    def _bytes(
        self,
        field: FieldDescriptor | None,
        size: int,
        *,
        end: int,
        path: tuple[str, ...],
        depth: int,
    ) -> None:
        start = self._at
        self._skip(size, end, path=path)
        if field is None:
            return
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            self._at = start
            self.message(field.message_type, start + size, path=path, depth=depth + 1)
        elif field.type == FieldDescriptor.TYPE_STRING:
            try:
                self._data[start : start + size].decode()
            except UnicodeDecodeError as error:
                text = f"byte {start + error.start} is not UTF-8"
                raise _Fault(f"{_named(path)}: {text}") from None
        elif field.type != FieldDescriptor.TYPE_BYTES:
            self._packed(field, start, end=start + size, path=path)

    def _packed(
        self, field: FieldDescriptor, start: int, *, end: int, path: tuple[str, ...]
    ) -> None:
        """Numbers of a repeated field, one behind the other."""
        fixed = FIXED_SIZES.get(field.type)
        if fixed is not None:
            if (end - start) % fixed:
                raise _Fault(f"{_named(path)} is truncated: {end - start} bytes of {fixed} each")
            return
        self._at = start
        while self._at < min(end, LOOKED_AT_BYTES_MAX):
            self._varint(end, path=path)
        self._at = end

    def _skip(self, size: int, end: int, *, path: tuple[str, ...]) -> None:
        if size > end - self._at:
            left = end - self._at
            raise _Fault(f"{_named(path)} is truncated: {size} bytes announced, {left} are there")
        self._at += size

    def _varint(self, end: int, *, path: tuple[str, ...]) -> int:
        found, start = 0, self._at
        while self._at < end:
            byte = self._data[self._at]
            found |= (byte & 0x7F) << 7 * (self._at - start)
            self._at += 1
            if byte < 0x80:
                return found
            if self._at - start == VARINT_BYTES_MAX:
                raise _Fault(f"{_named(path)}: byte {start} begins no number")
        raise _Fault(f"{_named(path)} is truncated: a number does not end")


FIXED_SIZES = {
    FieldDescriptor.TYPE_DOUBLE: 8,
    FieldDescriptor.TYPE_FIXED64: 8,
    FieldDescriptor.TYPE_SFIXED64: 8,
    FieldDescriptor.TYPE_FLOAT: 4,
    FieldDescriptor.TYPE_FIXED32: 4,
    FieldDescriptor.TYPE_SFIXED32: 4,
}


def _named(path: tuple[str, ...]) -> str:
    return ".".join(path) or "the message"
