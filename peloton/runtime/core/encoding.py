"""Values as MessagePack: the encoding of the types that states, facts and messages consist of.

Turns sets of members and persistent maps into bytes that are the same in every process, and back.
It must not know numbers, schemas or kinds (`codec`), and the bytes of a value must never change.
"""

from __future__ import annotations

import typing
from typing import Any

import immutables
import msgspec

from peloton.runtime.vocabulary import Bits


def _enc_hook(value: Any) -> Any:
    if isinstance(value, Bits):
        return value.pack()
    if isinstance(value, immutables.Map):
        # Sorted, because the order of a map's items differs from process to process.
        return sorted(value.items())
    raise NotImplementedError(f"no encoding of {type(value).__name__}")


def _dec_hook(wanted: Any, value: Any) -> Any:
    if wanted is Bits:
        return value if isinstance(value, Bits) else Bits.unpack(value)
    if typing.get_origin(wanted) is immutables.Map:
        key, item = typing.get_args(wanted)
        wanted_pairs: Any = list[tuple[key, item]]  # type: ignore[valid-type]
        pairs = msgspec.convert(value, wanted_pairs, dec_hook=_dec_hook)
        return immutables.Map(pairs)
    raise NotImplementedError(f"no decoding of {wanted}")


_ENCODER = msgspec.msgpack.Encoder(enc_hook=_enc_hook)
encode = _ENCODER.encode


def decode(data: bytes, wanted: Any) -> Any:
    """A value of the type `wanted` from its bytes."""
    return msgspec.msgpack.decode(data, type=wanted, dec_hook=_dec_hook)


def convert(value: Any, wanted: Any) -> Any:
    """A decoded but untyped value as the type `wanted`."""
    return msgspec.convert(value, wanted, dec_hook=_dec_hook)


def untyped(value: Any) -> Any:
    """A value as it is read where its type is not known: lists, strings, numbers, bytes."""
    return msgspec.msgpack.decode(encode(value))


def decoder_of(cls: Any) -> msgspec.msgpack.Decoder[Any]:
    """A decoder of one type, for callers that decode many values of it."""
    return msgspec.msgpack.Decoder(cls, dec_hook=_dec_hook)
