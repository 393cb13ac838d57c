"""The future of a call: one of the standard library, and where in the cluster the call is."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any, NamedTuple, Protocol, TypeVar

T = TypeVar("T")


class WorkerId(NamedTuple):
    """A worker: a run of an instance of a job. A thread of this process has an empty job."""

    job: str
    instance: int
    run: str = ""


class CallPlace(NamedTuple):
    """The worker that has, or had, a call, and what its output was: bytes `first` to `last` of
    stdout and of stderr. Empty spans: none. None: not known, as while it runs."""

    worker: WorkerId
    stdout: tuple[int, int] | None = None
    stderr: tuple[int, int] | None = None


class CallTeller(Protocol):
    """Who knows about calls: their backend."""

    def why(self, future: PelotonFuture[Any]) -> tuple[str, ...]:
        """Return what is known of the state of a call."""

    def logs(self, future: PelotonFuture[Any], filename: str) -> str:
        """Return what a call has printed on `stdout` or `stderr`."""


class PelotonFuture(Future[T]):
    """The future of one call. `number` counts the calls of its executor from 0 on."""

    def __init__(self, number: int, backend: CallTeller) -> None:
        super().__init__()
        self.number = number
        self.place: CallPlace | None = None
        self._backend = backend

    @property
    def job(self) -> str:
        """The id of the job whose worker has, or had, the call; empty while none has it, and on
        threads of this process."""
        return self.place.worker.job if self.place is not None else ""

    def why(self) -> tuple[str, ...]:
        """Return why the call is in the state it is in: what the executor knows, and then what the
        cluster says of its job or, while it waits, of the newest job of workers."""
        return self._backend.why(self)

    def logs(self, filename: str = "stdout") -> str:
        """Return what the call has printed on `stdout` or `stderr`; of one that runs, what its
        worker has. Raises NotFound once the files are removed, Unsupported on threads."""
        return self._backend.logs(self, filename)
