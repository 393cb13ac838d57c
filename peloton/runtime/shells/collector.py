"""Settings of Python's garbage collector for a daemon.

With its defaults the collector took three quarters of the time: it walks all states again and
again, and nearly none of them can be part of a cycle. So: freeze what recovery made, collect
rarely, and preferably while the daemon is idle. The settings are those of the whole process, so the
library must use it only if the caller wants that, and must not thaw what others froze.
"""

from __future__ import annotations

import gc

YOUNG_OBJECTS = 100_000
IDLE_YOUNG_OBJECTS = 20_000
FROZEN_AT_FIRST = gc.get_freeze_count()
"""Some interpreters begin with a few frozen objects; more are those of the rest of the process."""


class Collector:
    """Controls the garbage collector from `own` to `give_back`."""

    def __init__(self) -> None:
        self._before: tuple[int, int, int] | None = None
        self._freezes = True

    def own(self) -> None:
        """Freeze all objects after recovery, which are long-lived, and collect rarely.

        If the caller has frozen objects before, nothing is frozen: one cannot thaw only a part.
        """
        if self._before is None:
            self._before = gc.get_threshold()
            self._freezes = gc.get_freeze_count() <= FROZEN_AT_FIRST
        gc.collect()
        if self._freezes:
            gc.freeze()
        gc.set_threshold(YOUNG_OBJECTS, 50, 100)

    def idle(self) -> None:
        """Collect young objects if there are many, because the daemon is idle."""
        if self._before is not None and gc.get_count()[0] > IDLE_YOUNG_OBJECTS:
            gc.collect(0)

    def give_back(self) -> None:
        """Restore the former settings."""
        if self._before is not None:
            gc.set_threshold(*self._before)
            if self._freezes:
                gc.unfreeze()
            self._before = None
