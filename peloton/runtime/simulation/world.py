"""A fleet from one seed: daemons, their store, their membership service and their network.

Turns a seed into a history: the unchanged shells of several daemons on one stepper, over simulated
ports that do what the real ones do on a bad day. Virtual time jumps to the next event. Kinds and
checks are added from outside.

    world = World(kinds, seed=7, sizes={"a": 2})
    world.furnish = lambda daemon: ...      ephemeral services of a daemon, at each of its lives
    world.checks.append(check)              called after every step
    world.start("d1", roles=("a",))
    world.run_until(lambda: ..., within_s=60)
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

from peloton.runtime.core.entities.codec import Codec
from peloton.runtime.core.entities.passivation import EntityCache
from peloton.runtime.core.journal.statements import Statement, StatementReply
from peloton.runtime.core.shard import Shard
from peloton.runtime.core.sharding import Sharding
from peloton.runtime.kinds import Kind
from peloton.runtime.ports import JournalError, ShardId
from peloton.runtime.shells.daemon_context import DaemonLimits
from peloton.runtime.shells.shell import Shell
from peloton.runtime.simulation.daemon import Died, PortCall, SimulatedDaemon
from peloton.runtime.simulation.membership import Ensemble
from peloton.runtime.simulation.network import Network
from peloton.runtime.simulation.scheduled import ScheduledShell, begun
from peloton.runtime.simulation.sends import FaultySends
from peloton.runtime.simulation.stepper import BEGIN_S, Stepper
from peloton.runtime.simulation.store import SimulatedStore
from peloton.runtime.vocabulary import Key, kind_of

WORLD_STEPS_MAX = 5_000_000
DAEMON_RESTART_S_MAX = 3.0
SESSION_S = 10.0


class NotReached(AssertionError):
    """The time allowed is over, or nothing will ever happen, and the condition does not hold."""


class World:
    """The fleet and its surroundings; kinds and services are passed in."""

    def __init__(
        self,
        kinds: Mapping[str, Kind],
        *,
        seed: int,
        sizes: Mapping[str, int],
        limits: DaemonLimits = DaemonLimits(),  # noqa: B008
    ) -> None:
        self.kinds = kinds
        self.seed = seed
        self.sizes = dict(sizes)
        self.limits = limits
        self.codec = Codec(kinds)
        self.sharding = Sharding(kinds, sizes)
        self.stepper = Stepper(seed)
        self.chance = random.Random(f"{seed} world")
        self.ensemble = begun(Ensemble(self.stepper, session_s=SESSION_S))
        self.store = SimulatedStore(random.Random(f"{seed} store"), self.stepper.clock)
        self.network = Network(self.stepper, random.Random(f"{seed} network"))
        self.later = begun(ScheduledShell("fate", self.stepper))
        sends = random.Random(f"{seed} sends")
        self.sends = FaultySends(self.later, sends, route_of=self._route_of)
        self.daemons: dict[str, SimulatedDaemon] = {}
        self.parting: list[SimulatedDaemon] = []  # leaving for good, and not gone yet
        self.services: Mapping[str, Mapping[int, type]] = {}
        self.furnish: Callable[[SimulatedDaemon], None] = lambda daemon: None
        self.furnish_s_max = 0.0
        """In s: services are registered at most so late, as by another thread of a real daemon."""
        self.on_call: Callable[[PortCall], bool] = lambda call: False
        """Decides at each port call whether the process dies there."""
        self.on_replies: list[
            Callable[[SimulatedDaemon, list[tuple[Statement, StatementReply]]], None]
        ] = []
        """Called with a daemon's statements and the replies of the store."""
        self.on_death: Callable[[SimulatedDaemon], None] = self.restart_soon
        self.checks: list[Callable[[], None]] = []
        self.skew_s = 0.0
        self.drift = 0.0
        """How many seconds a second clocks gain or lose at most."""
        self.calls = 0
        self.deaths = 0
        self._processes = 0
        self._unpacked: dict[Key, tuple[bytes, Any]] = {}  # cold entities that were read

    # ---- what a storm does ----

    def start(self, name: str, *, roles: tuple[str, ...]) -> SimulatedDaemon:
        """Start a new daemon, or one that has left."""
        daemon = self.daemons.get(name)
        if daemon is None:
            daemon = self.daemons[name] = SimulatedDaemon(self, name, roles=roles)
            self.sends.attach(daemon)
        self.restart(daemon)
        return daemon

    def restart(self, daemon: SimulatedDaemon) -> None:
        """Start the daemon's next process, if it has none."""
        if daemon.process is not None or daemon.name not in self.daemons:
            return
        skew_s = self.chance.uniform(-self.skew_s, self.skew_s) if self.skew_s else 0.0
        try:
            daemon.begin(self.kinds, skew_s)
            self.let_drift(daemon)
            self._furnish(daemon)
        except (Died, JournalError):
            # The store is out of reach, or the process died at once: a supervisor restarts it.
            daemon.die()
            self.on_death(daemon)

    def let_drift(self, daemon: SimulatedDaemon) -> None:
        """Let the clock of the daemon's process drift from now on, if clocks drift."""
        if daemon.process is not None and self.drift:
            daemon.process.clock.drift(self.chance.uniform(-self.drift, self.drift))

    def _furnish(self, daemon: SimulatedDaemon) -> None:
        if not self.furnish_s_max:
            self.furnish(daemon)
            return
        life = daemon.lives

        def then() -> None:
            if daemon.alive and daemon.lives == life:
                self.furnish(daemon)

        self.later.at(self.now + self.chance.random() * self.furnish_s_max, then)

    def restart_soon(self, daemon: SimulatedDaemon) -> None:
        """Restart the daemon after up to `DAEMON_RESTART_S_MAX`, as a supervisor does."""
        after_s = self.chance.random() * DAEMON_RESTART_S_MAX
        self.later.at(self.now + after_s, lambda: self.restart(daemon))

    def kill(self, daemon: SimulatedDaemon) -> None:
        """Kill the daemon as by `kill -9`."""
        if daemon.process is not None:
            self.deaths += 1
            daemon.die()
            self.on_death(daemon)

    def remove(self, daemon: SimulatedDaemon) -> None:
        """Let the daemon hand over, leave, and not come back."""
        self.daemons.pop(daemon.name, None)
        self.parting.append(daemon)
        daemon.thaw()
        daemon.leave()
        self._watch_leaving(daemon)

    def calm(self) -> None:
        """End all faults: frozen daemons continue, dead ones are restarted."""
        self.on_call = lambda call: False
        self.ensemble.calm()
        self.network.heal()
        self.network.faults = type(self.network.faults)()
        self.sends.faults = type(self.sends.faults)()
        self.store.faults = type(self.store.faults)()
        self.drift = 0.0
        self._repair()
        for daemon in [*self.daemons.values(), *self.parting]:
            self.store.mend(daemon.name)
            daemon.thaw()
            if daemon.process is not None:
                daemon.process.go_on()
                daemon.process.clock.drift(0.0)
        for daemon in self.daemons.values():
            self.restart(daemon)

    def _repair(self) -> None:
        """Repair the rows that rotted, as an operator does, and restart who may have read them."""
        if self.store.reads.rotten:
            self.store.reads.repair()
            for daemon in [*self.daemons.values()]:
                self.kill(daemon)

    def end(self) -> None:
        """Drop all shells: otherwise pykka's registry would keep every world in memory."""
        self.stepper.drop(self.stepper.shells)

    # ---- time ----

    @property
    def now(self) -> float:
        """The true time; the clocks of daemons are off."""
        return self.stepper.clock.now_s

    @property
    def elapsed_s(self) -> float:
        """The seconds since the beginning of the world."""
        return self.now - BEGIN_S

    def run_until(self, reached: Callable[[], bool], *, within_s: float = 600.0) -> float:
        """Step until the condition holds; return the virtual seconds that took."""
        begun_s = self.now
        self.later.at(begun_s + within_s, lambda: None)
        for _ in range(WORLD_STEPS_MAX):
            if reached():
                return self.now - begun_s
            if self.now >= begun_s + within_s or not self.step():
                break
        if reached():
            return self.now - begun_s
        raise NotReached(f"not reached within {within_s:g} s, at {self.elapsed_s:.1f} s")

    def run_for(self, seconds: float) -> None:
        """Let so many virtual seconds pass."""
        end = self.now + seconds
        self.later.at(end, lambda: None)
        while self.now < end and self.step():
            pass

    def step(self) -> bool:
        """Take one step of one shell of any daemon; then make all checks."""
        moved = self.stepper.step()
        process = self.stepper.stepped.driver if self.stepper.stepped is not None else None
        for daemon in self.daemons.values():
            if daemon.dying or (daemon.process is process and self._has_exited(daemon)):
                self.kill(daemon)
        for daemon in self.parting:
            if daemon.dying or (daemon.process is process and self._has_exited(daemon)):
                daemon.die()  # otherwise its session, and all it owns, would stay for ever
        for shell in (self.ensemble, self.later):
            if shell.error is not None:
                raise shell.error
        for check in self.checks:
            check()
        return moved

    # ---- what there is ----

    def owner_of(self, key: Key) -> SimulatedDaemon | None:
        """Return the daemon in which the shard of a key is open."""
        shard = self.sharding.shard_of(key)
        return next((each for each in self.living() if shard in each.shards()), None)

    def living(self) -> list[SimulatedDaemon]:
        """Return the daemons with a process that is not frozen."""
        return [
            daemon
            for daemon in self.daemons.values()
            if daemon.process is not None and not daemon.process.frozen
        ]

    def shards(self) -> dict[ShardId, Shard]:
        """Return the open core with the highest epoch, of each shard."""
        found: dict[ShardId, Shard] = {}
        for daemon in self.daemons.values():
            for shard, core in daemon.shards().items():
                known = found.get(shard)
                if known is None or known.epoch < core.epoch:
                    found[shard] = core
        return found

    def all_shards(self) -> list[ShardId]:
        """Return every shard there is, open or not."""
        return [ShardId(group, at) for group, count in self.sizes.items() for at in range(count)]

    def whole(self) -> bool:
        """Return whether every shard is open under the newest epoch of its register.

        A shard may also be at rest under an older one: a late claim, of a daemon that had lost the
        shard by then, may have overtaken the owner. The owner learns that with its next write, and
        until then it has all that was ever committed.
        """
        found = self.shards()
        wanted = sum(self.sizes.values())
        registers = self.store.registers.registers
        return len(found) == wanted and all(
            core.epoch == registers[shard].epoch
            or (core.position == registers[shard].last_position and not core.busy)
            for shard, core in found.items()
        )

    def daemon_of(self, shell: Shell | None) -> SimulatedDaemon | None:
        """Return the daemon to whose present life this shell belongs."""
        process = shell.driver if shell is not None else None
        for daemon in self.daemons.values():
            if daemon.process is process and process is not None:
                return daemon
        return None

    def cells(self, kind: str) -> dict[Key, Any]:
        """Return every state of one kind that is in memory at an owner."""
        found: dict[Key, Any] = {}
        for core in self.shards().values():
            cells = core.population.cells
            # To unpack a cold cell costs much more than to skip it.
            for key in [*cells.warm, *cells.cold]:
                if kind_of(key) == kind:
                    found[key] = self._peek(cells, key)
        return found

    def crowds(self) -> dict[Key, Any]:
        """Return every crowd that is in memory at an owner."""
        found: dict[Key, Any] = {}
        for core in self.shards().values():
            crowds = core.population.crowds
            for key in [*crowds.warm, *crowds.cold]:
                found[key] = self._peek(crowds, key)
        return found

    def _peek(self, cache: EntityCache, key: Key) -> Any:
        """Return an entity, which is unpacked once in all the steps in which it stays cold."""
        packed = cache.cold.get(key)
        if packed is None:
            return cache.peek(key)
        known = self._unpacked.get(key)
        if known is None or known[0] is not packed:
            known = self._unpacked[key] = (packed, cache.peek(key))
        return known[1]

    # ---- for daemons ----

    def strikes(self, call: PortCall) -> bool:
        """Return whether the process dies at this moment."""
        self.calls += 1
        self.stepper.note(f"{call.daemon} {call.port} {call.name} {call.moment.value}")
        return self.on_call(call)

    def draw_process(self) -> bytes:
        """Return sixteen bytes that no process before had."""
        self._processes += 1
        return self._processes.to_bytes(16, "big")

    def _route_of(self, to: Key) -> ShardId | Key:
        return self.sharding.shard_of(to) if kind_of(to) in self.kinds else to

    def _has_exited(self, daemon: SimulatedDaemon) -> bool:
        root = daemon.root
        return root is not None and root.exited.done()

    def _watch_leaving(self, daemon: SimulatedDaemon) -> None:
        def poll() -> None:
            if daemon.leaving is not None and not daemon.leaving.done():
                self.later.at(self.now + 0.1, poll)
            else:
                daemon.die()
                self.parting.remove(daemon)

        poll()
