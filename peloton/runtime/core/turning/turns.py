"""The turns of one frame: each message is decided, applied, encoded and its sends resolved.

Turns an envelope into entries of the frame, new states, and what leaves once the frame is durable.
The pump chooses which message comes next. Only the population, its deadlines and the story are kept
from one frame to the next.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from peloton.runtime.core.entities.codec import Codec, Entry
from peloton.runtime.core.entities.crowd import ClassChange, Crowd, values_for
from peloton.runtime.core.entities.deadlines import Wheel, tick_at, tick_of
from peloton.runtime.core.entities.population import Population
from peloton.runtime.core.entities.records import RequestAnswered, Revived
from peloton.runtime.core.turning.envelope import Envelope, Outbox, Reply
from peloton.runtime.core.turning.pursuits import PURSUE, Pursuits
from peloton.runtime.core.turning.replies import KEEP_S, REFUSED_KEEP_S, RequestLog
from peloton.runtime.core.turning.sends import SendResolver
from peloton.runtime.core.turning.story import Story, StoryLine
from peloton.runtime.core.turning.supervision import Failure, attempt
from peloton.runtime.core.turning.turn import TurnOutcome, take_turn
from peloton.runtime.kinds import Kind, no_deadline
from peloton.runtime.vocabulary import At, Bits, Decision, Due, Fact, Key, Refused

ENTRY_BYTES_MAX = 8 * 1024 * 1024
"""A frame holds up to `LOCAL_BYTES_MAX` and one turn more, and must fit the journal's limit."""


class EntryTooLarge(Exception):
    """The facts of one turn, encoded, do not fit a frame."""


class NoParent(Exception):
    """Members of a crowd would change while their parent is gone."""


