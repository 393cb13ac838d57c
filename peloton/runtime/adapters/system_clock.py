"""The clock of the machine: wall time that never falls.

Turns the wall time read once, plus the monotonic time since, into seconds since the epoch. It must
not follow the wall clock later: if an operator sets it back, deadlines must not start over.
"""

from __future__ import annotations

import time


class SystemClock:
    """Wall time as of its construction, plus the monotonic time since."""

    def __init__(self) -> None:
        self._offset_s = time.time() - time.monotonic()

    def now(self) -> float:
        """Seconds since the epoch; never less than before."""
        return self._offset_s + time.monotonic()
