"""R27: a quarantined host gets no new run; and hosts that fail whatever runs on them.

Turns a scenario's action into a machine that starts nothing for a while, and committed facts of
hosts into a `Contradiction` or nothing. Placers learn of a quarantine, and use its hosts if they
are more than a tenth of those that are up: so a host is judged only if it was alone in it for a
while, in a calm. Placers are not asked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from peloton.actors.host import facts as hf
from peloton.actors.host.holds.foreign_names import is_foreign
from peloton.chaos.cluster.work.drawing import ActionDraw, any_of
from peloton.chaos.cluster.work.workload import cluster_of
from peloton.chaos.cluster.world.cluster import SimulatedCluster
from peloton.runtime.core.entities.codec import Entry
from peloton.runtime.simulation.scan import Contradiction
from peloton.runtime.simulation.scenario import StormAction
from peloton.runtime.simulation.storms import Storm
from peloton.runtime.vocabulary import Key

SHARE = 0.08
ACTIONS = (1, 3)
HOSTS_MIN = 12
"""A storm with such actions has so many hosts, or none would be left out."""
QUARANTINED_AFTER = 2
SPOILED_S = 15.0
TOLD_S_MAX = 40.0
"""In s: a placer knows of it by then, and a launch that was sent before is not repeated."""


class QuarantineCheck:
    """The hosts in quarantine, and since when; judged from `calm_at` on."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self.calm_at = 0.0
        self.known: dict[Key, float] = {}
        self._cluster = cluster
        self._up: dict[Key, None] = {}
        self._few_since = 0.0
        self.noted: dict[type, Callable[[Entry, Any], None]] = {
            hf.HostQuarantined: self._begins,
            hf.QuarantineEnded: self._ends,
            hf.MaintenanceCompleted: self._ends,
            hf.HostRemoved: self._goes,
            hf.HostReconciled: self._comes,
            hf.HostUnreachable: self._goes,
            hf.HostLost: self._goes,
            hf.RunsAccepted: self._accepts,
        }

    def _begins(self, entry: Entry, fact: hf.HostQuarantined) -> None:  # noqa: ARG002
        self.known[entry.key] = self._cluster.world.now
        self._changed()

    def _ends(self, entry: Entry, fact: Any) -> None:  # noqa: ARG002
        self.known.pop(entry.key, None)
        self._changed()

    def _comes(self, entry: Entry, fact: hf.HostReconciled) -> None:  # noqa: ARG002
        self._up[entry.key] = None
        self._changed()

    def _goes(self, entry: Entry, fact: Any) -> None:
        self._up.pop(entry.key, None)
        if isinstance(fact, hf.HostRemoved):
            self.known.pop(entry.key, None)
        self._changed()

    def _changed(self) -> None:
        """Note since when there are few enough of them to be left out."""
        self._few_since = self._cluster.world.now

    def _accepts(self, entry: Entry, fact: hf.RunsAccepted) -> None:
        if entry.key not in self.known or is_foreign(fact.crowd):
            return
        since = max(self.known[entry.key], self._few_since, self.calm_at)
        few = len(self.known) * 10 <= len(self._up)
        if few and since + TOLD_S_MAX < self._cluster.world.now:
            raise Contradiction(f"R27 {entry.key} is in quarantine, and gets {fact.crowd}")


def spoil(storm: Storm, action: StormAction) -> None:
    """Let a machine start nothing for a while: each run there has failed at once."""
    cluster = cluster_of(storm)
    host = cluster.hosts[action.which % len(cluster.hosts)]
    storm.strike(action.name, host)
    cluster.machines.spoiled[host] = None
    storm.later(SPOILED_S, lambda: cluster.machines.spoiled.pop(host, None))


def calm(cluster: SimulatedCluster) -> None:
    """Let machines start their runs again."""
    cluster.machines.spoiled.clear()


WORK: dict[str, Callable[[Storm, StormAction], None]] = {"spoil host": spoil}
DRAWN = ActionDraw("quarantines", SHARE, ACTIONS, any_of(WORK))
