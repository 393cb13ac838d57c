"""Hypothesis strategies for well-formed messages of any type, made from the descriptors.

Values are edges of their type, and names and ids that exist where they are given: a request that is
refused late has passed more code than one that is refused early.
"""

from __future__ import annotations

import functools
import struct

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from hypothesis import strategies as st

from tests.gateway.server.message_bytes import FLOATS, INTEGERS, length, tag, varint

DEPTH_MAX = 5
FIELDS_MAX = 5
EDGES = (
    "", " ", "\0", "a\0b", "z", "/", "//", "..", "../../etc/passwd", "/work/..", "root", "*",
    "%s%n", "{}", "[", "(a+)+$", "\\", "'; DROP TABLE journal; --", "\x1b[2J", "line\nbreak",
    "\u202etxt", "\ufeff", "é" * 50, "🚲", "\U0010ffff", "x" * 3000, "9" * 400, "-1", "nan", "0x10",
    "job/x",
    "00000000-0000-4000-8000-000000000000", "00000000-0000-4000-8000-000000000000-99999999999-1",
)  # fmt: skip
"""Texts that code which takes one apart may not expect."""
WIRES = {
    FieldDescriptor.TYPE_DOUBLE: 1, FieldDescriptor.TYPE_FIXED64: 1, FieldDescriptor.TYPE_FLOAT: 5,
    FieldDescriptor.TYPE_SFIXED64: 1, FieldDescriptor.TYPE_FIXED32: 5,
    FieldDescriptor.TYPE_SFIXED32: 5,
}  # fmt: skip


def texts(known: tuple[str, ...]) -> st.SearchStrategy[str]:
    """Texts of all sorts; half of them are known, or begin as one that is."""
    any_text = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)
    edges = st.sampled_from(EDGES) | any_text
    if not known:
        return edges
    existing = st.sampled_from(known)
    return existing | edges | st.tuples(existing, edges).map("".join)


@functools.cache
def bytes_of(
    described: Descriptor, known: tuple[str, ...] = (), depth: int = 0
) -> st.SearchStrategy[bytes]:
    """The bytes of a message: some of its fields, those that must be there always.

    Fields that are not repeated, and keys of maps, may come twice and in any order, which the
    wire allows.
    """
    fields = [each for each in described.fields if depth < DEPTH_MAX or not each.message_type]
    required = [_field(each, known, depth) for each in described.fields if each.is_required]
    parts = st.just(b"")
    if fields:
        one = st.sampled_from(fields).flatmap(lambda field: _field(field, known, depth))
        parts = st.lists(one, max_size=FIELDS_MAX).map(b"".join)
    return st.tuples(*required, parts).map(b"".join)


def forget() -> None:
    """Let go of what was made: a hundred thousand objects, for each collection to walk."""
    bytes_of.cache_clear()
    _field.cache_clear()


@functools.cache
def _field(field: FieldDescriptor, known: tuple[str, ...], depth: int) -> st.SearchStrategy[bytes]:
    begin = tag(field.number, _wire(field))
    if field.message_type is not None:
        value = bytes_of(field.message_type, known, depth + 1).map(sized)
    else:
        value = _scalar(field, known)
    return value.map(lambda data: begin + data)


def _wire(field: FieldDescriptor) -> int:
    if field.message_type is not None or field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        return 2
    return WIRES.get(field.type, 0)


def sized(data: bytes) -> bytes:
    """As a field of bytes, text or a message has it."""
    return length(data) + data


def _scalar(field: FieldDescriptor, known: tuple[str, ...]) -> st.SearchStrategy[bytes]:
    """The bytes of one value."""
    if field.type == FieldDescriptor.TYPE_BYTES:
        return st.binary(max_size=50).map(sized)
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        return texts(known).map(str.encode).map(sized)
    if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        return st.sampled_from((b"\0", b"\1"))
    if field.cpp_type == FieldDescriptor.CPPTYPE_ENUM:
        assert field.enum_type is not None
        numbers = [value.number for value in field.enum_type.values]
        return st.sampled_from((*numbers, *numbers, 999, -1)).map(_varint)
    if field.cpp_type in INTEGERS:
        if _wire(field):
            return st.binary(min_size=_size(field), max_size=_size(field))
        few = st.sampled_from((*INTEGERS[field.cpp_type], 1, 2, 3)).map(_varint)
        return few | st.integers(0, 2**64 - 1).map(_varint)
    packed = "<d" if _size(field) == 8 else "<f"
    return (st.sampled_from(FLOATS) | st.floats()).map(lambda value: _float(packed, value))


def _size(field: FieldDescriptor) -> int:
    return 8 if _wire(field) == 1 else 4


def _varint(value: int) -> bytes:
    return varint(value % 2**64)


def _float(packed: str, value: float) -> bytes:
    try:
        return struct.pack(packed, value)
    except OverflowError:  # it has no place in half of the bytes
        return struct.pack(packed, float("inf"))
