"""The rounds of a daemon: the frames of its shards that are committed together.

Turns "these shards have taken turns" into one round for the journal, which commits all frames of it
or none. So a message from one shard of the daemon to another need not wait for a commit: it is
handed over at once, and what follows from it is in the same round. A job, its pool and its host
take all their steps towards a start in one round, where each step would be a commit of its own.

A round is open while any shell of the daemon has mail, within bounds, and no longer than the round
before it is at the store. Then all its frames are closed and committed. What leaves the daemon
(mail to others, orders to backends, replies) waits until the round is durable; so does a shard that
took turns without a frame, because its memory may follow from the frames of others.

What one shard hands over cannot be taken back. So if a shard ends in the middle of an open round,
or the journal refuses one frame of it, all shards of the round are given up and recover from the
journal. The shell and its shards run on one thread, and call each other.

1. a lot admits a task and hands `Admitted` over; its frame is still open
2. the task launches, in a frame of the same round
3. the lot's shard is fenced, and its frame refused; its next owner knows of no admission
4. were the task's frame committed, it would hold resources that nobody counts
"""

from __future__ import annotations

from collections.abc import Container, Hashable, Iterable, Mapping
from typing import Any

from peloton.pauses import Pauses
from peloton.runtime.core.turning.envelope import Envelope, Stamp
from peloton.runtime.ports import (
    ROUND_SHARDS_MAX,
    Answer,
    NoRoom,
    RoundRefused,
    Unclear,
    Work,
)
from peloton.runtime.shells.region import Region
from peloton.runtime.shells.round_at_store import RoundAtStore, RoundShard, lose
from peloton.runtime.shells.shell import Driver, LastingShell
from peloton.runtime.shells.shell_messages import (
    Commit,
    Ref,
    Settle,
    WorkDone,
    send,
)

ROUND_S_MAX = 0.01
"""A round that lasts longer takes no more turns, and is closed: what it has gathered must not wait
for what goes on arriving, and a frame has the time of its first turn."""
GATHERS_S_MAX = 0.1
"""Likewise, while the round before it is at the store."""
UNCLEAR_S_MAX = 15.0
SETTLE = Pauses(0.1, 2.0)
NOBODY_LEFT = "the shards whose frames could be settled have ended"


