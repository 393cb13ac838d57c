"""Facts of the runtime itself: what it journals about any actor, beside the kind's facts.

These facts are journaled in the same frames and folded by recovery, never by a kind's `evolve`.
"""

from __future__ import annotations

from typing import Any

from peloton.runtime.vocabulary import Fact, Key

SHARD_KEY = Key("shard/self")
"""The key of entries about the shard as a whole."""


class RequestAnswered(Fact, frozen=True, gc=False, array_like=True):
    """A client's request key was used: a repeat gets this reply, another body is refused."""

    request: str
    digest: bytes
    answer: bytes
    at: float


class MessageDeadLettered(Fact, frozen=True, gc=False, array_like=True):
    """A message failed `ATTEMPTS_MAX` times and is kept, with its bytes, until a redrive.

    `digest` is that of the bytes. If an older dead letter has the same digest and sender, that one
    has the bytes, and `body` is empty here. Values keep their types.
    """

    number: int
    body: bytes
    sender: str
    error: str
    attempts: int
    at: float
    members: bytes = b""
    origin: bytes = b""
    values: tuple[Any, ...] = ()
    who: str = ""
    digest: bytes = b""


class Quarantined(Fact, frozen=True, gc=False, array_like=True):
    """The actor is quarantined: only goals and inspection are delivered (to these members of a
    crowd)."""

    members: bytes = b""


class RedriveOrdered(Fact, frozen=True, gc=False, array_like=True):
    """An operator ordered a redrive: dead letters are decided again in this frame.

    `taken` is the number of dead letters, the oldest first; 0: all, and the quarantine is lifted.
    """

    members: bytes = b""
    taken: int = 0


class Revived(Fact, frozen=True, gc=False, array_like=True):
    """An ended entity acts again; `body` is its whole state, so that recovery needs no row."""

    body: bytes


class CheckpointCut(Fact, frozen=True, gc=False, array_like=True):
    """A checkpoint is cut at the end of this frame."""

    epoch: int
    at: float = 0.0


class EntitiesEvicted(Fact, frozen=True, gc=False, array_like=True):
    """Ended entities were evicted from memory before this frame; recovery drops them too.

    Otherwise a fact after their revival would be folded onto the older state.
    """

    keys: tuple[str, ...]


class EpochSeen(Fact, frozen=True, gc=False, array_like=True):
    """The highest epoch received from another shard; messages of older ones are refused."""

    group: str
    number: int
    epoch: int


RECORDS: dict[int, type] = {
    900: RequestAnswered,
    901: MessageDeadLettered,
    902: Quarantined,
    903: RedriveOrdered,
    904: Revived,
    905: CheckpointCut,
    906: EntitiesEvicted,
    907: EpochSeen,
}
