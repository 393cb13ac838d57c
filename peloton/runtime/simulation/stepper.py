"""A stepper: drives the unchanged shells on the caller's thread, in virtual time, from one seed.

Turns "these shells have mail" into one step of one of them, drawn from the seed; when none has
mail, time jumps to the next wake-up. Nothing but the seed may decide, and no clock is read: a seed
gives the same history every time, in any process.
"""

from __future__ import annotations

import hashlib
import heapq
import itertools
import random
from collections.abc import Callable

import pykka

from peloton.runtime.shells.shell import Shell
from peloton.runtime.shells.shell_messages import WAKE, send

BEGIN_S = 1_700_000_000.0
MESSAGES_PER_STEP_MAX = 3


class Stuck(Exception):
    """The condition did not hold within the steps allowed."""


class VirtualClock:
    """A clock that moves only when it is set."""

    def __init__(self, now_s: float = BEGIN_S) -> None:
        self.now_s = now_s

    def now(self) -> float:
        """Return seconds since the epoch."""
        return self.now_s

    def wall(self) -> float:
        """Return the same as `now`: nobody sets the wall clock."""
        return self.now_s


class Stepper:
    """Driver of all shells of a simulation, and the factory of drivers for `assemble`."""

    def __init__(self, seed: int) -> None:
        self.clock = VirtualClock()
        self.chance = random.Random(seed)
        self.steps = 0
        self.stepped: Shell | None = None  # by the last step
        self.shells: list[Shell] = []
        self._ready: list[Shell] = []
        self._wakes: list[tuple[float, int, Shell]] = []
        self._numbers = itertools.count()
        self._trace = hashlib.sha256()

    # ---- what shells and `assemble` call ----

    def driver(self, name: str) -> Stepper:  # noqa: ARG002
        return self

    @property
    def busy(self) -> bool:
        return bool(self._ready)

    def attach(self, shell: Shell) -> None:
        self.shells.append(shell)

    def mail_waiting(self, shell: Shell) -> None:
        """Queue a shell that has mail, so that it will be stepped."""
        if not shell.queued:
            shell.queued = True
            self._ready.append(shell)

    def wake(self, shell: Shell, at_s: float) -> None:
        """Set the shell's wake-up, in virtual seconds."""
        if shell.wake_at_s != at_s:
            shell.wake_at_s = at_s
            heapq.heappush(self._wakes, (at_s, next(self._numbers), shell))

    def stop(self) -> None:
        """Do nothing: shells run only in `step`."""

    def about_to_wait(self) -> None:
        """Do nothing: in virtual time a call takes no time."""

    def broken(self, text: str) -> None:
        """Note a shell whose error handler failed, which is expected while a process dies."""
        self.note(text)

    # ---- what a world calls ----

    def step(self) -> bool:
        """Take one step of one shell, or one jump of time; return False at the end."""
        while not self._ready:
            if not self._jump():
                return False
        shell = self._ready.pop(self.chance.randrange(len(self._ready)))
        shell.queued = False
        self.stepped = shell
        self.steps += 1
        self.note(f"{self.clock.now_s:.3f} {shell.name} {shell.actor_inbox.qsize()}")
        shell.grant(self.chance.randint(1, MESSAGES_PER_STEP_MAX))
        if not shell.actor_inbox.empty() and not shell.actor_stopped.is_set():
            shell.driver.mail_waiting(shell)
        return True

    @property
    def idle(self) -> bool:
        """Whether nobody has mail: the next step jumps to the next time."""
        return not self._ready

    def run(self, until: Callable[[], bool], *, steps_max: int = 100_000) -> None:
        """Step until the condition holds. Raises `Stuck` if it never does."""
        for _ in range(steps_max):
            if until():
                return
            # The condition itself may begin something new, such as the next process.
            if not self.step() and not until() and not self._ready:
                break
        if not until():
            raise Stuck(f"after {self.steps} steps, at {self.clock.now_s - BEGIN_S:.1f} s")

    def drop(self, shells: list[Shell]) -> None:
        """Stop stepping these shells for good: their process is gone."""
        gone = {id(shell): None for shell in shells}
        for shell in shells:
            pykka.ActorRegistry.unregister(shell.actor_ref)
            shell.actor_stopped.set()
        self.shells = [shell for shell in self.shells if id(shell) not in gone]
        self._ready = [shell for shell in self._ready if id(shell) not in gone]
        self._wakes = [wake for wake in self._wakes if id(wake[2]) not in gone]
        heapq.heapify(self._wakes)

    def pause(self, shells: list[Shell]) -> list[Shell]:
        """Stop stepping these shells; return those that were about to be stepped."""
        paused = {id(shell): None for shell in shells}
        waiting = [shell for shell in self._ready if id(shell) in paused]
        self._ready = [shell for shell in self._ready if id(shell) not in paused]
        return waiting

    def note(self, text: str) -> None:
        """Add a line to the trace."""
        self._trace.update(text.encode() + b"\n")

    def trace(self) -> str:
        """Return a hash of all that happened."""
        return self._trace.hexdigest()

    def _jump(self) -> bool:
        while self._wakes:
            at_s, _, shell = heapq.heappop(self._wakes)
            if shell.wake_at_s == at_s and not shell.actor_stopped.is_set():
                self.clock.now_s = max(self.clock.now_s, at_s)
                shell.wake_at_s = None
                send(shell.ref, WAKE)
                return True
        return False
