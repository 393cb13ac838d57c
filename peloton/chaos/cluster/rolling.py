"""Workflows of services during a storm: updates and restarts, paused, resumed and aborted.

Turns an action of a plan into commands of clients; and a cluster in a calm into one in which each
service that has had a workflow is given another command once more, an instance at a time, and that
workflow succeeds (R7): none is stuck, whatever became of those before. What an aborted workflow
left to be added is added by it, so it must not be left out.
"""

from __future__ import annotations

from collections.abc import Callable

from peloton.actors.job.messages import ControlWorkflow, ReplaceJob, RestartJob
from peloton.actors.job.record import Job
from peloton.actors.job.workflow.messages import (
    WorkflowOptions,
    WorkflowOrders,
    WorkflowStates,
)
from peloton.chaos.cluster.cluster import SimulatedCluster
from peloton.chaos.cluster.drawing import ActionDraw, by_weight
from peloton.chaos.cluster.liveness import reach
from peloton.chaos.cluster.servicing import OPERATOR, service_of, service_spec, wanted_services
from peloton.chaos.cluster.workload import client_of, cluster_of
from peloton.runtime.simulation.plan import StormAction
from peloton.runtime.simulation.storms import Storm

SHARE = 0.5
ACTIONS = (2, 6)
SIZES = 6
"""Instances that services are given at most."""
COMMANDS = 3
"""Different configs that services are given."""
BEGUN_OR_ORDERED = ReplaceJob | RestartJob | ControlWorkflow
"""What workflows come from, or may have left them paused: a creation is one as well."""
ORDERS = (WorkflowOrders.PAUSE, WorkflowOrders.RESUME, WorkflowOrders.ABORT)


def replace_service(storm: Storm, action: StormAction) -> None:
    """Give a service another command, or as many instances more; rolled back or not."""
    job = service_of(storm, action)
    known = cluster_of(storm).cells("job").get(job) if job is not None else None
    if job is None or known is None or known.spec is None:
        return
    storm.strike(action.name, job)
    more = int(action.other % 5 == 0)
    spec = service_spec(
        known.spec.instances + more,
        f"x{action.other % COMMANDS}",
        check=cluster_of(storm).machines.check,
    )
    options = WorkflowOptions(
        batch=action.count,
        max_attempts=action.other % 3,
        tolerated=action.other % 2,
        back=not more and action.other % 4 == 1,
        paused=action.other % 7 == 0,
    )
    message = ReplaceJob(spec, options=options)
    cluster_of(storm).clients.command(client_of(action), job, message=message)


def restart_service(storm: Storm, action: StormAction) -> None:
    """Begin new runs of a part of a service, stopped or not."""
    job = service_of(storm, action)
    if job is None:
        return
    storm.strike(action.name, job)
    ranges = ((0, 1 + action.other % 3),) if action.other % 2 else ()
    message = RestartJob(ranges, WorkflowOptions(batch=action.count))
    cluster_of(storm).clients.change(client_of(action), job, message=message)


def control_workflow(storm: Storm, action: StormAction) -> None:
    """Pause, resume or abort the workflow of a service, if it has one."""
    job = service_of(storm, action)
    if job is None:
        return
    storm.strike(action.name, job)
    message = ControlWorkflow(ORDERS[action.other % len(ORDERS)])
    cluster_of(storm).clients.command(client_of(action), job, message=message)


def resize_service(storm: Storm, action: StormAction) -> None:
    """Give a service more instances or fewer, with another command or the same."""
    job = service_of(storm, action)
    known = cluster_of(storm).cells("job").get(job) if job is not None else None
    if job is None or known is None or known.spec is None:
        return
    storm.strike(action.name, job)
    spec = service_spec(1 + action.other % SIZES, f"x{action.other % COMMANDS}")
    options = WorkflowOptions(
        batch=action.count,
        max_attempts=action.other % 2,
        tolerated=action.other % 2,
        back=action.other % 3 == 0,
        paused=action.other % 5 == 0,
    )
    message = ReplaceJob(spec, options=options)
    cluster_of(storm).clients.command(client_of(action), job, message=message)


def undo_workflow(storm: Storm, action: StormAction) -> None:
    """Roll the workflow of a service back, if it has one."""
    job = service_of(storm, action)
    if job is not None:
        storm.strike(action.name, job)
        message = ControlWorkflow(WorkflowOrders.ROLL_BACK)
        cluster_of(storm).clients.command(client_of(action), job, message=message)


def settle(cluster: SimulatedCluster, *, within_s: float) -> None:
    """R7, in a calm: whatever workflows have left, the next one comes to its end."""
    clients = cluster.clients

    def quiet() -> bool:
        return not clients.waiting and cluster.world.whole()

    if not any(isinstance(each.message, BEGUN_OR_ORDERED) for each in clients.requests):
        return
    reach(cluster, quiet, within_s=within_s)
    for job in _rolled(cluster):
        clients.command(OPERATOR, job.key, message=ControlWorkflow(WorkflowOrders.ABORT))
    reach(cluster, quiet, within_s=within_s)
    for job in _rolled(cluster):
        assert job.spec is not None
        bound, check = job.spec.maximum_unavailable, cluster.machines.check
        spec = service_spec(job.spec.instances, "last", bound=bound, check=check)
        message = ReplaceJob(spec, options=WorkflowOptions(batch=1))
        clients.command(OPERATOR, job.key, message=message)

    def all_done() -> bool:
        return quiet() and all(map(_is_done, _rolled(cluster)))

    reach(cluster, all_done, within_s=within_s)


def _rolled(cluster: SimulatedCluster) -> list[Job]:
    return [job for job in wanted_services(cluster) if job.workflow is not None]


def _is_done(job: Job) -> bool:
    return job.workflow is not None and job.workflow.state == WorkflowStates.SUCCEEDED


WORK: dict[str, Callable[[Storm, StormAction], None]] = {
    "replace service": replace_service,
    "restart service": restart_service,
    "control workflow": control_workflow,
}
RESIZES: dict[str, Callable[[Storm, StormAction], None]] = {
    "resize service": resize_service,
    "undo workflow": undo_workflow,
}
WEIGHTS = {"replace service": 4, "restart service": 2, "control workflow": 2}

DRAWN = ActionDraw(
    "workflows", SHARE, ACTIONS, by_weight(WEIGHTS), lambda chance: chance.choice((0, 1, 2))
)
RESIZED = ActionDraw(
    "resizes",
    SHARE,
    ACTIONS,
    by_weight({"resize service": 3, "undo workflow": 1}),
    lambda chance: chance.choice((0, 1, 2)),
)
"""Drawn apart: what is drawn above is part of older seeds."""
