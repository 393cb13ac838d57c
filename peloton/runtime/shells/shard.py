"""The shell of one shard: the pykka actor that runs the core with all its entities.

Passes mail to the core, and the core's frame to the round of the daemon (`round.py`). Messages to
shards of the same round are handed over at once; all others, and replies, leave only when the frame
is committed. Nothing is sent of a frame whose commit is unclear.
"""

from __future__ import annotations

import enum
from collections.abc import Hashable
from typing import Any

from peloton.runtime.core.recovery import restore
from peloton.runtime.core.shard import AFTER_FRAME, IN_ROUND, Ready, Shard
from peloton.runtime.core.turning import supervision
from peloton.runtime.core.turning.envelope import Envelope, Stamp
from peloton.runtime.ports import Answer, Committed, Fenced, ShardId, Work
from peloton.runtime.shells.daemon_context import DaemonContext
from peloton.runtime.shells.shell import Shell
from peloton.runtime.shells.shell_messages import (
    Claim,
    ClaimRefused,
    ClaimTaken,
    Closed,
    Drain,
    Drop,
    DropClaim,
    GoalsRest,
    Inspect,
    Load,
    Loaded,
    Mail,
    Opened,
    PeerReachable,
    Release,
    Released,
    ShardLost,
    Wake,
    reply_addresses,
    resolve,
    send,
)
from peloton.runtime.vocabulary import Query, ShardDamaged, Unavailable

IN_DOUBT = "this daemon's session is in doubt, another may own the shard: try again"


class ShardPhase(enum.Enum):
    """A phase in the life of a shard on this daemon, from its claim to its end."""

    CLAIMING = "recovering"
    OPEN = "open"
    DRAINING = "draining"
    OVER = "over"


