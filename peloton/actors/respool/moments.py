"""The moments at which waiting lanes of pools are to be looked at, so that nothing is polled."""

from __future__ import annotations

from heapq import heappop, heappush

from peloton.runtime.vocabulary import Key


class LaneMoments:
    """Lanes with the moment at which each is to be looked at next."""

    def __init__(self) -> None:
        self._since: dict[Key, float] = {}
        self._due: list[tuple[float, Key]] = []
        self._due_at: dict[Key, float] = {}

    def begin(self, lane: Key, now: float) -> float:
        """Record that a lane waits; return since when."""
        return self._since.setdefault(lane, now)

    def end(self, lane: Key) -> None:
        """Record that a lane waits no more."""
        self._since.pop(lane, None)
        self._due_at.pop(lane, None)

    def push(self, lane: Key, at: float) -> None:
        """Look at a waiting lane at this moment, or at an earlier one that was set before."""
        known = self._due_at.get(lane)
        if lane in self._since and (known is None or at < known):
            self._due_at[lane] = at
            heappush(self._due, (at, lane))

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

    def __contains__(self, lane: Key) -> bool:
        return lane in self._since
