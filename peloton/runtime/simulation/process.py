"""A simulated process: the shells of one life of one daemon, with a clock of its own.

Turns "this daemon stands still" and "this daemon is no more" into shells that are not stepped. It
is the driver its shells get, so they cannot tell it from a thread. It must not know what they are.
"""

from __future__ import annotations

from peloton.runtime.shells.shell import Shell
from peloton.runtime.simulation.stepper import Stepper


class SkewedClock:
    """The stepper's time, off by a constant: no two machines agree on what time it is."""

    def __init__(self, stepper: Stepper, skew_s: float) -> None:
        self.skew_s = skew_s
        self._stepper = stepper

    def now(self) -> float:
        """Seconds since the epoch, as this process believes."""
        return self._stepper.clock.now_s + self.skew_s


class SimulatedProcess:
    """Driver of all shells of one process, and the drivers' maker that `assemble` wants."""

    def __init__(self, stepper: Stepper, name: str, *, skew_s: float = 0.0) -> None:
        self.name = name
        self.clock = SkewedClock(stepper, skew_s)
        self.frozen = False
        self.shells: list[Shell] = []
        self._stepper = stepper
        self._rung: list[Shell] = []
        self._waiting: dict[Shell, None] = {}  # for something outside, as a thread does

    # ---- what shells and their maker call ----

    def driver(self, name: str) -> SimulatedProcess:  # noqa: ARG002
        """One for all."""
        return self

    def attach(self, shell: Shell) -> None:
        """The shell begins."""
        self.shells.append(shell)
        self._stepper.attach(shell)

    def rung(self, shell: Shell) -> None:
        """The shell has mail; while the process stands still nobody looks."""
        if not self.frozen and shell not in self._waiting:
            self._stepper.rung(shell)
        elif not shell.queued:
            shell.queued = True
            self._rung.append(shell)

    def wake(self, shell: Shell, at_s: float) -> None:
        """As of a dispatcher, in this process's own time."""
        self._stepper.wake(shell, at_s - self.clock.skew_s)

    def stop(self) -> None:
        """Nothing runs but by the stepper."""

    def broken(self, text: str) -> None:
        """As of a dispatcher; of a process that is dying that is no news."""
        self._stepper.note(text)

    # ---- what a world calls ----

    def freeze(self) -> None:
        """Stand still, as by SIGSTOP: what comes meanwhile waits, and time goes on unseen."""
        if not self.frozen:
            self.frozen = True
            self._rung += self._stepper.hold(self.shells)

    def thaw(self) -> None:
        """Go on with what waits, believing what was believed."""
        if self.frozen:
            self.frozen = False
            self._ring()

    def wait(self, kind: type[Shell]) -> None:
        """Shells of this kind get no answer from outside; all others go on."""
        shells = [shell for shell in self.shells if isinstance(shell, kind)]
        self._waiting.update(dict.fromkeys(shells))
        self._rung += self._stepper.hold(shells)

    def go_on(self) -> None:
        """Whoever waited is answered."""
        self._waiting = {}
        if not self.frozen:
            self._ring()

    def _ring(self) -> None:
        rung, self._rung = self._rung, []
        for shell in rung:
            shell.queued = False
            self.rung(shell)

    def end(self) -> None:
        """The process is gone, with all its memory."""
        self._stepper.drop(self.shells)
        self.shells, self._rung, self._waiting = [], [], {}
