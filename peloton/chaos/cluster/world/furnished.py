"""A world of daemons that have every service of their surroundings, and nothing to do yet.

Turns kinds into daemons with backends, placers, a notifier and an answerer of rights, at each of
their lives. There is no host, no pool and no client: `cluster.py` and `peloton.testing` add those.
"""

from __future__ import annotations

from collections.abc import Mapping

from peloton.actors.host import messages as host_messages
from peloton.actors.host.inventory.messages import OpenInventory, inventory_key
from peloton.actors.job.notice_messages import NOTIFIER
from peloton.actors.respool.messages import ROOT, OpenRoot
from peloton.actors.schedule.messages import RIGHTS
from peloton.assembly.kinds import SERVICE_MESSAGES
from peloton.assembly.placer_service import PlacerService
from peloton.chaos.cluster.world.faulty_backend import FaultyBackend, MachineLink
from peloton.chaos.cluster.world.listener import Listener, SimulatedNotifier, SimulatedRights
from peloton.chaos.cluster.world.machines import (
    MACHINE_BACKEND,
    Machines,
    RunFates,
    machine_report,
)
from peloton.chaos.cluster.world.subscription import MACHINES_LINK
from peloton.placement.strategies import STRATEGIES
from peloton.runtime.core.turning.envelope import Envelope
from peloton.runtime.kinds import Kind
from peloton.runtime.shells.daemon_context import DaemonLimits
from peloton.runtime.simulation.daemon import SimulatedDaemon
from peloton.runtime.simulation.world import World
from peloton.runtime.vocabulary import Key, kind_of

SIZES = {"jobmgr": 2, "resmgr": 1, "hostmgr": 2}
WORLD_ROLES = ("jobmgr", "resmgr", "hostmgr", "placement")


class FurnishedWorld:
    """A world with machines, whose daemons are furnished when they begin."""

    def __init__(
        self,
        kinds: Mapping[str, Kind],
        *,
        seed: int,
        fates: RunFates,
        sizes: Mapping[str, int] = SIZES,
        limits: DaemonLimits = DaemonLimits(),  # noqa: B008
    ) -> None:
        self.world = World(kinds, seed=seed, sizes=sizes, limits=limits)
        self.world.furnish = self.furnish
        self.world.services = SERVICE_MESSAGES
        # `BackendFaults` are for orders
        self.world.sends.spared = (kind_of(MACHINE_BACKEND), kind_of(MACHINES_LINK))
        self.machines = Machines(fates)
        self.backend = MachineLink(self.world, self.machines)
        self.listener = Listener(self.world)
        self.placers: dict[str, PlacerService] = {}
        """The placer of each daemon, in its present life, by the daemon's name."""
        self.strategies = STRATEGIES
        """By which the placers of lives to come may place."""
        self.inventories = [inventory_key(number) for number in range(sizes["hostmgr"])]

    def furnish(self, daemon: SimulatedDaemon) -> None:
        """Register the services of a daemon's new life."""
        self.furnish_backend(daemon)
        notifier = SimulatedNotifier(self.listener, daemon)
        daemon.region.register_service(NOTIFIER, notifier, outward=True)
        daemon.region.register_service(RIGHTS, SimulatedRights(self.listener), outward=True)
        if "placement" in daemon.roles:
            placer = self.placers[daemon.name] = PlacerService(
                self.inventories, strategies=self.strategies
            )
            daemon.region.register_service("placer", placer, role="placement")
        else:
            daemon.region.routes.roles["placer"] = "placement"  # it is on other daemons

    def furnish_backend(self, daemon: SimulatedDaemon) -> None:
        """Register what takes the orders of hosts."""
        backend = FaultyBackend(self.backend, daemon)
        daemon.region.register_service("backend", backend, outward=True)

    def openings(self) -> list[Envelope]:
        """Return the messages that open the root of the pools and the inventories."""
        return [
            Envelope(ROOT, OpenRoot()),
            *(Envelope(inventory, OpenInventory()) for inventory in self.inventories),
        ]

    def up(self, host: Key) -> Envelope:
        """Return the report of a machine that can be reached."""
        return machine_report(host, host_messages.BackendUp(), of=self.backend.address)
