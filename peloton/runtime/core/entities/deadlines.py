"""Deadlines: a timer wheel of ticks over keys.

Turns (key, seconds) into "these keys are due now". Deadlines are not journaled: recovery derives
every deadline from state and `since`. There is one entry per key, replaced or dropped when the
key's next deadline changes, so the wheel never holds more than one slot for an entity.
"""

from __future__ import annotations

import heapq

from peloton.runtime.vocabulary import Key

DEADLINE_TICK_MS = 100


def tick_of(at_s: float) -> int:
    """Return the first tick that is not before a moment.

    The tick is counted in whole milliseconds: in floats its moment can round to one before the
    tick, and a caller that wakes at `next_s` would find nothing due there, again and again.
    """
    return -(-round(at_s * 1000) // DEADLINE_TICK_MS)


def tick_at(now_s: float) -> int:
    """Return the last tick that has come."""
    return round(now_s * 1000) // DEADLINE_TICK_MS


class Wheel:
    """The next tick of each key that has one."""

    __slots__ = ("_heap", "_keys", "ticks")

    def __init__(self) -> None:
        self.ticks: dict[Key, int] = {}
        """By key; changed by the methods alone."""
        self._keys: dict[int, dict[Key, None]] = {}
        self._heap: list[int] = []

    def set(self, key: Key, tick: int) -> None:
        """Set the key's next deadline to `tick`, replacing an earlier one."""
        if self.ticks.get(key) == tick:
            return
        self.drop(key)
        self.ticks[key] = tick
        slot = self._keys.get(tick)
        if slot is None:
            slot = self._keys[tick] = {}
            heapq.heappush(self._heap, tick)
        slot[key] = None

    def drop(self, key: Key) -> None:
        """Remove the key's deadline."""
        tick = self.ticks.pop(key, None)
        if tick is not None:
            # An empty slot stays until its tick has come: if it were dropped, the same tick could
            # be pushed onto the heap again and again.
            del self._keys[tick][key]

    def due(self, now_s: float) -> list[Key]:
        """Remove and return the keys whose tick has come, in the order they were set."""
        found: list[Key] = []
        last = tick_at(now_s)
        while self._heap and self._heap[0] <= last:
            for key in self._keys.pop(heapq.heappop(self._heap)):
                del self.ticks[key]
                found.append(key)
        return found

    def next_s(self) -> float | None:
        """Return when something is due next, in seconds since the epoch."""
        while self._heap and not self._keys[self._heap[0]]:
            del self._keys[heapq.heappop(self._heap)]
        return self._heap[0] * DEADLINE_TICK_MS / 1000 if self._heap else None
