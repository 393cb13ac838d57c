"""A queue of calls by time; to add one costs a logarithm of their number.

A call is never withdrawn: the callee checks whether it still matters.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable

DueAct = Callable[[float], None]
"""Is called with the time when it is done."""


class DueTimes:
    """Calls by time; those of one time in the order in which they were added."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, DueAct]] = []
        self._count = 0

    @property
    def wake_at(self) -> float | None:
        """The time of the first call."""
        return self._heap[0][0] if self._heap else None

    def at(self, when: float, act: DueAct) -> None:
        """Call `act` at this time."""
        self._count += 1
        heapq.heappush(self._heap, (when, self._count, act))

    def do(self, now: float) -> None:
        """Make all calls that are due; calls that they add are made by the next `do`.

        If one raises, it is removed, and the ones behind it are made by the next `do`.
        """
        due: deque[tuple[float, int, DueAct]] = deque()
        while self._heap and self._heap[0][0] <= now:
            due.append(heapq.heappop(self._heap))
        try:
            while due:
                due.popleft()[2](now)
        finally:
            for each in due:
                heapq.heappush(self._heap, each)
