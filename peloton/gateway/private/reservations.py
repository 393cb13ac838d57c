"""The calls of InternalHostService that kill tasks, and those that hold hosts for tasks.

Failed holds and kills become errors in the answer. Once kills are disabled, nothing is killed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from peloton.actors.host.holds.foreign_names import held_task
from peloton.actors.resources import BadAmount, amount
from peloton.api.mesos.v1 import mesos_pb2 as mesos
from peloton.gateway.cluster.cluster_client import ClusterClient, Context
from peloton.gateway.private.foreign_runs import kill_runs, no_runs_text
from peloton.gateway.private.kill_switch import KILLS_DISABLED, KillSwitch
from peloton.gateway.private.task_holds import (
    KillEntry,
    drop_task_holds,
    kill_and_hold,
    named_task,
    reserve_one,
    take_completed,
)
from peloton.gateway.translate.mesos_resources import mesos_attributes, mesos_resources
from peloton.gateway.translate.texts import client_name
from peloton.gateway.translate.translate_task import resources_of
from peloton.placement.messages import HostSummary
from peloton.private.hostmgr.hostsvc import hostsvc_pb2 as hostsvc


class Reservations:
    """The calls of the service; one method for each, named as on the wire."""

    _cluster_client: ClusterClient
    _kills: KillSwitch

    def KillTasks(self, sent: hostsvc.KillTasksRequest, context: Context) -> Any:
        """End runs: foreign ones at their host, and a job's through the job.

        No host waits for these tasks any more.
        """
        names = [one.value for one in sent.taskIds]
        error = self._not_killed(names)
        if error is None:
            drop_task_holds(self._cluster_client, map(held_task, names), context=context)
            missing = kill_runs(self._cluster_client, names, context=context)
            error = _no_runs(missing)
        return hostsvc.KillTasksResponse(error=error)

    def KillAndReserveTasks(
        self, sent: hostsvc.KillAndReserveTasksRequest, context: Context
    ) -> Any:
        """End runs, and hold a host for the next run of each of these tasks."""
        entries = [
            KillEntry(one.taskId.value, named_task(one.taskId, one.id), one.hostToReserve)
            for one in sent.entries
        ]
        error = self._not_killed([entry.run for entry in entries])
        if error is None:
            missing = kill_and_hold(self._cluster_client, entries, context=context)
            error = _no_runs(missing)
        found = hostsvc.KillAndReserveTasksResponse()
        if error is not None:
            found.error.MergeFromString(error.SerializeToString())  # has the same fields
        return found

    def _not_killed(self, names: Sequence[str]) -> hostsvc.KillTasksResponse.Error | None:
        """Return why none of these runs is killed, or None if they are."""
        if not names:
            nothing = hostsvc.InvalidTaskIDs(message="Empty task ids")
            return hostsvc.KillTasksResponse.Error(invalidTaskIDs=nothing)
        return _failure(KILLS_DISABLED, names) if self._kills.disabled else None

    def DisableKillTasks(self, sent: hostsvc.DisableKillTasksRequest, context: Context) -> Any:
        """Stop killing for these services on this daemon, until it ends."""
        self._kills.disable()
        return hostsvc.DisableKillTasksResponse()

    def ReleaseHostsHeldForTasks(
        self, sent: hostsvc.ReleaseHostsHeldForTasksRequest, context: Context
    ) -> Any:
        """Release the hosts that are held for these tasks, if any."""
        tasks = [one.value for one in sent.ids]
        drop_task_holds(self._cluster_client, tasks, context=context)
        return hostsvc.ReleaseHostsHeldForTasksResponse()

    def ReserveHosts(self, sent: hostsvc.ReserveHostsRequest, context: Context) -> Any:
        """Let one of the hosts wait until it has room for the task."""
        task = sent.reservation.task
        try:
            need = resources_of(task.resource, "reservation.task.resource")
        except BadAmount as error:
            return _not_reserved(str(error))
        found = reserve_one(
            self._cluster_client,
            [host.hostname for host in sent.reservation.hosts],
            task=named_task(task.taskId, task.id),
            need=need,
            context=context,
        )
        if isinstance(found, str):
            return _not_reserved(found)
        return hostsvc.ReserveHostsResponse(host=_info(found.summary))

    def GetCompletedReservations(
        self, sent: hostsvc.GetCompletedReservationRequest, context: Context
    ) -> Any:
        """Return the reservations whose room is there, each with an offer that the client holds
        now."""
        found = hostsvc.GetCompletedReservationResponse()
        for hold, held in take_completed(self._cluster_client, context=context):
            name = client_name(held.summary.host)
            one = found.completedReservations.add(host=_info(held.summary))
            one.task.id.value = hold.task
            one.task.resource.cpuLimit = amount(hold.need.cpu)
            one.task.resource.memLimitMb = amount(hold.need.memory)
            one.task.resource.diskLimitMb = amount(hold.need.disk)
            one.task.resource.gpuLimit = amount(hold.need.gpu)
            offer = one.hostOffer
            offer.hostname, offer.agentId.value, offer.id.value = name, name, held.name
            offer.resources.extend(mesos_resources(held.resources))
            offer.attributes.extend(mesos_attributes(held.summary.labels))
        if not found.completedReservations:
            found.error.notFound.message = "no reservation is complete"
        return found


def _no_runs(missing: Sequence[str]) -> hostsvc.KillTasksResponse.Error | None:
    return _failure(no_runs_text(missing), missing) if missing else None


def _failure(text: str, names: Sequence[str]) -> hostsvc.KillTasksResponse.Error:
    tasks = [mesos.TaskID(value=name) for name in names]
    return hostsvc.KillTasksResponse.Error(
        killFailure=hostsvc.KillFailure(message=text, taskIds=tasks)
    )


def _not_reserved(text: str) -> hostsvc.ReserveHostsResponse:
    failed = hostsvc.ReservationFailed(message=text)
    return hostsvc.ReserveHostsResponse(error=hostsvc.ReserveHostsResponse.Error(failed=failed))


def _info(summary: HostSummary) -> hostsvc.HostInfo:
    name = client_name(summary.host)
    return hostsvc.HostInfo(
        hostname=name,
        agentId={"value": name},
        resources=mesos_resources(summary.capacity),
        attributes=mesos_attributes(summary.labels),
    )
