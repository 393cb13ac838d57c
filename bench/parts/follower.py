"""Counts what the change feed says of tasks: when each started, and how often its run ended.

Turns events into bitmaps of instances by job, on a thread of its own. It must not ask for anything
else: what it has missed is a gap, which it counts, and then only lists of tasks can be checked.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import grpc

from peloton.ops.v1 import ops_pb2, ops_pb2_grpc

BEGIN_S_MAX = 30.0
STARTED, ENDED = "TaskStarted", "RunEnded"


class Start(NamedTuple):
    """So many tasks of a job started at this time, by the daemon's clock."""

    job: str
    at_s: float
    count: int


class TaskTally:
    """Which tasks have started and ended, as bitmaps of instances by job."""

    def __init__(self) -> None:
        self.starts: list[Start] = []
        self.last_end_s = 0.0
        self.again: list[str] = []  # jobs with a task that started or ended a second time
        self.totals = {STARTED: 0, ENDED: 0}
        self._started: dict[str, int] = defaultdict(int)
        self._ended: dict[str, int] = defaultdict(int)

    def started(self, job: str) -> int:
        """How many tasks of a job have started."""
        return self._started[job].bit_count()

    def ended(self, job: str) -> int:
        """How many tasks of a job have ended."""
        return self._ended[job].bit_count()

    def note(self, event: Any) -> None:
        """Count what an event says."""
        started, ended = STARTED in event.facts, ENDED in event.facts
        if not started and not ended:
            return
        job, members = members_of(event)
        # A run may end before its host has said that it started.
        fresh = members & ~self._started[job]
        if fresh:
            self._started[job] |= fresh
            self.starts.append(Start(job, event.at, fresh.bit_count()))
            self.totals[STARTED] += fresh.bit_count()
        if (started and fresh != members) or (ended and self._ended[job] & members):
            self.again.append(job)
        if ended:
            self.totals[ENDED] += (members & ~self._ended[job]).bit_count()
            self._ended[job] |= members
            self.last_end_s = max(self.last_end_s, event.at)

    def check(self) -> None:
        """That no task started or ended twice. Ends the benchmark if one did."""
        if self.again:
            again = sorted(dict.fromkeys(self.again))
            raise SystemExit(f"the change feed: started or ended twice: {again}")


class Tally(Protocol):
    """What counts events: each of `totals` only rises."""

    totals: dict[str, int]

    def note(self, event: Any) -> None:
        """Count what an event says."""


AnyTally = TypeVar("AnyTally", bound=Tally)


class Follower(Generic[AnyTally]):
    """One stream of all tasks' transitions, from construction to `close`."""

    def __init__(self, channel: grpc.Channel, tally: AnyTally) -> None:
        self.tally = tally
        self.gaps = 0
        self.failure = ""
        self._changed = threading.Condition()
        self._begun = threading.Event()
        request = ops_pb2.WatchRequest(kinds=["task"])
        self._stream = ops_pb2_grpc.OpsStub(channel).Watch(request)
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()
        if not self._begun.wait(BEGIN_S_MAX):
            raise SystemExit(f"the change feed did not begin: {self.failure}")

    def wait_started(self, tasks: int, limit_s: float) -> bool:
        """Until so many have started since the beginning, whether or not they have ended.

        Returns whether that is so: after a gap nobody can know.
        """
        return self._wait(STARTED, tasks, limit_s=limit_s)

    def wait_ended(self, tasks: int, limit_s: float) -> bool:
        """Until so many have ended since the beginning; the same."""
        return self._wait(ENDED, tasks, limit_s=limit_s)

    def close(self) -> None:
        """End the stream."""
        self._stream.cancel()
        self._thread.join()

    def _wait(self, what: str, tasks: int, *, limit_s: float) -> bool:
        late = time.monotonic() + limit_s
        with self._changed:
            while self.tally.totals[what] < tasks:
                if self.failure:
                    raise SystemExit(f"the change feed: {self.failure}")
                if self.gaps:
                    return False
                if not self._changed.wait(late - time.monotonic()):
                    found = self.tally.totals[what]
                    raise SystemExit(f"{what}: {found} of {tasks} tasks within {limit_s:g} s")
        return True

    def _read(self) -> None:
        try:
            for message in self._stream:
                with self._changed:
                    self.gaps += len(message.gaps)
                    for event in message.events:
                        self.tally.note(event)
                    self._changed.notify_all()
                self._begun.set()
        except grpc.RpcError as error:
            with self._changed:
                self.failure = str(error)
                self._changed.notify_all()


def members_of(event: Any) -> tuple[str, int]:
    """The job of an event of tasks, and the instances as bits."""
    _, job, *number = event.key.split("/")
    members = 1 << int(number[0]) if number else 0
    for each in event.instances:
        members |= ((1 << (each.last - each.first + 1)) - 1) << each.first
    return job, members
