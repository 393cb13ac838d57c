"""R28: pools take back no more than was ordered, and only from tasks that may be preempted.

Turns a scenario's action into a preemptible job of one of two pools that share all hosts, and
committed facts of lots and slices into a `Contradiction` or nothing. That what was taken back
reaches somebody, and that nobody gives in vain, is checked where nothing else happens
(`tests/actors/pools/test_reclaiming.py`, `tests/worlds/hosts/test_preemption.py`): in a storm those
who asked may be stopped meanwhile. That all victims run to their end nevertheless is R7.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from peloton.actors.job.messages import CreateJob
from peloton.actors.job.slice import facts as sf
from peloton.actors.job.slice.task_config import Command, TaskConfig
from peloton.actors.job.spec import JobSpec
from peloton.actors.respool.lot import facts as lf
from peloton.actors.respool.lot.messages import LotShape
from peloton.actors.respool.messages import ROOT, CreatePool, PoolConfig, pool_key
from peloton.chaos.cluster.work.drawing import ActionDraw
from peloton.chaos.cluster.work.workload import CLIENTS, cluster_of
from peloton.chaos.cluster.world.cluster import NEED, STORM_POOL
from peloton.runtime.core.entities.codec import Entry
from peloton.runtime.simulation.scan import Contradiction
from peloton.runtime.simulation.scenario import StormAction
from peloton.runtime.simulation.storms import Storm
from peloton.runtime.vocabulary import Key

SHARE = 0.15
ACTIONS = (3, 7)
SIZES = (4, 12, 30)
BORROWER = pool_key("borrower")
GIVEN_BACK_AFTER_S = 1.0


class LendingCheck:
    """Checks what lots were ordered to give back, and what their slices chose."""

    def __init__(self) -> None:
        self.checked = 0
        self._shapes: dict[Key, LotShape] = {}
        self._orders: dict[tuple[Key, int], int] = {}
        self._chosen: dict[tuple[Key, int], int] = {}
        self.noted: dict[type, Callable[[Entry, Any], None]] = {
            lf.LotOpened: self._opened,
            lf.ReclaimOrdered: self._ordered,
            sf.MembersEvicted: self._evicted,
        }

    def _opened(self, entry: Entry, fact: lf.LotOpened) -> None:
        self._shapes[entry.key] = fact.shape

    def _ordered(self, entry: Entry, fact: lf.ReclaimOrdered) -> None:
        name = f"R28 {entry.key} order {fact.number}"
        if not self._shapes[entry.key].preemptible:
            raise Contradiction(f"{name}: its tasks may not be preempted")
        if (entry.key, fact.number) in self._orders:
            raise Contradiction(f"{name} was given twice")
        self._orders[entry.key, fact.number] = fact.count
        self._compare(entry.key, fact.number)

    def _evicted(self, entry: Entry, fact: sf.MembersEvicted) -> None:
        self.checked += 1
        if (fact.lot, fact.number) in self._chosen:
            raise Contradiction(f"R28 {fact.lot} order {fact.number} was carried out twice")
        self._chosen[fact.lot, fact.number] = sum(len(members) for _, members in fact.going)
        self._compare(fact.lot, fact.number)

    def _compare(self, lot: Key, number: int) -> None:
        """Compare an order with its choice; the frames of a round come in any order."""
        ordered, chosen = self._orders.get((lot, number)), self._chosen.get((lot, number))
        if ordered is not None and chosen is not None and chosen > ordered:
            raise Contradiction(f"R28 {lot} order {number}: {chosen} give back, not {ordered}")

    def quiet(self) -> None:
        """Check that nobody gave back without an order. Raises `Contradiction`."""
        for lot, number in sorted({*self._chosen} - {*self._orders}):
            raise Contradiction(f"R28 {lot}: members give back by order {number}, which none gave")


def create_shared(storm: Storm, action: StormAction) -> None:
    """Create a job of one of the two pools, often larger than its half."""
    cluster = cluster_of(storm)
    storm.strike(action.name)
    client = CLIENTS[action.other % len(CLIENTS)]
    limit = cluster.setup.host_capacity.times(len(cluster.hosts))
    config = PoolConfig("borrower", ROOT, limit.percent(10), limit)
    job, may = cluster.draw_job(), action.other % 5 > 0
    default = TaskConfig(command=Command("x"), resources=NEED)

    def create(answer: Any) -> None:
        # The pool was refused where a host that reports less slack has lowered what it may have.
        there = action.which % 2 and BORROWER in cluster.cells("respool")
        pool = BORROWER if there else STORM_POOL
        spec = JobSpec("shared", "me", pool, max(action.count, 1), default, preemptible=may)
        cluster.clients.create(client, job, message=CreateJob(spec))

    cluster.clients.command(client, BORROWER, message=CreatePool(config), answered=create)


WORK: dict[str, Callable[[Storm, StormAction], None]] = {"create shared": create_shared}
DRAWN = ActionDraw(
    "lending",
    SHARE,
    ACTIONS,
    lambda chance: chance.choice([*WORK]),
    lambda chance: chance.choice(SIZES),
)
