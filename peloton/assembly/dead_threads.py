"""Threads of this process that ended by an unexpected error, for health.

Turns uncaught exceptions of threads into lines of the log and remarks of health, because nobody
else may notice that a thread is gone. There is one for a process, as Python's own hook is. A thread
is not started again: its state is not known.
"""

from __future__ import annotations

import threading

import structlog

from peloton.runtime.core.health import NotReadyReason

THREADS = "threads"
NAMED_MAX = 20
"""So many are named; of more, the count goes on."""

log = structlog.get_logger("assembly")


class DeadThreads:
    """The threads that have ended so since `watch`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._texts: list[str] = []
        self._count = 0

    def watch(self) -> None:
        """Watch all threads of this process from now on."""
        threading.excepthook = self.ended

    def ended(self, how: threading.ExceptHookArgs) -> None:
        """Record a thread that has ended by an exception."""
        if how.exc_type is SystemExit:
            return
        name = how.thread.name if how.thread is not None else "?"
        with self._lock:  # first: health is to know of it also where the log cannot be written
            self._count += 1
            if len(self._texts) < NAMED_MAX:
                self._texts.append(f"{name} ended: {how.exc_type.__name__}")
        log.error("a thread ended", thread=name, exc_info=how.exc_value)

    def notes(self) -> tuple[NotReadyReason, ...]:
        """Return the remarks of health: the threads' work is not done any more, until a restart."""
        with self._lock:
            more = self._count - len(self._texts)
            texts = [*self._texts, *([f"{more} more"] if more else [])]
        text = f"{'; '.join(texts)}; see the log, and restart this daemon"
        return (NotReadyReason(THREADS, text),) if texts else ()


DEAD_THREADS = DeadThreads()
"""Of this process."""
