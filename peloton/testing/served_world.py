"""A simulated world whose daemons serve clients, and what a test's cluster needs of it."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from peloton.actors.host.inventory.state import counted_capacity
from peloton.actors.host.stages import HostStates
from peloton.actors.job.messages import job_key
from peloton.actors.resources import Resources
from peloton.actors.respool.messages import ROOT
from peloton.actors.respool.reclaims import PreemptionPolicy
from peloton.actors.task.messages import RunOutcome
from peloton.assembly.kinds import kinds
from peloton.assembly.strategies import installed_strategies
from peloton.chaos.cluster.world.furnished import SIZES, WORLD_ROLES, FurnishedWorld
from peloton.chaos.cluster.world.machines import RunFates
from peloton.gateway.access.authentication import Authentication
from peloton.gateway.cluster.sandboxes import SandboxFiles
from peloton.gateway.grpc_server import ServerOptions, build_server
from peloton.gateway.server.execution import Execution
from peloton.gateway.translate.strategy_choice import StrategyChoice
from peloton.placement.strategies import Strategy
from peloton.runtime.core.turning.envelope import Envelope
from peloton.runtime.kinds import Kind
from peloton.runtime.simulation.daemon import SimulatedDaemon
from peloton.runtime.vocabulary import Key
from peloton.settings.notify import LOOPBACK, AllowedUrls
from peloton.settings.placement import BY_TYPE
from peloton.testing.in_process import InProcessServer
from peloton.testing.virtual_time import AtOnce, VirtualTime

OPEN_EVERY_S = 0.5


class ClusterShape(NamedTuple):
    """What a cluster is made of, apart from its hosts.

    `strategies`: further ones by their names, beside those that are installed. `kinds`: of an
    extension, by their names; `sizes`: of the groups of shards that these bring. `preemption`: when
    pools take back what they lent.
    """

    seed: int = 0
    daemons: int = 1
    strategies: Mapping[str, Strategy] = {}
    kinds: Mapping[str, Kind] = {}
    sizes: Mapping[str, int] = {}
    preemption: PreemptionPolicy = PreemptionPolicy()


@functools.cache
def _own_kinds(preemption: PreemptionPolicy) -> dict[str, Kind]:
    """Return the table of all kinds, which clusters share: it is constant."""
    return kinds(SIZES, preemption=preemption)


@functools.cache
def _installed() -> Mapping[str, Strategy]:
    return installed_strategies()


class ServedWorld(FurnishedWorld):
    """Daemons, each with the gateway, whose calls come in process."""

    def __init__(self, shape: ClusterShape, fates: RunFates) -> None:
        if shape.daemons < 1:
            raise ValueError(f"daemons: must be ≥ 1, got {shape.daemons}")
        sizes = {**SIZES, **shape.sizes}
        all_kinds = {**_own_kinds(shape.preemption), **shape.kinds}
        super().__init__(all_kinds, seed=shape.seed, fates=fates, sizes=sizes)
        self.strategies = {**_installed(), **shape.strategies}
        self.time = VirtualTime(self.world)
        self.world.on_death = self._died
        self._roles = (*WORLD_ROLES, *shape.sizes)
        self._extensions = shape.kinds
        self._serving: dict[str, InProcessServer] = {}
        self._open()

    def start(self, names: Iterable[str]) -> None:
        """Begin the daemons of these names that have no process."""
        for name in names:
            self.world.start(name, roles=self._roles)

    def kill(self, names: Iterable[str]) -> None:
        """End daemons at once, until they are started again."""
        for name in names:
            self.world.kill(self.world.daemons[name])

    def close(self) -> None:
        """Drop all that the world has."""
        for server in self._serving.values():
            server.die()
        self.time.loop.end()
        self.world.end()

    def server_at(self, address: str) -> InProcessServer | None:
        """Return who serves at an address, the name of a daemon with a port behind it."""
        return self._serving.get(address.partition(":")[0])

    def furnish(self, daemon: SimulatedDaemon) -> None:
        """Register the services of a daemon's new life, and serve clients."""
        super().furnish(daemon)
        self._serving[daemon.name] = self._served(daemon)

    def tell(self, messages: Sequence[Envelope]) -> None:
        """Send messages as the assembly of a daemon does."""
        for daemon in self.world.living()[:1]:
            daemon.region.tell(messages)

    def ready(self) -> bool:
        """Return whether all shards are open, and the pools and inventories are there."""
        return self.world.whole() and self._is_open()

    def are_up(self, hosts: Sequence[Key]) -> bool:
        """Return whether the hosts are up, and the root of the pools counts what there is."""
        cells = self.world.cells("host")
        if not all(host in cells and cells[host].state == HostStates.UP for host in hosts):
            return False
        counted = sum((counted_capacity(host) for host in cells.values()), Resources())
        return bool(self.world.cells("respool")[ROOT].capacity == counted)

    def name_of(self, job: str) -> str:
        """Return the name of a job by its id; "" if there is none."""
        found = self.world.cells("job").get(job_key(job))
        return str(found.spec.name) if found is not None else ""

    def end_run(self, run: str, outcome: RunOutcome, *, after_s: float | None) -> None:
        """End a run so many seconds from now; None: never."""
        if after_s is not None:
            self.world.later.at(self.world.now + after_s, lambda: self.backend.end(run, outcome))

    # ---- inside ----

    def _is_open(self) -> bool:
        cells = self.world.cells
        return ROOT in cells("respool") and len(cells("inventory")) == len(self.inventories)

    def _open(self) -> None:
        """Send the first messages until they have arrived: nobody acknowledges them."""
        if self.world.whole():
            self.tell(self.openings())
        if not self._is_open():
            self.world.later.at(self.world.now + OPEN_EVERY_S, self._open)

    def _died(self, daemon: SimulatedDaemon) -> None:
        server = self._serving.pop(daemon.name, None)
        if server is not None:
            server.die()

    def _served(self, daemon: SimulatedDaemon) -> InProcessServer:
        made: list[InProcessServer] = []

        def carrier(*arguments: Any, **named: Any) -> InProcessServer:
            made.append(InProcessServer(*arguments, time=self.time, **named))
            return made[0]

        execution = Execution(
            carrier,
            loop=lambda: self.time.loop,
            threads=lambda most: AtOnce(),
            now=self.time.now,
            monotonic=self.time.now,
        )
        build_server(
            daemon.region,
            [daemon.name],
            authentication=Authentication.open(),
            boxes=SandboxFiles(None, ("127.0.0.1", 1)),
            options=ServerOptions(
                notify=AllowedUrls([LOOPBACK]),
                strategies=StrategyChoice(self.strategies, BY_TYPE),
                execution=execution,
                extensions=self._extensions,
            ),
        )
        return made[0]
