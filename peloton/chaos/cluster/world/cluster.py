"""A whole simulated cluster from one seed: daemons, hosts, machines, pools and clients.

Turns a seed into a fleet that runs jobs. `checks.py` and `history.py` judge it.

    cluster = SimulatedCluster(seed=7, daemons=3, hosts=4)
    job = cluster.create(instances=5)
    cluster.world.run_until(cluster.over, within_s=300)
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, NamedTuple

from peloton.actors.engine.messages import AskSubscription, OpenBackend
from peloton.actors.host import messages as host_messages
from peloton.actors.host.stages import HostStates
from peloton.actors.job.kind import FINISHED_JOBS_MAX
from peloton.actors.job.messages import CreateJob, StartInstances, job_key
from peloton.actors.job.slice.parking import ParkingPolicy
from peloton.actors.job.slice.task_config import Command, TaskConfig
from peloton.actors.job.spec import JobSpec
from peloton.actors.job.workflow.messages import RestartJob
from peloton.actors.resources import UNIT, Resources
from peloton.actors.respool.messages import ROOT, CreatePool, PoolConfig, pool_key
from peloton.actors.respool.reclaims import PreemptionPolicy
from peloton.assembly.kinds import ArchivePolicy, kinds
from peloton.chaos.cluster.world import view
from peloton.chaos.cluster.world.clients import Clients
from peloton.chaos.cluster.world.feed_readers import FeedReader
from peloton.chaos.cluster.world.furnished import SIZES, WORLD_ROLES, FurnishedWorld
from peloton.chaos.cluster.world.history import Operation
from peloton.chaos.cluster.world.machines import (
    Fate,
    RunFates,
)
from peloton.chaos.cluster.world.subscription import (
    MACHINES_ENGINE,
    EngineLink,
    Master,
)
from peloton.runtime.core.turning.envelope import Envelope
from peloton.runtime.shells.daemon_context import DaemonLimits
from peloton.runtime.simulation.daemon import SimulatedDaemon
from peloton.runtime.simulation.twice import TwiceCheck
from peloton.runtime.vocabulary import Key, key, kind_of

HOST_CAPACITY = Resources(4 * UNIT, 4096 * UNIT, 4096 * UNIT, 0)
NEED = Resources(UNIT, UNIT, 0, 0)
SETUP_EVERY_S = 3.0
POOL_KEPT_S = 60.0
"""So long after the first sight of the pool it is certain that it is durable."""
STORM_POOL = pool_key("p")


class ClusterSetup(NamedTuple):
    """The setup of a cluster, apart from its size."""

    limits: DaemonLimits = DaemonLimits()
    fates: RunFates = lambda run: Fate()
    unreachable_timeout_s: float = 60.0
    """After so long out of reach a host counts as lost."""
    finished_jobs_max: int = FINISHED_JOBS_MAX
    quarantine_after: int = 0
    furnish_s_max: float = 0.0
    host_capacity: Resources = HOST_CAPACITY
    checked: bool = True
    """Whether a `CheckedCluster` makes its checks."""
    roles: tuple[tuple[str, ...], ...] = ()
    """Of each daemon; those beyond the last have all roles."""
    outside: bool = False
    """Whether the machines exist once, and one daemon is subscribed to them."""
    twice: bool = False
    """Whether each message is decided a second time, which must change nothing."""
    policy: ArchivePolicy = ArchivePolicy()
    preemption: PreemptionPolicy = PreemptionPolicy()
    parking: ParkingPolicy = ParkingPolicy()


class SimulatedCluster(FurnishedWorld):
    """A furnished world with hosts, a pool and clients."""

    def __init__(
        self,
        *,
        seed: int,
        daemons: int = 3,
        hosts: int = 3,
        sizes: Mapping[str, int] = SIZES,
        setup: ClusterSetup = ClusterSetup(),  # noqa: B008
    ) -> None:
        found = kinds(
            sizes,
            policy=setup.policy._replace(finished_jobs_max=setup.finished_jobs_max),
            quarantine=setup.quarantine_after,
            preemption=setup.preemption,
            parking=setup.parking,
        )
        self.twice = TwiceCheck(restarts)
        if setup.twice:
            found = self.twice.watched(found)
        super().__init__(found, seed=seed, fates=setup.fates, sizes=sizes, limits=setup.limits)
        self.world.furnish_s_max = setup.furnish_s_max
        self.setup = setup
        self.clients = Clients(self.world, random.Random(f"{seed} clients"))
        self.hosts = [key("host", f"h{number}") for number in range(hosts)]
        self.master: Master | None = None
        if setup.outside:
            self.master = Master(self.backend, self.hosts)
            self.backend.address, self.backend.carrier = MACHINES_ENGINE, self.master.who
        self.jobs: list[Key] = []
        self.readers: list[FeedReader] = []
        for number in range(daemons):
            roles = setup.roles[number] if number < len(setup.roles) else WORLD_ROLES
            self.world.start(f"d{number + 1}", roles=roles)
        self._set_up()

    # ---- what clients do ----

    def create(
        self, instances: int = 1, *, client: str = "c1", name: str = "", **config: object
    ) -> Operation:
        """Create a job; its id is chosen by the client, as on a repeat of a lost creation."""
        job = self.draw_job(name)
        return self.clients.create(client, job, message=CreateJob(job_spec(instances, **config)))

    def draw_job(self, name: str = "") -> Key:
        """Return the id of a new job."""
        job = job_id(name or f"j{len(self.jobs) + 1}")
        self.jobs.append(job)
        return job

    @property
    def nobody(self) -> Key:
        """The id of a job that is never created."""
        return job_id("none")

    def pool_config(self, limit: Resources) -> PoolConfig:
        """Return the config of the one pool."""
        return PoolConfig("p", ROOT, Resources(), limit)

    # ---- what there is ----

    def ready(self) -> bool:
        """Return whether every shard is open, every host is known, and the pool exists."""
        world = self.world
        return (
            world.whole()
            and len(world.cells("host")) == len(self.hosts)
            and STORM_POOL in world.cells("respool")
            and (self.master is None or MACHINES_ENGINE in world.cells("engine"))
        )

    def over(self) -> bool:
        """Return whether every job has ended or is deleted, and no run or request is left."""
        return not self.clients.waiting and self.world.whole() and view.over(self)

    def cells(self, kind: str) -> dict[Key, Any]:
        """Return every state of one kind that is in memory at an owner."""
        return self.world.cells(kind)

    def crowds(self) -> dict[Key, Any]:
        """Return every crowd that is in memory at an owner."""
        return self.world.crowds()

    def furnish_backend(self, daemon: SimulatedDaemon) -> None:
        """Register what takes the orders of hosts: of machines that exist once, the link."""
        if self.master is None:
            super().furnish_backend(daemon)
        else:
            link = EngineLink(self.backend, self.master, daemon=daemon, hosts=self.hosts)
            daemon.region.register_service("link", link, outward=True)

    # ---- inside ----

    def _set_up(self) -> None:
        """Send the configs of all hosts and pools as the operator until all of them exist."""
        if self.ready():
            self._keep_pool(self.world.now + POOL_KEPT_S)
            return
        for daemon in self.world.living()[:1]:
            configs = self._configs()
            daemon.region.tell([each for each in configs if not self._is_known(each)])
        self.world.later.at(self.world.now + SETUP_EVERY_S, self._set_up)

    def _keep_pool(self, until: float) -> None:
        """Create the pool again if it is gone: its owner may have lost the frame that made it."""
        world = self.world
        if world.whole() and STORM_POOL not in world.cells("respool"):
            creation = self._configs()[-1]
            for daemon in world.living()[:1]:
                daemon.region.tell([creation])
        if world.now < until:
            world.later.at(world.now + SETUP_EVERY_S, lambda: self._keep_pool(until))

    def _configs(self) -> list[Envelope]:
        capacity, address = self.setup.host_capacity, self.backend.address
        configured = host_messages.ConfigureHost(
            capacity,
            (),
            address,
            unreachable_timeout_s=self.setup.unreachable_timeout_s,
        )
        config = self.pool_config(capacity.times(len(self.hosts)))
        return [
            *self.openings(),
            *(() if self.master is None else (Envelope(MACHINES_ENGINE, OpenBackend()),)),
            *(Envelope(host, configured) for host in self.hosts),
            *(self.up(host) for host in self.hosts),
            Envelope(STORM_POOL, CreatePool(config)),
        ]

    def _is_known(self, config: Envelope) -> bool:
        """Return whether a message of the set-up has arrived, and need not be sent again.

        These messages are not acknowledged, and on a link with a tiny bound repeats would displace
        the others for ever.
        """
        state = self.world.cells(kind_of(config.to)).get(config.to)
        if isinstance(config.message, host_messages.BackendUp):
            return state is not None and state.state == HostStates.UP
        return state is not None


def restarts(message: object) -> bool:
    """Return whether a command must not be sent twice without a request key.

    It restarts instances, which would run twice more; or asks for a subscription, each of which has
    a number of its own.
    """
    return isinstance(message, RestartJob | AskSubscription) or (
        isinstance(message, StartInstances) and message.again
    )


def job_id(name: str) -> Key:
    """Return the key of a job; its name is filled to the length that run ids count on."""
    return job_key(f"{name:0>36}")


def job_spec(instances: int = 1, *, pool: Key = STORM_POOL, **config: Any) -> JobSpec:
    """Return the spec of a job of equal instances; `config` are fields of their `TaskConfig`."""
    config.setdefault("resources", NEED)
    return JobSpec("j", "me", pool, instances, TaskConfig(command=Command("x"), **config))
