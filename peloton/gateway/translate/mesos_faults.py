"""Faults of Mesos types in a message that the parser of protobuf accepted.

These types are of proto2: they have required fields, and texts that the parser does not check,
whose values are `bytes` if they are not UTF-8. The library's own list of missing fields must not be
used: behind a map it follows paths that are over, names fields that are not there, and may end the
process.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto


def missing_fields(message: Any) -> Iterator[str]:
    """Yield the paths, field by field, of what is missing in the message and in those within it."""
    if message.IsInitialized():
        return
    for field in message.DESCRIPTOR.fields:
        if field.is_required and not message.HasField(field.name):
            yield field.name
    for field, value in message.ListFields():
        for where, one in _within(field, value):
            for path in missing_fields(one):
                yield f"{where}.{path}"


def unreadable_texts(message: Any) -> Iterator[str]:
    """Yield the paths of texts that are not UTF-8, in the message and in those within it."""
    checked = _checked(message.DESCRIPTOR)
    if not checked:
        return
    for field, value in message.ListFields():
        if field.number not in checked:
            continue
        if field.type == FieldDescriptor.TYPE_STRING:
            for where, one in _each(field, value):
                if isinstance(one, bytes):
                    yield where
        else:
            for where, one in _within(field, value):
                for path in unreadable_texts(one):
                    yield f"{where}.{path}"


@functools.cache
def _checked(described: Descriptor) -> frozenset[int]:
    """Return the numbers of the fields in which a text of proto2 may be."""
    return frozenset(
        field.number
        for field in described.fields
        if (field.type == FieldDescriptor.TYPE_STRING and _is_proto2(described.file))
        or (field.message_type is not None and _has_texts(field.message_type))
    )


@functools.cache
def _has_texts(described: Descriptor) -> bool:
    """Return whether a text of proto2 may be in a message of this type.

    Types may contain themselves.
    """
    seen, left = {described.full_name}, [described]
    while left:
        one = left.pop()
        if _is_proto2(one.file) and any(f.type == FieldDescriptor.TYPE_STRING for f in one.fields):
            return True
        for field in one.fields:
            below = field.message_type
            if below is not None and below.full_name not in seen:
                seen.add(below.full_name)
                left.append(below)
    return False


@functools.cache
def _is_proto2(file: FileDescriptor) -> bool:
    found = FileDescriptorProto()
    file.CopyToProto(found)
    return found.syntax in ("", "proto2")


def _within(field: Any, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the messages in a field that is set, with their paths."""
    if field.message_type is None:
        return
    if field.message_type.GetOptions().map_entry:
        if field.message_type.fields_by_name["value"].message_type is not None:
            for key in sorted(value):
                yield f"{field.name}[{key!r}]", value[key]
    else:
        yield from _each(field, value)


def _each(field: Any, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the values of a field that is set and no map, with their paths."""
    if field.is_repeated:
        for at, one in enumerate(value):
            yield f"{field.name}[{at}]", one
    else:
        yield field.name, value
