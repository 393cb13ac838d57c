"""The backend `local`: worker threads of this process, which take and return the very objects.

Nothing is pickled, so it needs no extra. What a call prints goes to where this process prints.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from peloton.sdk.errors import Unsupported
from peloton.sdk.executor.backend import Packer
from peloton.sdk.executor.calls import CallQueue, ExecutorCall
from peloton.sdk.executor.futures import PelotonFuture
from peloton.sdk.executor.outcome import call_outcome


class LocalWork(NamedTuple):
    """A function and its arguments."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class LocalThreads:
    """Threads that live as long as the executor, or until the process ends."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._threads: list[threading.Thread] = []
        self._calls = CallQueue()

    def open(self, calls: CallQueue) -> tuple[PelotonFuture[Any], ...]:
        self._calls = calls
        return ()

    def packer(self, function: Callable[..., Any]) -> Packer:
        return lambda args, kwargs: LocalWork(function, args, kwargs)

    def schedule(self, calls: Sequence[ExecutorCall]) -> None:
        self._calls.add(calls)
        for _ in range(self._calls.missing(len(self._threads), most=self._most)):
            # No reference to the executor: one that is forgotten ends its threads.
            name = f"peloton-local-{len(self._threads)}"
            thread = threading.Thread(target=run_calls, args=(self._calls,), name=name, daemon=True)
            thread.start()
            self._threads.append(thread)

    def why(self, future: PelotonFuture[Any]) -> tuple[str, ...]:
        if future.done():
            return ("the call has ended",)
        if future.running():
            return ("the call runs on a thread of this process",)
        return (f"waits for one of {len(self._threads)} threads of this process",)

    def logs(self, future: PelotonFuture[Any], filename: str) -> str:
        raise Unsupported("a call on a thread prints to where this process prints: it has no logs")

    def close(self, *, wait: bool) -> None:
        while wait and self._threads:
            self._threads.pop().join()


def run_calls(calls: CallQueue) -> None:
    """Run calls in this thread until there will be no more."""
    while (taken := calls.take(1)) is not None:
        call = taken.pop()
        run(call)
        calls.finished([call])
        del call  # while it waits for the next one, nothing of this one is kept


def run(call: ExecutorCall) -> None:
    """Run a call and settle its future."""
    work, call.work = call.work, None
    found = call_outcome(work.function, work.args, kwargs=work.kwargs)
    del work
    if found.exception is not None:
        call.future.set_exception(found.exception)
    else:
        call.future.set_result(found.result)
