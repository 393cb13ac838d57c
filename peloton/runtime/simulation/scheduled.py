"""A shell with a timetable, for the simulated environment of daemons.

Turns "do this at that time" into steps of the stepper.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from typing import Any, TypeVar

from peloton.runtime.shells.shell import Shell, begin_shell
from peloton.runtime.simulation.stepper import Stepper

T = TypeVar("T", bound=Shell)


def begun(shell: T) -> T:
    """Begin a shell and return the shell itself, not its ref."""
    begin_shell(shell)
    return shell


class ScheduledShell(Shell):
    """A shell that does things at their times, on a stepper."""

    def __init__(self, name: str, stepper: Stepper) -> None:
        super().__init__(name, stepper)
        self.stepper = stepper
        self.error: Exception | None = None
        self._events: list[tuple[float, int, Callable[[], object]]] = []
        self._numbers = itertools.count()

    def at(self, at_s: float, do: Callable[[], object]) -> None:
        """Do it at that time; what is due at the same time is done in the order of the calls."""
        heapq.heappush(self._events, (at_s, next(self._numbers), do))
        self.wake(self._events[0][0])

    def handle(self, message: Any) -> None:  # noqa: ARG002
        """Do everything that is due."""
        while self._events and self._events[0][0] <= self.now:
            heapq.heappop(self._events)[2]()
        if self._events:
            self.wake(self._events[0][0])

    def failed(self, error: BaseException) -> None:
        """Keep the first error for the caller of the stepper."""
        self.error = self.error or error

    def upto(self, seconds: float) -> float:
        """Return a time drawn evenly from 0 to so many seconds."""
        return self.stepper.chance.random() * seconds
