"""Whether a fault strikes now, drawn from the seed, and how often each did.

Turns the share of a fault into yes or no. What is off draws nothing: a seed keeps its history when
a part learns a new fault. It must not know what a fault does.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable


class FaultDraws:
    """The draws of one simulated part. `struck` counts how often each of its faults struck."""

    def __init__(self, chance: random.Random, *, faults: Iterable[str] = ()) -> None:
        """`faults` are counted from the beginning, the others once they struck."""
        self.struck: Counter[str] = Counter(dict.fromkeys(faults, 0))
        self._chance = chance

    def strikes(self, fault: str, share: float) -> bool:
        """Whether it strikes this time; `share` is how many of all times it shall, 0 to 1."""
        if not share or self._chance.random() >= share:
            return False
        self.struck[fault] += 1
        return True

    def up_to(self, seconds: float) -> float:
        """Any time, in s, from 0 to `seconds`."""
        return self._chance.random() * seconds if seconds else 0.0
