"""Requests to the keeper on their way: those not taken yet, lists that were sent, and pings.

Matches each list with the time at which it was requested, and measures how long a ping has no
answer. `keeper_calling` knows what to repeat to a successor.
"""

from __future__ import annotations

import math
from collections import deque
from typing import NamedTuple

from peloton.backends.keeper import wire

_PINGS_PER_SILENCE = 4


class QueuedRequest(NamedTuple):
    """A request that the client's thread has yet to take."""

    message: wire.KeeperMessage
    asked_at: float = -math.inf  # of a list
    keeper: str = ""  # the only one that may get it; empty: any


class ListTimes:
    """The times at which the lists under way on one connection were requested, by host.

    The keeper answers in order, so an answer belongs to the oldest request. If they were mixed up,
    a list would count for runs that were accepted after it was made.
    """

    def __init__(self) -> None:
        self._under_way: dict[str, deque[tuple[int, float]]] = {}

    def new_connection(self) -> None:
        """Forget the requests of the last connection, which are not answered any more."""
        self._under_way.clear()

    def sent(self, message: wire.KeeperMessage, asked_at: float = -math.inf) -> None:
        """Record a request that was sent; only lists count."""
        if message["q"] == "list":
            times = self._under_way.setdefault(message["host"], deque())
            times.append((message["epoch"], asked_at))

    def answered(self, host: str) -> float:
        """Return the request time of the list that is answered now."""
        times = self._under_way.get(host)
        return times.popleft()[1] if times else -math.inf

    def refused(self, host: str, *, known: int) -> None:
        """Forget requests of lower epochs than this one: they are not answered by a list."""
        times = self._under_way.get(host, deque())
        self._under_way[host] = deque(each for each in times if each[0] >= known)


class KeeperHeartbeat:
    """The pings to the keeper: when one is due, and since when its answer is."""

    def __init__(self, silent_max_s: float) -> None:
        self.silent_max_s = silent_max_s
        self._next_at_s = 0.0
        self._pinged_at_s: float | None = None

    def asks(self, now_s: float) -> bool:
        """Return whether to ping now; if so, it counts as sent. One ping at a time is
        unanswered."""
        if self._pinged_at_s is not None or now_s < self._next_at_s:
            return False
        self._pinged_at_s = now_s
        return True

    def received(self, now_s: float) -> None:
        """Record that something was received: the keeper is alive."""
        self._pinged_at_s = None
        self._next_at_s = now_s + self.silent_max_s / _PINGS_PER_SILENCE

    def begin(self, now_s: float) -> None:
        """Begin a connection, which begins with a ping."""
        self._pinged_at_s = now_s

    def is_silent(self, now_s: float) -> bool:
        """Return whether the answer is overdue."""
        return self._pinged_at_s is not None and now_s - self._pinged_at_s >= self.silent_max_s

    def wait_s(self, now_s: float) -> float:
        """Return the seconds until the next ping, or until its answer is overdue."""
        if self._pinged_at_s is None:
            return max(0.0, self._next_at_s - now_s)
        if self.is_silent(now_s):
            return self.silent_max_s
        return self._pinged_at_s + self.silent_max_s - now_s
