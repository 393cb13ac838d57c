"""What is to be done later, by time: to add something costs the same however much there is.

What was added is not taken back: whoever is called looks whether it still matters. Must not know
what is done.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable

DueAct = Callable[[float], None]
"""Is called with the time when it is done."""


class DueTimes:
    """Acts by time; of the same time those first that were added first."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, DueAct]] = []
        self._count = 0

    @property
    def wake_at(self) -> float | None:
        """The time of the first one."""
        return self._heap[0][0] if self._heap else None

    def at(self, when: float, act: DueAct) -> None:
        """Do this then."""
        self._count += 1
        heapq.heappush(self._heap, (when, self._count, act))

    def do(self, now: float) -> None:
        """Do all that is due; what is added by that comes with the next call. Where one raises, it
        is done with, and those behind it come with the next call as well."""
        due: deque[tuple[float, int, DueAct]] = deque()
        while self._heap and self._heap[0][0] <= now:
            due.append(heapq.heappop(self._heap))
        try:
            while due:
                due.popleft()[2](now)
        finally:
            for each in due:
                heapq.heappush(self._heap, each)
