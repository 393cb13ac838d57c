"""WatchService of v1alpha: services and their pods as they change, from a revision on.

A filter becomes a stream of objects, each as it is after its newest change. All streams are told by
one reader of the change feeds (`service_changes.py`); a stream keeps only the names of what it has
still to send, and at most `CHANGED_MAX` of them for a slow reader. Where changes may have been
missed, the stream ends with an error.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, NamedTuple

from peloton.api.v1alpha.watch.svc import watch_svc_pb2 as svc
from peloton.gateway.access.permissions import Rights
from peloton.gateway.cluster.cluster_client import ClusterClient, Code, end
from peloton.gateway.cluster.feed import ClusterFeed, present
from peloton.gateway.server.long_calls import LongCall
from peloton.gateway.translate.texts import canonical
from peloton.gateway.v1alpha.service_changes import WHOLE, ServiceChanges, Watched, service_changes
from peloton.gateway.v1alpha.service_objects import Sent, ServiceObjects
from peloton.settings.permissions_file import ROOT_PATH, Permission

WATCHES_MAX = 1000
CHANGED_MAX = 4096
"""Objects that have changed and are not sent yet, of one stream."""
AT_A_TIME = 64
"""Objects of one job that are read together."""
BOOKMARK_S = 60.0
"""A stream without a change gets a newer revision after so long, as old ones are forgotten."""
FROM_NOW, FROM_THE_BEGINNING = 0, 1
MISSED = "changes may have been missed: watch from the last revision, or from 1"


class ServiceScope(NamedTuple):
    """What is watched. None stands for any job, or for every pod of these."""

    pods: bool
    jobs: frozenset[str] | None
    named: frozenset[Watched] | None
    labels: frozenset[tuple[str, str]]
    strangers: tuple[str, ...] = ()  # names that nothing can have

    def covers(self, what: Watched) -> bool:
        """Return whether an object belongs to the scope, whatever its labels."""
        if (what.instance == WHOLE) is self.pods:
            return False
        if self.named is not None:
            return what in self.named
        return self.jobs is None or what.job in self.jobs


class _Encoded(NamedTuple):
    """A message whose parts are encoded already: of a stream, and of what all streams share."""

    data: bytes

    def SerializeToString(self) -> bytes:
        return self.data


class ServiceWatch:
    """One stream: what it has still to send, and whether it is over."""

    def __init__(self, scope: ServiceScope) -> None:
        self.watch_id = f"{'task' if scope.pods else 'job'}_{uuid.uuid4()}"
        self.scope = scope
        self.over: tuple[Code, str] | None = None
        self._woken = asyncio.Event()
        self._changed: OrderedDict[Watched, int] = OrderedDict()

    def changed(self, what: Watched, revision: int) -> None:
        """Record that an object is to be sent, once, with the newest revision."""
        if self.over is not None or not self.scope.covers(what):
            return
        self._changed.pop(what, None)
        self._changed[what] = revision
        if len(self._changed) > CHANGED_MAX:
            self.end(Code.ABORTED, f"event overflow: {self.watch_id}")
        self._woken.set()

    def missed(self) -> None:
        """End the watch, because changes may have been missed."""
        self.end(Code.OUT_OF_RANGE, MISSED)

    def end(self, code: Code, text: str) -> None:
        """End the watch; what is not sent stays unsent."""
        self.over = self.over or (code, text)
        self._woken.set()

    async def wait(self) -> bool:
        """Wait until there is something to send, or the watch is over; return False if neither
        came for long."""
        try:
            async with asyncio.timeout(BOOKMARK_S):
                await self._woken.wait()
        except TimeoutError:
            return False
        self._woken.clear()
        return True

    def take(self) -> list[tuple[Watched, int]]:
        """Return what comes next, of one job, in the order of its revisions."""
        some: list[tuple[Watched, int]] = []
        for pair in islice(self._changed.items(), AT_A_TIME):
            if some and pair[0].job != some[0][0].job:
                break
            some.append(pair)
        for what, _ in some:
            del self._changed[what]
        return some


class WatchService:
    """The calls of the service; one method for each, named as on the wire."""

    def __init__(
        self, cluster_client: ClusterClient, feed: ClusterFeed, *, watches_max: int = WATCHES_MAX
    ) -> None:
        self._cluster_client = cluster_client
        self._feed, self._services = feed, service_changes(feed)
        self._objects: tuple[ServiceChanges, ServiceObjects] | None = None
        self._max = watches_max
        self._open: dict[str, ServiceWatch] = {}
        self._places = cluster_client.shared("streams of WatchService")

    async def Watch(self, sent: svc.WatchRequest, call: LongCall) -> None:
        """Stream what a filter covers, as it changes."""
        job = sent.pod_filter.job_id.value
        if job and canonical(job) is None:
            text = "JobID must be of UUID format"
            end(call, Code.INVALID_ARGUMENT, text=text, field="pod_filter.job_id")
        scope = scope_of(sent)
        if scope is None:
            end(call, Code.INVALID_ARGUMENT, text="not supported watch type")
        text = "max client reached: {}"
        self._cluster_client.take_quota(self._places, call, most=self._max, text=text)
        watch = ServiceWatch(scope)
        self._open[watch.watch_id] = watch
        try:
            changes = await present(self._services, call)
            changes.add(watch, scope.jobs)
            try:
                await self._stream(watch, changes, start=sent.start_revision, call=call)
            finally:
                changes.remove(watch, scope.jobs)
        finally:
            del self._open[watch.watch_id]
            self._places.leave(call.principal)

    async def Cancel(self, sent: svc.CancelRequest, call: LongCall) -> svc.CancelResponse:
        """End a watch of this daemon."""
        watch = self._open.get(sent.watch_id)
        if watch is None:
            end(call, Code.NOT_FOUND, text="invalid watch id")
        watch.end(Code.CANCELLED, f"watch cancelled: {watch.watch_id}")
        return svc.CancelResponse()

    # ---- inside ----

    async def _stream(
        self, watch: ServiceWatch, changes: ServiceChanges, *, start: int, call: LongCall
    ) -> None:
        rights_of = self._cluster_client.permissions.rights
        objects = self._reader(changes)
        stream = _Stream(watch, changes, objects=objects, call=call, rights_of=rights_of)
        scope, known = watch.scope, changes.knows(start)
        now = changes.revision
        if start > FROM_THE_BEGINNING and not known and scope.jobs is None:
            end(call, Code.OUT_OF_RANGE, text=too_old(start, changes.oldest))
        backlog = changes.since(start) if known else []
        await stream.bookmark(start or now)
        await stream.strangers(start or now)
        for some in _by_job(pair for pair in backlog if scope.covers(pair[0])):
            await stream.send(some)
        if start and not known:
            await self._snapshot(stream, changes, start=start)
            await stream.bookmark(now)
        elif not start and scope.jobs is not None:
            await stream.absent(now)
        while True:
            if await watch.wait():
                while some := watch.take():
                    await stream.send(some)
                    stream.stop_if_over()
                stream.stop_if_over()
            elif stream.revision < changes.revision:
                await stream.bookmark(changes.revision)

    async def _snapshot(self, stream: _Stream, changes: ServiceChanges, *, start: int) -> None:
        """Send everything as it is now, under the revision that was asked for.

        A stream that breaks off begins anew.
        """
        scope = stream.watch.scope
        for job in sorted(changes.services if scope.jobs is None else scope.jobs):
            view, every = await stream.objects.job(job), list[int]()
            if view is not None and scope.pods and scope.named is None:
                every = await stream.objects.pods_of(job, view)
            for some in _objects_of(job, every, scope=scope):
                await stream.send([(what, start) for what in some], first=True)
                stream.stop_if_over()

    def _reader(self, changes: ServiceChanges) -> ServiceObjects:
        if self._objects is None or self._objects[0] is not changes:
            self._objects = changes, ServiceObjects(self._feed, changes)
        return self._objects[1]


class _Stream:
    """The writer of one call."""

    def __init__(
        self,
        watch: ServiceWatch,
        changes: ServiceChanges,
        *,
        objects: ServiceObjects,
        call: LongCall,
        rights_of: Callable[[Any], Rights | None],
    ) -> None:
        self.watch, self.objects = watch, objects
        self.revision = 0
        self._changes, self._call, self._rights_of = changes, call, rights_of

    async def bookmark(self, revision: int) -> None:
        await self._write(b"", revision)

    async def strangers(self, revision: int) -> None:
        """Send as not found the names that nothing can have."""
        for name in self.watch.scope.strangers:
            gone = svc.WatchResponse()
            if self.watch.scope.pods:
                gone.pods_not_found.add(value=name)
            else:
                gone.stateless_jobs_not_found.add(value=name)
            await self._write(gone.SerializeToString(), revision)

    async def absent(self, revision: int) -> None:
        """Send what is named and does not exist now."""
        scope = self.watch.scope
        named = scope.named if scope.pods else map(Watched, scope.jobs or ())
        for some in _by_job((what, revision) for what in sorted(named or ())):
            found = await self.objects.read([what for what, _ in some])
            for what, _ in some:
                if not found[what].exists or not self._sees(what):
                    await self._write(_gone(what), revision)

    async def send(self, some: list[tuple[Watched, int]], *, first: bool = False) -> None:
        """Send these objects of one job as they are now, as far as the filter and the rules allow.

        `first`: nothing is known of them yet, so what is named and does not exist is sent as well.
        """
        found = await self.objects.read([what for what, _ in some])
        for what, revision in some:
            part = self._part(what, found[what], first=first)
            if part is not None:
                await self._write(part, revision)

    def _part(self, what: Watched, sent: Sent, *, first: bool) -> bytes | None:
        named, seen = self.watch.scope.jobs is not None, self._sees(what)
        if first and not (seen and sent.exists):
            return _gone(what) if named else None
        return sent.part if seen and self._matches(what, sent) else None

    def stop_if_over(self) -> None:
        """End the call if the watch is over."""
        if self.watch.over is not None:
            code, text = self.watch.over
            end(self._call, code, text=text)

    def _matches(self, what: Watched, sent: Sent) -> bool:
        wanted = self.watch.scope.labels
        if not wanted or sent.exists:
            return wanted <= sent.labels
        line = self._changes.services.get(what.job)
        # What is gone has no labels: of a job the last ones are known, of a pod none.
        return what.instance == WHOLE and line is not None and wanted <= line.labels

    def _sees(self, what: Watched) -> bool:
        rights = self._rights_of(self._call)  # rules may change while the stream is open
        if rights is None:
            return True
        line = self._changes.services.get(what.job)
        if line is None:
            return False
        path = line.pool_path or ROOT_PATH
        return rights.may_with_job(Permission.SEE, path, created_by=line.created_by)

    async def _write(self, part: bytes, revision: int) -> None:
        self.revision = revision
        own = svc.WatchResponse(watch_id=self.watch.watch_id, revision=revision)
        await self._call.write(_Encoded(own.SerializeToString() + part))


def too_old(start: int, oldest: int) -> str:
    """Return why a watch cannot go on from a revision."""
    return (
        f"revision {start} is not known here any more, or is another daemon's; the oldest one is "
        f"{oldest}: watch from {FROM_THE_BEGINNING} for everything as it is now"
    )


def scope_of(sent: svc.WatchRequest) -> ServiceScope | None:
    """Return what a request wants to watch; None without a filter.

    A filter of pods takes precedence.
    """
    if sent.HasField("pod_filter"):
        return _pods_of(sent.pod_filter)
    if not sent.HasField("stateless_job_filter"):
        return None
    wanted = sent.stateless_job_filter
    names = [one.value for one in wanted.job_ids]
    jobs = frozenset(found for found in map(canonical, names) if found is not None)
    strangers = tuple(name for name in names if canonical(name) is None)
    return ServiceScope(
        pods=False,
        jobs=jobs if names else None,
        named=None,
        labels=_labels(wanted.labels),
        strangers=strangers,
    )


def _pods_of(wanted: Any) -> ServiceScope:
    labels, only = _labels(wanted.labels), wanted.job_id.value
    job = canonical(only) if only else None
    named, strangers = set[Watched](), list[str]()
    for one in wanted.pod_names:
        of, _, number = one.value.rpartition("-")
        found = canonical(of) if number.isascii() and number.isdigit() else None
        if found is None or len(number) > 9 or (only and found != job):
            strangers.append(one.value)
        else:
            named.add(Watched(found, int(number)))
    if wanted.pod_names:
        jobs: frozenset[str] | None = frozenset(what.job for what in named)
        return ServiceScope(True, jobs, frozenset(named), labels, tuple(strangers))
    if not only:
        return ServiceScope(True, None, None, labels)
    return ServiceScope(True, frozenset((job,) if job is not None else ()), None, labels)


def _labels(labels: Iterable[Any]) -> frozenset[tuple[str, str]]:
    return frozenset((label.key, label.value) for label in labels)


def _gone(what: Watched) -> bytes:
    gone = svc.WatchResponse()
    if what.instance == WHOLE:
        gone.stateless_jobs_not_found.add(value=what.job)
    else:
        gone.pods_not_found.add(value=f"{what.job}-{what.instance}")
    return gone.SerializeToString()


def _by_job(pairs: Iterable[tuple[Watched, int]]) -> list[list[tuple[Watched, int]]]:
    """Return the objects in the same order, in groups of one job."""
    found: list[list[tuple[Watched, int]]] = []
    for pair in pairs:
        group = found[-1] if found else []
        if not group or group[0][0].job != pair[0].job or len(group) >= AT_A_TIME:
            found.append([pair])
        else:
            group.append(pair)
    return found


def _objects_of(job: str, every: list[int], *, scope: ServiceScope) -> Iterator[list[Watched]]:
    """Yield what a scope covers of a job that has these pods, in parts."""
    if not scope.pods:
        yield [Watched(job)]
        return
    if scope.named is not None:
        every = sorted(what.instance for what in scope.named if what.job == job)
    for at in range(0, len(every), AT_A_TIME):
        yield [Watched(job, instance) for instance in every[at : at + AT_A_TIME]]
