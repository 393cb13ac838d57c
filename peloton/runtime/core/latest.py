"""Versioned reports, resent until the receiver has seen the newest version.

Keeps at most one pending envelope per (receiver, sender, class), so memory is bounded. A report is
resent every few ticks at first, and after `REPORT_RESEND_FAST_MAX` tries at the slow rate, because
a receiver that is quarantined or deleted never sees it. It must not keep an older version, and is
not journaled: after recovery parents report anew.
"""

from __future__ import annotations

import itertools

from peloton.runtime.core.envelope import Envelope
from peloton.runtime.core.owed import HURRIED_PER_TICK_MAX, RESEND_SLOW_TICKS
from peloton.runtime.vocabulary import Key, Latest, Seen

_Name = tuple[Key, Key, str]
RESEND_EVERY_TICKS = 2
REPORT_RESEND_FAST_MAX = 5


class UnseenReports:
    """The newest reports of one shard that were not seen yet."""

    def __init__(self) -> None:
        self._waiting: dict[_Name, tuple[Envelope, int, int]] = {}  # with tick sent, and tries
        self._senders: dict[Key, int] = {}  # number of waiting reports
        self._hurry = False
        self._hurried: dict[_Name, None] = {}

    def sent(self, envelope: Envelope, tick: int) -> None:
        """A report is sent; it replaces an older one to the same receiver, with its tries."""
        assert envelope.sender is not None
        name = (envelope.to, envelope.sender, type(envelope.message).__name__)
        if name not in self._waiting:
            self._senders[envelope.sender] = self._senders.get(envelope.sender, 0) + 1
        self._waiting[name] = (envelope, tick, 0)

    def seen(self, by: Key, to: Key, *, message: Seen) -> None:
        """The receiver `by` has this version of what `to` reported."""
        name = (by, to, message.subject)
        found = self._waiting.get(name)
        if found is not None:
            latest = found[0].message
            if isinstance(latest, Latest) and latest.version <= message.version:
                del self._waiting[name]
                self._senders[to] -= 1
                if not self._senders[to]:
                    del self._senders[to]

    def hurry(self) -> None:
        """A receiver may be reachable again: all that wait are resent soon."""
        self._hurry = True

    def due(self, tick: int) -> list[Envelope]:
        """The reports to resend at this tick."""
        hurried, due = self._some_hurried(), []
        for name, (envelope, sent, tries) in self._waiting.items():
            pause = RESEND_EVERY_TICKS if tries < REPORT_RESEND_FAST_MAX else RESEND_SLOW_TICKS
            late = tick - sent >= pause
            if late or name in hurried:
                # A hurried try is extra: it must not count towards the slow rate.
                self._waiting[name] = (envelope, tick, tries + late)
                due.append(envelope)
        return due

    def _some_hurried(self) -> dict[_Name, None]:
        if self._hurry:
            self._hurry = False
            self._hurried |= dict.fromkeys(self._waiting)
        some = dict.fromkeys(itertools.islice(self._hurried, HURRIED_PER_TICK_MAX))
        for name in some:
            del self._hurried[name]
        return some

    def from_key(self, sender: Key) -> bool:
        """Whether a report of this entity is still unseen."""
        return sender in self._senders

    def __bool__(self) -> bool:
        return bool(self._waiting)
