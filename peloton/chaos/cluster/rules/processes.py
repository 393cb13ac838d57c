"""R8c: two processes of one instance overlap for a bounded time, and never on hosts that are up.

Turns committed facts of hosts and the true processes into a `Contradiction` or nothing. A run that
was given up with its host may still run there, beside the next one: it must be killed before the
host is up again. Hosts have no leases here, so nothing bounds how long that takes while a host is
out of reach; from the calm on, when all are back, `OVERLAP_S_MAX` does. Whether a host is up is
known from facts, not from its actor.
"""

from __future__ import annotations

from peloton.actors.host import facts as hf
from peloton.chaos.cluster.world.machines import Machines
from peloton.runtime.simulation.checkers import DecodedFrame
from peloton.runtime.simulation.scan import Contradiction
from peloton.runtime.simulation.scheduled import ScheduledShell
from peloton.runtime.vocabulary import Key

DOWN = (hf.HostUnreachable, hf.HostReachable, hf.HostLost, hf.HostRemoved)
"""After `HostReachable` the host compares its ledger first: `HostReconciled` is the end of that."""
OVERLAP_S_MAX = 60.0
"""In s: what a host takes to notice that it is in reach, to list its runs, to kill those that are
not intended, and the 8 s that a process may take to end."""


class ProcessCheck:
    """Checks all processes when one has started or a host has come up, not at every step."""

    def __init__(self, machines: Machines) -> None:
        self.up: dict[Key, None] = {}
        self._machines = machines
        self._started = 0
        self._is_due = False
        self._all_are_up = False

    def calm(self, later: ScheduledShell) -> None:
        """Check every host in reach after a while, up or not: no fault strikes any more."""

        def then() -> None:
            self._all_are_up = self._is_due = True

        later.at(later.now + OVERLAP_S_MAX, then)

    def apply(self, frame: DecodedFrame) -> None:
        """Take a committed frame."""
        for entry in frame.entries:
            for fact in entry.facts:
                if isinstance(fact, hf.HostReconciled):
                    self.up[entry.key] = None
                    self._is_due = True
                elif isinstance(fact, DOWN):
                    self.up.pop(entry.key, None)

    def step(self) -> None:
        """Check after a step. Raises `Contradiction`."""
        started = len(self._machines.started)
        if started == self._started and not self._is_due:
            return
        self._started, self._is_due = started, False
        all_are_up, self._all_are_up = self._all_are_up, False
        seen: dict[str, str] = {}
        for run, process in self._machines.running.items():
            is_up = all_are_up or process.host in self.up
            if is_up and process.host not in self._machines.cut_off:
                other = seen.setdefault(run.rpartition("-")[0], run)
                if other != run:
                    raise Contradiction(f"R8c {run} runs beside {other}")
