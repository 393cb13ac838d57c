"""When a batch task that failed is run again: the pause before, and rules by how the run ended.

Turns rules and an end into seconds or "no further attempt". Must not know how many attempts there
are, nor read a clock.
"""

from __future__ import annotations

from peloton.pauses import Pauses
from peloton.runtime.vocabulary import Value


class RetryRules(Value, frozen=True, gc=False, array_like=True):
    """How a batch task is run again after a failure of its program.

    `on` and `never` hold exit codes as texts and names of signals: "2", "SIGKILL". With `on`, only
    what ends in one of these ways is run again.
    """

    pause_s: float = 1.0  # after the first failure; twice as long after each further one
    pause_max_s: float = 60.0
    on: tuple[str, ...] = ()
    never: tuple[str, ...] = ()

    def pause_after(self, failures: int) -> float:
        """Seconds before the next attempt after so many failures."""
        return Pauses(self.pause_s, self.pause_max_s).after(failures)

    def rule_out(self, exit_code: int | None, signal: str) -> bool:
        """Whether there is no further attempt after such an end. An end without exit code and
        signal, as of a program that could not be started, is never ruled out."""
        ways = {signal} if signal else set()
        if exit_code is not None:
            ways.add(str(exit_code))
        if not ways:
            return False
        return not ways.isdisjoint(self.never) or (bool(self.on) and ways.isdisjoint(self.on))
