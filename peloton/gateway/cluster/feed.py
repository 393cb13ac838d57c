"""Reads the change feeds of shards of any daemon, on the gateway's event loop.

The page after a mark is returned once there is one: the shard's owner answers when a frame is
committed (`runtime/core/reading/followers.py`), so nothing here polls. Only a query that cannot be
answered, because a shard moves or restarts, is repeated after a pause, with the same mark: so each
change is read once and in order, or a gap is marked. Nothing here may block, as all calls share the
loop.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from peloton.gateway.access.guard import CallCode, CallEnded
from peloton.gateway.cluster.cluster_client import Code, end
from peloton.gateway.server.long_calls import LongCall
from peloton.pauses import Pauses
from peloton.runtime.core.reading.changes import ALL, Change
from peloton.runtime.core.reading.inspection import ChangesPage, FollowChanges
from peloton.runtime.shells.region import Region
from peloton.runtime.vocabulary import Key, ShardDamaged, Unavailable

BEGIN_PATIENCE_S = 5.0
"""For the beginning of a stream; one that has begun waits for its shards as long as it takes."""
RETRY = Pauses(0.05, 1.0)
IDLE_S = 300.0
"""Without a reader for so long shards are followed no more; above `followers.FOLLOW_S`, after which
a quiet shard answers."""
TOKEN_LENGTH_MAX = 64 * 1024

FeedMark: TypeAlias = tuple[int, int]


class OutOfReach(Exception):
    """A shard did not answer within the patience of the caller."""


class BadResumeToken(ValueError):
    """A resume token that is malformed, or of another query."""


class ClusterFeed:
    """The feeds of one cluster."""

    def __init__(self, cluster: Region) -> None:
        self.cluster = cluster

    async def page(
        self, shard: Key, query: FollowChanges, *, patience_s: float | None
    ) -> ChangesPage:
        """Return the page after the mark, once there is one; occasionally an empty page."""
        follow = self.cluster.follow
        read = await self.answered(lambda: follow(shard, query), patience_s=patience_s)
        if not isinstance(read, ChangesPage):
            raise OutOfReach(f"{shard} did not answer with changes")
        return read

    async def mark(self, shard: Key) -> FeedMark:
        """Return the present end of a shard's feed. Raises OutOfReach."""
        return (await self.page(shard, FollowChanges(), patience_s=BEGIN_PATIENCE_S)).mark

    async def behind(
        self, shard: Key, mark: FeedMark, *, query: FollowChanges
    ) -> AsyncIterator[list[Change]]:
        """Yield the changes after a mark as they come, page by page, until some may have been
        missed."""
        while True:
            page = await self.page(shard, query.behind(mark), patience_s=None)
            if page.gap:
                return
            mark = page.mark
            yield self.cluster.changes_in(page)

    async def answered(self, ask: Callable[[], Future[Any]], *, patience_s: float | None) -> Any:
        """Return the answer; repeat the query while it is unavailable. `patience_s` None: for ever.

        A damaged shard ends the call, as in `ClusterClient.wait`: a repeat does not help.
        """
        loop = asyncio.get_running_loop()
        failures, since_s = 0, None
        while True:
            answer = await asyncio.wrap_future(ask())
            if not isinstance(answer, Unavailable):
                return answer
            if isinstance(answer, ShardDamaged):
                raise CallEnded(CallCode.DATA_LOSS, answer.text)
            since_s = loop.time() if since_s is None else since_s
            if patience_s is not None and loop.time() - since_s >= patience_s:
                raise OutOfReach(answer.text)
            # Jitter: readers that lost the same shard must not retry at the same moment.
            failures += 1
            await asyncio.sleep(RETRY.after(failures) * random.uniform(0.5, 1.5))


class Followed(Protocol):
    """A reader of the changes of some shards, shared by many clients."""

    @property
    def in_use(self) -> bool:
        """Return whether any client reads it now."""

    def note(self, change: Change) -> bool:
        """Apply the next change of one shard; return False if it cannot be told in full."""

    def miss(self) -> None:
        """Tell all clients that something may have been missed, and end."""


