"""Numbered amounts, and which is the first of them that is at most so much.

A tree of minima, sixteen branches wide: each change and each question costs the logarithm of the
highest number, however many amounts there are. It must not know what the amounts are of.
"""

from __future__ import annotations

BITS = 4
"""Of a number, consumed by each level."""


class FirstFit:
    """Amounts by number; numbers are not negative, and may be far apart."""

    def __init__(self) -> None:
        # Level 0 holds the amounts; each further one the least of 2**BITS places below; the last
        # one, at place 0, the least of all.
        self._levels: list[dict[int, int]] = [{}]

    def put(self, number: int, amount: int) -> None:
        """A number that is not held yet has this amount."""
        levels = self._levels
        while number >> BITS * (len(levels) - 1):
            levels.append({0: levels[-1][0]} if 0 in levels[-1] else {})
        for depth, level in enumerate(levels):
            place = number >> BITS * depth
            known = level.get(place)
            if known is not None and known <= amount:
                return
            level[place] = amount

    def drop(self, number: int) -> None:
        """A number that is held is held no more."""
        amount = self._levels[0].pop(number)
        for depth in range(1, len(self._levels)):
            level, below = self._levels[depth], self._levels[depth - 1]
            place = number >> BITS * depth
            if level[place] < amount:
                return
            branches = range(place << BITS, place + 1 << BITS)
            left = [below[branch] for branch in branches if branch in below]
            if not left:
                del level[place]
                continue
            least = min(left)
            if least == level[place]:
                return
            level[place] = least

    def first(self, start: int, most: int) -> int | None:
        """The lowest number from `start` on whose amount is at most `most`."""
        return self._first(len(self._levels) - 1, 0, start=start, most=most)

    def _first(self, depth: int, place: int, *, start: int, most: int) -> int | None:
        least = self._levels[depth].get(place)
        if least is None or least > most or (place + 1 << BITS * depth) <= start:
            return None
        if not depth:
            return place
        for branch in range(place << BITS, place + 1 << BITS):
            found = self._first(depth - 1, branch, start=start, most=most)
            if found is not None:
                return found
        return None

    def __len__(self) -> int:
        return len(self._levels[0])
