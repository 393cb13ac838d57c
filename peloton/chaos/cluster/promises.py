"""The rules of newer commands (R10, R22 to R32, R34, R37, R38), each checked by a class of its own.

Turns a cluster into a `Contradiction` or nothing: each check names the facts that it reads, and
gets these alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from peloton.actors.respool.blockers import ExplainedTree
from peloton.actors.respool.messages import pool_key
from peloton.chaos.cluster.rules.conserving import ConservationCheck
from peloton.chaos.cluster.rules.explaining import ExplanationCheck
from peloton.chaos.cluster.rules.job_ends import JobEnds
from peloton.chaos.cluster.rules.queueing import QueueCheck
from peloton.chaos.cluster.work.displacing import DisplacementCheck
from peloton.chaos.cluster.work.ganging import GangCheck
from peloton.chaos.cluster.work.host_holds import HoldCheck
from peloton.chaos.cluster.work.host_pooling import HostPoolCheck
from peloton.chaos.cluster.work.lending import LendingCheck
from peloton.chaos.cluster.work.noticing import NoticeCheck
from peloton.chaos.cluster.work.ordering import NameCheck
from peloton.chaos.cluster.work.pacing import PaceCheck
from peloton.chaos.cluster.work.quarantining import QuarantineCheck
from peloton.chaos.cluster.work.rolling import SteadyCheck
from peloton.chaos.cluster.work.scheduling import ScheduleCheck
from peloton.chaos.cluster.work.sparing import BudgetCheck
from peloton.chaos.cluster.world.cluster import SimulatedCluster
from peloton.runtime.core.entities.codec import Entry
from peloton.runtime.shells.shard import ShardShell
from peloton.runtime.simulation.checkers import DecodedFrame


class PromiseChecks:
    """The checks of all these rules."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self.ends = JobEnds()
        self.holds = HoldCheck(cluster)
        self.pace = PaceCheck()
        self.schedules = ScheduleCheck(cluster, self.ends)
        self.names = NameCheck(self.ends)
        self.places = HostPoolCheck()
        self.lending = LendingCheck()
        self.quarantines = QuarantineCheck(cluster)
        self.notices = NoticeCheck(cluster.listener, self.ends)
        self.gangs = GangCheck()
        self.queues = QueueCheck()
        inside = (pool_key(path.rpartition("/")[2]) for path, _ in cluster.setup.preemption.inside)
        self.ranks = DisplacementCheck(frozenset(inside))
        self.budgets = BudgetCheck()
        self.steady = SteadyCheck(self.budgets)
        self.sums = ConservationCheck()
        self.reasons = ExplanationCheck()
        self._world = cluster.world
        self._noted: dict[type, list[Callable[[Entry, Any], None]]] = {}
        tables = (self.ends.noted, self.holds.noted, self.pace.noted, self.schedules.noted)
        later = self.quarantines.noted, self.lending.noted, self.gangs.noted, self.queues.noted
        last = self.ranks.noted, self.budgets.noted, self.steady.noted, self.names.noted
        for noted in (*tables, self.places.noted, *later, *last):
            for fact, note in noted.items():
                self._noted.setdefault(fact, []).append(note)

    def apply(self, frame: DecodedFrame) -> None:
        """Take a committed frame. Raises `Contradiction`."""
        for entry in frame.entries:
            for fact in entry.facts:
                for note in self._noted.get(type(fact), ()):
                    note(entry, fact)

    def settle(self) -> None:
        """Check after all frames of a round. Raises `Contradiction`."""
        self.gangs.settle()

    def step(self) -> None:
        """Check after a step. Raises `Contradiction`."""
        self.schedules.step()
        self.names.step()
        self.notices.step()
        self._pools()

    def _pools(self) -> None:
        """Check the tree of pools, if it is of the shard that was stepped just now."""
        shell = self._world.stepper.stepped
        if type(shell) is not ShardShell or shell.core is None or shell.shard.group != "resmgr":
            return
        core = shell.core
        for index in core.population.indexes.values():
            if not isinstance(index, ExplainedTree):
                continue
            self.reasons.changed |= self.sums.follow(index)
            if self.reasons.changed and not core.has_mail:
                self.reasons.at_rest(index)

    def quiet(self) -> None:
        """Check at a quiet point. Raises `Contradiction`."""
        self.holds.quiet()
        self.lending.quiet()
        self.schedules.quiet()
        self.notices.quiet()
