"""The values of an extension's kind: states, messages, facts, queries and replies.

They are encoded by the names of their fields, so a later version of the extension may add fields
with defaults anywhere and leave out others, and an earlier one skips what it does not know. A class
is stored by a number made of its name: renaming one makes what is stored under it unreadable.
"""

from __future__ import annotations

import zlib
from typing import ClassVar

import msgspec

from peloton.runtime import vocabulary
from peloton.runtime.vocabulary import Decision, Delivery, Refused

NUMBER_FIRST, NUMBERS = 1_000, 1_000_000
"""Below the first are the numbers of the runtime's own classes."""


class ActorState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one actor. Every field has a default: together they are an actor that is new."""


class ActorMessage(vocabulary.Message, frozen=True, array_like=False):
    """A message to an actor, from a client or from another actor of the extension."""

    delivery: ClassVar[Delivery] = Delivery.OWED


class ActorFact(vocabulary.Fact, frozen=True, array_like=False):
    """What has happened to an actor, as it is journaled."""


class ActorQuery(vocabulary.Query, frozen=True, array_like=False):
    """A question to an actor; its answer changes nothing."""


class ActorReply(msgspec.Struct, frozen=True):
    """The answer to a message or a query."""


class GetState(ActorQuery, frozen=True):
    """Asks an actor of any kind for its state."""


def class_number(cls: type) -> int:
    """Return the number under which values of this class are stored."""
    return NUMBER_FIRST + zlib.crc32(cls.__name__.encode()) % NUMBERS


def refusal(code: str, text: str, *, field: str = "", again: bool = False) -> Decision:
    """Return the decision that refuses a message and changes nothing.

    `code` is for programs and `text` for people; `field` is the path of what is wrong. `again`: the
    same request may succeed later.
    """
    return Decision(reply=Refused(code, text, field, again), because=text)