class ShardShell(Shell):
    """The shell of one shard, from claim to end; a shard that ended gets a new shell."""

    def __init__(self, shard: ShardId, context: DaemonContext) -> None:
        super().__init__(shard_shell_name(shard), context.driver)
        self.shard = shard
        self.core: Shard | None = None  # read by simulations
        self._context = context
        self._status = context.region.status
        self._phase = ShardPhase.CLAIMING
        self._waiting_mail: list[Mail] = []
        self._waiting_mail_count = 0
        self.refused = 0  # batches over the limit of waiting mail, for metrics
        self._reply_addresses: dict[Any, None] = {}
        self._in_flight: Ready | None = None  # what it has done in the round at the store
        self._withheld: list[Envelope] = []  # of the open frame: not sent yet
        self._withheld_in_flight: list[Envelope] = []
        self._withheld_for: dict[Hashable, None] = {}  # shards and services that it goes to
        self._after_frame: list[Envelope] = []  # queries that wait for the frame in flight
        self._wake_core_s: float | None = None
        self._unclear_before = False  # the last answer of the journal was unclear, too
        self._report_trouble("recovering")
        send(context.reader_of(shard), Claim(shard, self.ref))

    # ---- messages ----

    def handle(self, message: Any) -> None:
        """Process one message; at the end of a grant take turns if some are due."""
        kind = type(message)
        if kind is Mail:
            self._mail(message)
        elif kind is Loaded:
            self._loaded(message)
        elif kind is not Wake:
            self._handle_rare(message)
        if self._phase is ShardPhase.OPEN and self.actor_inbox.at_end():
            self._pump()

    def failed(self, error: BaseException) -> None:
        """End the shard: its state may be wrong, and the next shell starts from the journal."""
        self._lose(f"{type(error).__name__}: {error}", broken=True)

    def late(self, message: Any) -> None:
        """Refuse the calls in the message: the shard has ended."""
        if isinstance(message, Mail):
            self._refuse(message.envelopes, "is moving")
        elif isinstance(message, Inspect):
            resolve(message.answer, Unavailable(f"{self.shard} is moving"))

    def _handle_rare(self, message: Any) -> None:
        if isinstance(message, ClaimTaken):
            self._open(message)
        elif isinstance(message, ClaimRefused):
            if message.unreachable:
                self._status.away(self._context.store, message.text, shard=self.shard)
            elif not message.damaged:
                self._status.answered(self._context.store, self.shard)
            self._lose(message.text, damaged=message.damaged, away=message.unreachable)
        elif isinstance(message, Inspect):
            self._inspect(message)
        elif isinstance(message, PeerReachable) and self.core is not None:
            self.core.hurry()
        elif isinstance(message, GoalsRest) and self.core is not None:
            self.core.rest(message.resting)
        elif isinstance(message, Drain):
            self._drain()
        elif isinstance(message, Drop):
            self._drop()
        elif isinstance(message, Released):
            self._close()

    def _mail(self, mail: Mail) -> None:
        if self._phase is ShardPhase.OPEN:
            self._take(mail)
        elif self._phase is not ShardPhase.CLAIMING:
            self._refuse(mail.envelopes, "is moving")
        elif self._waiting_mail_count >= self._context.limits.waiting_mail_max:
            self.refused += 1
            self._refuse(mail.envelopes, "is recovering")
        else:
            self._waiting_mail.append(mail)
            self._waiting_mail_count += len(mail.envelopes)
            self._reply_addresses.update(dict.fromkeys(reply_addresses(mail.envelopes)))

    def _take(self, mail: Mail) -> None:
        assert self.core is not None
        if mail.stamp is None and any(isinstance(e.message, Query) for e in mail.envelopes):
            mail = Mail([each for each in mail.envelopes if not self._answered(each)])
        if not self.core.take(mail.envelopes, mail.stamp):
            return  # refused by the epoch filter: sent by an older owner of the sending shard
        for envelope in mail.envelopes:
            if envelope.reply_to is not None:
                self._reply_addresses[envelope.reply_to] = None

    def _answered(self, envelope: Envelope) -> bool:
        """Return whether a query needs no round: it is answered now or after the frame
        under way."""
        message: Any = envelope.message
        if not isinstance(message, Query) or envelope.reply_to is None:
            return False
        assert self.core is not None
        answer = self.core.answer(envelope, self.now)
        if answer is IN_ROUND:
            return False
        if answer is AFTER_FRAME:
            self._after_frame.append(envelope)
            self._reply_addresses[envelope.reply_to] = None
            return True
        # Checked last: this process may have been paused, and another one owns the shard.
        sure = self._context.region.routes.current
        self._reply_addresses.pop(envelope.reply_to, None)
        resolve(envelope.reply_to, answer if sure else Unavailable(IN_DOUBT))
        return True

    def _loaded(self, message: Loaded) -> None:
        if self.core is not None:
            troubles = [(key, self.core.loaded(key, row)) for key, row in message.rows]
            for key, text in message.problems:
                self.core.unreadable(key, text)
            for key, text in (*troubles, *message.problems):
                if text:
                    self._context.region.report_problem(f"{self.name}-rows", f"{key}: {text}")

    def _inspect(self, message: Inspect) -> None:
        if self._phase is not ShardPhase.OPEN:
            resolve(message.answer, Unavailable(f"{self.name} is {self._phase.value}"))
            return
        resolve(message.answer, supervision.attempt_query(message.function, self.core))

    # ---- life ----

    def _open(self, taken: ClaimTaken) -> None:
        if self._phase is not ShardPhase.CLAIMING:
            send(self._context.journal, Release(self.shard, taken.claimed.epoch, self.ref))
            return
        context = self._context
        self._status.answered(context.store, self.shard)
        core = Shard(
            self.shard,
            context.kinds,
            sharding=context.sharding,
            codec=context.codec,
            limits=context.limits,
        )
        core.epoch = taken.claimed.epoch
        core.checkpointer.scattered = taken.claimed.scattered
        try:
            restore(core, taken.parts, frames=taken.frames, floor=taken.claimed.floor)
        except Exception as error:
            # The journal of the shard does not fold, and would not for another owner of this
            # version either. Claiming it again and again would slow down its whole group.
            text = f"recovery: {type(error).__name__}: {error}"
            send(context.journal, DropClaim(self.shard, taken.claimed.epoch))
            self._lose(text, damaged=True)
            return
        context.goals.obeyed_by(core)
        self.core = core
        waiting, self._waiting_mail = self._waiting_mail, []
        for mail in waiting:
            self._take(mail)
        self._phase = ShardPhase.OPEN
        context.round.enter(self)
        context.region.routes.reads[self.shard] = core.reads
        self._wake_core_s = self.now
        self._report_trouble("")
        send(context.root, Opened(self.shard))

    def _drain(self) -> None:
        """Begin nothing more; release the claim when the frame in flight is finished."""
        claiming = self._phase is ShardPhase.CLAIMING
        if self._phase in (ShardPhase.CLAIMING, ShardPhase.OPEN):
            self._unpublish()
            self._phase = ShardPhase.DRAINING
            if not claiming and not self._context.round.has(self):
                self._release_claim()

    def _release_claim(self) -> None:
        assert self.core is not None
        send(self._context.journal, Release(self.shard, self.core.epoch, self.ref))

    def _close(self) -> None:
        self._end("is closed")
        send(self._context.root, Closed(self.shard))

    def _drop(self) -> None:
        """End at once, whatever is in flight: another daemon may own the shard already."""
        if self._phase is ShardPhase.OVER:
            return
        if self.core is not None:
            send(self._context.journal, DropClaim(self.shard, self.core.epoch))
        self._close()

    def _lose(self, text: str, *, damaged: bool = False, **how: bool) -> None:
        """End the shard by itself; `how` are fields of `ShardLost`."""
        if self._phase is ShardPhase.OVER:
            return
        draining = self._phase is ShardPhase.DRAINING
        # In a fleet another member may be able to recover it, so there it is not final.
        final = damaged and self._context.region.routes.membership_status is None
        self._end(text, damaged=final)
        lost = ShardLost(self.shard, text, damaged=damaged, **how)
        send(self._context.root, Closed(self.shard) if draining else lost)

    def _end(self, text: str, *, damaged: bool = False) -> None:
        self._unpublish()
        self._phase = ShardPhase.OVER
        self._in_flight = None
        self._withheld, self._withheld_in_flight, self._after_frame = [], [], []
        self.core = None
        self._context.round.ended(self, text)
        self._report_trouble(text)
        self._context.region.report_problem(f"{self.name}-rows", "")
        self._status.left(self.shard)
        answer = Unavailable(f"{self.shard}{self._status.here}: {text}")
        if damaged:
            answer = ShardDamaged(f"{self.shard} is damaged: {text}")
        for reply_to in self._reply_addresses:
            resolve(reply_to, answer)
        self._reply_addresses, self._waiting_mail = {}, []
        self.stop()

    def _unpublish(self) -> None:
        """Stop other threads from reading our states: the next owner may change them."""
        self._context.round.leave(self)
        reads = self._context.region.routes.reads
        if self.core is not None and reads.get(self.shard) is self.core.reads:
            del reads[self.shard]

    def _refuse(self, envelopes: list[Envelope], text: str) -> None:
        for reply_to in reply_addresses(envelopes):
            resolve(reply_to, Unavailable(f"{self.shard}{self._status.here} {text}"))

    def _report_trouble(self, trouble: str) -> None:
        self._context.region.report_problem(self.name, trouble)

    # ---- rounds ----

    def _pump(self) -> None:
        core = self.core
        if core is None or core.is_full:
            return
        if core.is_open:
            if not core.has_mail:
                return  # all else waits for the next frame
        elif not core.busy:
            wake_s = self._wake_core_s
            if wake_s is None or wake_s > self.now:
                if wake_s is not None:
                    self.wake(wake_s)
                return
        context = self._context
        if not context.round.takes_turns(self, begins=not core.is_open):
            return
        self._wake_core_s = None
        turned = core.run(self.now, self.driver.clock.wall())
        context.round.join(self, is_full=core.has_mail)  # what is left is more than a frame takes
        if turned.load:
            send(context.reader_of(self.shard), Load(self.shard, turned.load, self.ref))
        if turned.mail:
            stamp, late = Stamp(self.shard, core.epoch), self._withheld_for
            self._withheld += context.round.hand_over(self, turned.mail, stamp=stamp, withheld=late)

    def close_frame(self) -> Work | None:
        assert self.core is not None
        ready = self.core.close(may_withhold=self._context.region.routes.current)
        self._wake_core_s = ready.wake_at
        self._in_flight = ready
        self._withheld_in_flight, self._withheld = self._withheld, []
        if self.core.has_mail:
            self.wake_soon()  # more than a frame takes: the next one begins with it
        return ready.work(self.shard, self.core.epoch)

    def done(self, answer: Answer, *, had_turns: bool) -> None:
        if self.core is None:
            return
        if not isinstance(answer, Committed):
            if isinstance(answer, Fenced):
                self._lose(f"fenced: {answer.text}")
            else:
                self._lose(answer.text, by_another=True)
            return
        ready = self._in_flight if had_turns else None
        if ready is not None:
            self._in_flight = None
            if ready.writes:
                self._status.answered(self._context.store, self.shard)
                self._unclear_before = False
                self._report_trouble("")
            self._release(ready, answer)
        if self._phase is ShardPhase.DRAINING:
            if not self._context.round.has(self):
                self._release_claim()
        elif self.core.busy:
            self.wake_soon()
        elif self._wake_core_s is not None:
            self.wake(self._wake_core_s)

    def _release(self, ready: Ready, answer: Committed) -> None:
        assert self.core is not None
        followed = self.core.committed(answer.more_to_cut, scattered=answer.scattered)
        # A committed frame proves that we owned the shard at its commit. Without a frame only the
        # session proves it, and is checked now: this process may have been paused since the turn.
        sure = ready.frame is not None or self._context.region.routes.current
        withheld, self._withheld_in_flight = self._withheld_in_flight, []
        region = self._context.region
        stamp = Stamp(self.shard, self.core.epoch)
        if withheld and sure:
            region.tell(withheld, stamp)
        # What the open frame holds back waited perhaps for these alone.
        later, self._withheld, self._withheld_for = self._withheld, [], {}
        if later:
            self._withheld = self._context.round.hand_over(
                self, later, stamp=stamp, withheld=self._withheld_for
            )
        for reply in (*followed, *ready.replies):
            self._reply_addresses.pop(reply.reply_to, None)
            resolve(reply.reply_to, reply.value if sure else Unavailable(IN_DOUBT))
        if self._after_frame:
            # What the next frame has changed already is answered in its round: asked again after
            # each frame, a query might never find a moment without one.
            waiting, self._after_frame = self._after_frame, []
            self.core.take([each for each in waiting if not self._answered(each)])
            self.core.take(self._after_frame)
            self._after_frame = []

    def unclear(self, text: str, *, full: bool = False) -> None:
        if self._unclear_before or full:
            # Reported from the second lost answer in a row: one alone is too common to log.
            self._status.away(self._context.store, text, shard=self.shard, full=full)
        self._unclear_before = True
        self._report_trouble(f"the journal's answer is unclear: {text}")

    def give_up(self, text: str, *, unclear: bool = False) -> None:
        self._lose(text, gave_up=unclear, by_another=not unclear)


def shard_shell_name(shard: ShardId) -> str:
    """Return the name under which the shard's shell reports troubles and the root clears them."""
    return f"{shard.group}-{shard.number}"
