"""Ended entities of one kind that stay in memory for a while (`Kind.keep`), oldest first.

Turns the bounds of a kind (count, bytes as encoded, seconds) into the entities that have to leave.
It must not remove anything itself: `endings` writes the row first. After a recovery the seconds
begin anew, because when an entity ended is known to its kind only.
"""

from __future__ import annotations

import math

from peloton.runtime.vocabulary import Key, Kind


class Retained:
    """The ended entities of one kind."""

    def __init__(self, kind: Kind) -> None:
        self._kind = kind
        self._of: dict[Key, tuple[float, int]] = {}  # since when, and bytes
        self._bytes = 0

    def __contains__(self, key: Key) -> bool:
        return key in self._of

    def add(self, key: Key, *, now: float, size: int) -> None:
        """The entity has ended."""
        self.discard(key)
        self._of[key] = (now, size)
        self._bytes += size

    def discard(self, key: Key) -> None:
        """The entity is gone, or has not ended any more."""
        found = self._of.pop(key, None)
        if found is not None:
            self._bytes -= found[1]

    def leaving(self, now: float, at_most: int) -> list[Key]:
        """The oldest ones that are beyond a bound; they are not kept any more."""
        found: list[Key] = []
        while self._of and len(found) < at_most:
            oldest = next(iter(self._of))
            if not self._beyond(self._of[oldest][0], now):
                break
            self.discard(oldest)
            found.append(oldest)
        return found

    @property
    def next_s(self) -> float | None:
        """When the oldest one is too old; None if none ever is."""
        if self._kind.keep_s == math.inf:
            return None
        for since, _ in self._of.values():
            return since + self._kind.keep_s
        return None

    def _beyond(self, since: float, now: float) -> bool:
        kind = self._kind
        too_many = len(self._of) > kind.keep or self._bytes > kind.keep_bytes
        return too_many or since + kind.keep_s <= now
