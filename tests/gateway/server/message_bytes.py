"""Bytes for messages of any type: valid ones with extreme values, and faulty ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message_factory import GetMessageClass

DEPTH_MAX = 4
TEXTS = (
    "", "a", "/", "../..", "\x1b[2J", "line\nbreak", "\u202etxt", "\0", "x" * 3000, "é" * 50,
    "00000000-0000-4000-8000-000000000000", "-1", "9" * 50, "root", "job/x", "[", "%s%n", "🚲",
)  # fmt: skip
FLOATS = (0.0, -0.0, 1.0, -1.0, 1e308, -1e308, 5e-324, float("inf"), float("-inf"), float("nan"))
INTEGERS = {
    FieldDescriptor.CPPTYPE_INT32: (0, 1, -1, 2**31 - 1, -(2**31)),
    FieldDescriptor.CPPTYPE_ENUM: (0, 1, 2, 3, 999, -1, 2**31 - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, 1, 2, 2**32 - 1),
    FieldDescriptor.CPPTYPE_INT64: (0, 1, -1, 2**63 - 1, -(2**63)),
    FieldDescriptor.CPPTYPE_UINT64: (0, 1, 2**64 - 1),
}


def valid(described: Descriptor, chance: Random, *, depth: int = 0) -> Any:
    """A message with some of its fields set."""
    made = GetMessageClass(described)()
    for field in described.fields:
        if chance.random() < 0.4:
            continue
        if field.message_type is not None and depth >= DEPTH_MAX:
            continue
        _set(made, field, chance, depth)
    return made


def _set(made: Any, field: FieldDescriptor, chance: Random, depth: int) -> None:
    target = getattr(made, field.name)
    kind = field.message_type
    if kind is not None and kind.GetOptions().map_entry:
        value = kind.fields_by_name["value"]
        if value.message_type is None:
            target[_value(kind.fields_by_name["key"], chance)] = _value(value, chance)
        else:
            target[_value(kind.fields_by_name["key"], chance)].SetInParent()
    elif field.is_repeated:
        for _ in range(chance.randrange(1, 4)):
            one = valid(kind, chance, depth=depth + 1) if kind is not None else None
            target.append(one if one is not None else _value(field, chance))
    elif kind is not None:
        target.CopyFrom(valid(kind, chance, depth=depth + 1))
        target.SetInParent()
    else:
        setattr(made, field.name, _value(field, chance))


def _value(field: FieldDescriptor, chance: Random) -> Any:
    if field.enum_type is not None and field.enum_type.is_closed:
        return chance.choice([value.number for value in field.enum_type.values])
    if field.cpp_type in INTEGERS:
        return chance.choice(INTEGERS[field.cpp_type])
    if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        return chance.random() < 0.5
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        text = chance.choice(TEXTS)
        return text.encode() if field.type == FieldDescriptor.TYPE_BYTES else text
    return chance.choice(FLOATS)


def faulty(described: Descriptor, chance: Random) -> Iterator[bytes]:
    """One of each fault; some of them happen to be messages nevertheless."""
    data = valid(described, chance).SerializePartialToString() or b"\x0a\x00"
    yield data[: chance.randrange(len(data))]
    yield data + chance.randbytes(chance.randrange(1, 20))
    yield chance.randbytes(chance.randrange(1, 200))
    flipped = bytearray(data)
    flipped[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    yield bytes(flipped)
    numbers = [field.number for field in described.fields] or [1]
    for wire in range(8):  # also the wire types that there are not
        yield tag(chance.choice(numbers), wire) + chance.randbytes(chance.randrange(12))
    yield tag(chance.choice(numbers), 2) + b"\xff\xff\xff\xff\x0f"  # 4 GiB are announced
    yield tag(chance.choice(numbers), 2) + b"\x04\xff\xfe\xc0\x80"  # text that is not UTF-8
    yield tag(chance.choice(numbers), 3) * 500  # groups in groups
    yield nested(described, 300)
    yield b"\xff" * 20


def nested(described: Descriptor, depth: int) -> bytes:
    """The first field of a message type, in itself where it can be, else as unknown groups."""
    for field in described.fields:
        if field.message_type is not None:
            begin = tag(field.number, 2)
            return wrapped(lambda inner, begin=begin: begin + length(inner) + inner, depth)
    return tag(1000, 3) * depth + tag(1000, 4) * depth


def wrapped(wrap: Callable[[bytes], bytes], depth: int) -> bytes:
    data = b""
    for _ in range(depth):
        data = wrap(data)
    return data


def length(data: bytes) -> bytes:
    return varint(len(data))


def tag(number: int, wire: int) -> bytes:
    return varint(number << 3 | wire)


def varint(value: int) -> bytes:
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)
