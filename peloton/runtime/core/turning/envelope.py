"""Messages in transit: envelopes, and the outbox that merges equal ones into sets.

Turns the sends of many turns into few envelopes: those with equal messages share one. Messages are
compared, never interpreted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from peloton.runtime.core.entities.crowd import values_for
from peloton.runtime.ports import ShardId
from peloton.runtime.vocabulary import Key, Message, members_of


class Stamp(NamedTuple):
    """The sending shard, and the claim under which it sent."""

    shard: ShardId
    epoch: int


class Envelope(msgspec.Struct, frozen=True):
    """A message to one cell, or to the members of one crowd.

    `members` are the receivers where `to` is a crowd, `origin` the senders where `sender` is one;
    both are bits of an integer, 0 where there is no crowd. `origins` replaces `sender` where
    several cells sent equal messages: pairs of (receivers, sender). `values` holds one value per
    receiver, ascending. `reply_to` is an address for the reply; `request` the client's request key
    and digest of the body; `who` the principal; `attempt` how often it failed before.
    """

    to: Key
    message: Message
    members: int = 0
    sender: Key | None = None
    origin: int = 0
    values: tuple[Any, ...] = ()
    origins: tuple[tuple[int, Key], ...] = ()
    reply_to: Any = None
    request: tuple[str, bytes] | None = None
    who: str = ""
    attempt: int = 0


def narrow(envelope: Envelope, members: int) -> Envelope:
    """Return the part of an envelope that is for these of its members, each with its own value."""
    if members == envelope.members:
        return envelope
    if envelope.origins:
        pairs = ((receivers & members, sender) for receivers, sender in envelope.origins)
        origins = tuple(pair for pair in pairs if pair[0])
        if len(origins) == 1:
            envelope = replace(envelope, sender=origins[0][1], origins=())
        else:
            envelope = replace(envelope, origins=origins)
    values = envelope.values
    if len(values) == envelope.members.bit_count():  # else the turn raises
        values = values_for(members, envelope.members, values=values)
    return replace(envelope, members=members, values=values)


def singles(envelope: Envelope, members: int) -> list[Envelope]:
    """Return the part for these members, as one envelope for each of them and each of its senders.

    The result is that of `narrow` for one member at a time, in one pass: for a thousand members
    that all fail, `narrow` would take a million steps.
    """
    each = len(envelope.values) == envelope.members.bit_count()
    values = dict(zip(members_of(envelope.members), envelope.values, strict=True)) if each else {}
    senders: dict[int, list[Key]] = {}
    for receivers, sender in envelope.origins:
        for member in members_of(receivers & members):
            senders.setdefault(member, []).append(sender)
    parts = []
    for member in members_of(members):
        own = (values[member],) if each else envelope.values
        for by in senders.get(member, (envelope.sender,)):
            parts.append(replace(envelope, members=1 << member, values=own, sender=by, origins=()))
    return parts


class Reply(NamedTuple):
    """A reply to an ask, and its reply address."""

    reply_to: Any
    value: Any


class Outbox:
    """The envelopes that leave with the next frame, in the order they were sent.

    Cells that send equal messages to members of one crowd share an envelope: a thousand hosts
    that answer "accepted" make one message to a set, not a thousand.
    """

    __slots__ = ("_is_local", "_mergeable", "_order", "local", "replies")

    def __init__(self, is_local: Callable[[Key], bool]) -> None:
        self._is_local = is_local
        self.local: deque[Envelope] = deque()  # to this very shard: delivered in the same frame
        self._order: list[tuple[Envelope, list[tuple[int, Key]] | None]] = []
        """With who sends the same to whom, where it may share an envelope with equal ones."""
        self._mergeable: dict[tuple[Key, Message], list[tuple[int, Key]]] = {}
        self.replies: list[Reply] = []

    def add(self, envelope: Envelope) -> None:
        """Queue an envelope behind those sent before."""
        if self._is_local(envelope.to):
            self.local.append(envelope)
            return
        message = envelope.message
        older = message.replaced()
        if older is not None:
            self._withdraw(envelope, older)
        sender = envelope.sender
        own = envelope.origin or envelope.values or message.of_sender
        if envelope.members and sender is not None and not own:
            slot = (envelope.to, message)
            waiting = self._mergeable.get(slot)
            if waiting is None:
                pairs = self._mergeable[slot] = [(envelope.members, sender)]
                self._order.append((envelope, pairs))
            else:
                waiting.append((envelope.members, sender))
            return
        self._order.append((envelope, None))

    def drain(self) -> list[Envelope]:
        """Return all envelopes, merged, and empty the outbox."""
        out = []
        for envelope, pairs in self._order:
            if pairs is not None:
                if not pairs:
                    continue  # withdrawn
                envelope = _merged(envelope, pairs)
            out.append(envelope)
        self._order, self._mergeable = [], {}
        return out

    def _withdraw(self, envelope: Envelope, older: Message) -> None:
        """Drop the older message of the same sender to these members, if it is in this frame."""
        pairs = self._mergeable.get((envelope.to, older))
        if pairs:
            rest = [
                (members & ~envelope.members if sender == envelope.sender else members, sender)
                for members, sender in pairs
            ]
            pairs[:] = [pair for pair in rest if pair[0]]


def _merged(envelope: Envelope, pairs: list[tuple[int, Key]]) -> Envelope:
    if len(pairs) == 1:
        return replace(envelope, members=pairs[0][0], sender=pairs[0][1])
    members = 0
    for receivers, _ in pairs:
        members |= receivers
    return replace(envelope, members=members, sender=None, origins=tuple(pairs))
