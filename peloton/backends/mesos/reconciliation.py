"""Reconciliation: when the master is asked for all tasks, which brings every missed update.

That is at each subscription, after updates that nobody could take in, periodically, and some time
after agents have come: a master that has failed over learns of their tasks, and reports nothing.
Reconciliation heals losses only: the runs of a host are asked for by its lists.
"""

from __future__ import annotations

from collections.abc import Callable

from peloton.backends.due_times import DueTimes

EVERY_S = 1800.0
"""Between two questions, as in the original: the answer has an update for each task there is."""

SOON_S = 120.0
"""From when agents have come to a question; so many of them share one."""


class Reconciliation:
    """The questions of one framework; `ask` sends one."""

    def __init__(self, times: DueTimes, ask: Callable[[], None]) -> None:
        self._times, self._ask = times, ask
        self._next_at: float | None = None

    def now(self, now: float) -> None:
        """Ask at once, and again after a while."""
        self._ask()
        self._next_at = now + EVERY_S
        self._times.at(self._next_at, self._due)

    def soon(self, now: float) -> None:
        """Ask before long, unless that is about to be done anyway."""
        if self._next_at is not None and now + SOON_S < self._next_at:
            self._next_at = now + SOON_S
            self._times.at(self._next_at, self._due)

    def stop(self) -> None:
        """Stop: the connection is lost."""
        self._next_at = None

    def _due(self, now: float) -> None:
        """Ask, if nothing has been asked meanwhile and somebody is there to answer."""
        if self._next_at is not None and self._next_at <= now:
            self.now(now)
