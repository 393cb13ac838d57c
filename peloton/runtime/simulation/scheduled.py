"""A shell with a timetable: what the outside world of a simulation is made of.

Turns "do this then" into steps of the stepper. It must not stand in for a shell of the program:
those are driven unchanged.
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
    """`begin_shell`, and the shell itself instead of its name."""
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
        """Do it then; what is due at one moment is done in the order asked."""
        heapq.heappush(self._events, (at_s, next(self._numbers), do))
        self.wake(self._events[0][0])

    def handle(self, message: Any) -> None:  # noqa: ARG002
        """Everything that is due."""
        while self._events and self._events[0][0] <= self.now:
            heapq.heappop(self._events)[2]()
        if self._events:
            self.wake(self._events[0][0])

    def failed(self, error: BaseException) -> None:
        """Kept for the one who steps."""
        self.error = self.error or error

    def upto(self, seconds: float) -> float:
        """Drawn evenly."""
        return self.stepper.chance.random() * seconds
