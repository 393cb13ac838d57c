"""Requests to the keeper on their way: those not taken yet, and the lists that were sent.

Matches each list with the time at which it was requested. It must not send, nor repeat anything:
`keeper_calling` knows what to repeat to a successor.
"""

from __future__ import annotations

import math
from collections import deque
from typing import NamedTuple

from peloton.backends.keeper import wire


class QueuedRequest(NamedTuple):
    """A request that the client's thread has yet to take."""

    message: wire.KeeperMessage
    asked_at: float = -math.inf  # of a list
    keeper: str = ""  # the only one that may get it; empty: any


class ListTimes:
    """When the lists under way on one connection were asked for, by host.

    The keeper answers in order, so an answer belongs to the oldest. Where they were mixed up, a
    list would count for runs that were accepted after it was made.
    """

    def __init__(self) -> None:
        self._under_way: dict[str, deque[tuple[int, float]]] = {}

    def new_connection(self) -> None:
        """A new connection: what was under way on the last one is not answered any more."""
        self._under_way.clear()

    def sent(self, message: wire.KeeperMessage, asked_at: float = -math.inf) -> None:
        """A request was sent; only lists count."""
        if message["q"] == "list":
            times = self._under_way.setdefault(message["host"], deque())
            times.append((message["epoch"], asked_at))

    def answered(self, host: str) -> float:
        """The time of the list that is answered now."""
        times = self._under_way.get(host)
        return times.popleft()[1] if times else -math.inf

    def refused(self, host: str, *, known: int) -> None:
        """Requests of lower epochs than this one are not answered by a list."""
        times = self._under_way.get(host, deque())
        self._under_way[host] = deque(each for each in times if each[0] >= known)
