"""A whole simulated cluster from one seed: daemons, hosts, machines, pools and clients.

Turns a seed into a fleet that runs jobs. It must not judge: `checks.py` and `history.py` do.

    cluster = Cluster(seed=7, daemons=3, hosts=4)
    job = cluster.create(instances=5)
    cluster.world.run_until(cluster.over, within_s=300)
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, NamedTuple

from peloton.actors.host import messages as host_messages
from peloton.actors.host.inventory.messages import OpenInventory, inventory_key
from peloton.actors.host.state import HostStates
from peloton.actors.job.kind import FINISHED_JOBS_MAX
from peloton.actors.job.messages import CreateJob, job_key
from peloton.actors.job.spec import Command, JobSpec, TaskConfig
from peloton.actors.resources import UNIT, Resources
from peloton.actors.respool.messages import ROOT, CreatePool, OpenRoot, PoolConfig, pool_key
from peloton.chaos.cluster import view
from peloton.chaos.cluster.clients import Clients
from peloton.chaos.cluster.faulty_backend import MACHINE_BACKEND, FaultyBackend, MachineLink
from peloton.chaos.cluster.history import Operation
from peloton.chaos.cluster.machines import Fate, Machines, RunFates
from peloton.kinds import SOFTS, kinds
from peloton.machines import PlacerMachine
from peloton.runtime.core.envelope import Envelope
from peloton.runtime.shells.daemon_context import DaemonLimits
from peloton.runtime.simulation.daemon import SimulatedDaemon
from peloton.runtime.simulation.world import World
from peloton.runtime.vocabulary import Key, key, kind_of

SIZES = {"jobmgr": 2, "resmgr": 1, "hostmgr": 2}
ROLES = ("jobmgr", "resmgr", "hostmgr", "placement")
ROOM = Resources(4 * UNIT, 4096 * UNIT, 4096 * UNIT, 0)
NEED = Resources(UNIT, UNIT, 0, 0)
GREET_S = 3.0
STORM_POOL = pool_key("p")


class ClusterSetup(NamedTuple):
    """How a cluster is set up, beside how large it is."""

    limits: DaemonLimits = DaemonLimits()
    fates: RunFates = lambda run: Fate()
    unreachable_timeout_s: float = 60.0
    """After so long out of reach a host counts as lost."""
    finished_jobs_max: int = FINISHED_JOBS_MAX
    furnish_s_max: float = 0.0


class SimulatedCluster:
    """The world, and all that makes it a cluster."""

    def __init__(
        self,
        *,
        seed: int,
        daemons: int = 3,
        hosts: int = 3,
        sizes: Mapping[str, int] = SIZES,
        setup: ClusterSetup = ClusterSetup(),  # noqa: B008
    ) -> None:
        found = kinds(sizes, finished_jobs_max=setup.finished_jobs_max)
        self.world = World(found, seed=seed, sizes=sizes, limits=setup.limits)
        self.world.furnish_s_max = setup.furnish_s_max
        self.setup = setup
        self.world.furnish = self._furnish
        self.world.services = SOFTS
        self.machines = Machines(setup.fates)
        self.floor = MachineLink(self.world, self.machines)
        self.clients = Clients(self.world, random.Random(f"{seed} clients"))
        self.hosts = [key("host", f"h{number}") for number in range(hosts)]
        self.jobs: list[Key] = []
        self._inventories = [inventory_key(number) for number in range(sizes["hostmgr"])]
        for number in range(daemons):
            self.world.start(f"d{number + 1}", roles=ROLES)
        self._greet()

    # ---- what clients want ----

    def create(
        self, instances: int = 1, *, client: str = "c1", name: str = "", **config: object
    ) -> Operation:
        """A job; its id is the client's, as after a first try that was not answered."""
        job = self.draw_job(name)
        config.setdefault("resources", NEED)
        default = TaskConfig(command=Command("x"), **config)  # type: ignore[arg-type]
        spec = JobSpec("j", "me", STORM_POOL, instances, default)
        return self.clients.create(client, job, message=CreateJob(spec))

    def draw_job(self, name: str = "") -> Key:
        """An id that no job had."""
        job = job_key(f"{name or f'j{len(self.jobs) + 1}':0>36}")
        self.jobs.append(job)
        return job

    @property
    def nobody(self) -> Key:
        """A job that nobody ever makes."""
        return job_key(f"{'none':0>36}")

    def pool_config(self, limit: Resources) -> PoolConfig:
        """Of the one pool."""
        return PoolConfig("p", ROOT, Resources(), limit)

    # ---- what there is ----

    def ready(self) -> bool:
        """Every shard is open, every host known, and the pool stands."""
        world = self.world
        return (
            world.whole()
            and len(world.cells("host")) == len(self.hosts)
            and STORM_POOL in world.cells("respool")
        )

    def over(self) -> bool:
        """Every job has ended or is gone, nothing runs, nobody owes anybody anything."""
        return not self.clients.waiting and self.world.whole() and view.over(self)

    def cells(self, kind: str) -> dict[Key, Any]:
        """Every state of one kind that is in memory at an owner."""
        return self.world.cells(kind)

    def crowds(self) -> dict[Key, Any]:
        """Every crowd that is in memory at an owner."""
        return self.world.crowds()

    # ---- inside ----

    def _furnish(self, daemon: SimulatedDaemon) -> None:
        daemon.region.register_service("backend", FaultyBackend(self.floor, daemon), outward=True)
        placer = PlacerMachine(self._inventories)
        daemon.region.register_service("placer", placer, role="placement")

    def _greet(self) -> None:
        """An operator who says what there is until all of it is there."""
        if self.ready():
            return
        for daemon in self.world.living()[:1]:
            said = self._greetings()
            daemon.region.tell([each for each in said if not self._is_known(each)])
        self.world.later.at(self.world.now + GREET_S, self._greet)

    def _greetings(self) -> list[Envelope]:
        configured = host_messages.ConfigureHost(
            ROOM, (), MACHINE_BACKEND, unreachable_timeout_s=self.setup.unreachable_timeout_s
        )
        config = self.pool_config(ROOM.times(len(self.hosts)))
        return [
            Envelope(ROOT, OpenRoot()),
            *(Envelope(inventory, OpenInventory()) for inventory in self._inventories),
            *(Envelope(host, configured) for host in self.hosts),
            *(Envelope(host, host_messages.BackendUp()) for host in self.hosts),
            Envelope(STORM_POOL, CreatePool(config)),
        ]

    def _is_known(self, greeting: Envelope) -> bool:
        """What was heard is not said again: on a link with little room it would keep the rest out,
        each time anew, since nobody who is greeted says that he was."""
        heard = self.world.cells(kind_of(greeting.to)).get(greeting.to)
        if isinstance(greeting.message, host_messages.BackendUp):
            return heard is not None and heard.state == HostStates.UP
        return heard is not None