F = TypeVar("F", bound=Followed)


class SharedReading(Generic[F]):
    """One reading of the shards of a group for all readers of a server.

    The first reader begins it, and it ends if a change may have been missed, or the last reader has
    gone. `begin` is called with the shards once the end of each is marked: what it reads then
    misses nothing.
    """

    def __init__(
        self,
        feed: ClusterFeed,
        group: str,
        *,
        query: FollowChanges,
        begin: Callable[[Iterable[Key]], Awaitable[F]],
    ) -> None:
        self._feed, self._group, self._query, self._begin = feed, group, query, begin
        self._present: F | None = None
        self._beginning: asyncio.Task[F] | None = None
        self._readers: list[asyncio.Task[None]] = []
        self._used_s = 0.0

    async def present(self) -> F:
        """Return the present reading; the first caller begins it. Raises OutOfReach."""
        self._used_s = asyncio.get_running_loop().time()
        if self._present is not None:
            return self._present
        if self._beginning is None:
            self._beginning = asyncio.create_task(self._begun())
            self._beginning.add_done_callback(self._is_begun)
        # All who come meanwhile wait for the one beginning, and none ends it by leaving.
        return await asyncio.shield(self._beginning)

    def _is_begun(self, beginning: asyncio.Task[F]) -> None:
        self._beginning = None
        if not beginning.cancelled():
            beginning.exception()  # whoever waits gets it; nobody may

    async def _begun(self) -> F:
        shards = self._feed.cluster.shards_of(self._group)
        marks = await asyncio.gather(*map(self._feed.mark, shards))
        found = self._present = await self._begin(shards)
        self._readers = [
            asyncio.create_task(self._follow(shard, mark, into=found))
            for shard, mark in zip(shards, marks, strict=True)
        ]
        return found

    async def _follow(self, shard: Key, mark: FeedMark, *, into: F) -> None:
        loop = asyncio.get_running_loop()
        try:
            async for changes in self._feed.behind(shard, mark, query=self._query):
                for change in changes:
                    await asyncio.sleep(0)  # readers take what a large page brings, bit by bit
                    if not into.note(change):
                        return
                if into.in_use:
                    self._used_s = loop.time()
                elif loop.time() - self._used_s >= IDLE_S:
                    return
        except (CallEnded, OutOfReach):
            return
        finally:
            self._end(into)

    def _end(self, over: F) -> None:
        """End the reading, because one shard is not followed any more, so that it is incomplete."""
        if self._present is over:
            self._present = None
            for reader in self._readers:
                reader.cancel()
            self._readers = []
            over.miss()


async def present(reading: SharedReading[F], call: LongCall) -> F:
    """Return the present reading; end the call if the shards cannot be followed."""
    try:
        return await reading.present()
    except OutOfReach as error:
        end(call, Code.UNAVAILABLE, text=str(error))


def resume_token(marks: Mapping[Key, FeedMark]) -> str:
    """Return the marks of these shards as text: `jobmgr/3@1042.7,jobmgr/5@99`."""
    return ",".join(
        f"{shard.partition('/')[2]}@{position}" + ("" if k == ALL else f".{k}")
        for shard, (position, k) in sorted(marks.items())
    )


def marks_of(token: str, shards: Iterable[Key]) -> dict[Key, FeedMark]:
    """Return the marks of a token, for a reader of these shards; raises `BadResumeToken`."""
    marks: dict[Key, FeedMark] = {}
    if len(token) > TOKEN_LENGTH_MAX:
        raise BadResumeToken(f"{len(token)} characters, the limit is {TOKEN_LENGTH_MAX}")
    for part in token.split(","):
        name, at, mark = part.rpartition("@")
        position, dot, k = mark.partition(".")
        if not at or not _is_number(position) or (dot and not _is_number(k)):
            raise BadResumeToken(f"{part[:100]!r} is not part of a token")
        marks[Key(f"shard/{name}")] = int(position), int(k) if dot else ALL
    if marks.keys() != {*shards}:
        raise BadResumeToken("the token is of another query: its shards are not those of this one")
    return marks


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 18
