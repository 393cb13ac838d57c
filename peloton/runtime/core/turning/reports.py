"""Reports of parents: when children changed, the parent sends its newest summary.

Turns "something below this parent changed" into reports, versioned so that the newest wins, and
resent until it is seen. A change of the parent's phase, which its kind names, is reported at once:
nobody who waits for a beginning or an end waits for an interval. Changes within a phase are
gathered, one report per interval; a final phase says all that a report would, so there are none. At
most one report is kept for each (sender, receiver, class).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from peloton.runtime.core.turning.envelope import Envelope
from peloton.runtime.core.turning.resends import UnseenReports
from peloton.runtime.core.turning.supervision import Failure, attempt
from peloton.runtime.core.turning.turns import Turns
from peloton.runtime.kinds import Kind, no_phase
from peloton.runtime.vocabulary import Delivery, Due, Key, Message, Pursue, Send

VERSION_BITS = 40
REPORT_RETRY_S = 5.0
"""A report function that raised is called again after this: the state may have changed by then."""


class LastReport(NamedTuple):
    """The last report of a parent; before its first, the time from which that is gathered."""

    at_s: float
    phase: Any


class Reports:
    """The reports of one shard."""

    def __init__(self, turns: Turns) -> None:
        self.due: dict[Key, float] = {}
        self.pending = UnseenReports()
        self._queue: list[tuple[float, Key]] = []  # of `due`; entries of older times are skipped
        self._last: dict[Key, LastReport] = {}
        self._phases: dict[Key, Any] = {}  # of those in `due`, as of their last change
        self._turns = turns
        self._sent = 0  # reports under this epoch

    @property
    def next_s(self) -> float | None:
        """When the next report is due."""
        while self._queue and self.due.get(self._queue[0][1]) != self._queue[0][0]:
            heapq.heappop(self._queue)
        return self._queue[0][0] if self._queue else None

    def schedule(self, key: Key, kind: Kind, *, state: Any) -> None:
        """Report a parent whose children changed, now or when its interval is over."""
        reporting = kind.reporting
        if reporting is None:
            return
        now = self._turns.now
        last = self._last.get(key)
        if last is None:
            last = self._last[key] = LastReport(now, None)
        phase = self._phase(key, kind, phase=reporting.phase, state=state)
        if phase == last.phase and key not in self.due and reporting.final(phase):
            return
        self._phases[key] = phase
        due = now if phase != last.phase else max(now, last.at_s + reporting.interval_s)
        if due < self.due.get(key, float("inf")):
            self._set_due(key, due)

    def had_turn(self, key: Key, kind: Kind, *, message: Message) -> None:
        """Report a parent that had a turn of its own: no child reports its deadline's changes."""
        state = self._turns.population.cells.get(key)
        if state is None:
            self.forget(key)
        elif isinstance(message, Due):
            self.schedule(key, kind, state=state)

    def forget(self, key: Key) -> None:
        """Forget a parent that has left memory."""
        self._last.pop(key, None)
        self._phases.pop(key, None)
        self.due.pop(key, None)

    def send_due(self) -> bool:
        """Make and send all reports that are due; return whether there were any."""
        turns, any_sent = self._turns, False
        while (at_s := self.next_s) is not None and at_s <= turns.now:
            _, key = heapq.heappop(self._queue)
            del self.due[key]
            kind = turns.population.kind(key)
            state = turns.population.cells.get(key)
            if state is None or kind.reporting is None:
                self.forget(key)
                continue
            at = turns.at(kind, Envelope(key, Pursue()))
            at = msgspec.structs.replace(at, position=self._next_version())
            sends = attempt(kind.reporting.make, state, at)
            if isinstance(sends, Failure):
                turns.record_failure(key, "report", failure=sends)
                self._set_due(key, turns.now + REPORT_RETRY_S)
                continue
            self._last[key] = LastReport(turns.now, self._phases.pop(key, None))
            self._send(key, sends)
            any_sent = True
        return any_sent

    def resend(self, tick: int) -> None:
        """Send again the reports that were not seen in time."""
        for envelope in self.pending.due(tick):
            self._turns.outbox.add(envelope)

    def _send(self, key: Key, sends: tuple[Send, ...]) -> None:
        for send in sends:
            envelope = Envelope(send.to, send.message, sender=key)
            if send.message.delivery is Delivery.LATEST:
                self.pending.sent(envelope)
            self._turns.outbox.add(envelope)

    def _phase(self, key: Key, kind: Kind, *, phase: Callable[[Any, Any], Any], state: Any) -> Any:
        if phase is no_phase:
            return None
        found = attempt(phase, state, self._turns.population.index_for(kind, key))
        if isinstance(found, Failure):
            self._turns.record_failure(key, "phase", failure=found)
            return None
        return found

    def _set_due(self, key: Key, at_s: float) -> None:
        self.due[key] = at_s
        heapq.heappush(self._queue, (at_s, key))

    def _next_version(self) -> int:
        # Not the position: a frame may hold several reports, and a report may come without a
        # frame. Two reports would have one version, and the second would count as seen.
        self._sent += 1
        return self._turns.epoch << VERSION_BITS | self._sent
