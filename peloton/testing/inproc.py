"""The executor's workers in a cluster of a test: calls run as its tasks, in virtual time.

    with PelotonExecutor(backend=InProcessWorkers(cluster)) as executor:
        assert executor.submit(pow, 2, 10).result() == 1024

Workers are tasks of jobs in the cluster, which wait for pools and hosts as any; one takes calls as
long as there are some, with the very objects of the test, and ends. A thread lets virtual time pass
while calls are not finished, so whoever waits for a future needs to do nothing else; how far time
goes meanwhile is not the same in each run.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from peloton.sdk.errors import CanNeverRun, Unsupported
from peloton.sdk.executor.backend import Packer
from peloton.sdk.executor.calls import CallQueue, ExecutorCall
from peloton.sdk.executor.futures import CallPlace, PelotonFuture, WorkerId
from peloton.sdk.executor.local import LocalWork, run
from peloton.testing.behaviour import Attempt, calls
from peloton.testing.cluster import Cluster
from peloton.testing.jobs import JobHandle, JobShape

SLICE_S = 1.0
"""Virtual seconds between two looks at what is wanted."""
PATIENCE_S = 3600.0
"""After so many virtual seconds in which no call was finished those that wait fail."""
WORKER: JobShape = {"name": "executor", "cpu": 1.0}


class InProcessWorkers:
    """At most `most` workers at a time, each a task of this shape."""

    def __init__(self, cluster: Cluster, most: int = 4, *, shape: JobShape | None = None) -> None:
        self._cluster, self._most = cluster, most
        self._shape: JobShape = WORKER | (shape or {})
        self._calls = CallQueue()
        self._jobs: list[JobHandle] = []
        self._live = self._finished = 0
        self._news = threading.Condition()
        self._is_over = False
        self._thread = threading.Thread(target=self._run, name="inproc", daemon=True)

    def open(self, calls: CallQueue) -> tuple[PelotonFuture[Any], ...]:
        self._calls = calls
        self._thread.start()
        return ()

    def packer(self, function: Callable[..., Any]) -> Packer:
        return lambda args, kwargs: LocalWork(function, args, kwargs)

    def schedule(self, calls: Sequence[ExecutorCall]) -> None:
        # The cluster is left to the thread: who schedules may be a callback of a call in it.
        self._calls.add(calls)
        with self._news:
            self._news.notify_all()

    def why(self, future: PelotonFuture[Any]) -> tuple[str, ...]:
        if future.done():
            return ("the call has ended",)
        if not self._jobs:
            return ("no worker has begun yet",)
        return tuple(self._jobs[-1].why().splitlines())

    def logs(self, future: PelotonFuture[Any], filename: str) -> str:
        raise Unsupported("a call in a cluster of a test prints to where the test prints")

    def close(self, *, wait: bool) -> None:
        with self._news:
            self._is_over = True
            self._news.notify_all()
        if wait and threading.current_thread() is not self._thread:
            self._thread.join()

    # ---- the thread ----

    def _run(self) -> None:
        while self._has_work():
            seen, begun = self._finished, self._cluster.now
            while not self._calls.wait_finished(0):
                self._begin_workers()
                self._cluster.inside.time.reaches(self._is_idle, SLICE_S)
                if self._finished != seen:
                    seen, begun = self._finished, self._cluster.now
                elif self._cluster.now - begun > PATIENCE_S:
                    last = self._jobs[-1] if self._jobs else None
                    text = last.why() if last is not None else "no worker began"
                    codes = [one.code for one in last.reasons()] if last is not None else []
                    self._calls.fail(CanNeverRun(text, reasons=codes))

    def _has_work(self) -> bool:
        """Wait for calls; return False once the executor is shut down and none is left."""
        with self._news:
            while self._calls.wait_finished(0):
                if self._is_over:
                    return False
                self._news.wait()
        return True

    def _is_idle(self) -> bool:
        return self._calls.wait_finished(0)

    def _begin_workers(self) -> None:
        missing = self._calls.missing(self._live, most=self._most)
        if missing:
            self._live += missing
            shape = self._shape | JobShape(instances=missing)
            self._jobs.append(self._cluster.submit(does=calls(self._work), **shape))

    def _work(self, attempt: Attempt) -> None:
        """Take calls as long as there are some, as one worker."""
        worker = WorkerId(attempt.job, attempt.instance, str(attempt.number))
        while taken := self._calls.take(1, wait_s=0.0):
            (call,) = taken
            call.future.place = CallPlace(worker)  # type: ignore[attr-defined]
            run(call)
            self._calls.finished(taken)
            self._finished += 1
        self._live -= 1
