"""Ends turns of extensions that take too long: all shards of a daemon share one thread.

A thread looks at the processor time of functions that run, and raises an exception in the thread of
one that has had more than its kind's `turn_s`. So a loop ends as a turn that raises, with the
message as a dead letter after a few attempts. What loops inside of one call of a C function, such
as a hopeless regular expression, cannot be ended so.
"""

from __future__ import annotations

import ctypes
import functools
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from peloton.runtime.kinds import Kind
from peloton.sdk.kit import LimitExceeded
from peloton.sdk.kit.limits import with_functions

LOOK_S = 0.05
AGAIN_S = 1.0
"""Before it is raised once more in a function that handles even this."""
R = TypeVar("R")


class _TurnTooLong(BaseException):
    """No `Exception`: a function that handles those would go on."""


class _Running(NamedTuple):
    clock: int  # of the processor time of its thread
    until_s: float


class TurnWatch:
    """The watch of one process; its thread begins with the first function."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: dict[int, _Running] = {}  # by the id of the thread
        self._raised: dict[int, float] = {}  # when last, in a function that runs
        self._some = threading.Event()
        self._thread: threading.Thread | None = None

    def timed(self, function: Callable[..., R], *, kind: str, limit_s: float) -> Callable[..., R]:
        """Return the function with a limit: beyond it `LimitExceeded` is raised."""

        @functools.wraps(function)
        def limited(*arguments: Any) -> R:
            thread = threading.get_ident()
            if thread in self._running:  # within another function of the kind
                return function(*arguments)
            try:
                self._begin(thread, limit_s)
                try:
                    return function(*arguments)
                finally:
                    self._end(thread)
            except _TurnTooLong:
                self._end(thread)  # it may have come within the first one
                text = f"{kind}: turn_s: more than {limit_s:g} s of processor time"
                raise LimitExceeded(text) from None
            except Exception:
                raise
            except BaseException as error:  # such as SystemExit: it would end the shard
                raise RuntimeError(f"{kind} raised {type(error).__name__}: {error}") from error

        return limited

    def _begin(self, thread: int, limit_s: float) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._look, name="turn-watch", daemon=True)
            self._thread.start()
        clock = time.pthread_getcpuclockid(thread)
        self._running[thread] = _Running(clock, time.clock_gettime(clock) + limit_s)
        self._some.set()

    def _end(self, thread: int) -> None:
        """End the watch over this thread. One that was raised and has not come yet is taken here:
        none may come later, where nobody expects it."""
        while True:
            try:
                with self._lock:
                    self._running.pop(thread, None)  # from here on none is raised
                    raised = self._raised.pop(thread, None) is not None
                if not raised:
                    return
                # CPython holds one for a thread, and this is in the place of the last. To withdraw
                # it would leave the interpreter looking for it at every step from then on.
                _raise_in(thread, _TurnTooLong)
                while True:
                    pass
            except _TurnTooLong:
                continue

    def _look(self) -> None:
        while True:
            self._some.wait()
            time.sleep(LOOK_S)
            self._some.clear()  # before the look: what begins after it sets it again
            if self._running:
                self._some.set()
            with self._lock:
                for thread, running in [*self._running.items()]:
                    if time.clock_gettime(running.clock) > running.until_s:
                        self._end_turn(thread)

    def _end_turn(self, thread: int) -> None:
        now = time.monotonic()
        if now - self._raised.get(thread, -AGAIN_S) >= AGAIN_S:
            self._raised[thread] = now
            _raise_in(thread, _TurnTooLong)


WATCH = TurnWatch()


def time_limited(kind: Kind, limit_s: float, *, watch: TurnWatch = WATCH) -> Kind:
    """Return the kind with a limit on the time of each of its functions."""
    return with_functions(
        kind, lambda function: watch.timed(function, kind=kind.name, limit_s=limit_s)
    )


def _raise_in(thread: int, error: type[BaseException]) -> None:
    """Let this exception be raised in a thread soon."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(error))
