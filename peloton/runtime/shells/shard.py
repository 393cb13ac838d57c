"""The shell of one shard: the pykka actor that all its entities live in.

Turns letters into calls of the core, and its bundles into work for the journal; lets go of what a
bundle says only when the journal says that it is safe. At most one bundle is in flight, and what
arrives meanwhile makes the next. It must not decide, and never releases anything of a frame that
is unclear: it asks the journal to settle, for `UNCLEAR_S_MAX`, and then gives the shard up.
"""

from __future__ import annotations

import enum
from typing import Any

from peloton.runtime.core import supervision
from peloton.runtime.core.condition import shown
from peloton.runtime.core.envelope import Envelope, Stamp
from peloton.runtime.core.recovery import restore
from peloton.runtime.core.shard import Ready, Shard
from peloton.runtime.ports import Committed, Fenced, Frame, ShardId, Work
from peloton.runtime.shells.house import House
from peloton.runtime.shells.letters import (
    Claim,
    Closed,
    Commit,
    Done,
    Drain,
    Drop,
    Forget,
    Load,
    Loaded,
    Look,
    Lost,
    Mail,
    NotTaken,
    Opened,
    Reached,
    Release,
    Released,
    Settle,
    Taken,
    Wake,
    asks_of,
    resolve,
    tell,
)
from peloton.runtime.shells.shell import Shell
from peloton.runtime.vocabulary import ShardDamaged, Unavailable

UNCLEAR_S_MAX = 15.0
SETTLE_FIRST_S = 0.1
SETTLE_S_MAX = 2.0
IN_DOUBT = "this daemon's session is in doubt, so another may know better: ask again"


class Phase(enum.Enum):
    """Where a shard is between its claim and its end."""

    CLAIMING = "recovering"
    OPEN = "open"
    DRAINING = "draining"
    OVER = "over"


