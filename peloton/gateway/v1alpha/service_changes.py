"""What changes among services and their pods, numbered, for all watches of one server.

The change feeds of the shards of jobs are followed once, however many watch, and the number of each
object's newest change is kept: so a watch that comes back learns which objects have changed since a
number, each once. No states are kept; these are read when they are sent (`service_objects.py`). If
a change may have been missed, the numbers begin anew under another identity, and all watches are
told.

A revision is `milliseconds << ID_BITS | identity`: it rises with each change, and one that another
daemon gave, or this one before a restart, is told apart.
"""

from __future__ import annotations

import secrets
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import takewhile
from typing import NamedTuple, Protocol

from peloton.actors.job.facts import DeletionOrdered, JobChanged, JobForgotten, JobMade
from peloton.actors.job.messages import JobSummary
from peloton.actors.job.spec import DAEMON, SERVICE, JobSpec
from peloton.actors.job.workflow.facts import WorkflowBegun
from peloton.actors.task.messages import SLICE_SIZE
from peloton.gateway.cluster.feed import ClusterFeed, OutOfReach, SharedReading
from peloton.gateway.translate.texts import client_name
from peloton.runtime.core.reading.changes import Change
from peloton.runtime.core.reading.filters import AMONG, Where
from peloton.runtime.core.reading.followers import name_of
from peloton.runtime.core.reading.inspection import FollowChanges
from peloton.runtime.core.reading.listing import Listed, ListViews, onwards
from peloton.runtime.vocabulary import Key, kind_of, members_of

ID_BITS = 20
OBJECTS_MAX = 262_144
"""Objects whose newest change is known; older ones are forgotten, and with them the revisions."""
DELETED_MAX = 10_000
"""Deleted services of which it is still known who may learn that they are gone."""
WHOLE = -1
"""In the place of an instance: the job itself."""
_KINDS = ("job", "task")
_LISTED = (Where("job_type", AMONG, words=(SERVICE, DAEMON)),)


class Watched(NamedTuple):
    """An object that a watch tells of: a job, or one of its pods."""

    job: str
    instance: int = WHOLE


class ServiceLine(NamedTuple):
    """What decides which watches are told of a service."""

    labels: frozenset[tuple[str, str]]
    pool_path: str
    created_by: str


class ServiceWatcher(Protocol):
    """A watch that is told of changes."""

    def changed(self, what: Watched, revision: int) -> None:
        """Take the new revision of an object."""

    def missed(self) -> None:
        """End the watch, because changes may have been missed."""


