"""A simulated process: the shells of one life of one daemon, with a clock of its own.

Turns "this daemon is frozen" and "this daemon is dead" into shells that are not stepped. The
process is the driver of its shells, which cannot distinguish it from a thread.
"""

from __future__ import annotations

from collections.abc import Callable

from peloton.runtime.shells.shell import Shell
from peloton.runtime.simulation.stepper import Stepper

ROUNDING_S = 1e-5
"""A drifting clock that is asked at the true time of a moment may be just before that moment."""


class SkewedClock:
    """The stepper's time, off by some seconds, and perhaps too fast or too slow."""

    def __init__(self, stepper: Stepper, skew_s: float) -> None:
        self.skew_s = skew_s
        self.set_by_s = 0.0
        """How far somebody has set the wall clock since the process began."""
        self._stepper = stepper
        self._rate = 0.0
        self._since_s = 0.0

    def now(self) -> float:
        """Return seconds since the epoch, by the clock of this process."""
        now_s = self._stepper.clock.now_s
        if self._rate:
            now_s += self._rate * (now_s - self._since_s)
        return now_s + self.skew_s

    def wall(self) -> float:
        """Return seconds since the epoch by the clock that people set."""
        return self.now() + self.set_by_s

    def drift(self, rate: float) -> None:
        """Let the clock gain so many seconds a second from now on; what it has gained stays."""
        now_s = self._stepper.clock.now_s
        self.skew_s += self._rate * (now_s - self._since_s)
        self._rate, self._since_s = rate, now_s

    def true_s(self, at_s: float) -> float:
        """Return the true time at which this clock will show a time."""
        at_s -= self.skew_s
        if not self._rate:
            return at_s
        return (at_s + self._rate * self._since_s) / (1 + self._rate) + ROUNDING_S


class SimulatedProcess:
    """Driver of all shells of one process, and the factory of drivers for `assemble`."""

    def __init__(self, stepper: Stepper, name: str, *, skew_s: float = 0.0) -> None:
        self.name = name
        self.clock = SkewedClock(stepper, skew_s)
        self.frozen = False
        self.shells: list[Shell] = []
        self.by_class: dict[type[Shell], list[Shell]] = {}
        self.delays: Callable[[Shell], bool] | None = None
        """Asked of a shell that has mail: whether that waits until `release`."""
        self._stepper = stepper
        self._mail_waiting: list[Shell] = []
        self._waiting: dict[Shell, None] = {}  # for an answer from outside, as a blocked thread

    # ---- what shells and `assemble` call ----

    def driver(self, name: str) -> SimulatedProcess:  # noqa: ARG002
        return self

    @property
    def busy(self) -> bool:
        return any(shell.queued for shell in self.shells)

    def attach(self, shell: Shell) -> None:
        """Attach a shell that begins."""
        self.shells.append(shell)
        self.by_class.setdefault(type(shell), []).append(shell)
        self._stepper.attach(shell)

    def mail_waiting(self, shell: Shell) -> None:
        """Note that the shell has mail; while the process is frozen it is not stepped."""
        if self.delays is not None and not shell.queued and self.delays(shell):
            self._waiting[shell] = None
        if not self.frozen and shell not in self._waiting:
            self._stepper.mail_waiting(shell)
        elif not shell.queued:
            shell.queued = True
            self._mail_waiting.append(shell)

    def wake(self, shell: Shell, at_s: float) -> None:
        """Set the shell's wake-up, in the time of this process's clock."""
        self._stepper.wake(shell, self.clock.true_s(at_s))

    def stop(self) -> None:
        """Do nothing: shells run only when stepped."""

    def about_to_wait(self) -> None:
        """Do nothing: in virtual time a call takes no time."""

    def broken(self, text: str) -> None:
        """Note a failure in the trace, which is expected of a process that is dying."""
        self._stepper.note(text)

    # ---- what a world calls ----

    def freeze(self) -> None:
        """Freeze, as by SIGSTOP: mail waits, and time passes without the process."""
        if not self.frozen:
            self.frozen = True
            self._mail_waiting += self._stepper.pause(self.shells)

    def thaw(self) -> None:
        """Continue with what waits, and with the state from before."""
        if self.frozen:
            self.frozen = False
            self._ring()

    def wait(self, kind: type[Shell]) -> None:
        """Hold shells of this class: they wait for an answer from outside; all others continue."""
        shells = [shell for shell in self.shells if isinstance(shell, kind)]
        self._waiting.update(dict.fromkeys(shells))
        self._mail_waiting += self._stepper.pause(shells)

    def go_on(self) -> None:
        """Give all waiting shells their answers."""
        self._waiting = {}
        if not self.frozen:
            self._ring()

    def release(self, shell: Shell) -> None:
        """Give the shell the mail that it was delayed for."""
        self._waiting.pop(shell, None)
        if shell in self._mail_waiting and not self.frozen:
            self._mail_waiting.remove(shell)
            shell.queued = False
            self._stepper.mail_waiting(shell)

    def _ring(self) -> None:
        rung, self._mail_waiting = self._mail_waiting, []
        for shell in rung:
            shell.queued = False
            self.mail_waiting(shell)

    def end(self) -> None:
        """End the process, with all its memory."""
        self._stepper.drop(self.shells)
        self.shells, self._mail_waiting, self._waiting = [], [], {}
        self.by_class = {}
