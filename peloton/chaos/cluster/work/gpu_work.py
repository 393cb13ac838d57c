"""Jobs with gpus during a storm, so that hosts give out devices and take them back.

Turns a scenario's action into a job whose instances need whole gpus. A storm that has such jobs has
hosts with gpus; others keep theirs without, so older seeds keep their storms. `HostUsage.give`
judges which run gets which device.
"""

from __future__ import annotations

from collections.abc import Callable

from peloton.actors.job.messages import CreateJob
from peloton.actors.job.slice.task_config import Command, TaskConfig
from peloton.actors.job.spec import JobSpec
from peloton.actors.resources import UNIT, Resources
from peloton.chaos.cluster.work.drawing import ActionDraw
from peloton.chaos.cluster.work.workload import CLIENTS, cluster_of
from peloton.chaos.cluster.world.cluster import HOST_CAPACITY, NEED, STORM_POOL
from peloton.runtime.simulation.scenario import StormAction
from peloton.runtime.simulation.storms import Storm

HOST_GPUS = 3
WITH_GPUS = HOST_CAPACITY + Resources(gpu=HOST_GPUS * UNIT)
GPUS = (1, 1, 2, 3)
"""What one instance of a job needs; no sum of ones and twos leaves every host full."""


def create_with_gpus(storm: Storm, action: StormAction) -> None:
    """Create a job that needs gpus."""
    cluster = cluster_of(storm)
    if not cluster.setup.host_capacity.gpu:
        return
    need = NEED + Resources(gpu=GPUS[action.which % len(GPUS)] * UNIT)
    config = TaskConfig(command=Command("x"), resources=need)
    spec = JobSpec("with gpus", "me", STORM_POOL, max(1, action.count), config)
    client = CLIENTS[action.other % len(CLIENTS)]
    cluster.clients.create(client, cluster.draw_job(), message=CreateJob(spec))


WORK: dict[str, Callable[[Storm, StormAction], None]] = {"create with gpus": create_with_gpus}
DRAWN = ActionDraw(
    "gpus", 0.15, (2, 6), lambda chance: [*WORK][0], lambda chance: chance.choice((1, 2, 3, 8))
)


def capacity(actions: tuple[StormAction, ...]) -> Resources:
    """Return the capacity of each host of a storm with these actions."""
    return WITH_GPUS if any(action.name in WORK for action in actions) else HOST_CAPACITY
