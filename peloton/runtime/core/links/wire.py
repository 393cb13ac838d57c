"""The frames of a stream between two daemons: greetings, parcels, acknowledgements.

Turns frames into bytes and back. Their order is the affair of `core/links/parcels.py`.
"""

from __future__ import annotations

import msgspec

from peloton.runtime.core.entities.encoding import UNREADABLE

STREAM_FORMAT = 1


class Hello(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=1):
    """The first frame of each side on a stream. `dial` counts the streams of one birth."""

    format: int
    member: str
    to: str
    dial: int
    birth: int
    first: int
    received_birth: int
    received: int
    window_parcels: int
    window_bytes: int


class Parcel(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=2):
    """Batches that were packed under one view of the membership."""

    number: int
    acknowledged: int
    view: int
    batches: list[msgspec.Raw]


class Acknowledged(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=3):
    """An acknowledgement of all parcels up to this number: flow control only, not durability."""

    number: int


FRAMES: msgspec.msgpack.Decoder[Hello | Parcel | Acknowledged] = msgspec.msgpack.Decoder(
    Hello | Parcel | Acknowledged
)


def read_hello(data: bytes) -> Hello | None:
    """Decode the greeting of an accepted stream; None if it is anything else."""
    try:
        frame = FRAMES.decode(data)
    except UNREADABLE:
        return None
    return frame if isinstance(frame, Hello) else None
