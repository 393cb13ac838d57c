"""Dead letters: messages that failed too often, kept until an operator redrives them.

`DeadLetters` keeps those of one entity in order, and finds at once whether a message is among them,
however many members of a crowd failed on it. The bytes of a message that many members failed on are
kept once, in memory, journal and checkpoint alike: else a message of a megabyte to a thousand
members would take a gigabyte.

`Redrives` carries out the orders of operators. Each dead letter is taken and decided in the very
frame that journals so, and becomes a dead letter again in that frame if it fails, so that no crash
can lose it in between. A frame tries at most `REDRIVEN_PER_FRAME_MAX`, and must not become larger
than the journal takes. An order must not be answered before the frame of its last try.
"""

from __future__ import annotations

import enum
import hashlib
from collections import deque
from collections.abc import Iterable
from typing import Any, Protocol

from msgspec.structs import replace

from peloton.runtime.core.entities.records import MessageDeadLettered
from peloton.runtime.core.reading.inspection import RedriveDone
from peloton.runtime.ports import ShardId
from peloton.runtime.vocabulary import Key, Refused, Unavailable

NOT_KEPT = b""
"""Stands for the bytes of a message that was too large to keep; it cannot be redriven."""
DIGEST_BYTES = 16
REDRIVEN_PER_FRAME_MAX = 256

DeadLetterName = tuple[int, bytes, str]
"""Number of the message's class, digest of its bytes, sender."""


def dead_letter_name(number: int, body: bytes, *, sender: str) -> DeadLetterName:
    """Return the name by which a repeat is found. Equal messages of two senders have two names."""
    return number, hashlib.blake2b(body, digest_size=DIGEST_BYTES).digest(), sender


class DeadLetter:
    """A message of one sender, and the members that failed on it."""

    __slots__ = ("body", "count", "error", "members", "origin")

    def __init__(self, body: bytes) -> None:
        self.body = body
        self.members = 0  # that failed on it, where the receiver is a crowd
        self.origin = 0  # that sent it, where the sender is a crowd
        self.count = 0  # of facts
        self.error = ""


class DeadLetters:
    """The dead letters of one cell or crowd, oldest first."""

    def __init__(self) -> None:
        self._facts: deque[MessageDeadLettered] = deque()  # without their bytes
        self._letters: dict[DeadLetterName, DeadLetter] = {}
        self._counts: dict[int, int] = {}  # of facts by member, as a bit; 0: the cell

    def __len__(self) -> int:
        return len(self._facts)

    def find(self, name: DeadLetterName) -> DeadLetter | None:
        """Return the dead letter of that name, of any member."""
        return self._letters.get(name)

    def count_of(self, member: int) -> int:
        """Return the number of dead letters of this member (0: the cell)."""
        return self._counts.get(member, 0)

    def without_known_body(self, fact: MessageDeadLettered) -> MessageDeadLettered:
        """Return the fact as it is journaled: without the bytes, if an older one has them."""
        return replace(fact, body=NOT_KEPT) if _name(fact) in self._letters else fact

    def add(self, fact: MessageDeadLettered) -> None:
        """Add the newest dead letter."""
        letter = self._letters.setdefault(_name(fact), DeadLetter(fact.body))
        letter.members |= raw_of(fact.members)
        letter.origin |= raw_of(fact.origin)
        letter.count += 1
        letter.error = fact.error
        member = raw_of(fact.members)
        self._counts[member] = self._counts.get(member, 0) + 1
        self._facts.append(replace(fact, body=NOT_KEPT))

    def take(self) -> MessageDeadLettered:
        """Remove the oldest, and return it with its bytes."""
        fact = self._facts.popleft()
        name, member = _name(fact), raw_of(fact.members)
        letter = self._letters[name]
        letter.members &= ~member
        letter.origin &= ~raw_of(fact.origin)
        letter.count -= 1
        if not letter.count:
            del self._letters[name]
        self._counts[member] -= 1
        if not self._counts[member]:
            del self._counts[member]
        return replace(fact, body=letter.body)

    def facts(self) -> list[MessageDeadLettered]:
        """Return all dead letters as journaled: the first fact of each letter has its bytes."""
        known: dict[DeadLetterName, None] = {}
        facts = []
        for fact in self._facts:
            name = _name(fact)
            facts.append(fact if name in known else replace(fact, body=self._letters[name].body))
            known[name] = None
        return facts


