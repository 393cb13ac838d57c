"""Reports of parents: when children changed, the parent sends its newest summary.

Turns "something below this parent changed" into one report per interval, versioned so that the
newest wins, and resent until it is seen. It must not read a report, and keeps at most one for each
(sender, receiver, class).
"""

from __future__ import annotations

import msgspec

from peloton.runtime.core.envelope import Envelope
from peloton.runtime.core.resends import UnseenReports
from peloton.runtime.core.supervision import Failure, attempt
from peloton.runtime.core.turns import Turns
from peloton.runtime.vocabulary import Delivery, Key, Kind, Pursue, Send

VERSION_BITS = 40
REPORT_RETRY_S = 5.0
"""A report function that raised is called again after this: the state may have changed by then."""


class Reports:
    """The reports of one shard."""

    def __init__(self, turns: Turns) -> None:
        self.due: dict[Key, float] = {}
        self.pending = UnseenReports()
        self._turns = turns
        self._sent = 0  # reports under this epoch

    def schedule(self, key: Key, kind: Kind) -> None:
        """The parent's children changed: it reports when its interval is over."""
        if kind.report is not None and key not in self.due:
            self.due[key] = self._turns.now + kind.report_interval_s

    def send_due(self, tick: int) -> None:
        """Make and send all reports whose time has come."""
        turns = self._turns
        for key in [key for key, due in self.due.items() if due <= turns.now]:
            del self.due[key]
            kind = turns.population.kind(key)
            state = turns.population.cells.get(key)
            if state is None or kind.report is None:
                continue
            at = turns.at(kind, Envelope(key, Pursue()))
            at = msgspec.structs.replace(at, position=self._next_version())
            sends = attempt(kind.report, state, at)
            if isinstance(sends, Failure):
                turns.record_failure(key, "report", failure=sends)
                self.due[key] = turns.now + REPORT_RETRY_S
                continue
            self._send(key, sends, tick=tick)

    def resend(self, tick: int) -> None:
        """Send again the reports that were not seen in time."""
        for envelope in self.pending.due(tick):
            self._turns.outbox.add(envelope)

    def _send(self, key: Key, sends: tuple[Send, ...], *, tick: int) -> None:
        for send in sends:
            envelope = Envelope(send.to, send.message, sender=key)
            if send.message.delivery is Delivery.LATEST:
                self.pending.sent(envelope, tick)
            self._turns.outbox.add(envelope)

    def _next_version(self) -> int:
        # Not the position: a frame may hold several reports, and a report may come without a
        # frame. Two reports would have one version, and the second would count as seen.
        self._sent += 1
        return self._turns.epoch << VERSION_BITS | self._sent
