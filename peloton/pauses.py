"""Pauses between tries: each twice as long as the one before, up to a longest one.

Turns how often something has failed in a row into seconds. Whoever waits names its policy; against
crowds that retry at the same moment it draws a part of the pause. What is tried is its caller's
business.
"""

from __future__ import annotations

from typing import NamedTuple

DOUBLINGS_MAX = 64
"""Beyond it the power of a small first pause would be no float."""


class Pauses(NamedTuple):
    """A policy: the first pause, and the longest one."""

    first_s: float
    most_s: float

    def after(self, failures: int) -> float:
        """Seconds after so many failures in a row; none after none."""
        if failures <= 0:
            return 0.0
        return min(self.first_s * 2.0 ** min(failures - 1, DOUBLINGS_MAX), self.most_s)
