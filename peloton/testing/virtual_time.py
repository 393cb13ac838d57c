"""The time of a cluster in the test's process: one thread, and an event loop that never waits.

Turns "wait for this" into steps of the world: of its shells, of the coroutines of calls, and of
what tasks do. Virtual time passes only in a wait or in `run_for`. Nothing here may be called from
two threads at a time; a lock sees to that.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from concurrent.futures import TimeoutError as TimesUp
from contextvars import Context
from typing import Any, TypeVarTuple

from peloton.runtime.simulation.world import World

Ts = TypeVarTuple("Ts")
AHEAD_S = 1e-6
"""The loop's clock is ahead by this, so that no wake-up comes too early by a rounding."""
PATIENCE_S = 6 * 3600.0
"""A call of a client that waits for so many virtual seconds waits for ever."""
ASK_EVERY_S = 0.1
STEPS_MAX = 5_000_000
"""A world that does so much at one time goes round in circles."""


class WaitsForEver(AssertionError):
    """What a test waits for does not come, however much virtual time passes."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop with the time of a world, turned by hand."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.due = False
        """Whether a turn would call something."""
        super().__init__()

    def time(self) -> float:
        """Return the virtual seconds since the world began."""
        return self._world.elapsed_s + AHEAD_S

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """Call it in the next turn."""
        self.due = True
        return super().call_soon(callback, *args, context=context)

    def call_soon_threadsafe(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """Call it in the next turn; all callers have the lock of the time."""
        return self.call_soon(callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Call it at this time, to which the world then steps."""
        handle = super().call_at(when, callback, *args, context=context)
        self._world.later.at(max(self._world.now + when - self.time(), self._world.now), self._ring)
        return handle

    def turn(self) -> None:
        """Call all that is due now."""
        super().call_soon(self.stop)
        self.due = False
        self.run_forever()

    def end(self) -> None:
        """Cancel what still waits, and close."""
        while tasks := asyncio.all_tasks(self):
            for task in tasks:
                task.cancel()
            self.turn()
        self.close()

    def _ring(self) -> None:
        self.due = True


class AtOnce(Executor):
    """Calls on the caller's thread: a method that waits lets the world step meanwhile."""

    def submit(self, work: Callable[..., Any], /, *args: Any, **named: Any) -> Future[Any]:
        """Call it, and return its result as a future; what it raises is raised here already."""
        future: Future[Any] = Future()
        future.set_result(work(*args, **named))
        return future


class VirtualTime:
    """Whatever can happen next in a world, step by step."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.loop = VirtualLoop(world)
        self.chores: deque[Callable[[], object]] = deque()
        """What tasks do: called between two steps, so that they may call the cluster."""
        self.lock = threading.RLock()
        """Held by who steps, and by who changes anything from another thread."""
        self._patient_until = world.now + PATIENCE_S

    def now(self) -> float:
        """Return the virtual seconds since the epoch."""
        return self.world.now

    def step(self) -> bool:
        """Do one thing; return False if nothing will ever happen again."""
        if self.loop.due:
            self.loop.turn()
        elif self.chores:
            self.chores.popleft()()
        else:
            return self.world.step()
        return True

    @property
    def idle(self) -> bool:
        """Whether nothing is left to do at the present time."""
        return not (self.loop.due or self.chores) and self.world.stepper.idle

    def run_for(self, seconds: float) -> None:
        """Let so many virtual seconds pass, and all happen that is due by then."""
        self.reaches(lambda: False, seconds)

    def sleep(self, seconds: float) -> None:
        """Let a client sleep between its calls, which is a part of their wait."""
        self.await_call(lambda: False, self.world.now + seconds)

    def reaches(self, reached: Callable[[], object], within_s: float) -> bool:
        """Let time pass until the condition is true; return False if that takes longer.

        It is asked when all that is due at a time has happened, and may call the cluster; not more
        often than every `ASK_EVERY_S`, as its calls make things happen themselves.
        """
        end = self.world.now + within_s
        with self.lock:
            self._patient_until = end + PATIENCE_S
            self.world.later.at(end, lambda: None)
            self._settle()
            while not reached():
                self._settle()  # what its own calls have left
                if self.world.now >= end:
                    return False
                ask_s = min(self.world.now + ASK_EVERY_S, end)
                self._next_time()
                if self.world.now < ask_s:
                    self.world.later.at(ask_s, lambda: None)
                while self.world.now < ask_s:
                    self._next_time()
        return True

    def await_call(self, reached: Callable[[], bool], until: float | None) -> bool:
        """Step until the condition holds, or that time has come; return whether it holds.

        Raises WaitsForEver if a test has called and done nothing else for so long.
        """
        with self.lock:
            end = self._patient_until if until is None else min(until, self._patient_until)
            if self._steps(reached, end):
                return True
        if until is not None and self.world.now >= until:
            return False
        raise WaitsForEver(f"a call waited for {PATIENCE_S:g} virtual seconds; set it a timeout")

    def result_of(self, future: Future[Any], wait_s: float) -> Any:
        """Return the result for a method that blocks, within a turn. Raises TimeoutError."""
        if not self._steps(future.done, self.world.now + wait_s, within=True):
            raise TimesUp
        return future.result(0)

    def _next_time(self) -> None:
        """Let all happen that is due at the next time at which anything is."""
        self.step()
        self._settle()

    def _settle(self) -> None:
        """Let all happen that is due now."""
        for _ in range(STEPS_MAX):
            if self.idle or not self.step():
                return
        raise WaitsForEver(f"{STEPS_MAX} steps at one time, and no end of it")

    def _steps(self, reached: Callable[[], bool], end: float, *, within: bool = False) -> bool:
        """Step until the condition holds, or the time has come; `within` a turn the world only."""
        armed = False
        while not reached():
            if self.world.stepper.idle if within else self.idle:
                if self.world.now >= end:
                    return False
                if not armed:  # most calls take no time
                    armed = True
                    self.world.later.at(end, lambda: None)
            if not (self.world.step() if within else self.step()):
                return False
        return True
