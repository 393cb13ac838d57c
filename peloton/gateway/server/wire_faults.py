"""Where bytes that are no message are wrong: the path of the field.

The parser of protobuf says only that it refused them, so it is asked again, about each field alone.
Pure. It must look at a bounded number of bytes, as they come from anybody.
"""

from __future__ import annotations

from collections.abc import Iterator

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

LOOKED_AT_BYTES_MAX = 16 * 1024
VARINT, LENGTH, VARINT_BYTES_MAX = 0, 2, 10
SIZES = {1: 8, 5: 4}
PATH_SHOWN = 3
"""So much of the path of what is nested too deep."""


def first_fault(described: Descriptor, data: bytes) -> str:
    """Return the first fault in the bytes of a message of this type."""
    if len(data) > LOOKED_AT_BYTES_MAX:
        return f"in more than {LOOKED_AT_BYTES_MAX} bytes the fault is not searched for"
    path: list[str] = []
    while True:
        refused = (one for one in _fields(data) if _is_refused(described, data[one[1] : one[2]]))
        number, _, end, value = next(refused, (0, 0, 0, None))
        if not end:  # all that is inside is good by itself
            return f"{'.'.join(path[:PATH_SHOWN])} … is nested too deep"
        field = described.fields_by_number.get(number)
        if number:
            path.append(field.name if field is not None else f"field {number}")
        where = ".".join(path) or "the message"
        if end > len(data):
            return f"{where} is truncated"
        if field is None or value is None or field.message_type is None:
            is_text = field is not None and value and field.type == FieldDescriptor.TYPE_STRING
            return f"{where} {'is not UTF-8' if is_text else 'cannot be read'}"
        described, data = field.message_type, value


def _is_refused(described: Descriptor, data: bytes) -> bool:
    try:
        GetMessageClass(described).FromString(data)
    except DecodeError:
        return True
    return False


def _fields(data: bytes) -> Iterator[tuple[int, int, int, bytes | None]]:
    """Of each field its number, where it begins and ends, and its value where that has a length.

    One that is truncated ends beyond the bytes; a group, which no field of ours is, with them.
    """
    end = 0
    while end < len(data):
        begin = end
        tag, at = _varint(data, begin)
        wire = tag & 7
        end = at + SIZES.get(wire, len(data) - at)
        if wire in (VARINT, LENGTH):
            size, at = _varint(data, at)
            end = at + size if wire == LENGTH else at
        yield tag >> 3, begin, end, data[at:end] if wire == LENGTH else None


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """The number, and where it ends: beyond the bytes, where it does not."""
    found = 0
    for place, byte in enumerate(data[at : at + VARINT_BYTES_MAX]):
        found |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return found, at + place + 1
    return 0, len(data) + 1
