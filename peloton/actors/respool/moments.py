"""Lanes that wait for others to give back: when each is looked at next, and what comes of it.

No lane is polled: each has one moment at which it is due.
"""

from __future__ import annotations

from heapq import heappop, heappush

from peloton.runtime.vocabulary import Key


class LaneMoments:
    """Lanes with the moment at which each is to be looked at next, and its verdict for people."""

    def __init__(self) -> None:
        self.verdicts: dict[Key, str] = {}
        self._since: dict[Key, float] = {}
        self._due: list[tuple[float, Key]] = []
        self._due_at: dict[Key, float] = {}
        self._asked: dict[Key, None] = {}  # lanes for which lots have orders

    def begin(self, lane: Key, now: float, *, verdict: str) -> float:
        """Record that a lane waits, unless it does already; return since when."""
        self.verdicts.setdefault(lane, verdict)
        return self._since.setdefault(lane, now)

    def end(self, lane: Key) -> None:
        """Record that a lane waits no more."""
        for known in (self.verdicts, self._since, self._due_at, self._asked):
            known.pop(lane, None)

    def push(self, lane: Key, at: float) -> None:
        """Look at a waiting lane at this moment, or at an earlier one that was set before."""
        known = self._due_at.get(lane)
        if lane in self._since and (known is None or at < known):
            self._due_at[lane] = at
            heappush(self._due, (at, lane))

    def again(self, lane: Key, at: float, *, verdict: str) -> None:
        """Record what comes of a lane, which is looked at again at this moment."""
        self.verdicts[lane] = verdict
        self.push(lane, at)

    def ordered(self, lane: Key, at: float, *, verdict: str) -> None:
        """Record that others give back for a lane.

        It is looked at again when they have answered, or at this moment: a lot that has just ended
        does not answer, and what was freed may be gone, as hosts are lost, or a smaller task of
        another pool comes first.
        """
        self.again(lane, at, verdict=verdict)
        self._asked[lane] = None

    def answered(self) -> None:
        """Look at all lanes for which lots have orders, as one may give less than was ordered."""
        for lane in self._asked:
            self.push(lane, 0.0)
        self._asked = {}

    def due(self, now: float) -> Key | None:
        """Return the next lane that is due, once."""
        while self._due and self._due[0][0] <= now:
            at, lane = heappop(self._due)
            if self._due_at.get(lane) == at:
                del self._due_at[lane]
                return lane
        return None

    @property
    def next_at(self) -> float | None:
        """Return when the next lane will be due."""
        while self._due and self._due_at.get(self._due[0][1]) != self._due[0][0]:
            heappop(self._due)
        return self._due[0][0] if self._due else None
