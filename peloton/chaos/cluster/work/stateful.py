"""Services with volumes during a storm: R36, an instance runs where its volume is, or waits.

Turns scenario actions into stateful services that end, fail, are stopped, started, restarted and
replaced as others are, and into volumes that are deleted as the gateway does it: the slice first,
then the host, and now and then the slice alone, as if the call had been cut off. That each volume
is on one host, is removed only once it was given up, and no run has another, is judged by the
ledger of facts after each step. No volume is deleted by the host alone: no caller does that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from peloton.actors.host.machine_messages import DeleteVolume, VolumeConfig, volume_name
from peloton.actors.host.messages import CompleteMaintenance, StartMaintenance
from peloton.actors.host.stages import Maintenance
from peloton.actors.host.state import Host
from peloton.actors.job.messages import CreateJob, StartJob
from peloton.actors.job.slice.messages import LeaveVolume, VolumeLeft, slice_key
from peloton.actors.job.slice.task_config import Command, Override, TaskConfig
from peloton.actors.job.spec import SERVICE, JobSpec
from peloton.actors.task.messages import crowd_key
from peloton.chaos.cluster.work.drawing import ActionDraw, by_weight
from peloton.chaos.cluster.work.servicing import (
    service_of,
    start_service,
    stop_service,
    wanted_services,
)
from peloton.chaos.cluster.work.workload import client_of, cluster_of, create_job
from peloton.chaos.cluster.world.cluster import NEED, STORM_POOL, SimulatedCluster
from peloton.runtime.core.turning.envelope import Envelope
from peloton.runtime.simulation.scenario import StormAction
from peloton.runtime.simulation.storms import Storm
from peloton.runtime.vocabulary import Key

SHARE = 0.2
ACTIONS = (3, 8)
SIZES = (1, 2, 3)
VOLUME, OF_ITS_OWN = VolumeConfig("data", 40), VolumeConfig("data", 7)
"""So small that hosts have room for all that a storm makes."""
STOPPED_S = 4.0
"""So long after the order to stop it an instance has mostly ended."""
AGAIN_S = 1.0
CREATE = "create stateful"


def create_stateful(storm: Storm, action: StormAction) -> None:
    """Create a service of instances with volumes; the last one's may have a size of its own."""
    storm.strike(action.name)
    cluster = cluster_of(storm)
    last = Override(max(1, action.count) - 1, TaskConfig(volume=OF_ITS_OWN))
    own = () if action.other % 2 else ((0, (last,)),)
    check = cluster.machines.check
    default = TaskConfig(
        command=Command("x"), resources=NEED, health_check=check is not None, check=check,
        volume=VOLUME,
    )  # fmt: skip
    spec = JobSpec(
        "stateful", "me", STORM_POOL, last.instance + 1, default,
        job_type=SERVICE, own_configs=len(own),
    )  # fmt: skip
    create_job(cluster, action, message=CreateJob(spec, own))


def delete_volume(storm: Storm, action: StormAction) -> None:
    """Stop an instance, and a while later delete its volume, or start it again.

    The deletion is refused if the instance is to run by then.
    """
    job, clients = stateful_of(storm, action), cluster_of(storm).clients
    if job is None:
        return
    storm.strike(action.name, job)
    name, client, member = job.partition("/")[2], client_of(action), action.other % max(SIZES)

    def left(answer: Any) -> None:
        if isinstance(answer, VolumeLeft) and answer.host:
            storm.strike(f"{action.name}: left", job)
            if action.which % 4:
                order = DeleteVolume(volume_name(crowd_key(name, 0), member))
                clients.command(client, answer.host, message=order, keyed=False)
            elif action.other % 4 and storm.raging:  # in the calm services are stopped for good
                clients.change(client, job, message=StartJob())

    def ask() -> None:
        at = slice_key(name, 0)
        clients.command(client, at, message=LeaveVolume(member), answered=left, keyed=False)

    clients.stop_some(client, job, ranges=((member, member + 1),))
    world = cluster_of(storm).world
    world.later.at(world.now + STOPPED_S, ask)


def is_stateful(message: Any) -> bool:
    """Return whether this creates a service with volumes."""
    return isinstance(message, CreateJob) and message.spec.default.volume is not None


stateful_of = partial(service_of, is_one=is_stateful)
"""One of the stateful services that clients wanted."""


def free_homes(cluster: SimulatedCluster, until: float, *, mine: tuple[Key, ...] = ()) -> None:
    """End the quarantine of stateful services' hosts by a short maintenance, until then.

    By itself it lasts longer than a calm, and such services wait for it. `mine`: the hosts whose
    maintenance began so.
    """
    hosts: dict[Key, Host] = cluster.cells("host")
    begun = [] if cluster.clients.waiting else [*_quarantined_homes(cluster)]
    mine = (*dict.fromkeys((*mine, *begun)),)
    down = [key for key, host in hosts.items() if host.maintenance == Maintenance.DOWN]
    ended = [each for each in down if each in mine]
    for daemon in cluster.world.living()[:1]:
        daemon.region.tell([Envelope(each, StartMaintenance()) for each in begun])
        daemon.region.tell([Envelope(each, CompleteMaintenance()) for each in ended])
    again = cluster.world.now + AGAIN_S
    if again < until:
        cluster.world.later.at(again, lambda: free_homes(cluster, until, mine=mine))


def _quarantined_homes(cluster: SimulatedCluster) -> Iterator[Key]:
    wanted = {crowd_key(job.key.partition("/")[2], 0) for job in wanted_services(cluster)}
    for key, host in cluster.cells("host").items():
        is_home = any(each.crowd in wanted for each in host.volumes.values())
        if is_home and host.quarantine is not None and host.maintenance == Maintenance.NONE:
            yield key


WORK: dict[str, Callable[[Storm, StormAction], None]] = {
    CREATE: create_stateful,
    "start stateful": partial(start_service, of=stateful_of, again_every=3),
    "stop stateful": partial(stop_service, of=stateful_of),
    "delete volume": delete_volume,
}
WEIGHTS = {CREATE: 5, "start stateful": 3, "stop stateful": 3, "delete volume": 3}

DRAWN = ActionDraw(
    "stateful", SHARE, ACTIONS, by_weight(WEIGHTS), lambda chance: chance.choice(SIZES)
)
