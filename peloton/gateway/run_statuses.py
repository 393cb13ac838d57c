"""What became of runs, as one stream for all who read it: starts and ends, with offsets.

Turns the change feeds of the shards of hosts into numbered statuses. It keeps the newest
`STATUSES_MAX` in memory, from the first call that asks for them until `IDLE_S` after the last: so a
stream has an id, and where anything may have been missed it begins anew under another one, as it
did in the original when the host manager changed. Then a reader has to read the tasks. It must not
show a status that is not durable, nor leave one out unnoticed.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import NamedTuple

from peloton.actors.host import facts as f
from peloton.actors.host.foreign_names import shown_run
from peloton.actors.task.messages import End, RunOutcome, pod_id
from peloton.gateway.feed import ClusterFeed, FeedMark, OutOfReach
from peloton.gateway.guard import CallEnded
from peloton.gateway.texts import client_name
from peloton.runtime.core.changes import Change
from peloton.runtime.core.inspection import FollowChanges
from peloton.runtime.vocabulary import Key

STATUSES_MAX = 100_000
IDLE_S = 60.0
"""A stream that nobody has read for so long ends; above `followers.FOLLOW_S`, after which a quiet
shard answers."""
STATES = {
    End.SUCCEEDED: "SUCCEEDED", End.FAILED: "FAILED", End.KILLED: "KILLED", End.LOST: "LOST",
}  # fmt: skip
_LOSES_RUNS = (f.HostLost, f.HostRemoved)


class RunStatus(NamedTuple):
    """A run began or ended. `at` in seconds since the epoch."""

    run: str
    host: str
    state: str
    at: float
    outcome: RunOutcome | None = None


class NumberedStatus(NamedTuple):
    """A status and its offset in the stream."""

    offset: int
    status: RunStatus


class StatusBuffer:
    """One stream: the newest statuses, and how far its clients have read them."""

    def __init__(self, clients: tuple[str, ...]) -> None:
        self.stream_id = str(uuid.uuid4())
        self.first = 0  # the offset of the oldest that is kept
        self.purged = dict.fromkeys(clients, 0)
        self._kept: deque[RunStatus] = deque()
        self.readers: list[Callable[[NumberedStatus | None], None]] = []
        """Told of each status at once, and with None that the stream has ended."""

    @property
    def end(self) -> int:
        """The offset of the next status."""
        return self.first + len(self._kept)

    def add(self, status: RunStatus) -> None:
        """The next status; beyond the limit the oldest one is dropped."""
        numbered = NumberedStatus(self.end, status)
        self._kept.append(status)
        if len(self._kept) > STATUSES_MAX:
            self._kept.popleft()
            self.first += 1
        for tell in [*self.readers]:
            tell(numbered)

    def read(self, begin: int, *, limit: int) -> list[NumberedStatus]:
        """Those from an offset on, which must be kept or the next one."""
        start = begin - self.first
        some = islice(self._kept, start, start + limit)
        return [NumberedStatus(begin + at, status) for at, status in enumerate(some)]

    def newest(self, count: int) -> list[NumberedStatus]:
        """The last ones, the oldest of them first."""
        return self.read(max(self.first, self.end - count), limit=count)

    def purge(self, client: str, offset: int) -> None:
        """A client needs nothing before this offset; what none needs is dropped."""
        self.purged[client] = max(self.purged[client], min(offset, self.end))
        least = min(self.purged.values())
        while self.first < least and self._kept:
            self._kept.popleft()
            self.first += 1


class RunStatuses:
    """The stream of one server."""

    def __init__(self, feed: ClusterFeed, clients: tuple[str, ...]) -> None:
        self._feed, self._clients = feed, clients
        self._buffer: StatusBuffer | None = None
        self._beginning: asyncio.Task[StatusBuffer] | None = None
        self._readers: list[asyncio.Task[None]] = []
        self._read_s = 0.0

    async def stream(self) -> StatusBuffer:
        """The present stream; the first caller begins it. Raises OutOfReach."""
        self._read_s = asyncio.get_running_loop().time()
        if self._buffer is not None:
            return self._buffer
        if self._beginning is None:
            self._beginning = asyncio.create_task(self._begin())
            self._beginning.add_done_callback(self._begun)
        # All who come meanwhile wait for the one beginning, and none ends it by leaving.
        return await asyncio.shield(self._beginning)

    def _begun(self, beginning: asyncio.Task[StatusBuffer]) -> None:
        self._beginning = None
        if not beginning.cancelled():
            beginning.exception()  # whoever waits gets it; nobody may

    async def _begin(self) -> StatusBuffer:
        shards = self._feed.cluster.shards_of("host")
        marks = await asyncio.gather(*map(self._feed.mark, shards))
        found = self._buffer = StatusBuffer(self._clients)
        self._readers = [
            asyncio.create_task(self._follow(shard, mark, into=found))
            for shard, mark in zip(shards, marks, strict=True)
        ]
        return found

    async def _follow(self, shard: Key, mark: FeedMark, *, into: StatusBuffer) -> None:
        """Add what happens in a shard, until the stream ends."""
        loop, query = asyncio.get_running_loop(), FollowChanges(kinds=("host",))
        try:
            async for changes in self._feed.behind(shard, mark, query=query):
                for change in changes:
                    await asyncio.sleep(0)  # readers take what a large page brings, bit by bit
                    if any(isinstance(fact, _LOSES_RUNS) for fact in change.line.facts):
                        return  # which runs are lost is not said: readers read the tasks
                    for status in statuses_of(change):
                        into.add(status)
                if not into.readers and loop.time() - self._read_s >= IDLE_S:
                    return
        except (CallEnded, OutOfReach):
            return
        finally:
            self._end(into)

    def _end(self, stream: StatusBuffer) -> None:
        """One shard cannot be followed any more, so the stream has a hole: it ends."""
        if self._buffer is stream:
            self._buffer = None
            for reader in self._readers:
                reader.cancel()
            self._readers = []
            for tell in [*stream.readers]:
                tell(None)


def statuses_of(change: Change) -> Iterator[RunStatus]:
    """The starts and ends of runs in a change of a host."""
    line = change.line
    host = client_name(line.key)
    for fact in line.facts:
        if isinstance(fact, f.ProcessesStarted):
            for run in fact.runs:
                yield RunStatus(shown_run(run), host, "RUNNING", line.at)
        elif isinstance(fact, f.SetStarted):
            for member in fact.members:
                run = pod_id(fact.crowd, member, run=fact.run)
                yield RunStatus(run, host, "RUNNING", line.at)
        elif isinstance(fact, f.ProcessesEnded):
            for end in fact.ends:
                at = line.at if end.at is None else end.at
                run, state = shown_run(end.run), STATES[end.outcome.end]
                yield RunStatus(run, host, state, at, end.outcome)
        elif isinstance(fact, f.SetEnded):
            at, state = line.at if fact.at is None else fact.at, STATES[fact.outcome.end]
            for member in fact.members:
                run = pod_id(fact.crowd, member, run=fact.run)
                yield RunStatus(run, host, state, at, fact.outcome)
