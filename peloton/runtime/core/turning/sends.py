"""Send resolution: turns the sends of a turn into envelopes, and resends what is owed.

Turns "my sender", "my parent", "my host" into keys, and one send of a class into an envelope for
each target. What is owed is derived from the state at each try, so that a resend cannot disagree
with the state.

An exception of a kind's function here is noted in the story and affects no other entity: the turn
is kept, and what is owed is resent at a later tick.
"""

from __future__ import annotations

from typing import Any, Protocol

from peloton.runtime.core.entities.crowd import Crowd
from peloton.runtime.core.entities.population import Population
from peloton.runtime.core.turning.envelope import Envelope, Outbox
from peloton.runtime.core.turning.resends import OwedSends
from peloton.runtime.core.turning.supervision import Failure, attempt
from peloton.runtime.vocabulary import (
    PARENT,
    SELF,
    SENDER,
    Column,
    Delivery,
    Key,
    Message,
    Send,
)


class OnFailure(Protocol):
    """A callback with the key, the step that failed, the exception, and the members of a crowd."""

    def __call__(self, key: Key, cause: str, *, failure: Failure, raw: int = 0) -> None: ...


class SendResolver:
    """Resolves the sends of one shard's actors."""

    def __init__(self, population: Population, outbox: Outbox, *, on_failure: OnFailure) -> None:
        self.owed_sends = OwedSends[Key]()
        self._population = population
        self._outbox = outbox
        self._on_failure = on_failure

    # ---- sends of a turn ----

    def of_cell(self, envelope: Envelope, sends: tuple[Send, ...]) -> None:
        """Queue the sends of a cell after its turn on `envelope`."""
        if _owes(sends):
            self.owed_sends.sent_more(envelope.to, 1)
        failure = attempt(self._from_cell, envelope, sends)
        if isinstance(failure, Failure):
            self._on_failure(envelope.to, "send", failure=failure)

    def of_class(
        self, crowd: Crowd, raw: int, *, sends: tuple[Send, ...], envelope: Envelope
    ) -> None:
        """Queue the sends of a class after its turn on `envelope`."""
        if _owes(sends):
            self.owed_sends.sent(crowd.key, raw)
        failure = attempt(self._from_class, crowd, raw, sends=sends, envelope=envelope)
        if isinstance(failure, Failure):
            self._on_failure(crowd.key, "send", failure=failure, raw=raw)

    # ---- what is owed ----

    def owes(self, key: Key, raw: int) -> None:
        """Note that something owed was sent."""
        if self._population.kind(key).crowd is None:
            self.owed_sends.sent_more(key, raw)
        else:
            self.owed_sends.sent(key, raw)

    def recover(self, key: Key) -> None:
        """Find out after recovery whether the cell or crowd owes anything.

        If that raises, all members count as owing: the next tick derives it again, and notes the
        error.
        """
        kind = self._population.kind(key)
        if kind.crowd is None:
            state = self._population.cells[key]
            found = attempt(kind.owed, state)
            if found:
                self.owes(key, 1)
            return
        crowd = self._population.crowds[key]
        owing = attempt(crowd.where, kind.owed)
        raw = crowd.present if isinstance(owing, Failure) else owing
        if raw:
            self.owes(key, raw)

    def resend_owed(self, key: Key, raw: int) -> None:
        """Resend what the members in `raw` (a cell: 1) owe, derived from their states."""
        failure = attempt(self._resend_owed, key, raw)
        if isinstance(failure, Failure):
            self._on_failure(key, "owed", failure=failure)

    def tick(self, number: int) -> None:
        """Resend whatever is due at this tick."""
        for key, due in self.owed_sends.tick(number).items():
            self.resend_owed(key, due)

    def resend_all(self) -> None:
        """Let every cell and crowd resend once what it owes, after recovery."""
        for key in [*self.owed_sends]:
            self.resend_owed(key, self.owed_sends.of(key))

    # ---- inside ----

    def _resend_owed(self, key: Key, raw: int) -> None:
        kind = self._population.kind(key)
        if kind.crowd is None:
            state = self._population.cells.get(key)
            sends = kind.owed(state) if state is not None else ()
            if not sends:
                self.owed_sends.forget(key)
            elif raw:
                self._from_cell(Envelope(key, NO_CAUSE), sends)
            return
        crowd = self._population.crowd(key)
        for state, members in crowd.split(self.owed_sends.of(key)):
            sends = kind.owed(state) if state is not None else ()
            if not sends:
                self.owed_sends.settled(key, members)
            elif members & raw:
                self._from_class(
                    crowd, members & raw, sends=sends, envelope=Envelope(key, NO_CAUSE)
                )

    def _from_cell(self, envelope: Envelope, sends: tuple[Send, ...]) -> None:
        for send in sends:
            if send.members is not None and not send.members.raw:
                # An empty set has no receiver. Sent without members it would be a message to the
                # crowd's key, which is no cell: a failure in the story of each such turn.
                continue
            to, members = send.to, send.members.raw if send.members is not None else 0
            if to is SENDER:
                if envelope.sender is None:
                    continue
                to, members = envelope.sender, members or envelope.origin
            elif to is SELF:
                to = envelope.to
            elif to is PARENT:
                kind = self._population.kind(envelope.to)
                to = kind.parent(envelope.to, self._population.cells.get(envelope.to))
                if to is None:
                    continue
            self._outbox.add(
                Envelope(to, send.message, members, sender=envelope.to, values=send.values)
            )

    def _from_class(
        self, crowd: Crowd, raw: int, *, sends: tuple[Send, ...], envelope: Envelope
    ) -> None:
        for send in sends:
            for message, some in self._resolved(crowd, raw, message=send.message):
                if send.to is SELF:
                    self._outbox.add(Envelope(crowd.key, message, some, sender=crowd.key))
                    continue
                for to, members in _targets(crowd, some, to=send.to, envelope=envelope):
                    self._outbox.add(Envelope(to, message, sender=crowd.key, origin=members))

    def _resolved(self, crowd: Crowd, raw: int, *, message: Message) -> list[tuple[Message, int]]:
        crowd_kind = crowd.kind.crowd
        assert crowd_kind is not None
        resolve = crowd_kind.resolve.get(type(message))
        if resolve is None:
            return [(message, raw)]
        parent = self._population.cells[crowd.parent]
        groups = crowd.columns.groups("spec", raw)
        return [(resolve(parent, message, spec), members) for spec, members in groups]


def _owes(sends: tuple[Send, ...]) -> bool:
    """Return whether one of the sends must arrive."""
    return Delivery.OWED in [send.message.delivery for send in sends]


def _targets(crowd: Crowd, raw: int, *, to: Any, envelope: Envelope) -> list[tuple[Key, int]]:
    if isinstance(to, Column):
        return crowd.columns.groups(to.name, raw)
    if to is PARENT:
        return [(crowd.parent, raw)]
    if to is SENDER and envelope.origins:
        pairs = ((sender, members & raw) for members, sender in envelope.origins)
        return [(sender, members) for sender, members in pairs if members]
    if to is SENDER:
        return [] if envelope.sender is None else [(envelope.sender, raw)]
    return [(to, raw)]


class _Nothing(Message, frozen=True, gc=False, array_like=True):
    """Stands for the cause of a resend, which no message caused."""


NO_CAUSE = _Nothing()
