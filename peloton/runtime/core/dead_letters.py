"""Dead letters: messages that failed too often, kept until a person redrives them.

Keeps them in order, and finds at once whether a message is among them, however many members of a
crowd failed on it. The bytes of a message that many members failed on are kept once, in memory,
journal and checkpoint alike: else a message of a megabyte to a thousand members would take a
gigabyte. It must not decide what becomes of a failure.
"""

from __future__ import annotations

import hashlib
from collections import deque

from msgspec.structs import replace

from peloton.runtime.core.records import MessageDeadLettered

NOT_KEPT = b""
"""Stands for the bytes of a message that was too large to keep; it cannot be redriven."""
DIGEST_BYTES = 16

DeadLetterName = tuple[int, bytes, str]
"""Number of the message's class, digest of its bytes, sender."""


def dead_letter_name(number: int, body: bytes, *, sender: str) -> DeadLetterName:
    """The name by which a repeat is found. An equal message of another sender is another one."""
    return number, hashlib.blake2b(body, digest_size=DIGEST_BYTES).digest(), sender


class DeadLetter:
    """One message of one sender, and the members that failed on it."""

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
        """The dead letter of that name, of any member."""
        return self._letters.get(name)

    def count_of(self, member: int) -> int:
        """The number of dead letters of this very member (0: the cell)."""
        return self._counts.get(member, 0)

    def without_known_body(self, fact: MessageDeadLettered) -> MessageDeadLettered:
        """The fact as it is journaled: without the bytes, if an older one has them."""
        return replace(fact, body=NOT_KEPT) if _name(fact) in self._letters else fact

    def add(self, fact: MessageDeadLettered) -> None:
        """Add the newest."""
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
        """All as journaled, so that `add` restores them: the first of each letter has its bytes."""
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
    """The bits of members (or of senders) as a fact has them."""
    return int.from_bytes(members, "little")