class ShardShell(Shell):
    """One shard, from claim to end; a shard that is lost gets a new shell."""

    def __init__(self, shard: ShardId, house: House) -> None:
        super().__init__(name_of(shard), house.driver)
        self.shard = shard
        self.core: Shard | None = None  # read by simulations
        self._house = house
        self._status = house.region.status
        self._phase = Phase.CLAIMING
        self._waiting: list[Mail] = []
        self._waiting_count = 0
        self.refused = 0  # mail that found no room to wait, for figures
        self._asks: dict[Any, None] = {}
        self._in_flight: Ready | None = None
        self._wake_core_s: float | None = None
        self._unclear_since_s: float | None = None
        self._settle_after_s = SETTLE_FIRST_S
        self._settle_at_s: float | None = None
        self._say("recovering")
        tell(house.reader_of(shard), Claim(shard, self.ref))

    # ---- letters ----

    def handle(self, letter: Any) -> None:
        """Every letter, then a bundle if it is time for one."""
        kind = type(letter)
        if kind is Mail:
            self._mail(letter)
        elif kind is Done:
            self._done(letter)
        elif kind is Wake:
            self._settle()
        elif kind is Loaded:
            self._loaded(letter)
        else:
            self._rarely(letter)
        if self._phase is Phase.OPEN and self.actor_inbox.at_end():
            self._pump()

    def failed(self, error: BaseException) -> None:
        """The core raised: a broken belief. The next shell begins from what is journaled."""
        self._lose(f"{type(error).__name__}: {error}", broken=True)

    def late(self, letter: Any) -> None:
        """The shard is over; who asks is told so."""
        if isinstance(letter, Mail):
            self._refuse(letter.envelopes, "is moving")
        elif isinstance(letter, Look):
            resolve(letter.answer, Unavailable(f"{self.name} is moving"))

    def _rarely(self, letter: Any) -> None:
        if isinstance(letter, Taken):
            self._open(letter)
        elif isinstance(letter, NotTaken):
            if letter.unreachable:
                self._status.away(self._house.store, letter.text, shard=self.shard)
            elif not letter.damaged:
                self._status.answered(self._house.store, self.shard)
            self._lose(letter.text, damaged=letter.damaged)
        elif isinstance(letter, Look):
            self._look(letter)
        elif isinstance(letter, Reached):
            if self.core is not None:
                self.core.hurry()
        elif isinstance(letter, Drain):
            self._drain()
        elif isinstance(letter, Drop):
            self._drop()
        elif isinstance(letter, Released):
            self._close()

    def _mail(self, mail: Mail) -> None:
        if self._phase is Phase.OPEN:
            self._take(mail)
        elif self._phase is not Phase.CLAIMING:
            self._refuse(mail.envelopes, "is moving")
        elif self._waiting_count >= self._house.limits.waiting_mail_max:
            self.refused += 1
            self._refuse(mail.envelopes, "is recovering")
        else:
            self._waiting.append(mail)
            self._waiting_count += len(mail.envelopes)
            self._asks.update(dict.fromkeys(asks_of(mail.envelopes)))

    def _take(self, mail: Mail) -> None:
        assert self.core is not None
        if not self.core.take(mail.envelopes, mail.stamp):
            return  # the words of an older owner, who has no right to them any more
        for envelope in mail.envelopes:
            if envelope.ask is not None:
                self._asks[envelope.ask] = None

    def _loaded(self, letter: Loaded) -> None:
        if self.core is not None:
            troubles = [(key, self.core.loaded(key, row)) for key, row in letter.rows]
            for key, text in letter.troubles:
                self.core.unreadable(key, text)
            for key, text in (*troubles, *letter.troubles):
                if text:
                    self._house.region.trouble(f"{self.name}-rows", f"{key}: {text}")

    def _look(self, letter: Look) -> None:
        if self._phase is not Phase.OPEN:
            resolve(letter.answer, Unavailable(f"{self.name} is {self._phase.value}"))
            return
        resolve(letter.answer, supervision.answer(letter.look, self.core))

    # ---- life ----

    def _open(self, taken: Taken) -> None:
        if self._phase is not Phase.CLAIMING:
            tell(self._house.journal, Release(self.shard, taken.claimed.epoch, self.ref))
            return
        house = self._house
        self._status.answered(house.store, self.shard)
        core = Shard(
            self.shard,
            house.kinds,
            sharding=house.sharding,
            codec=house.codec,
            limits=house.limits,
        )
        core.epoch = taken.claimed.epoch
        try:
            restore(core, taken.parts, frames=taken.frames, floor=taken.claimed.floor)
        except Exception as error:
            # What stands in the journal does not fold: no owner will ever get further than this,
            # and a shard that is claimed again and again takes its whole group along.
            text = f"recovery: {type(error).__name__}: {error}"
            tell(house.journal, Forget(self.shard, taken.claimed.epoch))
            self._lose(text, damaged=True)
            return
        self.core = core
        waiting, self._waiting = self._waiting, []
        for mail in waiting:
            self._take(mail)
        self._phase = Phase.OPEN
        self._wake_core_s = self.now
        self._say("")
        tell(house.root, Opened(self.shard))

    def _drain(self) -> None:
        """From now on nothing is begun; what is in flight is finished first."""
        claiming = self._phase is Phase.CLAIMING
        if self._phase in (Phase.CLAIMING, Phase.OPEN):
            self._phase = Phase.DRAINING
            if not self._in_flight and not claiming:
                self._release_claim()

    def _release_claim(self) -> None:
        assert self.core is not None
        tell(self._house.journal, Release(self.shard, self.core.epoch, self.ref))

    def _close(self) -> None:
        self._end("is closed")
        tell(self._house.root, Closed(self.shard))

    def _drop(self) -> None:
        """At once, whatever is in flight: another may own the shard already."""
        if self._phase is Phase.OVER:
            return
        if self.core is not None:
            tell(self._house.journal, Forget(self.shard, self.core.epoch))
        self._close()

    def _lose(
        self, text: str, *, broken: bool = False, damaged: bool = False, gave_up: bool = False
    ) -> None:
        if self._phase is Phase.OVER:
            return
        draining = self._phase is Phase.DRAINING
        # Where there are others, one of them may be able to recover it.
        final = damaged and self._house.region.places.standing is None
        self._end(text, damaged=final)
        lost = Lost(self.shard, text, broken=broken, damaged=damaged, gave_up=gave_up)
        tell(self._house.root, Closed(self.shard) if draining else lost)

    def _end(self, text: str, *, damaged: bool = False) -> None:
        self._phase = Phase.OVER
        self._in_flight = None
        self.core = None
        self._say(text)
        self._house.region.trouble(f"{self.name}-rows", "")
        self._status.left(self.shard)
        answer = Unavailable(f"{shown(self.shard)}: {text}")
        if damaged:
            answer = ShardDamaged(f"{shown(self.shard)} is damaged: {text}")
        for ask in self._asks:
            resolve(ask, answer)
        self._asks, self._waiting = {}, []
        self.stop()

    def _refuse(self, envelopes: list[Envelope], text: str) -> None:
        for ask in asks_of(envelopes):
            resolve(ask, Unavailable(f"{self.name} {text}"))

    def _say(self, trouble: str) -> None:
        self._house.region.trouble(self.name, trouble)

    # ---- bundles ----

    def _pump(self) -> None:
        core = self.core
        if self._in_flight is not None or core is None:
            return
        wake_s = self._wake_core_s
        if not core.busy and (wake_s is None or wake_s > self.now):
            if wake_s is not None:
                self.wake(wake_s)
            return
        ready = core.ready(self.now)
        self._wake_core_s = ready.wake_at
        if ready.load:
            tell(self._house.reader_of(self.shard), Load(self.shard, ready.load, self.ref))
        work = self._work(ready)
        if work is None:
            self._release(ready, more_to_cut=False)
            self.again()
            return
        self._in_flight = ready
        tell(self._house.journal, Commit(work, self.ref))

    def _work(self, ready: Ready) -> Work | None:
        if not (ready.frame or ready.ended or ready.parts or ready.floor or ready.cut):
            return None
        assert self.core is not None
        return Work(
            shard=self.shard,
            epoch=self.core.epoch,
            frame=Frame(ready.position, ready.frame) if ready.frame is not None else None,
            ended=ready.ended,
            parts=ready.parts,
            floor=ready.floor,
            cut=ready.cut,
        )

    def _done(self, letter: Done) -> None:
        ready, answer = self._in_flight, letter.answer
        if ready is None:
            return
        if isinstance(answer, Committed):
            self._in_flight = None
            self._status.answered(self._house.store, self.shard)
            self._unclear_since_s, self._settle_after_s = None, SETTLE_FIRST_S
            self._say("")
            self._release(ready, more_to_cut=answer.more_to_cut)
            if self._phase is Phase.DRAINING:
                self._release_claim()
        elif isinstance(answer, Fenced):
            self._lose(f"fenced: {answer.text}")
        else:
            self._unclear(answer.text)

    def _release(self, ready: Ready, *, more_to_cut: bool) -> None:
        assert self.core is not None
        followed = self.core.committed(more_to_cut)
        # A frame that was committed proves that the shard was ours then. Without one only our
        # session says so, and it is asked now: this process may have stood still since the turn.
        sure = ready.frame is not None or self._house.region.places.current
        if ready.release and sure:
            self._house.region.tell(ready.release, Stamp(self.shard, self.core.epoch))
        for reply in (*followed, *ready.replies):
            self._asks.pop(reply.ask, None)
            resolve(reply.ask, reply.value if sure else Unavailable(IN_DOUBT))

    def _unclear(self, text: str) -> None:
        now = self.now
        if self._unclear_since_s is not None:
            # One answer that is lost is not worth a line in the log; a second one in a row is.
            self._status.away(self._house.store, text, shard=self.shard)
        since = self._unclear_since_s = self._unclear_since_s or now
        if now - since >= UNCLEAR_S_MAX:
            self._lose(f"unclear for {now - since:.0f} s: {text}", gave_up=True)
            return
        self._say(f"the journal's answer is unclear: {text}")
        self._settle_at_s = now + self._settle_after_s
        self.wake(self._settle_at_s)
        self._settle_after_s = min(2 * self._settle_after_s, SETTLE_S_MAX)

    def _settle(self) -> None:
        # Once for each unclear answer: a second one would find nothing pending, and read as a loss.
        if self._settle_at_s is None:
            return
        if self.now < self._settle_at_s:
            self.wake(self._settle_at_s)  # woken for something else, or the clock was set back
        else:
            self._settle_at_s = None
            tell(self._house.journal, Settle(self.shard, self.ref))


def name_of(shard: ShardId) -> str:
    """Under which its shell says its troubles, and the root withdraws them."""
    return f"{shard.group}-{shard.number}"
