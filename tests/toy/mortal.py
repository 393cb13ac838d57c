"""A daemon that dies: the shells of one process over a store that outlives it.

Turns a port call into the end of the process, before it is done or after, and begins the next
process on what the store holds. A death never raises through an actor of pykka: the port call
raises once, what that step still does in memory is thrown away with the memory.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping

from peloton.runtime.adapters.fenced_rows import FencedRows
from peloton.runtime.core.shard import Shard
from peloton.runtime.kinds import Kind
from peloton.runtime.ports import ShardId
from peloton.runtime.shells.daemon_context import DaemonLimits
from peloton.runtime.shells.fleet import DaemonSetup
from peloton.runtime.shells.region import Region
from peloton.runtime.shells.root import Root, assemble
from peloton.runtime.shells.shard import ShardShell
from peloton.runtime.shells.shell import Shell
from peloton.runtime.simulation.memory_rows import MemoryRows
from peloton.runtime.simulation.stepper import Stepper
from tests.toy.hooked_rows import AnswerLost, HookedRows, StoreCall


class Fate(enum.Enum):
    """What can become of a call of the store, before it is done and after."""

    LOST = "the answer is lost"
    DEATH = "the process dies"


class Died(Exception):
    """The process ended within this port call."""


class Mortal:
    """One daemon after the other on one store; `lives` counts them."""

    def __init__(
        self,
        kinds: Mapping[str, Kind],
        stepper: Stepper,
        *,
        sizes: Mapping[str, int],
        limits: DaemonLimits = DaemonLimits(),  # noqa: B008
        on_call: Callable[[StoreCall, int], Fate | None] | None = None,
    ) -> None:
        self.stepper = stepper
        self.store = MemoryRows()
        self.lives = 0
        self.calls = 0
        self._kinds = kinds
        self._sizes = sizes
        self._limits = limits
        self.on_call = on_call  # of (call, its number): what becomes of it
        self._dead = False
        self._before: list[Shell] = []
        self.root: Root = self._begin()

    @property
    def region(self) -> Region:
        """The door of the daemon that lives now."""
        return self.root.region

    def run(self, until: Callable[[], bool], *, steps_max: int = 100_000) -> None:
        """Step until it holds."""

        def look() -> bool:
            if self._dead:
                self.die()
            return until()

        self.stepper.run(look, steps_max=steps_max)

    def die(self) -> None:
        """The process ends here, and another one begins."""
        self.stepper.drop([shell for shell in self.stepper.shells if shell not in self._before])
        self.root = self._begin()

    def shards(self) -> dict[ShardId, Shard]:
        """The cores of the shards that are open now."""
        found: dict[ShardId, Shard] = {}
        for shell in self.stepper.shells:
            if isinstance(shell, ShardShell) and shell.core is not None:
                found[shell.shard] = shell.core
        return found

    def _begin(self) -> Root:
        self.lives += 1
        self._dead = False
        self._before = [*self.stepper.shells]
        process = self.lives.to_bytes(16, "big")
        rows = HookedRows(self.store)
        root = assemble(
            self._kinds,
            FencedRows(rows, process=process),
            sizes=self._sizes,
            drivers=self.stepper,
            setup=DaemonSetup(self._limits),
        )
        rows.hook = self._hook
        root.own_all(self._sizes)
        return root

    def _hook(self, call: StoreCall) -> None:
        self.calls += 1
        self.stepper.note(f"{call.names} {call.shards} {call.moment}")
        fate = self.on_call(call, self.calls) if self.on_call is not None else None
        if fate is Fate.LOST:
            raise AnswerLost(f"no answer to {call.names}")
        if self._dead or fate is Fate.DEATH:
            self._dead = True
            raise Died(f"{call}")
