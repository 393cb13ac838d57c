"""The clock of the machine: wall time that never falls.

Turns the wall time read once and the monotonic time since into seconds since the epoch. It must
not follow the wall clock later: an operator who sets it back would make deadlines start anew.
"""

from __future__ import annotations

import time


class SystemClock:
    """Seconds since the epoch as of its making, plus what has passed since."""

    def __init__(self) -> None:
        self._offset_s = time.time() - time.monotonic()

    def now(self) -> float:
        """Seconds since the epoch; never less than before."""
        return self._offset_s + time.monotonic()
