"""The turns of one frame: each message is decided, applied, written and sent.

Turns an envelope into entries of the frame, new states, and what leaves when the frame is safe.
It must not choose what comes next (the shard does) or keep anything from one frame to the next
but the population.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from peloton.runtime.core.answered import Answered
from peloton.runtime.core.codec import Codec, Entry
from peloton.runtime.core.crowd import Change, Crowd, values_for
from peloton.runtime.core.deadlines import Wheel, tick_at, tick_of
from peloton.runtime.core.envelope import Envelope, Outbox, Reply
from peloton.runtime.core.owed import Owing
from peloton.runtime.core.population import Population
from peloton.runtime.core.records import RequestAnswered, Revived
from peloton.runtime.core.story import Line, Story
from peloton.runtime.core.supervision import Failure, attempt
from peloton.runtime.core.turn import Outcome, take_turn
from peloton.runtime.vocabulary import (
    PARENT,
    SELF,
    SENDER,
    At,
    Bits,
    Column,
    Delivery,
    Due,
    Fact,
    Key,
    Kind,
    Message,
    Send,
)

ENTRY_BYTES_MAX = 8 * 1024 * 1024


class TooLarge(Exception):
    """What a turn wrote does not fit a frame."""


class Turns:
    """Runs turns over a population; everything they make is collected here until taken."""

    def __init__(
        self, population: Population, codec: Codec, *, outbox: Outbox, answered: Answered
    ) -> None:
        self.population = population
        self.outbox = outbox
        self.answered = answered
        self.wheel = Wheel()
        self.alarms = Wheel()  # of notes: soft, so apart from the deadlines of states
        self.story = Story()
        self.owing: dict[Key, Owing] = {}
        self.revived: dict[Key, bytes] = {}  # rows of `ended`, not yet written as living
        self.touched: dict[Key, None] = {}  # cells with new states, for views and endings
        self.now = 0.0
        self.position = 0
        self.epoch = 0
        self.rows: list[bytes] = []
        self.written = 0  # entries, for figures
        self.bytes = 0
        self._codec = codec

    def begin(self, now: float, position: int) -> None:
        """A new frame: turns see this time and position."""
        self.now, self.position = now, position
        self.rows, self.bytes = [], 0
        self.touched = {}

    def at(self, kind: Kind, envelope: Envelope) -> At:
        """Where and when a turn on this envelope is taken."""
        return At(
            now=self.now,
            key=envelope.to,
            sender=envelope.sender,
            members=Bits(envelope.origin) if envelope.origin else None,
            values=envelope.values,
            index=self.population.index_for(kind, envelope.to),
            who=envelope.who,
            notes=self.population.notes.get(envelope.to),
            epoch=self.epoch,
            position=self.position,
        )

    def cell(self, kind: Kind, envelope: Envelope) -> Failure | None:
        """One turn of a cell."""
        state = self.population.cells.get(envelope.to)
        if isinstance(envelope.message, Due) and not self._cell_is_due(
            kind, state, envelope=envelope
        ):
            return None
        at = self.at(kind, envelope)
        outcome = attempt(self._cell_turn, kind, state, envelope=envelope, at=at)
        return outcome if isinstance(outcome, Failure) else None

    def crowd(self, kind: Kind, envelope: Envelope) -> Iterator[tuple[int, Failure]]:
        """One turn per class of equal states; yields the members whose class failed, and why."""
        crowd = self.population.crowd(envelope.to)
        at = self.at(kind, envelope)
        message = envelope.message
        for state, raw in crowd.split(envelope.members):
            if isinstance(message, Due):
                raw = crowd.still_due(state, raw, name=message.name, now_s=self.now)
                if not raw:
                    continue
            outcome = attempt(take_turn, kind, state, message=message, at=at)
            if not isinstance(outcome, Failure):
                outcome = attempt(
                    self._apply_class, crowd, raw, state=state, outcome=outcome, envelope=envelope
                )
            if isinstance(outcome, Failure):
                yield raw, outcome

    def write(self, entry: Entry) -> None:
        """Add an entry to the frame."""
        self._add(self._row(entry))

    def say_owed(self, key: Key, raw: int) -> None:
        """Say again, from their states, what the members in `raw` (a cell: 1) owe.

        A kind that raises here must not stop the shard: it is tried again like all that is owed.
        """
        failure = attempt(self._say_owed, key, raw)
        if isinstance(failure, Failure):
            because = f"what it owes was not said: {failure.error}"
            self.story.tell(Line(self.now, key, 0, "owed", (), because))

    def _say_owed(self, key: Key, raw: int) -> None:
        kind = self.population.kind(key)
        owing = self.owing[key]
        if kind.crowd is None:
            state = self.population.cells.get(key)
            sends = kind.owed(state) if state is not None else ()
            if not sends:
                del self.owing[key]
            elif raw:
                self._send_from_cell(Envelope(key, NOTHING), sends)
            return
        crowd = self.population.crowd(key)
        for state, members in crowd.split(owing.all):
            sends = kind.owed(state) if state is not None else ()
            if not sends:
                owing.settled(members)
            elif members & raw:
                self._send_from_class(
                    crowd, members & raw, sends=sends, envelope=Envelope(key, NOTHING)
                )
        if not owing.all:
            del self.owing[key]

    def owes(self, key: Key, raw: int) -> None:
        """Note that something owed was said."""
        owing = self.owing.get(key)
        if owing is None:
            owing = self.owing[key] = Owing()
        if self.population.kind(key).crowd is None:
            owing.said_more(raw)
        else:
            owing.said(raw)

    def time_cell(self, key: Key, kind: Kind, *, old: Any, new: Any) -> None:
        """Set or drop the deadline of a cell after its state changed."""
        after = kind.deadline(new) if new is not None else None
        if after is None:
            self.population.since.pop(key, None)
            self.wheel.drop(key)
            return
        before = kind.deadline(old) if old is not None else None
        if before is None or before[0] != after[0] or key not in self.population.since:
            self.population.since[key] = self.now
        self.wheel.set(key, tick_of(self.population.since[key] + after[1]))

    def time_crowd(self, crowd: Crowd) -> None:
        """Put the earliest deadline of a crowd on the wheel."""
        tick = crowd.next_tick
        if tick is None:
            self.wheel.drop(crowd.key)
        else:
            self.wheel.set(crowd.key, tick)

    def _cell_turn(self, kind: Kind, state: Any, *, envelope: Envelope, at: At) -> Outcome:
        key = envelope.to
        outcome = take_turn(kind, state, message=envelope.message, at=at)
        facts = outcome.facts
        if facts:
            answered = self._answered(key, envelope, reply=outcome.reply)
            facts = (*facts, *answered)
            row = self._row(self._entry(envelope, facts, because=outcome.because))
            if outcome.state is not None:
                kind.deadline(outcome.state)  # if it raises, then while nothing has changed
            self.population.put(key, outcome.state)
            self._write_revived(key)
            self._add(row)
            self.touched[key] = None
            self.time_cell(key, kind, old=state, new=outcome.state)
            for fact in answered:
                self.answered.remember(key, fact)
        if outcome.notes is not None:
            self._note(kind, key, notes=outcome.notes)
        self._tell(envelope, 0, outcome=outcome)
        self._send_from_cell(envelope, outcome.sends)
        self._note_owed(key, 1, sends=outcome.sends)
        if envelope.ask is not None and outcome.reply is not None:
            self.outbox.replies.append(Reply(envelope.ask, outcome.reply))
        return outcome

    def _note(self, kind: Kind, key: Key, *, notes: Any) -> None:
        self.population.notes[key] = notes
        recall_s = kind.recall_s(notes)
        if recall_s is None:
            self.alarms.drop(key)
        else:
            self.alarms.set(key, tick_of(recall_s))

    def recall(self, key: Key) -> None:
        """An alarm rang. A tick may lie a hair before the moment itself: then it rings once more.

        Who compared the moment with the clock and went back to wait would otherwise never wake.
        """
        notes = self.population.notes.get(key)
        recall_s = self.population.kind(key).recall_s(notes) if notes is not None else None
        if recall_s is not None and recall_s > self.now:
            self.alarms.set(key, max(tick_of(recall_s), tick_at(self.now) + 1))

    def _answered(self, key: Key, envelope: Envelope, *, reply: Any) -> tuple[RequestAnswered, ...]:
        if envelope.request is None:
            return ()
        name, digest = envelope.request
        return (RequestAnswered(name, digest, self._codec.encode_answer(key, reply), self.now),)

    def _apply_class(
        self, crowd: Crowd, raw: int, *, state: Any, outcome: Outcome, envelope: Envelope
    ) -> Outcome:
        values = values_for(raw, envelope.members, values=envelope.values)
        if outcome.facts:
            entry = self._entry(
                envelope, outcome.facts, because=outcome.because, members=raw, values=values
            )
            change = Change(state, outcome.state, facts=outcome.facts, values=values)
            row = self._row(entry)
            self.population.before_change(crowd)
            crowd.apply(raw, change, self.now)
            self._write_revived(self._parent(crowd))
            self._add(row)
            self.touched[self.population.changed(crowd)] = None
            self.time_crowd(crowd)
        self._tell(envelope, raw, outcome=outcome)
        # From here on the turn stands. What is owed and could not be said is said at a tick.
        self._note_owed(crowd.key, raw, sends=outcome.sends)
        failure = attempt(self._send_from_class, crowd, raw, sends=outcome.sends, envelope=envelope)
        if isinstance(failure, Failure):
            because = f"what it says was not said: {failure.error}"
            self.story.tell(Line(self.now, crowd.key, raw, "send", (), because))
        return outcome

    def _row(self, entry: Entry) -> bytes:
        row = self._codec.encode_entry(entry)
        if len(row) > ENTRY_BYTES_MAX:
            raise TooLarge(f"{entry.key}: {len(row)} bytes, at most {ENTRY_BYTES_MAX}")
        return row

    def _add(self, row: bytes) -> None:
        self.rows.append(row)
        self.written += 1
        self.bytes += len(row)

    def _write_revived(self, key: Key) -> None:
        """The first fact after a revival, of the cell or of its crowd, carries the whole state."""
        body = self.revived.pop(key, None)
        if body is not None:
            self.write(Entry(key, (Revived(body),), cause="revived"))

    def _cell_is_due(self, kind: Kind, state: Any, *, envelope: Envelope) -> bool:
        deadline = kind.deadline(state) if state is not None else None
        since = self.population.since.get(envelope.to)
        due = envelope.message
        assert isinstance(due, Due)
        if deadline is None or since is None or deadline[0] != due.name:
            return False
        return tick_of(since + deadline[1]) <= tick_at(self.now)

    def _note_owed(self, key: Key, raw: int, *, sends: tuple[Send, ...]) -> None:
        if any(send.message.delivery is Delivery.OWED for send in sends):
            self.owes(key, raw)

    def _parent(self, crowd: Crowd) -> Key:
        assert crowd.kind.crowd is not None
        return crowd.kind.crowd.parent(crowd.key)

    def _entry(
        self,
        envelope: Envelope,
        facts: tuple[Fact, ...],
        *,
        because: str,
        members: int = 0,
        values: tuple[Any, ...] = (),
    ) -> Entry:
        if not any(type(fact) in self._per_member(envelope.to) for fact in facts):
            values = ()
        return Entry(
            key=envelope.to,
            facts=facts,
            members=members,
            values=values,
            cause=type(envelope.message).__name__,
            because=because,
            who=envelope.who,
        )

    def _per_member(self, key: Key) -> Any:
        crowd = self.population.kind(key).crowd
        return crowd.per_member if crowd is not None else ()

    def _tell(self, envelope: Envelope, raw: int, *, outcome: Outcome) -> None:
        if outcome.facts or outcome.because:
            cause = type(envelope.message).__name__
            line = Line(self.now, envelope.to, raw, cause, outcome.facts, outcome.because)
            self.story.tell(line)

    def _send_from_cell(self, envelope: Envelope, sends: tuple[Send, ...]) -> None:
        for send in sends:
            to, members = send.to, send.members.raw if send.members is not None else 0
            if to is SENDER:
                if envelope.sender is None:
                    continue
                to, members = envelope.sender, members or envelope.origin
            elif to is SELF:
                to = envelope.to
            elif to is PARENT:
                kind = self.population.kind(envelope.to)
                to = kind.parent(envelope.to, self.population.cells.get(envelope.to))
                if to is None:
                    continue
            self.outbox.add(
                Envelope(to, send.message, members, sender=envelope.to, values=send.values)
            )

    def _send_from_class(
        self, crowd: Crowd, raw: int, *, sends: tuple[Send, ...], envelope: Envelope
    ) -> None:
        for send in sends:
            for message, some in self._resolved(crowd, raw, message=send.message):
                if send.to is SELF:
                    self.outbox.add(Envelope(crowd.key, message, some, sender=crowd.key))
                    continue
                for to, members in self._targets(crowd, some, to=send.to, envelope=envelope):
                    self.outbox.add(Envelope(to, message, sender=crowd.key, origin=members))

    def _resolved(self, crowd: Crowd, raw: int, *, message: Message) -> list[tuple[Message, int]]:
        crowd_kind = crowd.kind.crowd
        assert crowd_kind is not None
        resolve = crowd_kind.resolve.get(type(message))
        if resolve is None:
            return [(message, raw)]
        parent = self.population.cells[crowd_kind.parent(crowd.key)]
        groups = crowd.columns.groups("spec", raw)
        return [(resolve(parent, message, spec), members) for spec, members in groups]

    def _targets(
        self, crowd: Crowd, raw: int, *, to: Any, envelope: Envelope
    ) -> list[tuple[Key, int]]:
        if isinstance(to, Column):
            return crowd.columns.groups(to.name, raw)
        if to is PARENT:
            return [(self._parent(crowd), raw)]
        if to is SENDER and envelope.origins:
            pairs = ((sender, members & raw) for members, sender in envelope.origins)
            return [(sender, members) for sender, members in pairs if members]
        if to is SENDER:
            return [] if envelope.sender is None else [(envelope.sender, raw)]
        return [(to, raw)]


class _Nothing(Message, frozen=True, gc=False, array_like=True):
    """What is said again was not caused by a message."""


NOTHING = _Nothing()
