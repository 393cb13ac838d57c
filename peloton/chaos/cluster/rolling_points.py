"""A small history of workflows, at every port call of which a process may end.

A service is updated a batch at a time, loses instances, is paused and rolled back, stopped by a
workflow, and deleted. Each workflow has to come to its end; runs are not judged.
"""

from __future__ import annotations

from peloton.actors.job.messages import CreateJob
from peloton.actors.job.stages import JobStates
from peloton.actors.job.workflow.messages import (
    ControlWorkflow,
    ReplaceJob,
    RestartJob,
    WorkflowOptions,
    WorkflowOrders,
    WorkflowStates,
    WorkflowTypes,
)
from peloton.chaos.cluster.points import TINY, ScriptedHistory
from peloton.chaos.cluster.rules.aftermath import WantedJobs
from peloton.chaos.cluster.work.servicing import service_spec
from peloton.chaos.cluster.world.cluster import ClusterSetup
from peloton.chaos.cluster.world.machines import Fate
from peloton.runtime.vocabulary import Key, Message

BATCH = WorkflowOptions(batch=1)


class RollingHistory(ScriptedHistory):
    """The history of one service."""

    setup = ClusterSetup(TINY, lambda run: Fate(None))
    wanted: WantedJobs = {}

    def scenes(self) -> None:
        """Play the scenes until the service is gone."""
        cluster = self.cluster
        job = cluster.draw_job("s")
        cluster.clients.create("c1", job, message=CreateJob(service_spec(3), options=BATCH))
        self._reaches(job, 1, state=WorkflowStates.SUCCEEDED)
        self._orders(job, ReplaceJob(service_spec(2, "y"), options=BATCH))
        self._reaches(job, 2, state=WorkflowStates.SUCCEEDED)
        paused = WorkflowOptions(batch=1, paused=True)
        self._orders(job, ReplaceJob(service_spec(3, "z"), options=paused))
        self._reaches(job, 3, state=WorkflowStates.PAUSED)
        self._orders(job, ControlWorkflow(WorkflowOrders.ROLL_BACK))
        self._reaches(job, 4, state=WorkflowStates.ROLLED_BACK)
        self._orders(job, RestartJob(options=BATCH, kind=WorkflowTypes.STOP))
        self._reaches(job, 5, state=WorkflowStates.SUCCEEDED)
        self._until("it is stopped", lambda: self._state(job) == JobStates.KILLED)
        cluster.clients.delete("c1", job)
        self._until("it is gone", lambda: cluster.over() and not self._lives(job))

    def _orders(self, job: Key, message: Message) -> None:
        """Order a command and wait for its answer, so that orders keep their sequence."""
        order = self.cluster.clients.command("c1", job, message=message)
        self._until(f"{type(message).__name__} is answered", lambda: order.known)

    def _reaches(self, job: Key, version: int, *, state: WorkflowStates) -> None:
        def reached() -> bool:
            found = self.cluster.world.cells("job").get(job)
            workflow = found.workflow if found is not None else None
            return workflow is not None and (workflow.version, workflow.state) == (version, state)

        self._until(f"config {version} is {state.name}", reached)

    def _state(self, job: Key) -> JobStates | None:
        found = self.cluster.world.cells("job").get(job)
        return found.state if found is not None else None
