"""Requests of calls: how they are received and parsed.

What cannot be parsed ends the call with INVALID_ARGUMENT.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any

from google.protobuf.message import DecodeError

from peloton.gateway.access.guard import CallCode, CallEnded, Guard
from peloton.gateway.server.served_calls import ServedCall
from peloton.gateway.server.wire_faults import first_fault
from peloton.gateway.translate.mesos_faults import missing_fields, unreadable_texts

NAMED_MAX = 10
"""So many missing or unreadable fields are named."""


def take_one(call: ServedCall, take: Callable[[ServedCall, bytes], None], *, name: str) -> None:
    """Receive the one message of a call. What `take` raises ends the call."""

    def received(data: bytes | None) -> None:
        with Guard(call.end, name):
            if data is None:
                raise CallEnded(CallCode.INVALID_ARGUMENT, f"{name} takes one message: none came")
            take(call, data)

    call.read(received)


def answer_next(call: ServedCall, answer: Callable[[bytes], bytes], *, name: str) -> None:
    """Answer the next message of a call, and so on; the end of its messages ends the call."""

    def received(data: bytes | None) -> None:
        with Guard(call.end, name):
            if data is None:
                call.end()
            else:
                call.write(answer(data), written)

    def written(well: bool) -> None:
        if well:
            call.read(received)

    call.read(received)


def parsed(kind: Any, data: bytes) -> Any:
    """Return the message of a kind that these bytes are. Ends the call if they are none."""
    try:
        found = kind.FromString(data)
    except DecodeError:
        text = f"the bytes are no {kind.DESCRIPTOR.full_name}: {first_fault(kind.DESCRIPTOR, data)}"
        raise CallEnded(CallCode.INVALID_ARGUMENT, text) from None
    # Types of Mesos have fields that must be there, and texts that nobody has checked. The parser
    # accepts what lacks them, and raises as soon as it is to be written again; a text that is none
    # would be `bytes` for all that comes after.
    if found.IsInitialized():
        fault, named = "not UTF-8", unreadable_texts(found)
    else:
        fault, named = "required fields are missing", missing_fields(found)
    paths = sorted(islice(named, NAMED_MAX))
    if paths or not found.IsInitialized():
        text = f"the bytes are no {kind.DESCRIPTOR.full_name}: {fault}: {', '.join(paths)}"
        raise CallEnded(CallCode.INVALID_ARGUMENT, text)
    return found
