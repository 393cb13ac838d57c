"""The executor: the standard library's interface over workers that take many calls each."""

from __future__ import annotations

import atexit
import contextlib
import functools
import itertools
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, Unpack

from peloton.sdk.errors import BadSpec, Unsupported
from peloton.sdk.executor.backend import CallBackend, Packer
from peloton.sdk.executor.calls import CallQueue, ExecutorCall, ParallelLimit
from peloton.sdk.executor.futures import PelotonFuture
from peloton.sdk.executor.local import LocalThreads
from peloton.sdk.executor.needs import NeedsWorkers
from peloton.sdk.executor.options import WORKERS_MAX, WorkerOptions, WorkerSettings

if TYPE_CHECKING:
    from peloton.sdk.client import Client

P = ParamSpec("P")
T = TypeVar("T")

Seconds = float | None
BACKENDS = ("remote", "local", "inproc")


class PelotonExecutor(Executor):
    """Runs functions on workers that are instances of jobs, or on threads of this process.

    `backend` is `remote`, a cluster reached by `client` (by default that of the environment),
    `local`, threads of this process, or an object (`backend.CallBackend`). There are at most
    `max_workers` at a time; they begin when there are calls for them. An executor with a `name`
    writes down its calls: after its process has ended another one with that name finds them in
    `resumed`. `options` are those of `WorkerSettings`; threads need none of them.

    Raises BadSpec if an option is wrong, Unsupported if the backend is not there.
    """

    def __init__(
        self,
        max_workers: int | None = None,
        *,
        backend: str | CallBackend = "remote",
        client: Client | None = None,
        name: str = "",
        **options: Unpack[WorkerOptions],
    ) -> None:
        if max_workers is None:
            max_workers = min(32, (os.cpu_count() or 1) + 4)
        if max_workers <= 0:
            raise ValueError("max_workers must be greater than 0")
        if max_workers > WORKERS_MAX:
            raise ValueError(f"max_workers must be at most {WORKERS_MAX}")
        self.settings = WorkerSettings.of(options)
        self.name = name
        self.max_workers = max_workers
        self._backend = backend_of(self, backend, client=client)
        self._calls = CallQueue()
        self._lock = threading.Lock()
        self._batch = threading.local()
        self._closed = False
        self.resumed = self._backend.open(self._calls)
        """The futures of the calls that the process before had submitted, in their order."""
        self._numbers = itertools.count(max((one.number + 1 for one in self.resumed), default=0))
        _open.add(self)
        weakref.finalize(self, _forget, self._calls, self._backend).atexit = False

    # The interface of the standard library.

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> PelotonFuture[T]:
        """Schedule one call; return its future.

        Arguments are taken as they are now. Raises NotSendable or TooLarge if they cannot be sent.
        """
        self._refuse_closed()
        work = self._packer(fn)(args, kwargs)
        call = self._call(work)
        self._schedule([call])
        return call.future  # type: ignore[return-value]

    def map(
        self,
        fn: Callable[..., T],
        *iterables: Iterable[Any],
        timeout: Seconds = None,
        chunksize: int = 1,
    ) -> Iterator[T]:
        """Return the results of many calls, in order; as in the standard library.

        Short calls are sent many at a time in any case; with a `chunksize`, so many of them are one
        call with one future, which costs less still.
        """
        if chunksize < 1:
            raise ValueError("chunksize must be >= 1.")
        until = None if timeout is None else time.monotonic() + timeout
        if chunksize == 1:
            return results_of(self.map_array(fn, *iterables), until)
        rows = zip(*iterables, strict=False)
        chunks = iter(lambda: [*itertools.islice(rows, chunksize)], [])
        futures = self.map_array(self._chunked(fn), chunks)
        found: Iterator[list[T]] = results_of(futures, until)
        return itertools.chain.from_iterable(found)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept no more calls; workers end once all are finished. As in the standard library."""
        with self._lock:
            self._closed = True
        for call in self._calls.close(cancel=cancel_futures):
            call.future.cancel()
        self._backend.close(wait=wait)
        if wait:
            _open.discard(self)  # else the interpreter waits for it at its exit

    # Beyond it.

    @property
    def is_closed(self) -> bool:
        """Return whether `shutdown` was called."""
        return self._closed

    def map_array(
        self,
        fn: Callable[..., T],
        *iterables: Iterable[Any],
        max_parallel: int | None = None,
    ) -> list[PelotonFuture[T]]:
        """Schedule one call for each set of arguments; return the futures, in order.

        At most `max_parallel` of them are with workers at a time.
        """
        self._refuse_closed()
        if max_parallel is not None and max_parallel < 1:
            raise BadSpec(f"must be at least 1, got {max_parallel}", field="max_parallel")
        limit = None if max_parallel is None else ParallelLimit(max_parallel)
        pack = self._packer(fn)
        calls = [self._call(pack(args, {}), limit) for args in zip(*iterables, strict=False)]
        self._schedule(calls)
        return [call.future for call in calls]  # type: ignore[misc]

    @contextlib.contextmanager
    def batch(self) -> Iterator[None]:
        """Hold the calls that this thread submits inside, and schedule them together at the end,
        so that as many workers as they need begin as one job.

        If the block raises, they are cancelled. Their futures are not done before the end of it.
        """
        if getattr(self._batch, "calls", None) is not None:
            raise RuntimeError("this thread is inside of a batch of this executor already")
        held: list[ExecutorCall] = []
        self._batch.calls = held
        try:
            yield
        except BaseException:
            for call in held:
                call.future.cancel()
            raise
        finally:
            self._batch.calls = None
        self._schedule(held)

    # Inside.

    def _refuse_closed(self) -> None:
        if self._closed:
            raise RuntimeError("cannot schedule new futures after shutdown")
        if _at_exit.is_set():
            raise RuntimeError("cannot schedule new futures after interpreter shutdown")

    def _packer(self, fn: Callable[..., Any]) -> Packer:
        if isinstance(fn, NeedsWorkers):
            fn.needs.refuse_less(self.settings)
        return self._backend.packer(fn)

    def _chunked(self, fn: Callable[..., T]) -> Callable[[Iterable[Any]], list[T]]:
        self._packer(fn)  # refused here, if it is
        return functools.partial(called_with_each, fn)

    def _call(self, work: Any, limit: ParallelLimit | None = None) -> ExecutorCall:
        number = next(self._numbers)
        future: PelotonFuture[Any] = PelotonFuture(number, self._backend)
        return ExecutorCall(number, work, future=future, limit=limit)

    def _schedule(self, calls: list[ExecutorCall]) -> None:
        held: list[ExecutorCall] | None = getattr(self._batch, "calls", None)
        if held is not None:
            held.extend(calls)
            return
        with self._lock:
            self._refuse_closed()
            self._backend.schedule(calls)


def backend_of(
    executor: PelotonExecutor, wanted: str | CallBackend, *, client: Client | None
) -> CallBackend:
    """Return the backend of this name, or the object itself. Raises BadSpec, Unsupported."""
    if not isinstance(wanted, str):
        return wanted
    if wanted not in BACKENDS:
        raise BadSpec(f"there is {', '.join(BACKENDS)}, got {wanted!r}", field="backend")
    if wanted == "inproc":
        text = "backend inproc: pass peloton.testing.inproc.InProcessWorkers(cluster) of a test"
        raise Unsupported(text, kind="UNIMPLEMENTED")
    if wanted == "local":
        if executor.name:
            text = "threads end with their process, so there is nothing to resume: leave it out"
            raise BadSpec(text, field="name")
        return LocalThreads(executor.max_workers)
    from peloton.sdk.executor.cluster import ClusterWorkers

    return ClusterWorkers(
        executor.settings, most=executor.max_workers, client=client, name=executor.name
    )


def called_with_each(fn: Callable[..., T], rows: Iterable[Any]) -> list[T]:
    """Return the results of a function for several sets of arguments."""
    return [fn(*row) for row in rows]


def results_of(futures: list[PelotonFuture[T]], until: float | None) -> Iterator[T]:
    """Yield the results in order, and cancel those that nobody will ask for."""
    futures.reverse()
    try:
        while futures:
            # Popped before it is yielded: nobody here holds a result that was consumed.
            yield _result_of(futures.pop(), until)
    finally:
        for future in futures:
            future.cancel()


def _result_of(future: PelotonFuture[T], until: float | None) -> T:
    """Return the result, or cancel what is not there in time."""
    try:
        return future.result(None if until is None else until - time.monotonic())
    finally:
        future.cancel()
        del future  # nor does the traceback of an exception hold it


def _forget(calls: CallQueue, backend: CallBackend) -> None:
    """Let the workers of an executor that nobody has any more finish what there is, and end."""
    calls.close()
    backend.close(wait=False)


_open: weakref.WeakSet[PelotonExecutor] = weakref.WeakSet()
_at_exit = threading.Event()


def _finish_all() -> None:
    """Finish all calls before the interpreter goes, as the standard library's executors do."""
    _at_exit.set()
    for executor in list(_open):
        executor.shutdown(wait=True)


atexit.register(_finish_all)
