"""The garbage collector in the hands of the daemon.

With its defaults it took three quarters of the time: it walks all states again and again, and
nearly none of them can be part of a cycle. So: freeze what recovery made, collect seldom, and
rather while nothing is to do. It must not be used by a library's user unasked: it is one setting
for the whole process.
"""

from __future__ import annotations

import gc

YOUNG_OBJECTS = 100_000
IDLE_YOUNG_OBJECTS = 20_000


class Collector:
    """Owns the collector from `own` to `give_back`."""

    def __init__(self) -> None:
        self._before: tuple[int, int, int] | None = None

    def own(self) -> None:
        """After recovery: what lives now lives long."""
        if self._before is None:
            self._before = gc.get_threshold()
        gc.collect()
        gc.freeze()
        gc.set_threshold(YOUNG_OBJECTS, 50, 100)

    def idle(self) -> None:
        """Nothing is to do just now."""
        if self._before is not None and gc.get_count()[0] > IDLE_YOUNG_OBJECTS:
            gc.collect(0)

    def give_back(self) -> None:
        """As it was."""
        if self._before is not None:
            gc.set_threshold(*self._before)
            gc.unfreeze()
            self._before = None
