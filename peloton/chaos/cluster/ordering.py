"""What clients do in some storms: jobs that wait for others, have a deadline, or want their name.

Turns an action of a plan into operations of clients, like `workload.py`. Below the feature level of
such jobs all are refused, which is an answer like any other. It must not judge a clock.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from peloton.actors.job.messages import CreateJob, GetJob, JobView, StartInstances
from peloton.actors.job.spec import After, Command, Deadline, JobSpec, TaskConfig
from peloton.chaos.cluster.cluster import NEED, STORM_POOL, SimulatedCluster
from peloton.chaos.cluster.drawing import ActionDraw, any_of
from peloton.chaos.cluster.history import Asked
from peloton.chaos.cluster.workload import cluster_of, create_job
from peloton.runtime.simulation.plan import StormAction
from peloton.runtime.simulation.scan import Contradiction
from peloton.runtime.simulation.storms import Storm
from peloton.runtime.vocabulary import Key

SHARE = 0.3
"""Of storms; in the others no job ends without an end of its instances, or a client's order."""
ACTIONS_MAX = 6
STATES = ("SUCCEEDED", "ENDED", "FAILED", "KILLED")
ANSWER_S_MAX = 60.0
NAMES = ("only", "lone")
LABELS = {"after": "after", "deadline": "deadline", "unique": "name_unique"}
"""By these a client sees that a job may stop itself."""


def create_after(storm: Storm, action: StormAction) -> None:
    """A job after one or two others, which may have ended, or never come to be."""
    cluster = cluster_of(storm)
    others = cluster.jobs or [cluster.nobody]
    chosen = {others[at % len(others)]: None for at in (action.which, action.other)[: action.count]}
    state = STATES[action.other % len(STATES)]
    after = tuple(After(other, state) for other in chosen)
    _create(storm, action, after=after, unique=action.other % 3 == 0)


def create_until(storm: Storm, action: StormAction) -> None:
    """A job with a short deadline."""
    seconds = 0.5 + action.other % 8
    _create(storm, action, deadline=Deadline(f"{seconds:g}s", seconds))


def create_unique(storm: Storm, action: StormAction) -> None:
    """A job that wants one of a few names for itself; nobody reserved it."""
    _create(storm, action, unique=True, name=NAMES[action.other % len(NAMES)])


def begun_in_order(cluster: SimulatedCluster) -> None:
    """R7: no instance of a job began unless the others had ended as they had to.

    Clocks of daemons are set and drift in a storm, so only how they ended is compared.
    """
    requests = cluster.clients.requests
    again = {each.operation.job for each in requests if isinstance(each.message, StartInstances)}
    for job in dict.fromkeys(each.job for each in cluster.clients.history if _is_create(each)):
        view = _view(cluster, job)
        if view is None or job in again or not view.summary.started_at:
            continue
        for after in view.spec.after:
            other = _view(cluster, after.job)
            if other is None or after.job in again:
                continue  # deleted since, or its end was not its last
            if after.state not in ("ENDED", other.summary.state.name):
                text = f"began after {after}, which is {other.summary.state.name}"
                raise Contradiction(f"R7 {job} {text}")


def names_are_free(cluster: SimulatedCluster) -> None:
    """R7: all jobs have ended, so nobody holds a name."""
    held = cluster.cells("name")
    if held:
        raise Contradiction(f"R7 names are held by jobs that have ended: {held}")


def _is_create(operation: Any) -> bool:
    return operation.what is Asked.CREATE


def _view(cluster: SimulatedCluster, job: Key) -> JobView | None:
    operation = cluster.clients.command("checks", job, message=GetJob())
    cluster.world.run_until(lambda: operation.known, within_s=ANSWER_S_MAX)
    return operation.answer if isinstance(operation.answer, JobView) else None


def _create(storm: Storm, action: StormAction, **fields: Any) -> None:
    cluster = cluster_of(storm)
    labels = tuple((f"peloton.{LABELS[field]}", "") for field in fields if field in LABELS)
    name = fields.pop("name", "ordered")
    default = TaskConfig(command=Command("x"), resources=NEED)
    spec = JobSpec(name, "me", STORM_POOL, max(1, action.count), default, labels=labels, **fields)
    storm.strike(action.name)
    create_job(cluster, action, message=CreateJob(spec))


WORK: dict[str, Callable[[Storm, StormAction], None]] = {
    "create after": create_after,
    "create until": create_until,
    "create unique": create_unique,
}


DRAWN = ActionDraw(
    "ordering",
    SHARE,
    (1, ACTIONS_MAX),
    any_of(WORK),
    lambda chance: chance.randrange(4),
)
