"""Facts of the runtime itself: what it writes down about any actor, beside the kind's facts.

They are journaled in the same frames and folded by recovery, never by a kind's `evolve`.
"""

from __future__ import annotations

from typing import Any

from peloton.runtime.vocabulary import Fact, Key

SHARD_KEY = Key("shard/self")
"""Stands in entries for the shard as such."""


class RequestAnswered(Fact, frozen=True, gc=False, array_like=True):
    """A client's request key was used: a repeat gets this answer, another body is refused."""

    request: str
    digest: bytes
    answer: bytes
    at: float


class MessageDeadLettered(Fact, frozen=True, gc=False, array_like=True):
    """A message failed `ATTEMPTS_MAX` times and is kept, with its bytes, until redrive.

    `word` is the digest of its bytes: where an older fact of the same word of the same sender is
    still set aside, that one has the bytes, and `body` is empty here. Values stay of their type.
    `schema` is the form of the message's class that the bytes are in.
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
    word: bytes = b""
    schema: int = 1


class Quarantined(Fact, frozen=True, gc=False, array_like=True):
    """Only goals and inspection get through from now on (for these members of a crowd)."""

    members: bytes = b""


class RedriveOrdered(Fact, frozen=True, gc=False, array_like=True):
    """A person gave the order to try again: what was set aside is decided anew in this frame.

    `taken` says how many, the oldest first; 0: all there is, and the quarantine is lifted.
    """

    members: bytes = b""
    taken: int = 0


class Revived(Fact, frozen=True, gc=False, array_like=True):
    """An entity that had ended acts again; its whole state, so that recovery needs no row."""

    body: bytes


class CheckpointCut(Fact, frozen=True, gc=False, array_like=True):
    """At the end of this frame a checkpoint is cut."""

    epoch: int
    at: float = 0.0


class EntitiesEvicted(Fact, frozen=True, gc=False, array_like=True):
    """These had ended and are out of memory since before this frame; recovery drops them too.

    Otherwise a fact of their next life would be folded onto the state of the last one.
    """

    keys: tuple[str, ...]


class EpochSeen(Fact, frozen=True, gc=False, array_like=True):
    """The highest epoch that was heard of another shard; words of older ones are refused."""

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
