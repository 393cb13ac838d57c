"""Services during a storm: jobs that run for ever, until a client stops them.

Turns a scenario's action into operations of clients, and a cluster in a calm into one in which each
service that nobody stopped was seen to run with all its instances (R7), and is then stopped: a
storm ends only when nothing runs. That no service ends by itself (R33) is checked by the clients'
answers, in `history.py`. Runs of a service end as any others, so most of its time is pauses.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from peloton.actors.job.messages import CreateJob, StartInstances, StartJob
from peloton.actors.job.slice.task_config import Command, TaskConfig
from peloton.actors.job.spec import SERVICE, JobSpec
from peloton.actors.job.state import Job
from peloton.actors.job.workflow.messages import WorkflowOptions
from peloton.actors.task.messages import SLICE_SIZE
from peloton.actors.task.run_messages import HealthCheck
from peloton.chaos.cluster.rules.liveness import reach
from peloton.chaos.cluster.work.drawing import ActionDraw, by_weight
from peloton.chaos.cluster.work.workload import client_of, cluster_of, create_job
from peloton.chaos.cluster.world.cluster import NEED, STORM_POOL, SimulatedCluster
from peloton.runtime.simulation.scenario import StormAction
from peloton.runtime.simulation.storms import Storm
from peloton.runtime.vocabulary import Bits, Key

SHARE = 0.2
ACTIONS = (2, 5)
SIZES = (1, 2, 3, 5)
OPERATOR = "operator"
Choice = Callable[[Storm, StormAction], Key | None]
"""Which job an action is about, if there is one."""
CHECKED_SHARE, ILL_SHARES = 0.5, (0.0, 0.2, 0.6)
CHECK = {"initial_s": 0.05, "interval_s": 0.5, "max_failures": 2}
"""So short that most runs are checked before they end."""


def health_of(seed: int) -> tuple[HealthCheck | None, float]:
    """Draw how services of a storm are checked, and the share of their runs that is not healthy.

    They are drawn separately, so that older seeds keep their storms.
    """
    chance = random.Random(f"{seed} health")
    if chance.random() >= CHECKED_SHARE:
        return None, 0.0
    ill = chance.choice(ILL_SHARES)
    readiness = HealthCheck("ready", **CHECK)
    check, ready = HealthCheck("check", **CHECK), HealthCheck(readiness=readiness)
    both = HealthCheck("check", **CHECK, readiness=readiness)
    later = random.Random(f"{seed} readiness")
    return later.choice((check, check, ready, both)), ill


def create_service(storm: Storm, action: StormAction) -> None:
    """Create a service of a few instances; some are added by a workflow."""
    storm.strike(action.name)
    paced = WorkflowOptions(batch=1) if action.other % 3 == 0 else None
    cluster = cluster_of(storm)
    spec = service_spec(action.count, check=cluster.machines.check)
    create_job(cluster, action, message=CreateJob(spec, options=paced))


def service_spec(
    instances: int, command: str = "x", *, bound: int = 0, check: HealthCheck | None = None
) -> JobSpec:
    """Return the spec of a service of a storm."""
    default = TaskConfig(
        command=Command(command), resources=NEED, health_check=check is not None, check=check
    )
    return JobSpec(
        "service", "me", STORM_POOL, max(1, instances), default,
        job_type=SERVICE, maximum_unavailable=bound,
    )  # fmt: skip


def is_service(message: Any) -> bool:
    """Return whether this creates a service."""
    return isinstance(message, CreateJob) and message.spec.job_type == SERVICE


def service_of(
    storm: Storm, action: StormAction, *, is_one: Callable[[Any], bool] = is_service
) -> Key | None:
    """Return one of the services that clients wanted, of those created by `is_one`."""
    wanted = dict.fromkeys(
        each.operation.job for each in cluster_of(storm).clients.requests if is_one(each.message)
    )
    return [*wanted][action.which % len(wanted)] if wanted else None


def start_service(
    storm: Storm, action: StormAction, *, of: Choice = service_of, again_every: int = 0
) -> None:
    """Start a service, stopped or not; one time in `again_every`, give its instances new runs."""
    job = of(storm, action)
    if job is None:
        return
    storm.strike(action.name, job)
    again = again_every and action.other % again_every == 0
    message = StartInstances(again=True) if again else StartJob()
    cluster_of(storm).clients.change(client_of(action), job, message=message)


def stop_service(storm: Storm, action: StormAction, *, of: Choice = service_of) -> None:
    """Stop a service, or a part of it: the service goes on without that."""
    job, clients = of(storm, action), cluster_of(storm).clients
    if job is None:
        return
    storm.strike(action.name, job)
    if action.other % 2:
        clients.stop(client_of(action), job)
    else:
        clients.stop_some(client_of(action), job, ranges=((0, 1 + action.other % 3),))


class ServicesRun:
    """The instances of services that were seen to run since this was made."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._seen: set[str] = set()

    def all_seen(self) -> bool:
        """Return whether each instance that is to run was seen to; called after every step."""
        self._seen.update(run.rpartition("-")[0] for run in self._cluster.machines.running)
        return all(
            name in self._seen for job in wanted_services(self._cluster) for name in _wanted(job)
        )


def wanted_services(cluster: SimulatedCluster) -> list[Job]:
    """Return the services that nobody stopped or deleted, as they are at their owners."""
    jobs: list[Job] = [*cluster.cells("job").values()]
    return [each for each in jobs if each.spec and each.spec.job_type == SERVICE and each.is_wanted]


def _wanted(job: Job) -> list[str]:
    """Return the names of the instances that nobody stopped."""
    assert job.spec is not None
    of_slices = (job.stopped.get(number, Bits()) for number in range(job.slices))
    stopped = {
        number * SLICE_SIZE + member for number, some in enumerate(of_slices) for member in some
    }
    name = job.key.partition("/")[2]
    return [f"{name}-{each}" for each in range(job.spec.instances) if each not in stopped]


def end_all(cluster: SimulatedCluster, *, within_s: float) -> None:
    """Check R7, in a calm: every instance of a service runs once more; then stop them."""
    clients, seen = cluster.clients, ServicesRun(cluster)

    def all_run() -> bool:
        return seen.all_seen() and not clients.waiting and cluster.world.whole()

    if any(is_service(each.message) for each in clients.requests):
        reach(cluster, all_run, within_s=within_s)
    for job in wanted_services(cluster):
        clients.stop(OPERATOR, job.key)


WORK: dict[str, Callable[[Storm, StormAction], None]] = {
    "create service": create_service,
    "start service": start_service,
    "stop service": stop_service,
}
WEIGHTS = {"create service": 3, "start service": 2, "stop service": 2}

DRAWN = ActionDraw(
    "services", SHARE, ACTIONS, by_weight(WEIGHTS), lambda chance: chance.choice(SIZES)
)
