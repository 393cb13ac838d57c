"""Ops.Watch: the changes of a job, of kinds or of a pool, as a stream.

Pages of shards' feeds become messages, each with the token to resume behind it. There is one reader
for each shard, one page ahead at most: a client that reads slowly makes its readers slow, and one
that does not read is cut off by `long_calls.py`. Changes are not kept: what has left the shards'
own feeds is marked as a gap.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any, NamedTuple

from peloton.actors.job.messages import job_key
from peloton.actors.job.slice.messages import slice_key, slices_of
from peloton.actors.task.messages import SLICE_SIZE
from peloton.gateway.access.access_table import OF_JOBS
from peloton.gateway.access.guard import CallEnded
from peloton.gateway.cluster.cluster_client import ClusterClient, Code, Context, end
from peloton.gateway.cluster.feed import (
    BadResumeToken,
    ClusterFeed,
    FeedMark,
    OutOfReach,
    marks_of,
    resume_token,
)
from peloton.gateway.ops.change_owners import ChangeOwners
from peloton.gateway.server.long_calls import LongCall
from peloton.gateway.translate.actor_keys import FORMS
from peloton.gateway.translate.texts import known_job
from peloton.ops.v1 import ops_pb2 as ops
from peloton.runtime.core.reading.changes import Change
from peloton.runtime.core.reading.followers import name_of
from peloton.runtime.core.reading.inspection import ChangesPage, FollowChanges
from peloton.runtime.vocabulary import Key, kind_of, members_of

STREAMS_MAX = 1000
TOKEN_S = 15.0
"""A stream without events gets a new token after so long; below `followers.FOLLOW_S`, so that each
empty page of a quiet shard brings one: an old token means a gap once the shard keeps newer changes
only."""


class WatchScope(NamedTuple):
    """What is watched: changes of these shards that pass, and of a pool if one is named."""

    shards: tuple[Key, ...]
    query: FollowChanges
    pool: Key | None = None


class Watches:
    """The streams of one server."""

    def __init__(
        self, cluster_client: ClusterClient, feed: ClusterFeed, *, extensions: Collection[str] = ()
    ) -> None:
        self._cluster_client, self._feed = cluster_client, feed
        self._kinds = (*FORMS, *extensions)
        self._open = cluster_client.shared("streams of Watch")

    async def watch(self, sent: ops.WatchRequest, call: LongCall) -> None:
        """Serve one stream until its client ends it."""
        self._cluster_client.take_quota(self._open, call, most=STREAMS_MAX)
        try:
            scope = await call.run(self._scope, sent)
            try:
                marks = await self._begin(scope, sent.resume)
                await self._serve(scope, marks, call=call)
            except BadResumeToken as error:
                end(call, Code.INVALID_ARGUMENT, text=f"resume: {error}")
            except OutOfReach as error:
                end(call, Code.UNAVAILABLE, text=str(error))
        finally:
            self._open.leave(call.principal)

    def _scope(self, sent: ops.WatchRequest, context: Context) -> WatchScope:
        cluster = self._cluster_client.cluster
        if bool(sent.job_id) + bool(sent.kinds) + bool(sent.pool) != 1:
            text = "name one of job_id, kinds and pool"
            end(context, Code.INVALID_ARGUMENT, text=text)
        if sent.job_id:
            job = self._cluster_client.job(known_job(sent.job_id), context)
            if job is None:
                end(context, Code.NOT_FOUND, text="job not found")
            name = name_of(job.summary.job)
            numbers = range(slices_of(job.reach))
            slices = [cluster.shard_of(slice_key(name, number)) for number in numbers]
            shards = (cluster.shard_of(job_key(name)), *slices)
            return WatchScope((*dict.fromkeys(shards),), FollowChanges(names=(name,)))
        if sent.pool:
            pool = self._pool(sent.pool, context)
            kinds = (*OF_JOBS, "respool")
            return WatchScope(self._shards(kinds), FollowChanges(kinds=kinds), pool)
        strangers = [kind for kind in sent.kinds if kind not in self._kinds]
        if strangers:
            text = f"kinds: no kind {strangers[0]!r}; there are {', '.join(self._kinds)}"
            end(context, Code.INVALID_ARGUMENT, text=text)
        named = (*dict.fromkeys(sent.kinds),)
        return WatchScope(self._shards(named), FollowChanges(kinds=named))

    def _shards(self, kinds: tuple[str, ...]) -> tuple[Key, ...]:
        cluster = self._cluster_client.cluster
        return (*dict.fromkeys(shard for kind in kinds for shard in cluster.shards_of(kind)),)

    def _pool(self, named: str, context: Context) -> Key:
        pools = self._cluster_client.pools(context)
        found = [view.pool for view in pools.values() if named in (view.path, name_of(view.pool))]
        if not found:
            end(context, Code.NOT_FOUND, text=f"no pool {named}")
        return found[0]

    async def _begin(self, scope: WatchScope, token: str) -> dict[Key, FeedMark]:
        """Return the mark to read each shard from: that of the token, or the present one."""
        if token:
            return marks_of(token, scope.shards)
        marks = await asyncio.gather(*map(self._feed.mark, scope.shards))
        return dict(zip(scope.shards, marks, strict=True))

    async def _serve(
        self, scope: WatchScope, marks: dict[Key, FeedMark], *, call: LongCall
    ) -> None:
        pages: asyncio.Queue[tuple[Key, ChangesPage | Exception]] = asyncio.Queue(maxsize=1)
        owners, now_s = ChangeOwners(self._feed), asyncio.get_running_loop().time
        await call.write(ops.WatchResponse(resume=resume_token(marks)))
        written_s, unsent = now_s(), False
        readers = [
            asyncio.create_task(self._read(shard, scope.query, mark=marks[shard], pages=pages))
            for shard in scope.shards
        ]
        try:
            while True:
                shard, read = await pages.get()
                if isinstance(read, Exception):
                    raise read
                changes, after = self._feed.cluster.changes_in(read), marks[shard]
                until = _gap_until(read) if read.gap else -1
                # Rules may change while the stream is open.
                rights = self._cluster_client.permissions.rights(call)
                if scope.pool is not None or rights is not None:
                    changes, unknown = await owners.among(changes, scope.pool, rights=rights)
                    until = max(until, unknown)
                marks[shard] = read.mark
                unsent = unsent or read.mark != after
                if changes or until >= 0 or (unsent and now_s() - written_s >= TOKEN_S):
                    events = [event_of(shard, change) for change in changes]
                    message = ops.WatchResponse(resume=resume_token(marks), events=events)
                    if until >= 0:
                        number = shard.partition("/")[2]
                        message.gaps.add(shard=number, after=after[0], until=until)
                    await call.write(message)
                    written_s, unsent = now_s(), False
        finally:
            for reader in readers:
                reader.cancel()

    async def _read(
        self, shard: Key, query: FollowChanges, *, mark: FeedMark, pages: asyncio.Queue[Any]
    ) -> None:
        try:
            while True:
                query = query.behind(mark)
                read = await self._feed.page(shard, query, patience_s=None)
                await pages.put((shard, read))
                mark = read.mark
        except (CallEnded, OutOfReach) as error:  # the stream ends so, too
            await pages.put((shard, error))
        except Exception as error:  # the stream must end too, and not wait for this shard
            await pages.put((shard, error))
            raise


def event_of(shard: Key, change: Change) -> ops.Event:
    """Return a change as clients see it."""
    line = change.line
    key, instances = named(line.key, line.members)
    return ops.Event(
        key=key,
        instances=instances,
        shard=shard.partition("/")[2],
        position=change.mark.position,
        k=change.mark.k,
        at=line.at,
        cause=line.cause,
        because=line.because,
        facts=[type(fact).__name__ for fact in line.facts],
        who=line.who,
    )


def named(key: Key, members: int) -> tuple[str, list[ops.InstanceRange]]:
    """Return the name of an actor for people: tasks by instance, where a crowd has them by
    member."""
    if kind_of(key) != "task" or not members:
        return str(key), []
    front, _, number = key.rpartition("/")
    first = int(number) * SLICE_SIZE
    ranges: list[ops.InstanceRange] = []
    for member in members_of(members):
        instance = first + member
        if ranges and ranges[-1].last == instance - 1:
            ranges[-1].last = instance
        else:
            ranges.append(ops.InstanceRange(first=instance, last=instance))
    alone = len(ranges) == 1 and ranges[0].first == ranges[0].last
    return f"{front}/{ranges[0].first}" if alone else front, ranges


def _gap_until(read: ChangesPage) -> int:
    """Return the newest position that may be missing before a page."""
    return read.rows[0][0] - 1 if read.rows else read.mark[0]
