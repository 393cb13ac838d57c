"""Deferred mail: of actors that are being loaded, retried after a failure, or quarantined.

Decides whether an envelope passes now or waits, and carries out what the supervisor orders after a
failure: retry, dead letter, quarantine. Its facts go into the frame of the running turns. No
message is lost: each is delivered, kept as a dead letter, or refused with a reply.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from peloton.runtime.core.deferring.dead_letters import (
    NOT_KEPT,
    DeadLetter,
    DeadLetterName,
    DeadLetters,
    dead_letter_name,
    raw_of,
)
from peloton.runtime.core.deferring.mailbox import COMMANDS_MAX, Mailbox
from peloton.runtime.core.entities.codec import Codec, Entry
from peloton.runtime.core.entities.encoding import encode
from peloton.runtime.core.entities.records import MessageDeadLettered, Quarantined, RedriveOrdered
from peloton.runtime.core.turning.envelope import Envelope, Reply, narrow, singles
from peloton.runtime.core.turning.story import StoryLine
from peloton.runtime.core.turning.supervision import (
    ATTEMPTS_MAX,
    RETRY,
    Failure,
    Response,
    attempt,
    quarantined_after,
    respond,
)
from peloton.runtime.core.turning.turns import Turns
from peloton.runtime.vocabulary import Bits, DeadLettered, Goal, Key, Pursue, Unavailable

DEAD_LETTER_BYTES_MAX = 1024 * 1024
"""The bytes of a larger message are not kept, so it cannot be redriven."""


class DeferredMail:
    """The mail of one shard that cannot be delivered at once."""

    def __init__(self, turns: Turns, codec: Codec, *, commands_max: int = COMMANDS_MAX) -> None:
        self._turns = turns
        self._commands_max = commands_max  # of one mailbox
        self.full = 0  # commands that a full mailbox refused, for metrics
        self._codec = codec
        self.loading: dict[Key, Mailbox] = {}
        self.retrying: dict[Key, Mailbox] = {}
        self.due: dict[Key, float] = {}  # when to retry
        self.dead_letters: dict[Key, DeadLetters] = {}
        self.quarantined: dict[Key, int] = {}  # members of a crowd; 1 for a cell

    @property
    def is_idle(self) -> bool:
        """Whether no actor of the shard is retried, quarantined or has dead letters."""
        return not (self.retrying or self.quarantined or self.dead_letters)

    def pass_or_defer(self, envelope: Envelope) -> Envelope | None:
        """Return the part of an envelope to deliver now, or None; the rest waits or is answered."""
        key = envelope.to
        if key in self.quarantined:
            passing = envelope.members & ~self.quarantined[key] if envelope.members else 0
            if not isinstance(envelope.message, Goal) and not passing:
                text = f"{key} is in quarantine: `peloton admin quarantine list` shows why"
                self._answer(envelope, Unavailable(text))
                return None
            if envelope.members and not isinstance(envelope.message, Goal):
                envelope = narrow(envelope, passing)
        if self.dead_letters:
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
        """Hold mail for this key from now on; return True if the caller has to request the load.

        Only one load may be under way: a row that arrives after the entity was revived would
        overwrite its newer state.
        """
        if key in self.loading:
            return False
        self.loading[key] = Mailbox(commands_max=self._commands_max)
        return True

    def wait_for_load(self, envelope: Envelope) -> bool:
        """Queue an envelope behind a load; return True if the caller has to request the load."""
        first = self.load(envelope.to)
        if not self.loading[envelope.to].put(envelope):
            self.full += 1
            self._answer(envelope, Unavailable(f"{envelope.to} is being loaded"))
        return first

    def failed(self, envelope: Envelope, members: int, *, failure: Failure) -> None:
        """Handle a turn that raised: retry the actor's mail later, or make it a dead letter."""
        if isinstance(envelope.message, Pursue):
            # The step was found in a state and index that may have changed by the retry.
            envelope = replace(envelope, message=Pursue())
        attempts = envelope.attempt + 1
        self._turns.story.add(self._line(envelope, members, failure=failure, attempts=attempts))
        if respond(attempts) is Response.DEAD_LETTER and members.bit_count() <= 1:
            self._dead_letter(envelope, members, failure=failure, attempts=attempts)
            return
        box = self.retrying.setdefault(envelope.to, Mailbox(commands_max=self._commands_max))
        box.members |= members
        # A class is retried member by member, so that members which do not fail can go on.
        for part in reversed(singles(envelope, members) if members else [envelope]):
            box.push_front(replace(part, attempt=attempts))
        # The earliest counts: else each new failure would delay the mail that waits behind.
        retry_s = self._turns.now + RETRY.after(attempts)
        self.due[envelope.to] = min(self.due.get(envelope.to, retry_s), retry_s)

    def due_retries(self, now: float) -> list[Envelope]:
        """Return the mail to deliver again now, in order."""
        if not self.due:
            return []
        mail: list[Envelope] = []
        for key in [key for key, at in self.due.items() if at <= now]:
            del self.due[key]
            mail += self.retrying.pop(key).drain()
        return mail

    def lift_quarantine(self, key: Key) -> None:
        """End a quarantine if no dead letters are left."""
        if key not in self.dead_letters and key in self.quarantined:
            self._write(key, RedriveOrdered(), cause="redrive")

    def redrive(self, key: Key) -> Envelope | Failure:
        """Take the oldest dead letter for another try, and lift the quarantine of its members.

        The message must be decided in this very frame, which journals that it is no dead letter any
        more: a crash would lose it otherwise. One that cannot be decoded becomes the newest dead
        letter.
        """
        fact = self.dead_letters[key].take()
        self._release(key, fact.members)
        self._turns.write(Entry(key, (RedriveOrdered(taken=1),), cause="redrive"))
        message = attempt(self._decode, key, fact)
        if isinstance(message, Failure):
            self._keep(key, fact, cause="redrive", failure=message)
            return message
        return Envelope(
            key,
            message,
            raw_of(fact.members),
            sender=Key(fact.sender) if fact.sender else None,
            origin=raw_of(fact.origin),
            values=fact.values,
            who=fact.who,
            attempt=ATTEMPTS_MAX - 1,  # one more failure makes it a dead letter in this frame
        )

    def fold(self, key: Key, fact: Any) -> None:
        """Apply a fact about deferred mail, when it is written and in recovery alike."""
        if isinstance(fact, MessageDeadLettered):
            self.dead_letters.setdefault(key, DeadLetters()).add(fact)
        elif isinstance(fact, Quarantined):
            members = raw_of(fact.members) or 1
            self.quarantined[key] = self.quarantined.get(key, 0) | members
        elif isinstance(fact, RedriveOrdered) and fact.taken:
            for _ in range(fact.taken):
                self._release(key, self.dead_letters[key].take().members)
        elif isinstance(fact, RedriveOrdered):
            self.dead_letters.pop(key, None)
            self.quarantined.pop(key, None)

    def dump(self) -> Mapping[Key, list[Any]]:
        """Return the facts that a checkpoint stores, by key; `fold` restores them."""
        facts: dict[Key, list[Any]] = {key: [*of.facts()] for key, of in self.dead_letters.items()}
        for key, raw in self.quarantined.items():
            facts.setdefault(key, []).append(Quarantined(Bits(raw).pack()))
        return facts

    @property
    def next_s(self) -> float | None:
        """When deferred mail is retried next, in seconds since the epoch."""
        return min(self.due.values(), default=None)

    def _release(self, key: Key, members: bytes) -> None:
        """Lift the quarantine of members whose dead letter was taken."""
        if not self.dead_letters[key]:
            del self.dead_letters[key]
        left = self.quarantined.pop(key, 0) & ~(raw_of(members) or 1)
        if left:
            self.quarantined[key] = left

    def _decode(self, key: Key, fact: MessageDeadLettered) -> Any:
        if fact.body == NOT_KEPT:
            raise ValueError("it was too large to be kept: its sender has to send it again")
        return self._codec.decode_message(key, fact.number, body=fact.body)

    def _dead_letter(
        self, envelope: Envelope, members: int, *, failure: Failure, attempts: int
    ) -> None:
        values = narrow(envelope, members).values if members else ()
        sender, error = envelope.sender or "", failure.error
        encoded = attempt(self._encode, envelope, values)
        if isinstance(encoded, Failure):
            error = f"{error} (and its bytes are not kept: {encoded.error})"
            encoded = -1, b"", 0
        number, body, size = encoded
        digest = dead_letter_name(number, body, sender=sender)[1]
        if size > DEAD_LETTER_BYTES_MAX:
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
            digest=digest,
        )
        cause = type(envelope.message).__name__
        self._keep(envelope.to, fact, cause=cause, failure=failure)
        self._answer(envelope, DeadLettered(failure.error))

    def _encode(self, envelope: Envelope, values: tuple[Any, ...] = ()) -> tuple[int, bytes, int]:
        """Return number and bytes of a message, and the size of the message with its values."""
        number, body = self._codec.encode_message(envelope.to, envelope.message)
        return number, body, len(body) + len(encode(values))

    def _keep(self, key: Key, fact: MessageDeadLettered, *, cause: str, failure: Failure) -> None:
        letters = self.dead_letters.get(key) or DeadLetters()
        facts: tuple[Any, ...] = (letters.without_known_body(fact),)
        if quarantined_after(letters.count_of(raw_of(fact.members)) + 1):
            facts = (*facts, Quarantined(fact.members))
        self._write(key, *facts, cause=cause, because=failure.error)

    def _write(self, key: Key, *facts: Any, cause: str, because: str = "") -> None:
        self._turns.write(Entry(key, facts, cause=cause, because=because))
        for each in facts:
            self.fold(key, each)

    def _not_dead_lettered(self, envelope: Envelope) -> Envelope | None:
        """Return the part of an envelope that is no repeat of a dead letter; None if all of it is.

        A repeat is answered with the error of the dead letter. An equal message of another sender
        is another message. A repeat may come with other members than at first, so it is compared
        member by member: of the receiver if that is a crowd, else of the sender.
        """
        letters = self.dead_letters.get(envelope.to)
        if not letters:
            return envelope
        encoded = attempt(self._encode, envelope)
        if isinstance(encoded, Failure):
            return envelope  # without bytes it has no name to compare
        number, body, _ = encoded
        name = dead_letter_name(number, body, sender=envelope.sender or "")
        if envelope.origins:
            return _rest_of_many(envelope, letters, name=name)
        letter = letters.find(name)
        if letter is None:
            return envelope
        if envelope.members:
            rest = envelope.members & ~letter.members
            envelope = narrow(envelope, rest) if rest else envelope
        else:
            rest = envelope.origin & ~letter.origin
            envelope = replace(envelope, origin=rest) if rest else envelope
        if rest:
            return envelope
        self._answer(envelope, DeadLettered(letter.error))
        return None

    def _answer(self, envelope: Envelope, value: Any) -> None:
        if envelope.reply_to is not None:
            self._turns.outbox.replies.append(Reply(envelope.reply_to, value))

    def _line(
        self, envelope: Envelope, members: int, *, failure: Failure, attempts: int
    ) -> StoryLine:
        because = f"try {attempts} failed: {failure.error}"
        cause = type(envelope.message).__name__
        return StoryLine(
            self._turns.now, envelope.to, members, cause, (), because, who=envelope.who
        )


def _rest_of_many(
    envelope: Envelope, letters: DeadLetters, *, name: DeadLetterName
) -> Envelope | None:
    """Do the same for a message of several senders: return what is no repeat of each of them."""
    number, digest, _ = name
    found = [
        (raw, sender, letters.find((number, digest, sender))) for raw, sender in envelope.origins
    ]
    pairs = [(_rest(raw, letter), sender) for raw, sender, letter in found]
    left = tuple(pair for pair in pairs if pair[0])
    members = 0
    for raw, _ in left:
        members |= raw
    return narrow(replace(envelope, origins=left), members) if members else None


def _rest(raw: int, letter: DeadLetter | None) -> int:
    return raw & ~letter.members if letter is not None else raw
