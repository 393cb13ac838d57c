"""The clock of the machine: a time that never falls, and the one that people set.

Turns the wall time read once, plus what has passed since, into seconds since the epoch: pauses and
deadlines are counted in it. It does not follow the wall clock later: if an operator sets that back,
deadlines must not start over. What has passed includes the time for which the machine slept.
"""

from __future__ import annotations

import time

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class SystemClock:
    """A monotonic clock that starts at the wall time, and the present wall time."""

    def __init__(self) -> None:
        self._offset_s = time.time() - time.clock_gettime(_CLOCK)

    def now(self) -> float:
        """Return seconds since the epoch; never less than before."""
        return self._offset_s + time.clock_gettime(_CLOCK)

    def wall(self) -> float:
        """Return seconds since the epoch by the wall clock, which may jump both ways."""
        return time.time()
