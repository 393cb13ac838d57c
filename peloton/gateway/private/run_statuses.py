"""Starts and ends of runs, as one stream with offsets for all its readers.

The change feeds of the shards of hosts become numbered statuses. The newest `STATUSES_MAX` are kept
in memory, from the first call that asks for them until `feed.IDLE_S` after the last: so a stream
has an id, and if anything may have been missed it begins anew under another one, as it did in the
original when the host manager changed. Then a reader has to read the tasks. Only durable statuses
are shown.
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import NamedTuple

from peloton.actors.host import facts as f
from peloton.actors.host.holds.foreign_names import shown_run
from peloton.actors.task.messages import End, RunOutcome, pod_id
from peloton.gateway.cluster.feed import ClusterFeed, SharedReading
from peloton.gateway.translate.texts import client_name
from peloton.runtime.core.reading.changes import Change
from peloton.runtime.core.reading.inspection import FollowChanges
from peloton.runtime.vocabulary import Key

STATUSES_MAX = 100_000
STATES = {
    End.SUCCEEDED: "SUCCEEDED", End.FAILED: "FAILED", End.KILLED: "KILLED", End.LOST: "LOST",
}  # fmt: skip
_LOSES_RUNS = (f.HostLost, f.HostRemoved)


class RunStatus(NamedTuple):
    """The start or the end of a run. `at` in seconds since the epoch."""

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
        self._over = False

    def listen(self, tell: Callable[[NumberedStatus | None], None]) -> None:
        """Call `tell` with each status from now on; with None if the stream has ended."""
        self.readers.append(tell)
        if self._over:
            tell(None)

    @property
    def end(self) -> int:
        """Return the offset of the next status."""
        return self.first + len(self._kept)

    def add(self, status: RunStatus) -> None:
        """Add the next status; beyond the limit the oldest one is dropped."""
        numbered = NumberedStatus(self.end, status)
        self._kept.append(status)
        if len(self._kept) > STATUSES_MAX:
            self._kept.popleft()
            self.first += 1
        for tell in [*self.readers]:
            tell(numbered)

    def read(self, begin: int, *, limit: int) -> list[NumberedStatus]:
        """Return the statuses from an offset on, which must be kept or the next one."""
        start = begin - self.first
        some = islice(self._kept, start, start + limit)
        return [NumberedStatus(begin + at, status) for at, status in enumerate(some)]

    def newest(self, count: int) -> list[NumberedStatus]:
        """Return the last statuses, the oldest of them first."""
        return self.read(max(self.first, self.end - count), limit=count)

    @property
    def in_use(self) -> bool:
        """Return whether there are listeners; readers with offsets ask for the stream each time."""
        return bool(self.readers)

    def note(self, change: Change) -> bool:
        """Add starts and ends of runs.

        Returns False if runs were lost with a host: which ones is not said, so readers read the
        tasks.
        """
        if any(isinstance(fact, _LOSES_RUNS) for fact in change.line.facts):
            return False
        for status in statuses_of(change):
            self.add(status)
        return True

    def miss(self) -> None:
        """End the stream."""
        self._over = True
        for tell in [*self.readers]:
            tell(None)

    def purge(self, client: str, offset: int) -> None:
        """Record that a client needs nothing before this offset; what no client needs is
        dropped."""
        self.purged[client] = max(self.purged[client], min(offset, self.end))
        least = min(self.purged.values())
        while self.first < least and self._kept:
            self._kept.popleft()
            self.first += 1


def status_stream(feed: ClusterFeed, clients: tuple[str, ...]) -> SharedReading[StatusBuffer]:
    """Return the stream of one server."""

    async def begin(shards: Iterable[Key]) -> StatusBuffer:
        return StatusBuffer(clients)

    return SharedReading(feed, "host", query=FollowChanges(kinds=("host",)), begin=begin)


def statuses_of(change: Change) -> Iterator[RunStatus]:
    """Yield the starts and ends of runs in a change of a host."""
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
