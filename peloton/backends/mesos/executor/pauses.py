"""Pauses before the next connection to the agent.

Short where the agent is away: a recovering one waits 2 s for us, by default. Longer each time where
it is there and refuses what we say, as we would say the same again; but never so long that we would
miss a recovery.
"""

from __future__ import annotations

PAUSE_S, PAUSE_MAX_S = 0.2, 1.6
LASTED_S = 5.0
"""A connection that lasted so long was a success, whatever became of it."""


class ConnectPauses:
    """Those of one executor."""

    def __init__(self) -> None:
        self._pause_s = PAUSE_S

    def after(self, lasted_s: float, *, refused: bool) -> float:
        """How long to wait after a connection that lasted so long, and has ended so."""
        if not refused:
            self._pause_s = PAUSE_S
            return PAUSE_S
        if lasted_s >= LASTED_S:
            self._pause_s = PAUSE_S
        pause_s, self._pause_s = self._pause_s, min(2 * self._pause_s, PAUSE_MAX_S)
        return pause_s
