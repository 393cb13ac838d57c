"""Calls of ResourceManagerService by which programs of the original schedule tasks themselves.

Its job manager, host manager and placement engines get answers that they can go on with. Here tasks
report by themselves, queues take tasks from jobs only, and placers take what the queues admit; two
placers of one queue would place a task twice. So none of these calls may change a task, hand one
out or take one in: what is brought is refused by its reason, and a call that waits is told that
nothing came. What is preempted is ended here, so no call asks for it.
"""

from __future__ import annotations

import asyncio
from typing import Any

from peloton.gateway.cluster.cluster_client import Context
from peloton.gateway.server.long_calls import LongCall
from peloton.private.resmgrsvc import resmgrsvc_pb2 as resmgrsvc

WAIT_FOR_NOTHING_S_MAX = 10.0
"""Nobody waits longer in one call, whatever timeout is asked for: callers ask again."""
NOTHING_TO_EVICT = "no task has to leave its host: hosts in maintenance end their runs themselves"
OWN_PLACERS = "the cluster's own placers take all that its queues admit"
FROM_JOBS_ONLY = "queues take tasks from jobs only"


class OutsideSchedulers:
    """The calls of the service; one method for each, named as on the wire."""

    # ---- reports ----

    def UpdateTasksState(self, sent: resmgrsvc.UpdateTasksStateRequest, context: Context) -> Any:
        """Skip every report: the states of tasks are known from the tasks themselves."""
        return resmgrsvc.UpdateTasksStateResponse()

    def NotifyTaskUpdates(self, sent: resmgrsvc.NotifyTaskUpdatesRequest, context: Context) -> Any:
        """Skip every event, and say that none of them is needed any more."""
        purge = max((event.offset for event in sent.events), default=0)
        return resmgrsvc.NotifyTaskUpdatesResponse(purgeOffset=purge)

    # ---- waits for what never comes ----

    async def GetPreemptibleTasks(
        self, sent: resmgrsvc.GetPreemptibleTasksRequest, call: LongCall
    ) -> Any:
        """Return no task, after the timeout."""
        await _wait_ms(sent.timeout, call)
        late = resmgrsvc.RequestTimedout(message=NOTHING_TO_EVICT)
        error = resmgrsvc.GetPreemptibleTasksResponse.Error(timedout=late)
        return resmgrsvc.GetPreemptibleTasksResponse(error=error)

    async def DequeueGangs(self, sent: resmgrsvc.DequeueGangsRequest, call: LongCall) -> Any:
        """Return no gang, after the timeout."""
        await _wait_ms(sent.timeout, call)
        late = resmgrsvc.RequestTimedout(message=OWN_PLACERS)
        error = resmgrsvc.DequeueGangsResponse.Error(timedout=late)
        return resmgrsvc.DequeueGangsResponse(error=error)

    async def GetPlacements(self, sent: resmgrsvc.GetPlacementsRequest, call: LongCall) -> Any:
        """Return no placement, after the timeout; that is no error in the original."""
        await _wait_ms(sent.timeout, call)
        return resmgrsvc.GetPlacementsResponse()

    # ---- what others bring ----

    def SetPlacements(self, sent: resmgrsvc.SetPlacementsRequest, context: Context) -> Any:
        """Refuse each placement.

        Failed ones need not be taken back: their gangs were not handed out.
        """
        found = resmgrsvc.SetPlacementsResponse()
        for one in sent.placements:
            found.error.failure.failed.add(placement=one, message=OWN_PLACERS)
        return found

    def EnqueueGangs(self, sent: resmgrsvc.EnqueueGangsRequest, context: Context) -> Any:
        """Refuse each task."""
        found = resmgrsvc.EnqueueGangsResponse()
        for gang in sent.gangs:
            for task in gang.tasks:
                found.error.failure.failed.add(task=task, message=FROM_JOBS_ONLY)
        return found


async def _wait_ms(timeout_ms: int, call: LongCall) -> None:
    """Wait on the event loop, so that no thread is held."""
    left_s = call.time_remaining()
    wait_s = min(timeout_ms / 1000, WAIT_FOR_NOTHING_S_MAX)
    if left_s is not None:
        # A little before the deadline, so that the answer still arrives.
        wait_s = min(wait_s, left_s / 2)
    if wait_s > 0:
        await asyncio.sleep(wait_s)
