"""Whether this daemon still obeys kills of the private host services.

The switch is set once and stays so until the process ends, as in the original; other daemons have
their own. It does not stop what reaches tasks through their jobs.
"""

from __future__ import annotations

from peloton.runtime.core.health import NotReadyReason

KILLS_DISABLED = "Kill tasks request is disabled"


class KillSwitch:
    """A switch that lets kills pass until it is thrown, for good."""

    def __init__(self) -> None:
        self.disabled = False

    def disable(self) -> None:
        self.disabled = True

    def notes(self) -> tuple[NotReadyReason, ...]:
        """Return what health says of disabled kills."""
        if not self.disabled:
            return ()
        text = f"{KILLS_DISABLED} on this daemon since a call of DisableKillTasks, until it ends"
        return (NotReadyReason("private services", text),)
