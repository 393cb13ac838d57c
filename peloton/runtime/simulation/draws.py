"""Draws from the seed whether a fault strikes now, and counts how often each did.

Turns the share of a fault into yes or no. What is off draws nothing: a seed keeps its history when
a part learns a new fault.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable


class FaultDraws:
    """The draws of one simulated part. `struck` counts how often each of its faults struck."""

    def __init__(self, chance: random.Random, *, faults: Iterable[str] = ()) -> None:
        """Begin; `faults` are counted from the beginning, the others once they struck."""
        self.struck: Counter[str] = Counter(dict.fromkeys(faults, 0))
        self._chance = chance

    def strikes(self, fault: str, share: float) -> bool:
        """Return whether the fault strikes this time; `share` is its probability."""
        if not share or self._chance.random() >= share:
            return False
        self.struck[fault] += 1
        return True

    def up_to(self, seconds: float) -> float:
        """Return any time, in s, from 0 to `seconds`."""
        return self._chance.random() * seconds if seconds else 0.0
