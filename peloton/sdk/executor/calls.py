"""The calls of one executor: those that wait for a worker, and how many are not finished.

Workers take calls from here and report them finished, in any thread. It must not know how a worker
runs them.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from typing import Any


class ParallelLimit:
    """At most `most` calls of one array are with workers at a time; the others wait here."""

    __slots__ = ("most", "taken", "waiting")

    def __init__(self, most: int) -> None:
        self.most = most
        self.taken = 0
        self.waiting: deque[ExecutorCall] = deque()


class ExecutorCall:
    """One call; `work` is what its backend made of the function and its arguments.

    `losses` counts workers that ended while they had this call alone. `is_alone`: it shared a lost
    worker with others, so it is given to a worker without any, to find the one that is at fault.
    """

    __slots__ = ("number", "work", "future", "limit", "losses", "is_alone", "begun")

    def __init__(
        self, number: int, work: Any, *, future: Future[Any], limit: ParallelLimit | None = None
    ) -> None:
        self.number = number
        self.work = work
        self.future = future
        self.limit = limit
        self.losses = 0
        self.is_alone = False
        self.begun = False


class CallQueue:
    """The calls of one executor, first in, first out; those given back are the first again."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._ready: deque[ExecutorCall] = deque()
        self._unfinished = 0
        self._limited = 0
        self._takers = 0
        self._closed = False

    def missing(self, live: int, *, most: int) -> int:
        """Return how many workers more the calls need, of at most so many, if so many live."""
        if live >= most or self._takers > len(self._ready):
            return 0
        return max(min(most, self._unfinished - self._limited) - live, 0)

    @property
    def ready(self) -> int:
        """Return how many calls wait for a worker."""
        return len(self._ready)

    def add(self, calls: Sequence[ExecutorCall]) -> None:
        """Let workers have these calls. Raises RuntimeError once closed."""
        with self._changed:
            if self._closed:
                raise RuntimeError("cannot schedule new futures after shutdown")
            self._unfinished += len(calls)
            self._admit(calls)

    def take(
        self, most: int, *, held: int = 0, wait_s: float | None = None
    ) -> list[ExecutorCall] | None:
        """Return at most so many calls to run, for a worker that has `held` others already.

        Waits for one for `wait_s`, None as long as it takes, and returns none then. None: the
        executor is shut down and every call is finished, so the worker is to end.
        """
        until = None if wait_s is None else time.monotonic() + wait_s
        with self._changed:
            while True:
                found = self._take(most, held=held)
                if found:
                    return found
                if self._closed and not self._unfinished:
                    return None
                left_s = None if until is None else until - time.monotonic()
                if left_s is not None and left_s <= 0:
                    return []
                self._takers += 1
                try:
                    self._changed.wait(left_s)
                finally:
                    self._takers -= 1

    def finished(self, calls: Iterable[ExecutorCall]) -> None:
        """Forget calls whose futures are done."""
        with self._changed:
            for call in calls:
                self._finish(call)

    def give_back(self, calls: Sequence[ExecutorCall]) -> None:
        """Put calls that a worker had, and has not finished, before all others."""
        with self._changed:
            self._ready.extendleft(reversed(calls))
            self._changed.notify(len(calls))

    def close(self, *, cancel: bool = False) -> list[ExecutorCall]:
        """Accept no more calls; return those that waited, if they are to be cancelled.

        Those that were given back stay: their futures run, which cannot be cancelled.
        """
        with self._changed:
            self._closed = True
            dropped = self._drop(begun=False) if cancel else []
            self._changed.notify_all()
            return dropped

    def adopt(self, calls: Sequence[ExecutorCall]) -> None:
        """Count calls that workers may have already."""
        with self._changed:
            self._unfinished += len(calls)

    def fail(self, error: Exception) -> None:
        """Fail the calls that wait for a worker: there will be none."""
        with self._changed:
            dropped = self._drop(begun=True)
        for call in dropped:
            if call.begun or call.future.set_running_or_notify_cancel():
                call.future.set_exception(error)

    def wait_finished(self, timeout_s: float | None = None) -> bool:
        """Wait until no call is unfinished; return whether that is so."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._unfinished, timeout_s)

    # Under the lock.

    def _admit(self, calls: Iterable[ExecutorCall]) -> None:
        before = len(self._ready)
        for call in calls:
            limit = call.limit
            if limit is not None and limit.taken >= limit.most:
                limit.waiting.append(call)
                self._limited += 1
                continue
            if limit is not None:
                limit.taken += 1
            self._ready.append(call)
        self._changed.notify(len(self._ready) - before)

    def _take(self, most: int, *, held: int) -> list[ExecutorCall]:
        found: list[ExecutorCall] = []
        while self._ready and len(found) < most:
            call = self._ready[0]
            if call.is_alone and (held or found):
                break
            self._ready.popleft()
            if not call.begun:
                if not call.future.set_running_or_notify_cancel():
                    self._finish(call)
                    continue
                call.begun = True
            found.append(call)
            if call.is_alone:
                break
        return found

    def _finish(self, call: ExecutorCall) -> None:
        self._unfinished -= 1
        limit = call.limit
        if limit is not None:
            limit.taken -= 1
            if limit.waiting:
                self._limited -= 1
                self._admit([limit.waiting.popleft()])
        if not self._unfinished:
            self._changed.notify_all()

    def _drop(self, *, begun: bool) -> list[ExecutorCall]:
        dropped: list[ExecutorCall] = []
        kept: list[ExecutorCall] = []
        while self._ready:  # the end of one lets another of its array come
            call = self._ready.popleft()
            if call.begun and not begun:
                kept.append(call)
                continue
            dropped.append(call)
            self._finish(call)
        self._ready.extend(kept)
        return dropped
