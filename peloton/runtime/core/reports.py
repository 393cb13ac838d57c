"""What parents report when their children changed: the newest word, each at its own pace.

Turns "something below this parent is different" into one report an interval, numbered so that the
newest wins, and said until it was seen. It must not look into a report, and keeps one for each
(sender, receiver) at most.
"""

from __future__ import annotations

import msgspec

from peloton.runtime.core.envelope import Envelope
from peloton.runtime.core.latest import UnseenReports
from peloton.runtime.core.supervision import Failure, attempt
from peloton.runtime.core.turns import Turns
from peloton.runtime.vocabulary import Delivery, Key, Kind, Pursue, Send

VERSION_BITS = 40
REPORT_RETRY_S = 5.0
"""A report that raised is tried again: what it is made of may be another by then."""


class Reports:
    """The reports of one shard."""

    def __init__(self, turns: Turns) -> None:
        self.due: dict[Key, float] = {}
        self.pending = UnseenReports()
        self._turns = turns
        self._words = 0  # under this epoch

    def wanted(self, key: Key, kind: Kind) -> None:
        """The parent's children changed: it reports when its interval is over."""
        if kind.report is not None and key not in self.due:
            self.due[key] = self._turns.now + kind.report_interval_s

    def say(self, tick: int) -> None:
        """All reports whose time has come."""
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
            self._say(key, sends, tick=tick)

    def again(self, tick: int) -> None:
        """What was not seen in time is said again."""
        for envelope in self.pending.again(tick):
            self._turns.outbox.add(envelope)

    def _say(self, key: Key, sends: tuple[Send, ...], *, tick: int) -> None:
        for send in sends:
            envelope = Envelope(send.to, send.message, sender=key)
            if send.message.delivery is Delivery.LATEST:
                self.pending.said(envelope, tick)
            self._turns.outbox.add(envelope)

    def _next_version(self) -> int:
        # A frame may hold several reports and a report may come without a frame, so positions
        # would name two different words alike, and the second would count as known.
        self._words += 1
        return self._turns.epoch << VERSION_BITS | self._words