class RoundShell(LastingShell):
    """The open round of a daemon, and those at the store."""

    def __init__(
        self, driver: Driver, *, region: Region, journal: Ref, root: Ref, passes_max: int
    ) -> None:
        super().__init__("round", driver, root=root)
        self._region = region
        self._journal = journal
        self._passes_max = passes_max
        self.cut_short = 0  # rounds that were closed while others had mail, for metrics
        self._shards: dict[Ref, RoundShard] = {}
        """Those that commit together."""
        self._strangers: dict[Ref, RoundShard] = {}
        """Others, beyond the size of a round: they hand nothing over."""
        self._company: dict[Ref, RoundShard | None] = {}
        """Who may be handed messages of open frames: shards, and services (None)."""
        self._open: dict[Ref, RoundShard] = {}
        self._untouched: dict[Ref, None] = {}  # of these, who got messages and had no turn yet
        self._giving: dict[Ref, None] = {}  # those of the open round that told other shards
        self._telling: dict[Ref, None] = {}  # those that told services
        self._told: dict[Ref, None] = {}  # these services
        self._later: dict[Ref, RoundShard] = {}  # who has mail for the next round
        self._opened_s = 0.0
        self._passes = 0
        self._last_pass = False  # turns are taken although the round has lasted long enough
        self._is_full = False
        self._flights: list[RoundAtStore] = []
        self._unclear: dict[Ref, float] = {}  # since when, in seconds
        self._asked: dict[Ref, None] = {}
        """Of these the journal was told to settle: once per unclear answer, as a second one would
        find nothing pending, which reads as a loss."""
        self._settles = 0
        self._settle_at_s: float | None = None

    # ---- what shards call ----

    def enter(self, shard: RoundShard) -> None:
        """Add a shard that is open from now on."""
        if len(self._shards) < ROUND_SHARDS_MAX:
            self._shards[shard.ref] = self._company[shard.ref] = shard
        else:
            self._strangers[shard.ref] = shard

    def enter_service(self, ref: Ref) -> None:
        """Add a service that may get messages of open frames: it acts only within the daemon."""
        self._company[ref] = None

    def leave(self, shard: RoundShard) -> None:
        """Remove a shard that takes no more turns; an open frame of it is still committed."""
        self._company.pop(shard.ref, None)

    def has(self, shard: RoundShard) -> bool:
        """Return whether the shard is in a round whose outcome it does not know."""
        ref = shard.ref
        return ref in self._open or any(ref in flight.shards for flight in self._flights)

    def takes_turns(self, shard: RoundShard, *, begins: bool) -> bool:
        """Return whether the shard may take turns now; if not, it is woken when it may.

        `begins`: the turns would be the first of its frame, so that their time is that of the
        frame.
        """
        if not self._open or self.now < self._opened_s + ROUND_S_MAX:
            return True
        # The store is slower than the round is long, and so it goes on.
        in_time = begins or self.now < self._opened_s + GATHERS_S_MAX
        if in_time and (self._last_pass or not self._may_close()):
            return True
        self._later[shard.ref] = shard
        return False

    def join(self, shard: RoundShard, *, is_full: bool = False) -> None:
        """Add a shard that has taken turns to the open round."""
        if not self._open:
            self._opened_s, self._passes = self.now, 0
            self.wake_soon()
        self._open[shard.ref] = shard
        self._untouched.pop(shard.ref, None)
        self._is_full = self._is_full or is_full

    def hand_over(
        self,
        shard: RoundShard,
        envelopes: list[Envelope],
        *,
        stamp: Stamp,
        withheld: dict[Hashable, None],
    ) -> list[Envelope]:
        """Send what may be sent before the round is durable; return the rest, in order.

        `withheld`: the keys for which the shard has withheld mail since its frame was opened.
        """
        # While our session is in doubt another owner may have newer state, and only a commit
        # proves that there is none.
        sure = shard.ref in self._company and self._region.routes.current
        company = self._company if sure else {}
        left, receivers = self._region.hand_over(
            envelopes, stamp, company=company, withheld=withheld
        )
        for ref in receivers:
            receiver = self._company[ref]
            if receiver is not None:
                self._giving[shard.ref] = None
                if ref not in self._open:
                    self.join(receiver)
                    self._untouched[ref] = None
            else:
                self._telling[shard.ref] = self._told[ref] = None
        return left

    def ended(self, shard: RoundShard, text: str) -> None:
        """Give up the open round of a shard that has ended, with its other shards."""
        ref = shard.ref
        for known in (self._shards, self._strangers, self._company, self._later, self._unclear):
            known.pop(ref, None)
        was_open = self._open.pop(ref, None) is not None
        self._untouched.pop(ref, None)
        for flight in self._flights:
            flight.shards.pop(ref, None)
        if self._flights:
            self.wake_soon()
        if ref in self._telling or ref in self._giving:
            lose(self._told)  # by others, too, that are lost with it
        if ref in self._giving:
            for other in self._closed().values():
                if not any(other.ref in flight.doomed for flight in self._flights):
                    why = f"its round was lost with {shard.shard}: {text}"
                    other.give_up(why, unclear=other.ref in self._unclear)
        elif was_open and not self._open:
            self._closed()

    # ---- messages ----

    def handle(self, message: Any) -> None:
        """Take the journal's answers, or check whether the round is to be closed."""
        if isinstance(message, WorkDone):
            self._answered(message.answers)
        for flight in self._flights:
            if flight.is_hopeless(self._asked):
                flight.answered(dict.fromkeys(flight.works, RoundRefused(NOBODY_LEFT)))
            elif not flight.shards and not flight.is_decided:
                flight.forget()
        if self._settle_at_s is not None:
            self._settle()
        if self._open and self._may_close():
            self._passes += 1
            # The answers have woken shards that had to wait for them, and would miss each second
            # round of a slow store.
            self._last_pass = isinstance(message, WorkDone) and self.driver.busy
            if self._last_pass or self._goes_on():
                self.wake_soon()
            else:
                self._close()

    # ---- closing ----

    def _may_close(self) -> bool:
        # Who had no turn has no frame to close, whatever else of it is still being written.
        return all(
            flight.is_decided
            and not any(ref in flight.shards and ref not in self._untouched for ref in self._open)
            for flight in self._flights
        )

    def _goes_on(self) -> bool:
        if not self.driver.busy:
            return False
        over = self._passes >= self._passes_max or self.now >= self._opened_s + ROUND_S_MAX
        self.cut_short += over
        return not over and not self._is_full

    def _close(self) -> None:
        works: dict[Ref, Work] = {}
        for ref, shard in [*self._open.items()]:
            if ref in self._untouched:
                continue
            try:
                work = shard.close_frame()
            except Exception as error:
                # As when a turn of it raises: the shard ends, and its round with it.
                shard.failed(error)
                if self._open:
                    continue
                return
            if work is not None:
                works[ref] = work
        told, untouched = [*self._told], self._untouched
        shards = self._closed()
        together = [ref for ref in shards if ref not in self._strangers]
        others = [ref for ref in shards if ref in self._strangers]
        self._commit(together, shards=shards, works=works, told=told, untouched=untouched)
        for at in range(0, len(others), ROUND_SHARDS_MAX):
            some = others[at : at + ROUND_SHARDS_MAX]
            self._commit(some, shards=shards, works=works)
        self._answered({})

    def _commit(
        self,
        refs: list[Ref],
        *,
        shards: Mapping[Ref, RoundShard],
        works: Mapping[Ref, Work],
        told: Iterable[Ref] = (),
        untouched: Container[Ref] = (),
    ) -> None:
        own = {ref: works[ref] for ref in refs if ref in works}
        if refs:
            members = {ref: shards[ref] for ref in refs}
            self._flights.append(RoundAtStore(members, own, told=told, untouched=untouched))
        if own:
            send(self._journal, Commit(own, self.ref))

    def _closed(self) -> dict[Ref, RoundShard]:
        """Close the open round; return its shards."""
        shards, self._open, self._giving = self._open, {}, {}
        self._untouched, self._is_full, self._last_pass = {}, False, False
        self._telling, self._told = {}, {}
        later, self._later = self._later, {}
        for shard in later.values():
            shard.wake_soon()
        while self._strangers and len(self._shards) < ROUND_SHARDS_MAX:
            ref = next(iter(self._strangers))
            self._shards[ref] = self._company[ref] = self._strangers.pop(ref)
        return shards

    # ---- answers ----

    def _answered(self, answers: Mapping[Ref, Answer]) -> None:
        for ref in answers:
            self._asked.pop(ref, None)
        for flight in self._flights:
            flight.answered(answers)
            for ref, shard in [*flight.shards.items()]:
                answer = answers.get(ref)
                # One that was given up may have taken others of them with it.
                if isinstance(answer, Unclear) and ref in flight.shards:
                    self._wait(shard, answer)
        self._flights = [flight for flight in self._flights if flight.shards]
        waiting = {ref: None for flight in self._flights for ref in flight.shards}
        self._unclear = {ref: since for ref, since in self._unclear.items() if ref in waiting}
        if not self._unclear:
            self._settles = 0
        elif self._settle_at_s is None and any(ref not in self._asked for ref in self._unclear):
            self._settles += 1
            self._settle_at_s = self.now + SETTLE.after(self._settles)
            self.wake(self._settle_at_s)

    def _wait(self, shard: RoundShard, answer: Unclear) -> None:
        since_s = self._unclear.setdefault(shard.ref, self.now)
        if self.now - since_s < UNCLEAR_S_MAX:
            shard.unclear(answer.text, full=isinstance(answer, NoRoom))
        else:
            shard.give_up(f"unclear for {self.now - since_s:.0f} s: {answer.text}", unclear=True)

    def _settle(self) -> None:
        assert self._settle_at_s is not None
        if self.now < self._settle_at_s:
            self.wake(self._settle_at_s)  # woken for something else, or the clock was set back
            return
        self._settle_at_s = None
        shards = {
            ref: shard.shard
            for flight in self._flights
            for ref, shard in flight.shards.items()
            if ref in self._unclear and ref not in self._asked
        }
        self._asked.update(dict.fromkeys(shards))
        if shards:
            send(self._journal, Settle(shards, self.ref))
