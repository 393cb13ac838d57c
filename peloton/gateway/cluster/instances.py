"""Instances of jobs as calls of several services ask for them: views, their translation, orders.

Views of slices become tasks with the reasons why they wait, and orders about instances commands to
their jobs. The services answer about missing instances, each in its own way.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from peloton.actors.host.messages import GetHost
from peloton.actors.host.state import Host
from peloton.actors.job.messages import JobView, StartInstances, StopJob
from peloton.actors.job.slice.messages import (
    DropInstanceEvents,
    InstanceView,
    slice_key,
)
from peloton.actors.job.slice.rollout_messages import RestartIfSpared
from peloton.actors.job.stages import ENDED_NAMES
from peloton.actors.respool.lot.messages import GetLot, LotWaits
from peloton.actors.task.messages import SLICE_SIZE
from peloton.api.v0.task import task_pb2 as task
from peloton.gateway.cluster.cluster_client import ClusterClient, Context
from peloton.gateway.cluster.requests import request_of
from peloton.gateway.translate.reasons import at_goal, has_ended, reason_of
from peloton.gateway.translate.texts import client_name
from peloton.gateway.translate.translate_run import Translator
from peloton.runtime.vocabulary import Bits, Key, Message

RUN_MAX = 2**31
LOTS_MAX = 200
"""Lots queried for one answer; members of further lots get no queue position."""
Ranges = tuple[tuple[int, int], ...]


class Instances:
    """What the calls of one server ask about instances.

    `images_run`: as for `Translator`.
    """

    def __init__(self, cluster_client: ClusterClient, *, images_run: bool = False) -> None:
        self._cluster_client = cluster_client
        self._images_run = images_run

    def one(self, job: JobView, instance: int, *, context: Context) -> InstanceView | None:
        """Return an instance; None if the job has none of that number."""
        views = self._cluster_client.instances(job, instance, context=context, stop=instance + 1)
        return next(iter(views), None)

    def infos(
        self, job: JobView, views: Sequence[InstanceView], *, context: Context
    ) -> list[task.TaskInfo]:
        """Return instances as they are, those that wait with the reason."""
        lots = lot_waits(views, cluster_client=self._cluster_client, context=context)
        to_wire = self._translator(job)
        return [
            to_wire.info(view, reason_of(view, job, lots=lots) if _waits(view) else None)
            for view in views
        ]

    def now(self, job: JobView, view: InstanceView, *, context: Context) -> task.TaskInfo:
        """Return one instance as it is, with the ports that its host picked."""
        (found,) = self.infos(job, [view], context=context)
        self._put_ports(found.runtime, view, context=context)
        return found

    def runs(self, job: JobView, view: InstanceView) -> list[task.TaskInfo]:
        """Return every known run of an instance, the newest first."""
        return self._translator(job).runs(view)

    def events(
        self, job: JobView, view: InstanceView, *, runs_max: int, only: int | None
    ) -> list[task.PodEvent]:
        """Return events of the newest runs of an instance, or of one, the newest event first."""
        return self._translator(job).events(view, runs_max=runs_max, only=only)

    def drop_events(
        self, job: JobView, instance: int, *, runs: tuple[int, bool], sent: Any, context: Context
    ) -> Any:
        """Show nobody what happened until now to runs; return the answer of the slice.

        `runs`: the last one, and whether it is it alone, or those before it as well.
        """
        run, alone = runs
        # An instance never has so many runs; what is beyond is all of them.
        order = DropInstanceEvents(instance % SLICE_SIZE, min(run, RUN_MAX), alone)
        return self._keyed(_slice(job, instance), order, sent=sent, context=context)

    def stop(self, job: Key, ranges: Ranges, *, ended: Bits, sent: Any, context: Context) -> Any:
        """End instances, of which `ended` have nothing left to stop; return the answer of the
        job."""
        return self._keyed(job, StopJob(ranges, ended), sent=sent, context=context)

    def start(self, job: Key, ranges: Ranges, *, again: bool, sent: Any, context: Context) -> Any:
        """Begin new runs of stopped instances, or with `again` of others; return the answer of
        the job."""
        return self._keyed(job, StartInstances(ranges, again), sent=sent, context=context)

    def restart_if_spared(self, job: JobView, instance: int, *, sent: Any, context: Context) -> Any:
        """Begin a new run of an instance, if enough others of its job are available; return the
        answer of the slice."""
        command = RestartIfSpared(instance % SLICE_SIZE)
        return self._keyed(_slice(job, instance), command, sent=sent, context=context)

    def _keyed(self, to: Key, command: Message, *, sent: Any, context: Context) -> Any:
        client = self._cluster_client
        request = request_of(sent, context)
        return client.ask(to, command, context=context, request=request)

    def ended(self, job: JobView, context: Context) -> Bits:
        """Return the instances that have nothing left to stop."""
        counts = dict(job.summary.counts)
        if not any(counts.get(state) for state in ENDED_NAMES):
            return Bits()  # the usual case: no need to list instances
        # Not one by one into a `Bits`, which would be copied for each of very many.
        marks = bytearray(job.reach // 8 + 1)
        for view in self._cluster_client.instances(job, context=context):
            if has_ended(view):
                marks[view.instance // 8] |= 1 << view.instance % 8
        return Bits.unpack(bytes(marks))

    def _translator(self, job: JobView) -> Translator:
        job_id = client_name(job.summary.job)
        return Translator(job_id, job.spec, images_run=self._images_run)

    def _put_ports(
        self, runtime: task.RuntimeInfo, view: InstanceView, *, context: Context
    ) -> None:
        """Add the ports that the host picked: only the host knows them, while the run lives."""
        if not view.host or all(port.number for port in view.config.ports):
            return
        host = self._cluster_client.ask(Key(view.host), GetHost(), context=context)
        run = host.runs.get(runtime.mesosTaskId.value) if isinstance(host, Host) else None
        if run is not None:
            for port, number in zip(view.config.ports, run.ports, strict=False):
                runtime.ports[port.name] = number


def _slice(job: JobView, instance: int) -> Key:
    return slice_key(client_name(job.summary.job), instance // SLICE_SIZE)


def _waits(view: InstanceView) -> bool:
    # What has ended, well or badly, carries its own message.
    return view.ended_at is None and not at_goal(view)


def lot_waits(
    views: Iterable[InstanceView], *, cluster_client: ClusterClient, context: Context
) -> dict[Key, LotWaits]:
    """Return the views of the lots in which some of these instances wait."""
    lots = dict.fromkeys(view.lot for view in views if view.code == "POOL" and view.lot)
    keys = [*lots][:LOTS_MAX]
    answers = cluster_client.each([(key, GetLot()) for key in keys], context)
    pairs = zip(keys, answers, strict=True)
    return {key: answer for key, answer in pairs if isinstance(answer, LotWaits)}
