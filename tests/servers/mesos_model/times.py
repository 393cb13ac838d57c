"""Virtual time, and wires on which everything takes some of it, in order, unless it is cut."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable

Act = Callable[[], None]
TRACE_MAX = 4000


class Times:
    """What is to happen, by time; and what happened, for whoever reads of a failure.

    Without `chance` nothing takes time. Where it stands still besides, what is to happen now does
    by `settle`, and what is to happen later never does.
    """

    def __init__(self, chance: random.Random | None = None, now: float = 0.0) -> None:
        self.now = now
        self.slow = 0.0 if chance is None else chance.choice((0.2, 1.0, 1.0, 4.0))
        """How slow all wires are."""
        self.story: list[str] = []
        self._chance = chance
        self._heap: list[tuple[float, int, Act]] = []
        self._count = 0

    def note(self, text: str) -> None:
        """This happens now."""
        self.story.append(f"{self.now:9.3f} {text}")
        if len(self.story) > 2 * TRACE_MAX:
            del self.story[:TRACE_MAX]

    def later(self, after_s: float, act: Act) -> None:
        """Do this then."""
        self._count += 1
        heapq.heappush(self._heap, (self.now + after_s, self._count, act))

    def upto(self, seconds: float) -> float:
        """Some time, mostly short."""
        return 0.0 if self._chance is None else seconds * self._chance.random() ** 3

    @property
    def next_at(self) -> float:
        """When something happens next."""
        return self._heap[0][0] if self._heap else float("inf")

    def step(self) -> None:
        """The next thing happens."""
        self.now, _, act = heapq.heappop(self._heap)
        act()

    def settle(self) -> None:
        """All that is to happen now does."""
        while self.next_at <= self.now:
            self.step()


class Wire:
    """One direction of a connection. What is under way when it is cut is lost."""

    def __init__(self, times: Times, *, delay_s: float) -> None:
        self.delay_s = delay_s
        self._times = times
        self._last = 0.0
        self._life = object()

    def send(self, act: Act) -> None:
        """Do this at the other end, behind all that was sent before."""
        times, life = self._times, self._life
        self._last = max(self._last, times.now + times.upto(times.slow * self.delay_s))
        times.later(self._last - times.now, lambda: act() if life is self._life else None)

    def cut(self) -> None:
        """All that is under way is lost."""
        self._life = object()
