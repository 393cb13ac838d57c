"""Numbered amounts, with a search for the first one that is at most a given amount.

A tree of minima, sixteen branches wide: each change and each search costs the logarithm of the
highest number, however many amounts there are. Must not know what the amounts mean.
"""

from __future__ import annotations

BITS = 4
"""Bits of a number that each level consumes."""


class FirstFit:
    """Amounts by number; numbers must be ≥ 0, and may be far apart."""

    def __init__(self) -> None:
        # Level 0 holds the amounts; each further level the least of 2**BITS slots of the level
        # below; the last level, in slot 0, the least of all.
        self._levels: list[dict[int, int]] = [{}]

    def put(self, number: int, amount: int) -> None:
        """Add a number, which must not be held yet."""
        levels = self._levels
        while number >> BITS * (len(levels) - 1):
            levels.append({0: levels[-1][0]} if 0 in levels[-1] else {})
        for depth, level in enumerate(levels):
            slot = number >> BITS * depth
            known = level.get(slot)
            if known is not None and known <= amount:
                return
            level[slot] = amount

    def drop(self, number: int) -> None:
        """Remove a number, which must be held."""
        amount = self._levels[0].pop(number)
        for depth in range(1, len(self._levels)):
            level, below = self._levels[depth], self._levels[depth - 1]
            slot = number >> BITS * depth
            if level[slot] < amount:
                return
            branches = range(slot << BITS, slot + 1 << BITS)
            left = [below[branch] for branch in branches if branch in below]
            if not left:
                del level[slot]
                continue
            least = min(left)
            if least == level[slot]:
                return
            level[slot] = least

    def first(self, start: int, most: int) -> int | None:
        """The lowest number from `start` on whose amount is at most `most`."""
        return self._first(len(self._levels) - 1, 0, start=start, most=most)

    def _first(self, depth: int, slot: int, *, start: int, most: int) -> int | None:
        least = self._levels[depth].get(slot)
        if least is None or least > most or (slot + 1 << BITS * depth) <= start:
            return None
        if not depth:
            return slot
        for branch in range(slot << BITS, slot + 1 << BITS):
            found = self._first(depth - 1, branch, start=start, most=most)
            if found is not None:
                return found
        return None

    def __len__(self) -> int:
        return len(self._levels[0])
