"""Actors whose mail waits: being loaded, trying again after a failure, set aside, quarantined.

Turns an envelope into "goes on now" or "waits", and a failure into what the supervisor orders.
What it writes down goes through the turns of the frame. It must never lose a message: each is
delivered, set aside as a fact, or refused with an answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from peloton.runtime.core.codec import Codec, Entry, encode
from peloton.runtime.core.dead_letters import (
    NOT_KEPT,
    DeadLetter,
    DeadLetterName,
    DeadLetters,
    dead_letter_name,
    raw_of,
)
from peloton.runtime.core.envelope import AskAnswer, Envelope, narrow, singles
from peloton.runtime.core.mailbox import COMMANDS_MAX, Mailbox
from peloton.runtime.core.records import MessageDeadLettered, Quarantined, RedriveOrdered
from peloton.runtime.core.story import StoryLine
from peloton.runtime.core.supervision import (
    ATTEMPTS_MAX,
    Failure,
    Response,
    attempt,
    quarantined_after,
    respond,
    retry_after_s,
)
from peloton.runtime.core.turns import Turns
from peloton.runtime.vocabulary import Bits, DeadLettered, Goal, Key, Pursue, Unavailable

ASIDE_BYTES_MAX = 1024 * 1024


class DeferredMail:
    """The mail of one shard that cannot be taken at once."""

    def __init__(self, turns: Turns, codec: Codec, *, commands_max: int = COMMANDS_MAX) -> None:
        self._turns = turns
        self._commands_max = commands_max  # of one mailbox
        self.full = 0  # commands that a full mailbox refused, for figures
        self._codec = codec
        self.loading: dict[Key, Mailbox] = {}
        self.retrying: dict[Key, Mailbox] = {}
        self.due: dict[Key, float] = {}
        self.aside: dict[Key, DeadLetters] = {}
        self.quarantined: dict[Key, int] = {}  # members of a crowd; 1 for a cell

    def waits(self, envelope: Envelope) -> Envelope | None:
        """The part of an envelope that may go on now; the rest waits or was answered."""
        key = envelope.to
        if key in self.quarantined:
            stopped = self.quarantined[key]
            passing = envelope.members & ~stopped if envelope.members else 0
            if not isinstance(envelope.message, Goal) and not passing:
                text = f"{key} is in quarantine: `peloton admin quarantine list` shows why"
                self._answer(envelope, Unavailable(text))
                return None
            if envelope.members and not isinstance(envelope.message, Goal):
                envelope = narrow(envelope, passing)
        passed = self._not_dead_lettered(envelope)
        if passed is None:
            return None
        envelope = passed
        box = self.retrying.get(key)
        if box is None or envelope.attempt:
            return envelope
        overlap = envelope.members & box.members
        if envelope.members and not overlap:
            return envelope
        if not box.put(narrow(envelope, overlap) if envelope.members else envelope):
            self.full += 1
            self._answer(envelope, Unavailable(f"{key} is busy: its mailbox is full"))
        if envelope.members & ~overlap:
            return narrow(envelope, envelope.members & ~overlap)
        return None

    def load(self, key: Key) -> bool:
        """Mail for this key waits from now on; True when the load has to be asked for.

        Once only: a row that came after the entity has lived again would be put over it.
        """
        if key in self.loading:
            return False
        self.loading[key] = Mailbox(commands_max=self._commands_max)
        return True

    def wait_for_load(self, envelope: Envelope) -> bool:
        """Queue behind a load; True when the load has to be asked for."""
        first = self.load(envelope.to)
        if not self.loading[envelope.to].put(envelope):
            self.full += 1
            self._answer(envelope, Unavailable(f"{envelope.to} is being loaded"))
        return first

    def failed(self, envelope: Envelope, members: int, *, failure: Failure) -> None:
        """A turn raised: hold the actor and try again later, or set the message aside."""
        if isinstance(envelope.message, Pursue):
            # The step it carries was found in a state and index that may be others by then.
            envelope = envelope._replace(message=Pursue())
        attempts = envelope.attempt + 1
        self._turns.story.add(self._line(envelope, members, failure=failure, attempts=attempts))
        if respond(attempts) is Response.SET_ASIDE and members.bit_count() <= 1:
            self._dead_letter(envelope, members, failure=failure, attempts=attempts)
            return
        box = self.retrying.setdefault(envelope.to, Mailbox(commands_max=self._commands_max))
        box.members |= members
        # A class is tried again member by member, so that only the guilty fail on.
        for part in reversed(singles(envelope, members) if members else [envelope]):
            box.push_front(part._replace(attempt=attempts))
        # The earliest counts: else each new failure would put off the mail that waits behind.
        retry_s = self._turns.now + retry_after_s(attempts)
        self.due[envelope.to] = min(self.due.get(envelope.to, retry_s), retry_s)

    def ripe(self, now: float) -> list[Envelope]:
        """Mail whose time has come again, in order."""
        mail: list[Envelope] = []
        for key in [key for key, at in self.due.items() if at <= now]:
            del self.due[key]
            mail += self.retrying.pop(key).drain()
        return mail

    def lift(self, key: Key) -> None:
        """Nothing is set aside (any more): a quarantine that was left ends too."""
        if key in self.quarantined:
            self._write(key, RedriveOrdered(), cause="redrive")

    def redrive(self, key: Key) -> Envelope | Failure:
        """Take back the oldest message that is set aside; its members are in quarantine no more.

        It has to be decided in this very frame: the frame says that it is set aside no longer, so
        a crash would lose it. What cannot be tried is set aside again, behind all others.
        """
        fact = self.aside[key].take()
        self._free(key, fact.members)
        self._turns.write(Entry(key, (RedriveOrdered(taken=1),), cause="redrive"))
        message = attempt(self._kept, key, fact)
        if isinstance(message, Failure):
            self._park(key, fact, cause="redrive", failure=message)
            return message
        return Envelope(
            key,
            message,
            raw_of(fact.members),
            sender=Key(fact.sender) if fact.sender else None,
            origin=raw_of(fact.origin),
            values=fact.values,
            who=fact.who,
            attempt=ATTEMPTS_MAX - 1,  # if it fails it is set aside at once, in this frame
        )

    def fold(self, key: Key, fact: Any) -> None:
        """What was written down about held mail; recovery folds what a live shard does."""
        if isinstance(fact, MessageDeadLettered):
            self.aside.setdefault(key, DeadLetters()).add(fact)
        elif isinstance(fact, Quarantined):
            members = raw_of(fact.members) or 1
            self.quarantined[key] = self.quarantined.get(key, 0) | members
        elif isinstance(fact, RedriveOrdered) and fact.taken:
            for _ in range(fact.taken):
                self._free(key, self.aside[key].take().members)
        elif isinstance(fact, RedriveOrdered):
            self.aside.pop(key, None)
            self.quarantined.pop(key, None)

    def dump(self) -> Mapping[Key, list[Any]]:
        """What a checkpoint keeps: facts by key that `fold` takes back."""
        facts: dict[Key, list[Any]] = {key: [*of.facts()] for key, of in self.aside.items()}
        for key, raw in self.quarantined.items():
            facts.setdefault(key, []).append(Quarantined(Bits(raw).pack()))
        return facts

    @property
    def next_s(self) -> float | None:
        """When held mail is tried again next."""
        return min(self.due.values(), default=None)

    def _free(self, key: Key, members: bytes) -> None:
        """Of these a message was taken back: they are given one more chance."""
        if not self.aside[key]:
            del self.aside[key]
        left = self.quarantined.pop(key, 0) & ~(raw_of(members) or 1)
        if left:
            self.quarantined[key] = left

    def _kept(self, key: Key, fact: MessageDeadLettered) -> Any:
        if fact.body == NOT_KEPT:
            raise ValueError("it was too large to be kept: let its sender say it again")
        return self._codec.decode_message(key, fact.number, body=fact.body, schema=fact.schema)

    def _dead_letter(
        self, envelope: Envelope, members: int, *, failure: Failure, attempts: int
    ) -> None:
        values = narrow(envelope, members).values if members else ()
        sender, error = envelope.sender or "", failure.error
        said = attempt(self._said, envelope, values)
        if isinstance(said, Failure):
            error = f"{error} (and its bytes are not kept: {said.error})"
            said = -1, b"", 0
        number, body, size = said
        word = dead_letter_name(number, body, sender=sender)[1]
        if size > ASIDE_BYTES_MAX:
            error = f"{error} (too large to be kept: {size} bytes)"
            body = NOT_KEPT
        fact = MessageDeadLettered(
            number=number,
            body=body,
            sender=sender,
            error=error,
            attempts=attempts,
            at=self._turns.now,
            members=Bits(members).pack(),
            origin=Bits(envelope.origin).pack(),
            values=values if body != NOT_KEPT else (),
            who=envelope.who,
            word=word,
            schema=self._codec.schema_of(type(envelope.message)),
        )
        cause = type(envelope.message).__name__
        self._park(envelope.to, fact, cause=cause, failure=failure)
        self._answer(envelope, DeadLettered(failure.error))

    def _said(self, envelope: Envelope, values: tuple[Any, ...] = ()) -> tuple[int, bytes, int]:
        """Number and bytes of a message, and how much of it with its values would be kept."""
        number, body = self._codec.encode_message(envelope.to, envelope.message)
        return number, body, len(body) + len(encode(values))

    def _park(self, key: Key, fact: MessageDeadLettered, *, cause: str, failure: Failure) -> None:
        parked = self.aside.get(key) or DeadLetters()
        facts: tuple[Any, ...] = (parked.lean(fact),)
        strikes = parked.strikes(raw_of(fact.members)) + 1
        if quarantined_after(strikes):
            facts = (*facts, Quarantined(fact.members))
        self._write(key, *facts, cause=cause, because=failure.error)

    def _write(self, key: Key, *facts: Any, cause: str, because: str = "") -> None:
        self._turns.write(Entry(key, facts, cause=cause, because=because))
        for each in facts:
            self.fold(key, each)

    def _not_dead_lettered(self, envelope: Envelope) -> Envelope | None:
        """What of an envelope was not set aside before; repeats are answered so, and end here.

        The same words of another sender are another message. What is said again comes in other
        sets than at first, so it is compared member by member: of the receiver where that is a
        crowd, else of the sender.
        """
        parked = self.aside.get(envelope.to)
        if not parked:
            return envelope
        said = attempt(self._said, envelope)
        if isinstance(said, Failure):
            return envelope  # no bytes, so nothing to know it by
        number, body, _ = said
        name = dead_letter_name(number, body, sender=envelope.sender or "")
        if envelope.origins:
            return _rest_of_many(envelope, parked, name=name)
        word = parked.word(name)
        if word is None:
            return envelope
        if envelope.members:
            rest = envelope.members & ~word.members
            envelope = narrow(envelope, rest) if rest else envelope
        else:
            rest = envelope.origin & ~word.origin
            envelope = envelope._replace(origin=rest) if rest else envelope
        if rest:
            return envelope
        self._answer(envelope, DeadLettered(word.error))
        return None

    def _answer(self, envelope: Envelope, value: Any) -> None:
        if envelope.reply_to is not None:
            self._turns.outbox.replies.append(AskAnswer(envelope.reply_to, value))

    def _line(
        self, envelope: Envelope, members: int, *, failure: Failure, attempts: int
    ) -> StoryLine:
        because = f"try {attempts} failed: {failure.error}"
        cause = type(envelope.message).__name__
        return StoryLine(
            self._turns.now, envelope.to, members, cause, (), because, who=envelope.who
        )


def _rest_of_many(
    envelope: Envelope, parked: DeadLetters, *, name: DeadLetterName
) -> Envelope | None:
    """Of several senders that said the same: what is not set aside of each of them."""
    number, digest, _ = name
    words = [
        (raw, sender, parked.word((number, digest, sender))) for raw, sender in envelope.origins
    ]
    pairs = [(_rest(raw, word), sender) for raw, sender, word in words]
    left = tuple(pair for pair in pairs if pair[0])
    members = 0
    for raw, _ in left:
        members |= raw
    return narrow(envelope._replace(origins=left), members) if members else None


def _rest(raw: int, word: DeadLetter | None) -> int:
    return raw & ~word.members if word is not None else raw
