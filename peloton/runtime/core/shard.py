"""A shard: entities that commit together, and the loop that runs their turns.

One round of a shard:

    take(envelopes)    messages enter the inbox
    run(now)           runs turns on them; returns the messages that came of it. May be repeated:
                       all turns until `close` are of one frame, and of one moment
    close()            returns a `Ready`: one frame of facts to journal, and what may leave once
                       that frame is durable
    (the shell journals the frame)
    committed()        the frame is durable

At most one frame is in flight, and the turns of the next run meanwhile, unless rows or parts are
written beside it (`is_full`). Messages to shards whose frames commit together with this one may be
handed over before `close`; all others, and replies, wait until the frame is durable. A shard must
not wait or read a clock, and only `committed` may tell it that a frame is durable.

The parts of a shard, each in a module of its own:

    population     states of entities (cells and crowds), and the indexes that parents derive
    pump           chooses the next message, and bounds what one frame takes
    turns          runs one turn: decides, folds the facts, encodes them, resolves the sends
    deferred       mail that waits for a load or a retry; dead letters; quarantines
    lazy_facts     facts that need no frame of their own, and wait for the next one
    dues           what time brings: alarms and deadlines
    pursuits       whether goals are pursued, and whose turn was left out
    endings        ended entities: how they leave memory, and how they come back
    request_log    replies by the request keys of clients
    reports        versioned reports of parents, resent until they are seen
    epoch_filter   refuses messages of an older owner of the sending shard
    checkpointer   writes checkpoints in parts while the shard goes on
    views, changes, followers    what is read: listings, the change feed and its readers
    reads          what other threads read: durable states, and answers made of them
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from peloton.runtime.core.deferring.dead_letters import Location, Redrives
from peloton.runtime.core.deferring.deferred import DeferredMail
from peloton.runtime.core.ended.endings import Endings
from peloton.runtime.core.entities.codec import Codec, Entry
from peloton.runtime.core.entities.population import Population
from peloton.runtime.core.entities.records import SHARD_KEY, CheckpointCut
from peloton.runtime.core.limits import DEFAULT_LIMITS, ShardLimits
from peloton.runtime.core.owning.epoch_filter import EpochFilter
from peloton.runtime.core.reading.changes import Changes
from peloton.runtime.core.reading.durable_reads import DurableReads, Undurable
from peloton.runtime.core.reading.followers import Followers
from peloton.runtime.core.reading.inspection import SHARD_KIND, FollowChanges, Redrive
from peloton.runtime.core.reading.inspection import answer_inspection as inspect
from peloton.runtime.core.reading.listing import ListViews
from peloton.runtime.core.reading.views import Views
from peloton.runtime.core.sharding import Sharding
from peloton.runtime.core.turning.dues import due_mail, left_out_mail, next_look_s
from peloton.runtime.core.turning.envelope import Envelope, Outbox, Reply, Stamp
from peloton.runtime.core.turning.lazy_facts import LazyFacts
from peloton.runtime.core.turning.pump import Pump
from peloton.runtime.core.turning.pursuits import PURSUE
from peloton.runtime.core.turning.replies import Replies, RequestLog
from peloton.runtime.core.turning.reports import Reports
from peloton.runtime.core.turning.resends import RESEND_TICK_S
from peloton.runtime.core.turning.story import Story, StoryLine
from peloton.runtime.core.turning.supervision import (
    Failure,
    attempt,
    attempt_pursue,
    attempt_query,
    attempt_test,
)
from peloton.runtime.core.turning.turns import Turns
from peloton.runtime.kinds import Kind
from peloton.runtime.ports import CheckpointPart, Cut, EndedRow, Floor, Frame, ShardId, Work
from peloton.runtime.vocabulary import (
    Fact,
    Key,
    Latest,
    Pursue,
    Query,
    Rest,
    Seen,
    ShardDamaged,
    Unavailable,
    kind_of,
)

REQUEST_LOG_EXPIRE_TICKS = 600
MANY = "is a crowd, and its members cannot reply as one: ask their parent"
NO_MEMBER = "is a crowd, and the message names no member of it"
NO_CROWD = "is no crowd, and the message names members of it"


class NotYet(enum.Enum):
    """The time at which a query can be answered that cannot be answered now."""

    AFTER_FRAME = "after the frame in flight"
    IN_ROUND = "in a round"


AFTER_FRAME, IN_ROUND = NotYet.AFTER_FRAME, NotYet.IN_ROUND


class Turned(NamedTuple):
    """The result of turns whose frame is still open."""

    load: tuple[Key, ...]  # ended entities to read; only their own mail waits meanwhile
    mail: list[Envelope]  # to other shards and to services, in order


class Ready(NamedTuple):
    """The tasks of the shell for a shard, in this order."""

    frame: bytes | None  # to journal at `position`, whole or not at all
    position: int
    replies: list[Reply]  # to send, only after the frame is durable
    ended: tuple[EndedRow, ...]  # final states to write
    parts: tuple[CheckpointPart, ...]
    floor: Floor | None
    cut: Cut | None
    wake_at: float | None  # run turns again then, in seconds since the epoch; None: on mail

    @property
    def writes(self) -> bool:
        """Whether the journal has anything to write."""
        return bool(self.frame or self.ended or self.parts or self.floor or self.cut)

    def work(self, shard: ShardId, epoch: int) -> Work | None:
        """Return the journal's work for this shard under this claim; None if there is none."""
        if not self.writes:
            return None
        frame = Frame(self.position, self.frame) if self.frame is not None else None
        ended, parts, floor, cut = self.ended, self.parts, self.floor, self.cut
        return Work(shard, epoch, frame, ended=ended, parts=parts, floor=floor, cut=cut)