class Turns:
    """Runs turns over a population; collects the frame's rows and what is to be sent."""

    def __init__(
        self,
        population: Population,
        codec: Codec,
        *,
        outbox: Outbox,
        request_log: RequestLog,
        story: Story,
    ) -> None:
        self.population = population
        self.pursuits = Pursuits(population)
        self.outbox = outbox
        self.request_log = request_log
        self.wheel = Wheel()
        self.alarms = Wheel()  # of notes, which are lost on restart; `wheel` is of states
        self.calendar = Wheel()  # of moments, in ticks of `wall`
        self.story = story
        self.resolver = SendResolver(population, outbox, on_failure=self.record_failure)
        self.revived: dict[Key, bytes] = {}  # `ended` rows whose `Revived` fact is not written yet
        self.touched: dict[Key, None] = {}  # cells with new states, for views and endings
        self.now = self.wall = 0.0
        self.position = 0
        self.epoch = 0
        self.rows: list[bytes] = []
        self.must_write = False  # whether some fact of `rows` may not wait for the next frame
        self.lines: list[StoryLine] = []  # of this frame, those with facts
        self.written = 0  # entries, for metrics
        self.bytes = 0
        self.codec = codec
        self.level = codec.level

    def begin(self, now: float, wall: float, *, position: int, withheld: bool = False) -> None:
        """Begin a frame, whose turns see these times and position.

        `withheld`: the frame begins with the entries withheld so far.
        """
        self.now, self.wall, self.position = now, wall, position
        self.level = self.codec.level
        if withheld:
            return
        self.rows, self.bytes, self.lines = [], 0, []
        self.must_write = False
        self.touched = {}

    def record_failure(self, key: Key, cause: str, *, failure: Failure, raw: int = 0) -> None:
        """Note in the story that a kind's function raised beside a turn, and go on."""
        self.story.add(StoryLine(self.now, key, raw, cause, (), f"{cause} failed: {failure.error}"))

    def at(self, kind: Kind, envelope: Envelope) -> At:
        """Return the context of a turn on this envelope."""
        population, key = self.population, envelope.to
        return At(
            self.now,
            key,
            envelope.sender,
            Bits(envelope.origin) if envelope.origin else None,
            envelope.values,
            population.index_for(kind, key),
            envelope.who,
            population.notes.get(key),
            self.epoch,
            self.position,
            self.level,
            self.wall,
        )

    def cell(self, kind: Kind, envelope: Envelope) -> Failure | None:
        """Run one turn of a cell."""
        state = self.population.cells.get(envelope.to)
        if type(envelope.message) is Due and not self._cell_is_due(kind, state, envelope=envelope):
            return None
        at = self.at(kind, envelope)
        outcome = attempt(self._cell_turn, kind, state, envelope=envelope, at=at)
        return outcome if type(outcome) is Failure else None

    def crowd(self, kind: Kind, envelope: Envelope) -> Iterator[tuple[int, Failure]]:
        """Run one turn per class of equal states; yield the members whose class failed, and why."""
        crowd = self.population.crowd(envelope.to)
        at = self.at(kind, envelope)
        message = envelope.message
        for state, raw in crowd.split(envelope.members):
            if type(message) is Due:
                raw = crowd.still_due(state, raw, name=message.name, now_s=self.now)
                if not raw:
                    continue
            outcome = attempt(
                self._class_turn, kind, crowd, part=(state, raw), envelope=envelope, at=at
            )
            if type(outcome) is Failure:
                yield raw, outcome

    def write(self, entry: Entry) -> None:
        """Add an entry to the frame. Raises `EntryTooLarge`."""
        self._add(self._encoded(entry))
        self.must_write = True

    def time_cell(self, key: Key, kind: Kind, *, old: Any, new: Any) -> None:
        """Set or drop the deadline and the moment of a cell after its state changed."""
        if kind.moment is not no_deadline:
            moment = kind.moment(new) if new is not None else None
            if moment is None:
                self.calendar.drop(key)
            else:
                self.calendar.set(key, tick_of(moment[1]))
        if kind.deadline is no_deadline:
            return
        after = kind.deadline(new) if new is not None else None
        if after is None:
            self.population.since.pop(key, None)
            self.wheel.drop(key)
            return
        before = kind.deadline(old) if old is not None else None
        if before is None or before[0] != after[0] or key not in self.population.since:
            self.population.since[key] = self.now
        self.wheel.set(key, tick_of(self.population.since[key] + after[1]))

    def retime(self, key: Key) -> None:
        """Set the deadlines of a cell or crowd again, from its state."""
        crowd = self.population.crowds.get(key)
        state = self.population.cells.get(key)
        if crowd is not None:
            crowd.rebuild_deadlines()
            self.time_crowd(crowd)
        elif state is not None:
            self.time_cell(key, self.population.kind(key), old=state, new=state)

    def time_crowd(self, crowd: Crowd) -> None:
        """Put the earliest deadline of a crowd on the wheel."""
        tick = crowd.next_tick
        if tick is None:
            self.wheel.drop(crowd.key)
        else:
            self.wheel.set(crowd.key, tick)

    def _cell_turn(self, kind: Kind, state: Any, *, envelope: Envelope, at: At) -> TurnOutcome:
        key = envelope.to
        now = self.pursuits.of(kind) if self.pursuits.resting else kind
        outcome = take_turn(now, state, message=envelope.message, at=at)
        facts, size = outcome.facts, 0
        # All that may raise comes first: what fails from here on would leave half a turn behind.
        notes = outcome.notes
        recall_s = kind.recall_s(notes) if notes is not None else None
        answered = self._answered(envelope, outcome) if envelope.request is not None else ()
        if facts or answered:
            row = self._row(envelope, (*facts, *answered), because=outcome.because)
        if facts:
            self._note_class(kind, facts)
            revived = self._revived_row(key, beside=row) if self.revived else None
            if outcome.state is not None and kind.deadline is not no_deadline:
                kind.deadline(outcome.state)
            self.population.put(key, outcome.state, kind=kind)
            if revived is not None:
                self._add_revived(key, revived)
            size = len(row)
            self.touched[key] = None
            if kind.deadline is not no_deadline or kind.moment is not no_deadline:
                self.time_cell(key, kind, old=state, new=outcome.state)
        if facts or answered:
            self._add(row)
        for fact in answered:
            self.must_write = True
            self.request_log.remember(key, fact)
        if notes is not None:
            self._note(key, notes, recall_s=recall_s)
        if facts or outcome.because:
            self._add_line(envelope, 0, outcome=outcome, size=size)
        if outcome.sends:
            self.resolver.of_cell(envelope, outcome.sends)
        if envelope.reply_to is not None:
            self.outbox.replies.append(Reply(envelope.reply_to, outcome.reply))
        return outcome

    def step(self, kind: Kind, key: Key, *, step: Decision | None) -> bool:
        """Take a step that leaves a cell's state as it is; return False if it needs a turn."""
        if step is None or step.facts:
            return False
        if step.notes is not None:
            recall_s = attempt(kind.recall_s, step.notes)
            if isinstance(recall_s, Failure):
                return False  # the turn raises it again, and it is retried
            self._note(key, step.notes, recall_s=recall_s)
        if step.because:
            self.story.add(StoryLine(self.now, key, 0, type(PURSUE).__name__, (), step.because))
        if step.sends:
            self.resolver.of_cell(Envelope(key, PURSUE), step.sends)
        return True

    def _note(self, key: Key, notes: Any, *, recall_s: float | None) -> None:
        self.population.notes[key] = notes
        if recall_s is None:
            self.alarms.drop(key)
        else:
            self.alarms.set(key, tick_of(recall_s))

    def recall(self, key: Key) -> None:
        """Handle an alarm; if a tick lies just before the moment itself, set the alarm again.

        Otherwise an actor that compares the moment with `now`, finds it not reached and waits on
        would never be woken.
        """
        notes = self.population.notes.get(key)
        recall_s = self.population.kind(key).recall_s(notes) if notes is not None else None
        if recall_s is not None and recall_s > self.now:
            self.alarms.set(key, max(tick_of(recall_s), tick_at(self.now) + 1))

    def _answered(self, envelope: Envelope, outcome: TurnOutcome) -> tuple[RequestAnswered, ...]:
        """Return the reply to remember under the client's request key, if it is final.

        A refusal is final too: of a request that was sent twice, the later copy would otherwise do
        what the client was told is refused.
        """
        assert envelope.request is not None
        reply, at_s = outcome.reply, self.now
        if not outcome.facts:
            if not isinstance(reply, Refused) or reply.again:
                return ()
            at_s -= KEEP_S - REFUSED_KEEP_S
        name, digest = envelope.request
        return (RequestAnswered(name, digest, self.codec.encode_answer(envelope.to, reply), at_s),)

    def _class_turn(
        self, kind: Kind, crowd: Crowd, *, part: tuple[Any, int], envelope: Envelope, at: At
    ) -> TurnOutcome:
        state, raw = part
        now = self.pursuits.of(kind) if self.pursuits.resting else kind
        outcome = take_turn(now, state, message=envelope.message, at=at)
        values = values_for(raw, envelope.members, values=envelope.values)
        if outcome.facts and values and envelope.attempt:
            # A redriven dead letter was read from the journal, which does not know their types.
            kinds = (type(fact) for fact in outcome.facts)
            values = self.codec.typed_values(crowd.kind.name, kinds, values=values)
        size = 0
        if outcome.facts:
            row = self._row(
                envelope, outcome.facts, because=outcome.because, members=raw, values=values
            )
            change = ClassChange(state, outcome.state, facts=outcome.facts, values=values)
            parent = crowd.parent
            if parent not in self.population.cells:
                # It was evicted, and its `ended` row holds the other members. Touching a parent
                # that is absent counts as its deletion, so that row would be deleted.
                raise NoParent(f"{crowd.key} would change, but {parent} is not in memory")
            revived = self._revived_row(parent, beside=row) if self.revived else None
            self._note_class(crowd.kind, outcome.facts)
            self.population.before_change(crowd)
            crowd.apply(raw, change, self.now)
            if revived is not None:
                self._add_revived(parent, revived)
            self._add(row)
            size = len(row)
            self.touched[self.population.changed(crowd)] = None
            self.time_crowd(crowd)
        if outcome.facts or outcome.because:
            self._add_line(envelope, raw, outcome=outcome, size=size)
        if outcome.sends:
            self.resolver.of_class(crowd, raw, sends=outcome.sends, envelope=envelope)
        return outcome

    def _encoded(self, entry: Entry) -> bytes:
        row = self.codec.encode_entry(entry)
        if len(row) > ENTRY_BYTES_MAX:
            raise EntryTooLarge(f"{entry.key}: {len(row)} bytes, at most {ENTRY_BYTES_MAX}")
        return row

    def _add(self, row: bytes) -> None:
        self.rows.append(row)
        self.written += 1
        self.bytes += len(row)

    def _revived_row(self, key: Key, *, beside: bytes) -> bytes | None:
        """Return the row with the whole state, for the first fact after a revival."""
        body = self.revived.get(key)
        if body is None:
            return None
        row = self.codec.encode_entry(Entry(key, (Revived(body),), cause="revived"))
        size = len(row) + len(beside)
        if size > ENTRY_BYTES_MAX:
            raise EntryTooLarge(f"{key}: {size} bytes, at most {ENTRY_BYTES_MAX}")
        return row

    def _add_revived(self, key: Key, row: bytes) -> None:
        del self.revived[key]
        self._add(row)
        self.must_write = True

    def _note_class(self, kind: Kind, facts: tuple[Fact, ...]) -> None:
        if not self.must_write:
            self.must_write = not kind.lazy.issuperset(map(type, facts))

    def _cell_is_due(self, kind: Kind, state: Any, *, envelope: Envelope) -> bool:
        due = envelope.message
        assert isinstance(due, Due)
        moment = kind.moment(state) if state is not None else None
        if moment is not None and moment[0] == due.name:
            return tick_of(moment[1]) <= tick_at(self.wall)
        deadline = kind.deadline(state) if state is not None else None
        since = self.population.since.get(envelope.to)
        if deadline is None or since is None or deadline[0] != due.name:
            return False
        return tick_of(since + deadline[1]) <= tick_at(self.now)

    def _row(
        self,
        envelope: Envelope,
        facts: tuple[Fact, ...],
        *,
        because: str,
        members: int = 0,
        values: tuple[Any, ...] = (),
    ) -> bytes:
        if values and not any(type(fact) in self._per_member(envelope.to) for fact in facts):
            values = ()
        cause = type(envelope.message).__name__
        return self._encoded(
            Entry(envelope.to, facts, members, values, cause, because, envelope.who)
        )

    def _per_member(self, key: Key) -> Any:
        crowd = self.population.kind(key).crowd
        return crowd.per_member if crowd is not None else ()

    def _add_line(self, envelope: Envelope, raw: int, *, outcome: TurnOutcome, size: int) -> None:
        facts, because = outcome.facts, outcome.because
        cause = type(envelope.message).__name__
        line = StoryLine(self.now, envelope.to, raw, cause, facts, because, size, envelope.who)
        self.story.add(line)
        if facts:
            self.lines.append(line)