class ServiceChanges:
    """One numbering, from its beginning until something may have been missed."""

    def __init__(self, *, now_ms: int, objects_max: int = OBJECTS_MAX) -> None:
        self._identity = secrets.randbelow(1 << ID_BITS)
        self._last_ms = now_ms
        self._objects_max = objects_max
        self._log: OrderedDict[Watched, int] = OrderedDict()  # the newest change last
        self.oldest = self.revision
        """From here on every change is known."""
        self.services: dict[str, ServiceLine] = {}
        self._deleted: dict[str, None] = {}  # of the services; the first one first
        self._by_job: dict[str, dict[ServiceWatcher, None]] = {}
        self._of_any: dict[ServiceWatcher, None] = {}
        self._over = False

    @property
    def revision(self) -> int:
        """Return the revision of the newest change."""
        return self._last_ms << ID_BITS | self._identity

    def knows(self, revision: int) -> bool:
        """Return whether every change after this revision is known here."""
        ours = revision & ((1 << ID_BITS) - 1) == self._identity
        return ours and self.oldest <= revision <= self.revision

    def newest_of(self, what: Watched) -> int:
        """Return the revision of the newest change of an object, as far as it is kept."""
        return self._log.get(what, self.oldest)

    def since(self, revision: int) -> list[tuple[Watched, int]]:
        """Return what has changed after a revision that is known, in order."""
        later = takewhile(lambda pair: pair[1] > revision, reversed(self._log.items()))
        return [*later][::-1]

    @property
    def in_use(self) -> bool:
        """Return whether there are watches."""
        return bool(self._by_job or self._of_any)

    def add(self, watcher: ServiceWatcher, jobs: Iterable[str] | None) -> None:
        """Tell a watcher of the changes of these jobs; None: of all.

        Also tell it if the numbering is over already, as it may have ended before a watch that
        waited for its beginning was woken.
        """
        if self._over:
            watcher.missed()
        if jobs is None:
            self._of_any[watcher] = None
        else:
            for job in jobs:
                self._by_job.setdefault(job, {})[watcher] = None

    def remove(self, watcher: ServiceWatcher, jobs: Iterable[str] | None) -> None:
        """Stop telling a watcher of the changes of these jobs."""
        if jobs is None:
            self._of_any.pop(watcher, None)
            return
        for job in jobs:
            watchers = self._by_job.get(job, {})
            watchers.pop(watcher, None)
            if not watchers:
                self._by_job.pop(job, None)

    def listed(self, lines: Iterable[JobSummary]) -> None:
        """Record that these services exist."""
        for line in lines:
            name = client_name(line.job)
            self.services[name] = ServiceLine(
                frozenset(line.labels), line.pool_path, line.created_by
            )

    def note(self, change: Change) -> bool:
        """Number what has changed, and tell its watchers."""
        for what in self._touched(change):
            self._put(what)
        return True

    def miss(self) -> None:
        """Tell all watchers that something may have been missed, and end."""
        self._over = True
        everybody = dict(self._of_any)
        for some in self._by_job.values():
            everybody.update(some)
        for watcher in everybody:
            watcher.missed()

    # ---- inside ----

    def _touched(self, change: Change) -> Iterator[Watched]:
        line = change.line
        name = name_of(line.key)
        if kind_of(line.key) == "job":
            for fact in line.facts:
                if isinstance(fact, JobMade):
                    self._made(name, fact)
                elif isinstance(fact, JobChanged | WorkflowBegun) and name in self.services:
                    self.services[name] = self._relabelled(name, fact.spec)
            if name in self.services and name not in self._deleted:
                yield Watched(name)
                if any(isinstance(fact, DeletionOrdered | JobForgotten) for fact in line.facts):
                    self._delete(name)
        elif name in self.services:
            first = int(line.key.rpartition("/")[2]) * SLICE_SIZE
            for member in members_of(line.members):
                yield Watched(name, first + member)

    def _delete(self, name: str) -> None:
        """Delete a service, which no longer exists for clients, though parts of it may still
        have work to do."""
        self._deleted[name] = None
        if len(self._deleted) > DELETED_MAX:
            first = next(iter(self._deleted))
            del self._deleted[first]
            del self.services[first]

    def _made(self, name: str, fact: JobMade) -> None:
        self._deleted.pop(name, None)
        if fact.spec.is_service:
            labels = frozenset(fact.spec.labels)
            self.services[name] = ServiceLine(labels, fact.pool_path, fact.who)
        else:
            self.services.pop(name, None)  # the id may be that of a deleted service

    def _relabelled(self, name: str, spec: JobSpec) -> ServiceLine:
        return self.services[name]._replace(labels=frozenset(spec.labels))

    def _put(self, what: Watched) -> None:
        self._last_ms = max(self._last_ms + 1, time.time_ns() // 1_000_000)
        revision = self._log[what] = self.revision
        self._log.move_to_end(what)
        if len(self._log) > self._objects_max:
            _, self.oldest = self._log.popitem(last=False)
        for watcher in self._of_any:
            watcher.changed(what, revision)
        for watcher in self._by_job.get(what.job, ()):
            watcher.changed(what, revision)


def service_changes(feed: ClusterFeed) -> SharedReading[ServiceChanges]:
    """Return the present numbering of one server; begun by the first watch, on the event loop."""

    async def begin(shards: Iterable[Key]) -> ServiceChanges:
        found = ServiceChanges(now_ms=time.time_ns() // 1_000_000)
        for shard in shards:
            found.listed(await _services_in(feed, shard))
        return found

    return SharedReading(feed, "job", query=FollowChanges(kinds=_KINDS), begin=begin)


async def _services_in(feed: ClusterFeed, shard: Key) -> list[JobSummary]:
    rest: ListViews | None = ListViews("job", _LISTED)
    lines: list[JobSummary] = []
    while rest is not None:
        page = await feed.answered(partial(feed.cluster.ask, shard, rest), patience_s=None)
        if not isinstance(page, Listed):
            raise OutOfReach(f"{shard} did not answer with services")
        lines += page.items
        rest = onwards(rest, page) if page.after else None
    return lines