class Shard:
    """The entities of one shard under one epoch."""

    def __init__(
        self,
        shard: ShardId,
        kinds: Mapping[str, Kind],
        *,
        sharding: Sharding,
        codec: Codec,
        limits: ShardLimits = DEFAULT_LIMITS,
    ) -> None:
        self.id = shard
        self.kinds = kinds
        self.codec = codec
        self.population = Population(kinds, codec)
        outbox = Outbox(self.is_mine)
        self.request_log = RequestLog()
        self.limits = limits
        story = Story(limits.lines_max)
        self.turns = Turns(
            self.population, codec, outbox=outbox, request_log=self.request_log, story=story
        )
        self.deferred = DeferredMail(self.turns, codec, commands_max=limits.commands_max)
        self.epoch_filter = EpochFilter()
        self.views = Views(kinds)
        self.reads = DurableReads(kinds, self.views)
        self.changes = Changes(limits.changes_max)
        self.followers = Followers(self.changes, codec)
        self.idleness = limits.idleness()
        self.endings = Endings(
            self.turns, codec, request_log=self.request_log, bounds=limits.endings()
        )
        self.lazy = LazyFacts(self.turns)
        self._replies = Replies(self.turns, self.endings, request_log=self.request_log)
        self.checkpointer = limits.checkpointer(codec)
        self.position = 0  # of the last frame made
        self.delivered = 0  # messages taken from the queues, for metrics
        self.redrives = Redrives(limits.redriven_per_frame_max)
        self._sharding = sharding
        self.reports = Reports(self.turns)
        self._local = outbox.local
        budget, pursue = limits.budget(), self._pursue_parent
        self.pump = Pump(self.turns, budget, local=self._local, deliver=self.deliver, pursue=pursue)
        self._inbox = self.pump.inbox
        self._to_load: dict[Key, None] = {}
        self._undurable = Undurable(self.population)
        self._clock_lag_s: float | None = None  # of our clock behind a previous owner's
        self._tick, self._tick_due = 0, 0.0  # of the resends
        self.is_open = self.is_full = False  # a frame has begun; more turns have to wait

    # ---- what the shell calls ----

    def take(self, envelopes: Iterable[Envelope], stamp: Stamp | None = None) -> bool:
        """Queue messages for entities of this shard, in order.

        Returns False if they are refused, because a message of a younger owner of the sending shard
        was received before.
        """
        if not self.epoch_filter.accepts(stamp):
            return False
        self._inbox.extend(envelopes)
        return True

    def loaded(self, key: Key, row: EndedRow | None) -> str:
        """Take the result of a `Turned.load`: the final state, or None if there is none.

        Returns why the row cannot be decoded, else "". Such a row affects that one entity only.
        """
        kept = attempt(self.endings.keep_loaded, key, row.body) if row is not None else None
        if isinstance(kept, Failure):
            self.unreadable(key, kept.error)
            return kept.error
        box = self.deferred.loading.pop(key, None)
        if row is None:
            self.endings.known_absent[key] = None
        self.redrives.loaded(key)
        self._inbox.extendleft(reversed(box.drain() if box is not None else []))
        return ""

    def unreadable(self, key: Key, text: str) -> None:
        """Answer every call that waits for a `Turned.load` that failed with an error."""
        unreadable = ShardDamaged(f"{key} cannot be read: {text}")
        box = self.deferred.loading.pop(key, None)
        for envelope in box.drain() if box is not None else ():
            self._replies.reply(envelope, unreadable)
        self.reply_to(self.redrives.unreadable(key), unreadable)

    def run(self, now: float, wall: float | None = None) -> Turned:
        """Run turns on all mail; the frame stays open for more.

        `now` and `wall` (the same if not given) are in seconds since the epoch, by the clocks of
        those names, and count at the first call for a frame.
        """
        if not self.is_open:
            self.is_open = True
            self._begin_frame(now, now if wall is None else wall)
        else:
            self.redrives.run(self)  # what they wait for may have been loaded
        if (epochs := self.epoch_filter.raised()) is not None:
            self.turns.write(epochs)
        self.pump.run()
        if self.reports.due and self.reports.send_due():
            self.pump.run()
        self.endings.known_absent = {}
        self.is_full = self.has_mail
        self._undurable.open(self.turns.touched)
        load, self._to_load = tuple(self._to_load), {}
        return Turned(load, self.turns.outbox.drain())

    def close(self, *, may_withhold: bool = True) -> Ready:
        """End the frame.

        With `may_withhold` lazy facts may wait for a later frame: then messages leave without one,
        which proves that we own the shard.
        """
        self.is_open = False
        self.pump.closed()
        ended = self.endings.rows(self.position, self.reports)
        self._inbox.extend(self.endings.partings.take())
        self.reads.ended = self.endings.retained()
        if may_withhold and not ended and self._may_wait():
            frame = None
            self.lazy.wait()
        else:
            frame = self._close_frame()
            self._undurable.framed()
        parts, floor, cut = self.checkpointer.pieces(self.endings.floor_may_move)
        self._pack_idle()
        replies, self.turns.outbox.replies = self.turns.outbox.replies, []
        # Rows tell how entities are now: one that remembered a reply meanwhile would be evicted.
        self.is_full = bool(ended or parts or floor or cut)
        return Ready(
            frame=frame,
            position=self.position,
            replies=replies,
            ended=ended,
            parts=parts,
            floor=floor,
            cut=cut,
            wake_at=self._wake_at(),
        )

    def committed(self, more_to_cut: bool = False, *, scattered: bool = False) -> list[Reply]:
        """Record that the last `Ready` is durable; return replies to change readers."""
        self.views.commit()
        self.reads.commit()
        self._undurable.committed()
        self.is_full = self.is_full and self.is_open
        safe = self.changes.commit()
        evicted = self.endings.committed()
        for key in evicted:
            self.reports.forget(key)
        self.views.drop(evicted)
        self.reads.drop(evicted)
        self.checkpointer.committed(more_to_cut, scattered=scattered)
        return self.followers.framed(*safe) if safe is not None else []

    def answer(self, envelope: Envelope, now: float) -> Any:
        """Return the answer to a query, between two rounds.

        The query need not wait for the messages before it, as those are not acknowledged yet. It
        must wait for the frame in flight (`AFTER_FRAME`) if that has changed what the answer would
        show, and for a round (`IN_ROUND`) if the entity has to be loaded, turns could change the
        answer, or what it would show is withheld.
        """
        message: Any = envelope.message
        kind = self.kinds.get(kind_of(envelope.to))
        if kind is None:
            listing = isinstance(message, ListViews)
            return attempt_query(self.views.page, message) if listing else IN_ROUND
        if envelope.to in self.deferred.loading or self._must_load(kind, envelope):
            return IN_ROUND
        if self._undurable.shown_by(envelope.to):
            return IN_ROUND if self.lazy else AFTER_FRAME
        self.delivered += 1
        if self._clock_lag_s is not None and not self.is_open:
            self.turns.now = max(now + self._clock_lag_s, self.turns.now)
        answer, state = self._replies.answer(kind, envelope)
        self.reads.keep(kind, envelope.to, query=message, state=state, answer=answer)
        return answer

    @property
    def epoch(self) -> int:
        """The claim under which this shard acts; orders to backends carry it."""
        return self.turns.epoch

    @epoch.setter
    def epoch(self, epoch: int) -> None:
        self.turns.epoch = epoch

    @property
    def busy(self) -> bool:
        """Whether a round would find something to do at once."""
        # Those that have ended by what is withheld wait for its frame, and nothing else may wait.
        rows = self.endings.busy and not self.lazy
        said = bool(self.turns.outbox.replies)  # by no turn: a row that waits cannot be read
        return self.has_mail or said or bool(self.redrives) or self.checkpointer.busy or rows

    @property
    def has_mail(self) -> bool:
        """Whether `run` would find something to do at once."""
        return bool(self._inbox or self._local or self.population.dirty)

    def _begin_frame(self, now: float, wall: float) -> None:
        """Queue what is due now: retries, deadlines, resends."""
        turns = self.turns
        if self._clock_lag_s is None:
            # A previous owner's clock was ahead of ours. Its time is continued, by an offset:
            # time in a shard never falls, and if it stood still instead, no deadline would come
            # before our clock has caught up.
            self._clock_lag_s = max(0.0, turns.now - now)
        now = max(now + self._clock_lag_s, turns.now)
        turns.begin(now, wall, position=self.position + 1, withheld=bool(self.lazy))
        self.redrives.begin_frame()
        self.redrives.run(self)
        # In front of the inbox: these were sent before all that has arrived since.
        self._inbox.extendleft(reversed(self.deferred.due_retries(turns.now)))
        self._deliver_due()
        self._resend_due()

    def _may_wait(self) -> bool:
        """Return whether what this round has to write may wait for the next frame."""
        if not self.lazy.may_wait() or self.checkpointer.busy:
            return False
        if self._inbox or self._local or self.population.dirty:
            return False  # left over, because the frame is full
        return self.endings.wait_for(self.turns.touched)

    def _close_frame(self) -> bytes | None:
        """Encode the facts of this round's turns; return None if there are none."""
        turns = self.turns
        self.lazy.end()
        self.views.touch(turns)
        self.reads.touch(turns.touched, self.population)
        evicted = self.endings.evicted_entry() if turns.rows else None
        if evicted is not None:
            turns.rows.insert(0, self.codec.encode_entry(evicted))
        cut = self.checkpointer.note(turns)
        if not turns.rows:
            return None
        frame = self.codec.encode_frame(turns.now, turns.rows)
        self.position += 1
        self.changes.framed(self.position, turns.lines)
        self.checkpointer.framed(len(frame))
        if cut:
            self.checkpointer.cut(self.position, self.population, records=self._records())
            self.endings.cut()
        return frame

    def _records(self) -> list[Entry]:
        """Return the runtime's own facts, as a checkpoint stores them."""
        kept = self.request_log.by_cell
        return [
            Entry(SHARD_KEY, (CheckpointCut(0, self.turns.now), *self.epoch_filter.dump())),
            *(Entry(key, tuple(answers.values())) for key, answers in kept.items()),
            *(Entry(key, tuple(facts)) for key, facts in self.deferred.dump().items()),
        ]

    def _pack_idle(self) -> None:
        """Pack entities that were idle for long; one that was read while cold counts as active."""
        now = self.turns.now
        self.idleness.touch(self.population.woken(), now)
        self.idleness.touch(self.turns.touched, now)
        for key in self.idleness.idle(now):
            self.population.freeze(key)
            self.reads.drop((key,))

    # ---- turns ----

    def is_mine(self, key: Key) -> bool:
        """Return whether entities of this key live here."""
        return self._sharding.is_at(key, self.id)

    def deliver(self, envelope: Envelope) -> None:
        """Hand one message to its entity, within this frame."""
        self.delivered += 1
        key, message, deferred = envelope.to, envelope.message, self.deferred
        name = kind_of(key)
        if name == SHARD_KIND:
            self._deliver_to_shard(envelope)
            return
        kind = self.kinds[name]
        if type(message) is Seen:
            assert envelope.sender is not None
            self.reports.pending.seen(envelope.sender, key, message=message)
            self.endings.touched(kind, key)
        elif key in deferred.loading or (kind.lookup and self._must_load(kind, envelope)):
            if deferred.wait_for_load(envelope):
                self._to_load[key] = None
        elif isinstance(message, Query):
            self._replies.query(kind, envelope)
        else:
            passed = envelope if deferred.is_idle else deferred.pass_or_defer(envelope)
            if passed is not None and not self._replies.repeat(passed):
                self._turn(kind, passed)

    def _deliver_to_shard(self, envelope: Envelope) -> None:
        if isinstance(envelope.message, Redrive):
            self.redrives.order(envelope.message.of, envelope.reply_to)
            self.redrives.run(self)
            return
        if isinstance(envelope.message, FollowChanges):
            replies = self.followers.add(envelope.reply_to, envelope.message, self.turns.now)
            self.turns.outbox.replies += replies
            return
        self._replies.reply(envelope, attempt_query(inspect, self, envelope.message))

    def _turn(self, kind: Kind, envelope: Envelope) -> None:
        message = envelope.message
        if bool(envelope.members) is (kind.crowd is None):
            # The key of a crowd is no cell, and a cell has no members: there is no receiver.
            text = f"{envelope.to} {NO_MEMBER if kind.crowd is not None else NO_CROWD}"
            self.turns.record_failure(envelope.to, type(message).__name__, failure=Failure(text))
            self._replies.reply(envelope, Unavailable(text))
            return
        if envelope.members:
            for members, failure in self.turns.crowd(kind, envelope):
                self.deferred.failed(envelope, members, failure=failure)
            if envelope.reply_to is not None:
                self._replies.reply(envelope, Unavailable(f"{envelope.to} {MANY}"))
        else:
            self.endings.revive(envelope.to)
            failed = self.turns.cell(kind, envelope)
            if failed is not None:
                self.deferred.failed(envelope, 0, failure=failed)
            self.endings.touched(kind, envelope.to)
            if kind.reporting is not None:
                self.reports.had_turn(envelope.to, kind, message=message)
            if failed is not None:
                return  # it is retried, and so must not be acknowledged yet
        if isinstance(message, Latest) and envelope.sender is not None:
            seen = Seen(type(message).__name__, message.version)
            answer = Envelope(envelope.sender, seen, sender=envelope.to)
            # A sender of this shard commits together with this turn.
            (self.deliver if self.is_mine(answer.to) else self.turns.outbox.add)(answer)

    def _pursue_parent(self, key: Key) -> None:
        kind = self.kinds[kind_of(key)]
        state = self.population.cells.get(key)
        if state is not None:
            # Most parents have nothing to do. Finding that out here, first, spares them a turn.
            pursuits = self.turns.pursuits
            now = pursuits.of(kind) if pursuits.resting else kind
            step = attempt_pursue(now, state, self.turns.at(kind, Envelope(key, PURSUE)))
            if not isinstance(step, Rest):
                if not (self.deferred.is_idle and self.turns.step(kind, key, step=step)):
                    self.deliver(Envelope(key, Pursue(step)))
                state = self.population.cells.get(key, state)
            self.reports.schedule(key, kind, state=state)
        self.endings.touched(kind, key)

    def _deliver_due(self) -> None:
        self.turns.outbox.replies += self.followers.expired(self.turns.now)
        self._inbox.extend(due_mail(self.turns))

    # ---- queries: `InspectedShard` ----

    def dead_letter_facts(self) -> Mapping[Key, Iterable[Fact]]:
        """Return dead letters and quarantines, as the facts that recorded them."""
        return self.deferred.dump()

    def story_of(self, key: Key, member: int | None) -> list[StoryLine]:
        """Return the story of an entity, oldest first."""
        return self.turns.story.of(key, member)

    # ---- redrives: `RedriveShard` ----

    def locate(self, key: Key) -> Location:
        """Return where the entity is; request a load if it has to be loaded."""
        if not attempt_test(self.is_mine, key):
            return Location.ELSEWHERE
        if key in self.deferred.loading or self._is_unread(key, self.kinds[kind_of(key)]):
            if self.deferred.load(key):
                self._to_load[key] = None
            return Location.LOADING
        return Location.HERE

    def dead_letters_of(self, key: Key) -> int:
        """Return the number of the entity's dead letters."""
        return len(self.deferred.dead_letters.get(key, ()))

    def frame_is_full(self) -> bool:
        """Return whether the frame has as many bytes as a redrive may fill."""
        return self.turns.bytes >= self.limits.frame_bytes_soft

    def redrive_one(self, key: Key) -> str:
        """Try the oldest dead letter again; return the error if it cannot be decoded, else ""."""
        envelope = self.deferred.redrive(key)
        if isinstance(envelope, Failure):
            return envelope.error
        self.deliver(envelope)
        return ""

    def end_redrive(self, key: Key) -> None:
        """End a redrive: lift a quarantine that is left, and set the deadlines again.

        A deadline that came during the quarantine was refused like all mail.
        """
        self.deferred.lift_quarantine(key)
        self.turns.retime(key)

    def reply_to(self, addresses: Iterable[Any], value: Any) -> None:
        """Send a reply to these addresses, with the frame."""
        self.turns.outbox.replies += [Reply(address, value) for address in addresses]

    # ---- resends ----

    def resend_everything_owed(self) -> None:
        """Let every cell and crowd resend once what it owes, after recovery."""
        self.turns.resolver.resend_all()

    def rest(self, resting: bool) -> None:
        """Let goals rest from now on, or be pursued again: see `pursuits`."""
        if resting:
            self.turns.pursuits.resting = True
            return
        self._inbox.extend(left_out_mail(self.turns))

    def hurry(self) -> None:
        """Resend at the next tick what may have been lost: a receiver may be reachable again.

        Without this, a send at the slow rate waits up to half a minute for a shard that has had an
        owner all that time.
        """
        self.turns.resolver.owed_sends.hurry()
        self.reports.pending.hurry()

    def _resend_due(self) -> None:
        if self.turns.now < self._tick_due:
            return
        self._tick_due = self.turns.now + RESEND_TICK_S
        self._tick += 1
        self.turns.resolver.tick(self._tick)
        self.reports.resend(self._tick)
        if self._tick % REQUEST_LOG_EXPIRE_TICKS == 0:
            self.request_log.expire(self.turns.now)

    # ---- loads, and when to wake ----

    def _must_load(self, kind: Kind, envelope: Envelope) -> bool:
        """Return whether this message has to wait until the `ended` row of its entity was read."""
        if envelope.members or not self._is_unread(envelope.to, kind):
            return False
        message = envelope.message
        if isinstance(message, Query):
            return True
        return type(message) in kind.lookup and not attempt_test(kind.fresh, message)

    def _is_unread(self, key: Key, kind: Kind) -> bool:
        """Return whether the entity is not in memory, and may have an unread `ended` row."""
        absent = bool(kind.lookup) and key not in self.population.cells
        return absent and not self.endings.knows(key)

    def _wake_at(self) -> float | None:
        tick = self._tick_due if self.turns.resolver.owed_sends or self.reports.pending else None
        wheels = self.turns.wheel.next_s(), self.turns.alarms.next_s()
        waits = self.idleness.next_s, self.deferred.next_s, self.followers.next_s
        look = next_look_s(self.turns) if self.turns.calendar.ticks else None
        others = self.reports.next_s, self.endings.next_s, self.lazy.next_s, look
        times = [at for at in (tick, *wheels, *waits, *others) if at is not None]
        return min(times) - (self._clock_lag_s or 0.0) if times else None
