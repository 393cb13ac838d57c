"""Actors whose mail waits: being loaded, trying again after a failure, set aside, quarantined.

Turns an envelope into "goes on now" or "waits", and a failure into what the supervisor orders.
What it writes down goes through the turns of the frame. It must never lose a message: each is
delivered, set aside as a fact, or refused with an answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from peloton.runtime.core.codec import Codec, Entry
from peloton.runtime.core.envelope import Envelope, Reply, narrow
from peloton.runtime.core.mailbox import Mailbox
from peloton.runtime.core.records import MessageSetAside, Quarantined, Redriven
from peloton.runtime.core.story import Line
from peloton.runtime.core.supervision import (
    ATTEMPTS_MAX,
    Failure,
    Response,
    quarantined_after,
    respond,
    retry_after_s,
)
from peloton.runtime.core.turns import Turns
from peloton.runtime.vocabulary import Bits, Goal, Key, Pursue, SetAside, Unavailable

ASIDE_BYTES_MAX = 1024 * 1024
NOT_KEPT = b""
"""Stands for the bytes of a message that was too large to keep; it cannot be tried again."""


class Held:
    """The mail of one shard that cannot be taken at once."""

    def __init__(self, turns: Turns, codec: Codec) -> None:
        self._turns = turns
        self._codec = codec
        self.loading: dict[Key, Mailbox] = {}
        self.retrying: dict[Key, Mailbox] = {}
        self.due: dict[Key, float] = {}
        self.aside: dict[Key, list[MessageSetAside]] = {}
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
        passed = self._not_set_aside(envelope)
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
            self._answer(envelope, Unavailable(f"{key} is busy: its mailbox is full"))
        if envelope.members & ~overlap:
            return narrow(envelope, envelope.members & ~overlap)
        return None

    def wait_for_load(self, envelope: Envelope) -> bool:
        """Queue behind a load; True when the load has to be asked for."""
        box = self.loading.get(envelope.to)
        first = box is None
        if box is None:
            box = self.loading[envelope.to] = Mailbox()
        if not box.put(envelope):
            self._answer(envelope, Unavailable(f"{envelope.to} is being loaded"))
        return first

    def failed(self, envelope: Envelope, members: int, *, failure: Failure) -> None:
        """A turn raised: hold the actor and try again later, or set the message aside."""
        if isinstance(envelope.message, Pursue):
            # The step it carries was found in a state and index that may be others by then.
            envelope = envelope._replace(message=Pursue())
        attempts = envelope.attempt + 1
        self._turns.story.tell(self._line(envelope, members, failure=failure, attempts=attempts))
        if respond(attempts) is Response.SET_ASIDE and members.bit_count() <= 1:
            self._set_aside(envelope, members, failure=failure, attempts=attempts)
            return
        box = self.retrying.setdefault(envelope.to, Mailbox())
        box.members |= members
        # A class is tried again member by member, so that only the guilty fail on.
        singles = [1 << at for at in Bits(members)] if members else [0]
        for single in reversed(singles):
            part = narrow(envelope, single) if single else envelope
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

    def redrive(self, key: Key) -> list[Envelope]:
        """A person's order: lift the quarantine and take back what was set aside."""
        parked = self.aside.pop(key, [])
        stopped = self.quarantined.pop(key, None)
        if parked or stopped:
            self._turns.write(Entry(key, (Redriven(),), cause="redrive"))
        return [
            Envelope(
                key,
                self._codec.decode_message(key, fact.number, body=fact.body),
                int.from_bytes(fact.members, "little"),
                sender=Key(fact.sender) if fact.sender else None,
                origin=int.from_bytes(fact.origin, "little"),
                values=fact.values,
                who=fact.who,
                attempt=ATTEMPTS_MAX - 1,  # if it fails it is set aside at once, in this frame
            )
            for fact in parked
            if fact.body != NOT_KEPT
        ]

    def fold(self, key: Key, fact: Any) -> None:
        """Recovery: what was set aside or quarantined is so again."""
        if isinstance(fact, MessageSetAside):
            self.aside.setdefault(key, []).append(fact)
        elif isinstance(fact, Quarantined):
            members = int.from_bytes(fact.members, "little") or 1
            self.quarantined[key] = self.quarantined.get(key, 0) | members
        elif isinstance(fact, Redriven):
            self.aside.pop(key, None)
            self.quarantined.pop(key, None)

    def dump(self) -> Mapping[Key, list[Any]]:
        """What a checkpoint keeps: facts by key that `fold` takes back."""
        facts: dict[Key, list[Any]] = {key: list(parked) for key, parked in self.aside.items()}
        for key, raw in self.quarantined.items():
            facts.setdefault(key, []).append(Quarantined(Bits(raw).pack()))
        return facts

    @property
    def next_s(self) -> float | None:
        """When held mail is tried again next."""
        return min(self.due.values(), default=None)

    def _set_aside(
        self, envelope: Envelope, members: int, *, failure: Failure, attempts: int
    ) -> None:
        number, body = self._codec.encode_message(envelope.to, envelope.message)
        error = failure.error
        if len(body) > ASIDE_BYTES_MAX:
            error = f"{error} (too large to be kept: {len(body)} bytes)"
        fact = MessageSetAside(
            number=number,
            body=body if len(body) <= ASIDE_BYTES_MAX else NOT_KEPT,
            sender=envelope.sender or "",
            error=error,
            attempts=attempts,
            at=self._turns.now,
            members=Bits(members).pack(),
            origin=Bits(envelope.origin).pack(),
            values=tuple(str(value) for value in narrow(envelope, members).values)
            if members
            else (),
            who=envelope.who,
        )
        facts: tuple[Any, ...] = (fact,)
        if quarantined_after(self._strikes(envelope.to, members) + 1):
            facts = (fact, Quarantined(Bits(members).pack()))
        cause = type(envelope.message).__name__
        self._turns.write(Entry(envelope.to, facts, cause=cause, because=failure.error))
        for each in facts:
            self.fold(envelope.to, each)
        self._answer(envelope, SetAside(failure.error))

    def _strikes(self, key: Key, member: int) -> int:
        """How often messages to this very member (0: the cell) were set aside."""
        parked = self.aside.get(key, ())
        return sum(1 for fact in parked if int.from_bytes(fact.members, "little") == member)

    def _not_set_aside(self, envelope: Envelope) -> Envelope | None:
        """What of an envelope was not set aside before; repeats are answered so, and end here.

        The same words of another sender are another message. What is said again comes in other
        sets than at first, so it is compared member by member: of the receiver where that is a
        crowd, else of the sender.
        """
        parked = self.aside.get(envelope.to)
        if not parked:
            return envelope
        number, body = self._codec.encode_message(envelope.to, envelope.message)
        error = ""
        for fact in parked:
            same = fact.body == body or (fact.body == NOT_KEPT and len(body) > ASIDE_BYTES_MAX)
            if not same or (fact.number, fact.sender) != (number, envelope.sender or ""):
                continue
            error = fact.error
            if envelope.members:
                rest = envelope.members & ~int.from_bytes(fact.members, "little")
                if not rest:
                    break
                envelope = narrow(envelope, rest)
            else:
                rest = envelope.origin & ~int.from_bytes(fact.origin, "little")
                if not rest:
                    break
                envelope = envelope._replace(origin=rest)
        else:
            return envelope
        self._answer(envelope, SetAside(error))
        return None

    def _answer(self, envelope: Envelope, value: Any) -> None:
        if envelope.ask is not None:
            self._turns.outbox.replies.append(Reply(envelope.ask, value))

    def _line(self, envelope: Envelope, members: int, *, failure: Failure, attempts: int) -> Line:
        because = f"try {attempts} failed: {failure.error}"
        cause = type(envelope.message).__name__
        return Line(self._turns.now, envelope.to, members, cause, (), because)
