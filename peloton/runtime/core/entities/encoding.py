"""Values as MessagePack: the encoding of the types that states, facts and messages consist of.

Turns sets of members and persistent maps into bytes that are the same in every process, and back.
The bytes of a value never change: journals outlive versions.
"""

from __future__ import annotations

import functools
import typing
from typing import Any

import immutables
import msgspec

from peloton.runtime.vocabulary import Bits


def _enc_hook(value: Any) -> Any:
    kind = type(value)  # neither has subclasses
    if kind is Bits:
        return value.pack()
    if kind is immutables.Map:
        # Sorted, because the order of a map's items differs from process to process.
        return sorted(value.items()) if value else []
    raise NotImplementedError(f"no encoding of {type(value).__name__}")


def _dec_hook(wanted: Any, value: Any) -> Any:
    if wanted is Bits:
        return value if isinstance(value, Bits) else Bits.unpack(value)
    pairs = _pairs_of(wanted)
    if pairs is not None:
        if value == []:
            return immutables.Map()
        return immutables.Map(msgspec.convert(value, pairs, dec_hook=_dec_hook))
    raise NotImplementedError(f"no decoding of {wanted}")


@functools.cache
def _pairs_of(wanted: Any) -> Any:
    """Return the type of a persistent map's pairs; None for another type."""
    if typing.get_origin(wanted) is not immutables.Map:
        return None
    key, item = typing.get_args(wanted)
    return list[tuple[key, item]]  # type: ignore[valid-type]


UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What decoding raises of bytes that anybody may have sent: msgspec raises the latter two itself,
for text that is not UTF-8 and for values that are nested too deep."""
_ENCODER = msgspec.msgpack.Encoder(enc_hook=_enc_hook)
encode = _ENCODER.encode


def decode(data: bytes, wanted: Any) -> Any:
    """Decode a value of the type `wanted`."""
    return msgspec.msgpack.decode(data, type=wanted, dec_hook=_dec_hook)


def convert(value: Any, wanted: Any) -> Any:
    """Convert a decoded but untyped value to the type `wanted`."""
    return msgspec.convert(value, wanted, dec_hook=_dec_hook)


@functools.cache  # a decoder keeps nothing of what it has read, and takes long to build
def decoder_of(cls: Any) -> msgspec.msgpack.Decoder[Any]:
    """Return a decoder of one type, for callers that decode many values of it."""
    return msgspec.msgpack.Decoder(cls, dec_hook=_dec_hook)
