"""The stored form of an ended entity: its state, its crowd, and the replies it remembers.

No store checks what it returns, so each row has a digest of its own: nine of ten flipped bits would
decode to another state.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import msgspec

from peloton.runtime.core.entities.codec import Codec
from peloton.runtime.core.entities.crowd import Crowd
from peloton.runtime.core.entities.encoding import encode
from peloton.runtime.core.entities.records import RequestAnswered
from peloton.runtime.vocabulary import Key

_DIGEST_BYTES = 16


class RowDamaged(Exception):
    """A row differs from what was written."""


_Row = tuple[bytes, bytes, list[RequestAnswered]]
EndedEntity = tuple[Any, Crowd | None, list[RequestAnswered]]


def seal(body: bytes) -> bytes:
    """Return the row with its digest."""
    return encode((body, _digest(body)))


def open_row(codec: Codec, body: bytes, *, key: Key | None = None) -> EndedEntity:
    """Return state, crowd and remembered replies of an `ended` row that is not deleted.

    Raises RowDamaged if the row is not what was written, or not of this key.
    """
    cell, crowd, answers = parts_of(body)
    found, (state, _) = codec.decode_entity(cell)
    if key is not None and found != key:
        raise RowDamaged(f"it is the row of {found}")
    return state, codec.decode_entity(crowd)[1] if crowd else None, answers


def _digest(body: bytes) -> bytes:
    return blake2b(body, digest_size=_DIGEST_BYTES).digest()


def parts_of(body: bytes) -> _Row:
    """Return cell, crowd and replies of a row, as bytes. Raises RowDamaged."""
    inside, digest = msgspec.msgpack.decode(body, type=tuple[bytes, bytes])
    if digest != _digest(inside):
        raise RowDamaged("its digest differs")
    row: _Row = msgspec.msgpack.decode(inside, type=_Row)
    return row
