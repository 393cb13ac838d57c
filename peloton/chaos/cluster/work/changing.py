"""Clients that start, restart and update existing jobs, in some storms.

Turns a scenario's action into operations of clients, like `workload.py`.
"""

from __future__ import annotations

from collections.abc import Callable

from peloton.actors.job.messages import CreateJob, StartInstances, UpdateJob
from peloton.actors.job.spec import JobSpec
from peloton.chaos.cluster.work.drawing import ActionDraw, any_of
from peloton.chaos.cluster.work.workload import client_of, cluster_of
from peloton.runtime.simulation.scenario import StormAction
from peloton.runtime.simulation.storms import Storm
from peloton.runtime.vocabulary import Key, Message

SHARE = 0.3
"""Of storms; in the others nobody changes a job, so that what was stopped has to stay so."""
ACTIONS_MAX = 6


def start(storm: Storm, action: StormAction) -> None:
    """Start all of a job, or some instances, that were stopped."""
    _order(storm, action, message=StartInstances(_ranges(action)))


def restart(storm: Storm, action: StormAction) -> None:
    """Restart all of a job, or some instances, whatever their state."""
    _order(storm, action, message=StartInstances(_ranges(action), again=True))


def update(storm: Storm, action: StormAction) -> None:
    """Update a job to more instances, or fewer, which is refused; sometimes to another limit."""
    job = _job(storm, action)
    made = [
        each.message.spec
        for each in cluster_of(storm).clients.requests
        if isinstance(each.message, CreateJob) and each.operation.job == job
    ]
    if job is None or not made:
        return
    spec = made[0]
    count = max(spec.instances + action.count - 1, 1)
    limit = (spec.maximum_running, 0, 1, 3)[action.other % 4]
    limit = min(limit, count)
    more = JobSpec(
        spec.name,
        spec.owner,
        spec.pool,
        count,
        spec.default,
        maximum_running=limit,
        max_running_time_s=spec.max_running_time_s * (1 + action.other % 2),
    )
    _order(storm, action, message=UpdateJob(more))


def _order(storm: Storm, action: StormAction, *, message: Message) -> None:
    job = _job(storm, action)
    if job is not None:
        storm.strike(action.name, job)
        client = client_of(action)
        cluster_of(storm).clients.change(client, job, message=message)


def _ranges(action: StormAction) -> tuple[tuple[int, int], ...]:
    return ((0, 1 + action.other % 3),) if action.other % 2 else ()


def _job(storm: Storm, action: StormAction) -> Key | None:
    jobs = cluster_of(storm).jobs
    return jobs[action.which % len(jobs)] if jobs else None


WORK: dict[str, Callable[[Storm, StormAction], None]] = {
    "start": start,
    "restart": restart,
    "update": update,
}


DRAWN = ActionDraw(
    "changing",
    SHARE,
    (1, ACTIONS_MAX),
    any_of(WORK),
    lambda chance: chance.randrange(4),
)
