"""What is set aside of one entity: messages that failed too often, until a person says "again".

Turns facts "set aside" into an order of tries, and answers at once whether a word is among them,
however many members of a crowd failed on it. The bytes of a word that many members failed on are
kept once, in memory, journal and checkpoint alike: else a message of a megabyte to a thousand
members would be a gigabyte. It must not decide what becomes of a failure.
"""

from __future__ import annotations

import hashlib
from collections import deque

from msgspec.structs import replace

from peloton.runtime.core.records import MessageDeadLettered

NOT_KEPT = b""
"""Stands for the bytes of a message that was too large to keep; it cannot be tried again."""
WORD_BYTES = 16

DeadLetterName = tuple[
    int, bytes, str
]  # of a word: number of its class, digest of its bytes, who said it


def dead_letter_name(number: int, body: bytes, *, sender: str) -> DeadLetterName:
    """By what a word is known when it is said again. The same of another sender is another."""
    return number, hashlib.blake2b(body, digest_size=WORD_BYTES).digest(), sender


class DeadLetter:
    """One message of one sender, and for whom it failed."""

    __slots__ = ("body", "count", "error", "members", "origin")

    def __init__(self, body: bytes) -> None:
        self.body = body
        self.members = 0  # who failed on it, where the receiver is a crowd
        self.origin = 0  # who said it, where the sender is one
        self.count = 0  # facts
        self.error = ""


class DeadLetters:
    """The words of one cell or crowd that are set aside, in the order they were."""

    def __init__(self) -> None:
        self._facts: deque[MessageDeadLettered] = deque()  # without their bytes
        self._words: dict[DeadLetterName, DeadLetter] = {}
        self._strikes: dict[int, int] = {}  # by member, as a bit; 0: the cell

    def __len__(self) -> int:
        return len(self._facts)

    def word(self, name: DeadLetterName) -> DeadLetter | None:
        """The word of that name, if it is set aside for anybody."""
        return self._words.get(name)

    def strikes(self, member: int) -> int:
        """How many words are set aside for this very member (0: the cell)."""
        return self._strikes.get(member, 0)

    def lean(self, fact: MessageDeadLettered) -> MessageDeadLettered:
        """The fact as it is written down: without the bytes, if an older one has them."""
        return replace(fact, body=NOT_KEPT) if _name(fact) in self._words else fact

    def add(self, fact: MessageDeadLettered) -> None:
        """One more."""
        word = self._words.setdefault(_name(fact), DeadLetter(fact.body))
        word.members |= raw_of(fact.members)
        word.origin |= raw_of(fact.origin)
        word.count += 1
        word.error = fact.error
        member = raw_of(fact.members)
        self._strikes[member] = self._strikes.get(member, 0) + 1
        self._facts.append(replace(fact, body=NOT_KEPT))

    def take(self) -> MessageDeadLettered:
        """The oldest, with its bytes; it is set aside no more."""
        fact = self._facts.popleft()
        name, member = _name(fact), raw_of(fact.members)
        word = self._words[name]
        word.members &= ~member
        word.origin &= ~raw_of(fact.origin)
        word.count -= 1
        if not word.count:
            del self._words[name]
        self._strikes[member] -= 1
        if not self._strikes[member]:
            del self._strikes[member]
        return replace(fact, body=word.body)

    def facts(self) -> list[MessageDeadLettered]:
        """All, so that `add` makes the same of them: the first of each word has its bytes."""
        told: dict[DeadLetterName, None] = {}
        facts = []
        for fact in self._facts:
            name = _name(fact)
            facts.append(fact if name in told else replace(fact, body=self._words[name].body))
            told[name] = None
        return facts


def _name(fact: MessageDeadLettered) -> DeadLetterName:
    if fact.word:
        return fact.number, fact.word, fact.sender
    return dead_letter_name(fact.number, fact.body, sender=fact.sender)


def raw_of(members: bytes) -> int:
    """The bits of members (or of senders) as a fact has them."""
    return int.from_bytes(members, "little")
