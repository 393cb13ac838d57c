"""The owners of the changes in a stream: the pool and the creator of a job, the path of a pool.

Changes are filtered by pool and by what the caller may see. A stream remembers the owner of a job
until the job is deleted, as jobs keep their pools; then the id may be used again. Only the newest
owners are kept, to limit memory.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, NamedTuple

from peloton.actors.job.facts import JobForgotten, JobMade
from peloton.actors.job.messages import GetJob, JobView, job_key
from peloton.actors.job.slice.facts import SliceOpened
from peloton.actors.respool.lot.facts import LotOpened
from peloton.actors.respool.messages import ROOT, GetPool
from peloton.actors.task.facts import TaskCreated
from peloton.gateway.access.access_table import OF_JOBS
from peloton.gateway.access.permissions import Rights
from peloton.gateway.cluster.feed import ClusterFeed
from peloton.runtime.core.reading.changes import Change
from peloton.runtime.core.reading.followers import name_of
from peloton.runtime.vocabulary import Key, Query, kind_of
from peloton.settings.permissions_file import ROOT_PATH, Permission

JOBS_KNOWN_MAX = 10_000
FIRST = (SliceOpened, TaskCreated, LotOpened)
"""Facts with which the parts of a job begin: a stream of theirs alone sees no job begin or end."""


class JobOwner(NamedTuple):
    """The pool of a job, the path that this had when the job was created, and the creator."""

    pool: Key
    path: str
    created_by: str


class ChangeOwners:
    """The owners that one stream knows.

    None stands for a job that does not exist any more and was not known before.
    """

    def __init__(self, feed: ClusterFeed) -> None:
        self._feed = feed
        self._known: OrderedDict[str, JobOwner | None] = OrderedDict()
        self._asked: set[str] = set()  # jobs whose owner was learned since this page was read

    async def among(
        self, changes: Sequence[Change], pool: Key | None, *, rights: Rights | None
    ) -> tuple[list[Change], int]:
        """Return the changes of the pool, if one is named, that the caller may see.

        And the position of the last one of which that is not known any more, else -1.
        """
        found, unknown = [], -1
        self._asked = set()
        for change in changes:
            passes = await self._passes(change, pool, rights=rights)
            if passes:
                found.append(change)
            elif passes is None:
                unknown = change.mark.position
        return found, unknown

    async def _passes(
        self, change: Change, pool: Key | None, *, rights: Rights | None
    ) -> bool | None:
        """Return whether a change passes; None for a job that was deleted before this stream
        knew it."""
        key = change.line.key
        if kind_of(key) in OF_JOBS:
            owner = await self._owner(change)
            if owner is None:
                return None
            inside = pool is None or owner.pool == pool
            return inside and (rights is None or _sees_job(rights, owner))
        if pool is not None and key != pool:
            return False
        # Hosts are seen by those who may see everything.
        return rights is None or (kind_of(key) == "respool" and await self._sees(rights, key))

    async def _owner(self, change: Change) -> JobOwner | None:
        name = name_of(change.line.key)
        for fact in change.line.facts:
            if isinstance(fact, JobMade):
                self._known[name] = JobOwner(fact.spec.pool, fact.pool_path, fact.who)
                self._asked.add(name)
            elif isinstance(fact, FIRST) and name not in self._asked:
                self._known.pop(name, None)  # the id may be that of a deleted job
        if name not in self._known:
            view = await self._ask(job_key(name), GetJob())
            self._known[name] = _owner_of(view) if isinstance(view, JobView) else None
            self._asked.add(name)
        owner = self._known[name]
        if any(isinstance(fact, JobForgotten) for fact in change.line.facts):
            del self._known[name]
            self._asked.discard(name)
        while len(self._known) > JOBS_KNOWN_MAX:
            self._known.popitem(last=False)
        return owner

    async def _sees(self, rights: Rights, pool: Key) -> bool:
        """Return whether the caller sees a pool.

        It may be renamed, so its path is read each time; a deleted pool has none.
        """
        found = await self._ask(ROOT, GetPool(pool, config_only=True))
        return isinstance(found, tuple) and bool(found) and rights.sees_pool(found[0].path)

    async def _ask(self, key: Key, query: Query) -> Any:
        return await self._feed.answered(
            lambda: self._feed.cluster.ask(key, query), patience_s=None
        )


def _sees_job(rights: Rights, owner: JobOwner) -> bool:
    path = owner.path or ROOT_PATH
    return rights.may_with_job(Permission.SEE, path, created_by=owner.created_by)


def _owner_of(view: JobView) -> JobOwner:
    return JobOwner(view.spec.pool, view.summary.pool_path, view.created_by)
