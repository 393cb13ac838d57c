"""What a host says of its runs when it asks its backend for a list. Must not hold a message."""

from __future__ import annotations

from peloton.runtime.vocabulary import Bits, Key, Value


class KnownRun(Value, frozen=True, gc=False, array_like=True):
    """A run in the ledger, and since when."""

    run: str
    since: float


class KnownSet(Value, frozen=True, gc=False, array_like=True):
    """As `KnownRun`, for the same run of many members of a crowd."""

    crowd: Key
    run: int
    members: Bits
    since: float
