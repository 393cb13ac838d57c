"""Services and their pods as watches send them: encoded once for all watches.

The name of an object becomes the part of a WatchResponse with its present state. What is cached is
as new as the object's newest change, and shared by all streams.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, TypeAlias

from peloton.actors.job.messages import GetJob, JobView, job_key
from peloton.actors.job.slice.messages import InstanceView, ListInstances, slice_key
from peloton.actors.task.messages import SLICE_SIZE
from peloton.api.v0.task import task_pb2 as task
from peloton.api.v1alpha.watch.svc import watch_svc_pb2 as svc
from peloton.gateway.cluster.cluster_client import unopened
from peloton.gateway.cluster.feed import ClusterFeed
from peloton.gateway.translate.reasons import Reason
from peloton.gateway.translate.texts import client_name, pod_name
from peloton.gateway.translate.translate_run import Translator
from peloton.gateway.v1alpha.pod_status import pod_summary_of
from peloton.gateway.v1alpha.service_changes import WHOLE, ServiceChanges, Watched
from peloton.gateway.v1alpha.stateless_status import stateless_summary
from peloton.runtime.vocabulary import Key, Query

KEPT_MAX = 4096
"""Objects whose encoded form is kept, about 1 KB each."""
READ_SPAN_MAX = 100
"""Instances in one answer of a slice."""


_Asked: TypeAlias = tuple[tuple[Watched, int], ...]
"""Objects, each with the number of its newest change."""


class Sent(NamedTuple):
    """One object as it is sent; `labels` are those that a filter compares."""

    part: bytes  # of a WatchResponse
    labels: frozenset[tuple[str, str]]
    exists: bool


class ServiceObjects:
    """The services read for one numbering."""

    def __init__(self, feed: ClusterFeed, changes: ServiceChanges) -> None:
        self._feed, self._changes = feed, changes
        self._kept: OrderedDict[Watched, tuple[int, Sent]] = OrderedDict()
        self._reading: dict[_Asked, asyncio.Task[dict[Watched, Sent]]] = {}

    async def job(self, name: str) -> JobView | None:
        """Return a service as it is now, or None."""
        view = await self._ask(job_key(name), GetJob())
        found = isinstance(view, JobView) and view.spec.is_service
        return view if found else None

    async def pods_of(self, name: str, view: JobView) -> list[int]:
        """Return the numbers of its pods, ascending; of a daemon job, or of one that grows, with
        gaps."""
        if not view.spec.is_daemon and not view.unadded:
            return [*range(view.reach)]
        found: list[int] = []
        for first in range(0, view.reach, SLICE_SIZE):
            asked = ListInstances(first, first + SLICE_SIZE)
            answer = await self._ask(slice_key(name, first // SLICE_SIZE), asked)
            found += [one.instance for one in answer] if isinstance(answer, tuple) else []
        return found

    async def read(self, some: Iterable[Watched]) -> dict[Watched, Sent]:
        """Return these objects of one job, as they are now or became since the call."""
        found: dict[Watched, Sent] = {}
        missing: list[tuple[Watched, int]] = []
        for what in some:
            kept, newest = self._kept.get(what), self._changes.newest_of(what)
            if kept is not None and kept[0] == newest:
                found[what] = kept[1]
            else:
                missing.append((what, newest))
        if missing:
            # With the numbers: who asks after a later change must not get what was read before it.
            asked = tuple(missing)
            if asked not in self._reading:
                reading = self._reading[asked] = asyncio.create_task(self._fresh(asked))
                reading.add_done_callback(lambda done: self._read(asked))
            found.update(await asyncio.shield(self._reading[asked]))
        return found

    # ---- inside ----

    def _read(self, asked: _Asked) -> None:
        done = self._reading.pop(asked)
        if not done.cancelled():
            done.exception()  # whoever waits gets it; nobody may

    async def _fresh(self, asked: _Asked) -> dict[Watched, Sent]:
        known = dict(asked)
        job = asked[0][0].job
        view = await self.job(job)
        found: dict[Watched, Sent] = {}
        instances = []
        for what in known:
            if what.instance == WHOLE:
                found[what] = _whole(job, view)
            elif view is None or what.instance >= view.reach:
                found[what] = _no_pod(what)
            else:
                instances.append(what.instance)
        if view is not None and instances:
            found.update(await self._pods(view, sorted(instances)))
        for what, sent in found.items():
            self._kept[what] = known[what], sent
            self._kept.move_to_end(what)
        while len(self._kept) > KEPT_MAX:
            self._kept.popitem(last=False)
        return found

    async def _pods(self, view: JobView, instances: list[int]) -> dict[Watched, Sent]:
        job = client_name(view.summary.job)
        to_wire = Translator(job, view.spec)
        found: dict[Watched, Sent] = {}
        for first, stop, wanted in _spans(instances):
            asked = ListInstances(first, stop)
            answer = await self._ask(slice_key(job, first // SLICE_SIZE), asked)
            views = {one.instance: one for one in answer} if isinstance(answer, tuple) else {}
            for instance in wanted:
                what, one = Watched(job, instance), views.get(instance)
                free = view.spec.is_daemon or view.adds or instance >= view.spec.instances
                if one is None and free:
                    found[what] = _no_pod(what)
                else:
                    found[what] = _pod(to_wire, one or unopened(view, instance))
        return found

    async def _ask(self, key: Key, query: Query) -> Any:
        cluster = self._feed.cluster
        found = cluster.read(key, query)
        if found is not None:
            return found
        return await self._feed.answered(lambda: cluster.ask(key, query), patience_s=None)


def pod_info(to_wire: Translator, view: InstanceView) -> task.TaskInfo:
    """Return an instance with why it waits, as far as its slice knows."""
    waits = view.ended_at is None and bool(view.because)
    return to_wire.info(view, Reason(view.code, view.because) if waits else None)


def _spans(instances: list[int]) -> Iterator[tuple[int, int, list[int]]]:
    """Yield sorted instances in spans of one slice each: first, end, and the wanted ones in it."""
    some: list[int] = []
    for instance in instances:
        other = some and instance // SLICE_SIZE != some[0] // SLICE_SIZE
        if other or (some and instance - some[0] >= READ_SPAN_MAX):
            yield some[0], some[-1] + 1, some
            some = []
        some.append(instance)
    if some:
        yield some[0], some[-1] + 1, some


def _whole(job: str, view: JobView | None) -> Sent:
    if view is None:
        gone = svc.WatchResponse(stateless_jobs_not_found=[{"value": job}])
        return Sent(gone.SerializeToString(), frozenset(), exists=False)
    found = svc.WatchResponse(stateless_jobs=[stateless_summary(view)])
    return Sent(found.SerializeToString(), frozenset(view.summary.labels), exists=True)


def _pod(to_wire: Translator, view: InstanceView) -> Sent:
    summary = pod_summary_of(pod_info(to_wire, view), view.outcome, told=view.containers)
    found = svc.WatchResponse(pods=[summary])
    return Sent(found.SerializeToString(), frozenset(view.config.labels), exists=True)


def _no_pod(what: Watched) -> Sent:
    gone = svc.WatchResponse(pods_not_found=[{"value": pod_name(what.job, what.instance)}])
    return Sent(gone.SerializeToString(), frozenset(), exists=False)
