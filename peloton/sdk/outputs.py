"""What instances of a job have printed: read many at a time, and held until it was read.

Short files come with the answer; `TaskCalls` fetches others. Only one answer is kept in memory.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from peloton.ops.v1 import outputs_pb2 as wire
from peloton.ops.v1 import outputs_pb2_grpc
from peloton.sdk.calls import Blocking, Calls, M, call
from peloton.sdk.errors import NotFound, PelotonError, Unsupported
from peloton.sdk.rpc import READ, RpcName

HOLD_S, RENEW_S, LAST_CALL_S = 60.0, 15.0, 1.0
"""For how long output is held, and how often that is said again."""
Spans = Sequence[tuple[int, int]]
"""Pairs of a first and a last instance."""


class OutputsWanted(NamedTuple):
    """The instances whose output is wanted: `first` to `last`, except those in `had`.

    `running`: also of those that have not ended. `in_order`: nothing behind the first that has not.
    """

    first: int
    last: int
    had: Spans = ()
    names: tuple[str, ...] = ()
    running: bool = False
    in_order: bool = False


class OutputCalls(Calls[M]):
    """The calls of peloton.ops.v1.Outputs."""

    @call
    async def read(self, job: str, wanted: OutputsWanted) -> wire.ReadOutputsResponse:
        """Return the output of instances, as much as one answer holds: go on at `next`."""
        request = wire.ReadOutputsRequest(
            job_id=job,
            first=wanted.first,
            last=wanted.last,
            had=[wire.Instances(first=first, last=last) for first, last in wanted.had],
            names=wanted.names,
            running=wanted.running,
            in_order=wanted.in_order,
        )
        rpc = RpcName("jobmgr", outputs_pb2_grpc.OutputsStub, "ReadOutputs")
        found: wire.ReadOutputsResponse = await self._wire.call(rpc, request, how=READ)
        return found

    @call
    async def hold(self, job: str, for_s: float = HOLD_S) -> float:
        """Keep what the runs of a job leave for so many seconds, 300 at most.

        Returns for how many it is kept: 0 if that cannot be done.
        """
        request = wire.HoldOutputsRequest(job_id=job, for_s=for_s)
        rpc = RpcName("hostmgr", outputs_pb2_grpc.OutputsStub, "HoldOutputs")
        found: wire.HoldOutputsResponse = await self._wire.call(rpc, request, how=READ)
        return found.for_s

    @contextmanager
    def held(self: OutputCalls[Blocking], job: str) -> Iterator[None]:
        """Keep what the runs of a job leave until the context ends, and a minute longer.

        A thread says so every `RENEW_S`; one call does for all instances. If it fails, nothing is
        raised: readers are told what is gone then. It is said again even if nothing could be held:
        a daemon that has just begun may not have its keeper yet. A program that awaits calls `hold`
        in a task of its own.
        """
        if self._awaited is None:
            raise TypeError("held() is for a Client: with an AsyncClient, call hold() in a task")
        over = threading.Event()
        thread = threading.Thread(
            target=self._renew, args=(job, over), name=f"hold-{job}", daemon=True
        )
        worthwhile = self._held(job)
        if worthwhile:
            thread.start()
        try:
            yield
        finally:
            over.set()
            if worthwhile:  # a call under way ends before the client is closed
                thread.join(LAST_CALL_S)

    def _renew(self: OutputCalls[Blocking], job: str, over: threading.Event) -> None:
        while not over.wait(RENEW_S) and self._held(job):
            pass

    def _held(self: OutputCalls[Blocking], job: str) -> bool:
        """Return whether it is worthwhile to say it again."""
        try:
            self.hold(job)
        except (NotFound, Unsupported):
            return False
        except PelotonError:
            return True  # nobody answers now
        return True


def spans_of(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Return ascending numbers as spans."""
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and found[-1][1] + 1 == number:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return found
