"""The frames of a stream between two daemons: greetings, parcels, acknowledgements.

Turns frames into bytes and back. It must not know what a batch holds, nor the order of frames: that
is `core/links/parcels.py`.
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
    """All parcels up to this number were received. Flow control only, not durability."""

    number: int


FRAMES: msgspec.msgpack.Decoder[Hello | Parcel | Acknowledged] = msgspec.msgpack.Decoder(
    Hello | Parcel | Acknowledged
)


def read_hello(data: bytes) -> Hello | None:
    """The greeting of a stream that was accepted; None if it is anything else."""
    try:
        frame = FRAMES.decode(data)
    except UNREADABLE:
        return None
    return frame if isinstance(frame, Hello) else None
