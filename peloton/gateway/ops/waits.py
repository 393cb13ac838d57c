"""Waits for the ends of jobs: all callers that wait for one job share one reader of its feed.

The job is read after a change, and all callers are answered when it has ended. There is no polling,
no thread and no timer, however many callers wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeAlias

from peloton.actors.job.facts import JobTallied
from peloton.actors.job.messages import GetJob, JobView
from peloton.actors.job.stages import ENDED_NAMES, TERMINAL_JOB_STATES
from peloton.gateway.access.guard import CallEnded
from peloton.gateway.cluster.feed import ClusterFeed, OutOfReach
from peloton.runtime.core.reading.changes import Change
from peloton.runtime.core.reading.followers import name_of
from peloton.runtime.core.reading.inspection import FollowChanges
from peloton.runtime.vocabulary import Key, Unavailable

PATIENCE_S = 5.0
"""A moving shard has an owner again by then; otherwise callers get UNAVAILABLE."""


Conclude: TypeAlias = Callable[[JobView], Awaitable[Any]]


class _Wait:
    """One job, and how many callers wait for it."""

    def __init__(self) -> None:
        self.count = 0
        self.ended: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.reader: asyncio.Task[None] | None = None


class JobWaits:
    """The jobs that are waited for through one server."""

    def __init__(self, feed: ClusterFeed) -> None:
        self._feed = feed
        self._waits: dict[Key, _Wait] = {}

    async def until_ended(self, job: Key, timeout_s: float, *, conclude: Conclude) -> Any:
        """Return what `conclude` makes of the job once it has ended, made once for all callers.

        None if the time is over first, or the job does not exist any more; `Unavailable` if its
        shard is out of reach for long. What `conclude` raises is raised to each caller.
        """
        wait = self._waits.get(job)
        if wait is None:
            wait = self._waits[job] = _Wait()
            wait.reader = asyncio.create_task(self._read(job, wait, conclude=conclude))
            wait.ended.add_done_callback(lambda ended: ended.exception())  # if all have left
        wait.count += 1
        try:
            done, _ = await asyncio.wait((wait.ended,), timeout=timeout_s)
            return wait.ended.result() if done else None
        finally:
            wait.count -= 1

    async def _read(self, job: Key, wait: _Wait, *, conclude: Conclude) -> None:
        """Read the job, and again after each change that may have ended it.

        The mark is taken before the read, so any later change is after the mark. A caller that
        joins later needs no read of its own: an earlier end is known, a later one is read.
        """
        shard, feed = self._feed.cluster.shard_of(job), self._feed
        query = FollowChanges(names=(name_of(job),), kinds=("job",))
        try:
            while wait.count:
                read = await feed.page(shard, query, patience_s=PATIENCE_S)
                changes = feed.cluster.changes_in(read)
                if query.mark is None or read.gap or may_have_ended(changes):
                    view = await feed.answered(
                        lambda: feed.cluster.ask(job, GetJob()), patience_s=PATIENCE_S
                    )
                    if not isinstance(view, JobView):
                        wait.ended.set_result(None)
                        return
                    if view.summary.state in TERMINAL_JOB_STATES:
                        wait.ended.set_result(await conclude(view))
                        return
                query = query.behind(read.mark)
        except OutOfReach as error:
            wait.ended.set_result(Unavailable(str(error)))
        except CallEnded as error:
            wait.ended.set_exception(error)
        except Exception as error:
            wait.ended.set_exception(error)
            raise
        finally:
            del self._waits[job]


def may_have_ended(changes: Iterable[Change]) -> bool:
    """Return whether a job may have ended with one of these changes of its own.

    A large job gets reports of its slices many times a second; only a slice that has no active
    instance left can have been the last to end.
    """
    return any(
        not isinstance(fact, JobTallied)
        or all(name in ENDED_NAMES for name, n in fact.tally.counts if n)
        for change in changes
        for fact in change.line.facts
    )
