"""Turns messages of the contract into plain Python, for printing and for programs.

The output is the complete answer of the server, under the contract's own names.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import json_format
from google.protobuf.message import Message


def to_dict(message: Message) -> dict[str, Any]:
    """Return original field names, defaults included, enums by name; what the original's tool
    prints."""
    return json_format.MessageToDict(
        message,
        preserving_proto_field_name=True,
        always_print_fields_with_no_presence=True,
    )


def enum_name(message: Message, field: str) -> str:
    """Return the name of an enum's value; its number if a newer server has more values."""
    number = getattr(message, field)
    kind = message.DESCRIPTOR.fields_by_name[field].enum_type
    value = kind.values_by_number.get(number) if kind else None
    return value.name if value else str(number)
