"""Required fields that a message lacks. Types of Mesos have some.

Turns a message into the paths of those fields. The library's own list must not be used: behind a
map it follows paths that are over, names fields that are not there, and may end the process.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def missing_fields(message: Any) -> Iterator[str]:
    """The paths, field by field, of what is missing in the message and in those within it."""
    if message.IsInitialized():
        return
    for field in message.DESCRIPTOR.fields:
        if field.is_required and not message.HasField(field.name):
            yield field.name
    for field, value in message.ListFields():
        for where, one in _within(field, value):
            for path in missing_fields(one):
                yield f"{where}.{path}"


def _within(field: Any, value: Any) -> Iterator[tuple[str, Any]]:
    """The messages in a field that is set, with their paths."""
    if field.message_type is None:
        return
    if field.message_type.GetOptions().map_entry:
        if field.message_type.fields_by_name["value"].message_type is not None:
            for key in sorted(value):
                yield f"{field.name}[{key!r}]", value[key]
    elif field.is_repeated:
        for at, one in enumerate(value):
            yield f"{field.name}[{at}]", one
    else:
        yield field.name, value
