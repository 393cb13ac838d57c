"""Whether this daemon still obeys kills of the private host services.

It is set once and stays so until the process ends, as in the original; other daemons have their
own. What reaches tasks through their jobs is not stopped by it.
"""

from __future__ import annotations

from peloton.runtime.core.health import NotReadyReason

KILLS_DISABLED = "Kill tasks request is disabled"


class KillSwitch:
    """Lets kills pass until it is thrown, for good."""

    def __init__(self) -> None:
        self.disabled = False

    def disable(self) -> None:
        """No kill passes any more."""
        self.disabled = True

    def notes(self) -> tuple[NotReadyReason, ...]:
        """What health says of it."""
        if not self.disabled:
            return ()
        text = f"{KILLS_DISABLED} on this daemon since a call of DisableKillTasks, until it ends"
        return (NotReadyReason("private services", text),)