def _name(fact: MessageDeadLettered) -> DeadLetterName:
    if fact.digest:
        return fact.number, fact.digest, fact.sender
    return dead_letter_name(fact.number, fact.body, sender=fact.sender)


def raw_of(members: bytes) -> int:
    """Return the bits of members (or of senders) that a fact holds as bytes."""
    return int.from_bytes(members, "little")


# ---- redrives ----


class Location(enum.Enum):
    """Where an entity is, seen from one shard."""

    HERE = "its dead letters can be redriven"
    LOADING = "its `ended` row is being read"
    ELSEWHERE = "no entity of this shard"


class RedriveShard(Protocol):
    """The operations that redrives need of their shard."""

    id: ShardId

    def locate(self, key: Key) -> Location:
        """Return where the entity is; request a load if it has to be loaded."""

    def dead_letters_of(self, key: Key) -> int:
        """Return the number of dead letters of the entity."""

    def frame_is_full(self) -> bool:
        """Return whether the frame has as many bytes as a redrive may fill."""

    def redrive_one(self, key: Key) -> str:
        """Try the oldest dead letter again; return the error if it cannot be decoded, else ""."""

    def end_redrive(self, key: Key) -> None:
        """End a redrive: lift a quarantine that is left, and set the deadlines again."""

    def reply_to(self, addresses: Iterable[Any], value: Any) -> None:
        """Send a reply to these addresses, with the frame."""


class _Order:
    """An order to redrive one key, and the callers that wait for it."""

    __slots__ = ("error", "left", "reply_to")

    def __init__(self) -> None:
        self.reply_to: list[Any] = []  # reply addresses
        self.left: int | None = None  # dead letters still to try; None: not counted yet
        self.error = ""


class Redrives:
    """The redrive orders of one shard."""

    def __init__(self, per_frame_max: int = REDRIVEN_PER_FRAME_MAX) -> None:
        self._per_frame_max = per_frame_max
        self._tries_left = per_frame_max  # in this frame, whatever the number of orders
        self.waited = 0  # orders that a frame left to the next, for metrics
        self._ordered: dict[Key, _Order] = {}
        self._loading: dict[Key, _Order] = {}

    def begin_frame(self) -> None:
        """Reset the number of tries for a new frame."""
        self._tries_left = self._per_frame_max

    def order(self, key: Key, reply_to: Any = None) -> None:
        """Order another try of this key's dead letters; `reply_to` is the reply address, if any."""
        waiting = self._loading.get(key)
        order = self._ordered.setdefault(key, _Order()) if waiting is None else waiting
        order.left = None
        if reply_to is not None:
            order.reply_to.append(reply_to)

    def loaded(self, key: Key) -> None:
        """Continue with an entity whose `ended` row was read, or which has none."""
        order = self._loading.pop(key, None)
        if order is not None:
            self._ordered[key] = order

    def unreadable(self, key: Key) -> list[Any]:
        """Drop the order of an entity whose row cannot be read; return the reply addresses."""
        order = self._loading.pop(key, None)
        return order.reply_to if order is not None else []

    def run(self, shard: RedriveShard) -> None:
        """Try as many dead letters as this frame takes; the next frame goes on."""
        if not self._tries_left:
            return  # the next frame continues
        for key in [*self._ordered]:
            order = self._ordered[key]
            location = shard.locate(key)
            if location is Location.ELSEWHERE:
                refused = Refused("NOT_FOUND", f"{key} does not belong to {shard.id}")
                shard.reply_to(self._ordered.pop(key).reply_to, refused)
                continue
            if location is Location.LOADING:
                self._loading[key] = self._ordered.pop(key)
                continue
            if order.left is None:
                order.left = shard.dead_letters_of(key)
            while order.left and self._tries_left and not shard.frame_is_full():
                self._tries_left -= 1
                order.left -= 1
                order.error = shard.redrive_one(key) or order.error
            self.waited += bool(order.left)
            if not order.left:
                self._end(shard, key, error=order.error)

    def _end(self, shard: RedriveShard, key: Key, *, error: str) -> None:
        shard.end_redrive(key)
        text = f"some dead letters of {key} cannot be redriven and are kept: {error}"
        answer = Unavailable(text) if error else RedriveDone()
        shard.reply_to(self._ordered.pop(key).reply_to, answer)

    def __bool__(self) -> bool:
        return bool(self._ordered)
