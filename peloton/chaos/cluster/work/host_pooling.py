"""R26: a run is placed by the pool of its host and the room for controllers; and such jobs.

Turns scenario actions into pools of hosts, hosts that change theirs, jobs with conditions on them
and a limit of controllers; and committed facts into a `Contradiction` or nothing. The code by which
hosts, placers and pools decide is not used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from peloton.actors.host import facts as hf
from peloton.actors.host.holds.foreign_names import is_foreign
from peloton.actors.host.inventory.messages import (
    POOLS_OWNER,
    AssignHost,
    DropHostPool,
    GetHostPools,
    HostPools,
    MakeHostPool,
)
from peloton.actors.job.messages import CreateJob
from peloton.actors.job.slice.task_config import Command, Override, TaskConfig
from peloton.actors.job.spec import JobSpec
from peloton.actors.resources import Resources
from peloton.actors.respool import facts as pf
from peloton.actors.respool.lot import facts as lf
from peloton.actors.respool.lot.messages import LotShape
from peloton.actors.respool.messages import ROOT, PoolConfig, UpdatePool
from peloton.chaos.cluster.work.drawing import ActionDraw, by_weight
from peloton.chaos.cluster.work.workload import cluster_of, create_job
from peloton.chaos.cluster.world.cluster import (
    HOST_CAPACITY,
    NEED,
    STORM_POOL,
    SimulatedCluster,
    job_spec,
)
from peloton.placement.messages import Constraint, Label
from peloton.runtime.core.entities.codec import Entry
from peloton.runtime.simulation.scan import Contradiction
from peloton.runtime.simulation.scenario import StormAction
from peloton.runtime.simulation.storms import Storm
from peloton.runtime.vocabulary import Key

SHARE = 0.15
ACTIONS = (3, 9)
LEFT, DEFAULT = "left", "default"
CLOSED = (LEFT,)
"""Pools that take none but jobs that name a pool."""


def _in(pool: str, *, condition: str, number: int) -> Constraint:
    return Constraint("label", "host", Label("host_pool", pool), condition, number)


INSIDE = _in(DEFAULT, condition="equal", number=1)
OUTSIDE = _in(LEFT, condition="less", number=1)
FORMS = (
    INSIDE,
    OUTSIDE,
    Constraint("or", members=(_in(LEFT, condition="greater", number=0), INSIDE)),
)
"""Each is met by a host of the default pool, where all are in the calm."""


class HostPoolCheck:
    """The pool of each host, and what each pool of resources gives to controllers."""

    def __init__(self) -> None:
        self.pools: dict[Key, str] = {}
        self.checked = 0
        self._configs: dict[Key, PoolConfig] = {}
        self._lots: dict[Key, LotShape] = {}
        self._held: dict[Key, int] = {}  # members of lots of controllers
        self.noted: dict[type, Callable[[Entry, Any], None]] = {
            hf.HostPoolSet: self._moves,
            hf.RunsAccepted: self._accepts,
            pf.PoolConfigured: self._configured,
            lf.LotOpened: self._opened,
            lf.LotAdmitted: self._admits,
            lf.LotEnqueued: self._leave,
            lf.LotReleased: self._leave,
            lf.LotParked: self._leave,
        }

    def _moves(self, entry: Entry, fact: hf.HostPoolSet) -> None:
        self.pools[entry.key] = fact.pool

    def _accepts(self, entry: Entry, fact: hf.RunsAccepted) -> None:
        pool, constraint = self.pools.get(entry.key, DEFAULT), fact.spec.constraint
        named = [*_pools_of(constraint)] if constraint is not None else []
        if not named and pool in CLOSED and not is_foreign(fact.crowd):
            raise Contradiction(f"R26 {fact.crowd} names no pool, and gets {entry.key} of {pool}")
        if constraint in FORMS:
            self.checked += 1
            if (pool == LEFT) if constraint in (INSIDE, OUTSIDE) else pool not in (LEFT, DEFAULT):
                raise Contradiction(f"R26 {fact.crowd} gets {entry.key} of {pool}: {constraint}")

    # ---- controllers ----

    def _configured(self, entry: Entry, fact: pf.PoolConfigured) -> None:
        self._configs[entry.key] = fact.config

    def _opened(self, entry: Entry, fact: lf.LotOpened) -> None:
        if fact.shape.controller:
            self._lots[entry.key] = fact.shape
            self._held[entry.key] = 0

    def _admits(self, entry: Entry, fact: lf.LotAdmitted) -> None:
        shape = self._lots.get(entry.key)
        if shape is None:
            return
        self._held[entry.key] |= fact.members.raw
        config = self._configs[shape.pool]
        if config.controller_percent is None:
            return
        self.checked += 1
        used = Resources()
        for lot, other in self._lots.items():
            if other.pool == shape.pool:
                used = used + other.resources.times(self._held[lot].bit_count())
        most = config.reservation.percent(config.controller_percent)
        if not used.within(most):
            raise Contradiction(f"R26 controllers of {shape.pool} use {used} of {most}")

    def _leave(self, entry: Entry, fact: lf.LotEnqueued | lf.LotReleased | lf.LotParked) -> None:
        if entry.key in self._held:
            self._held[entry.key] &= ~fact.members.raw


def _pools_of(constraint: Constraint) -> Iterator[str]:
    is_of_host = constraint.form == "label" and constraint.kind == "host"
    if is_of_host and constraint.label.key == "host_pool":
        yield constraint.label.value
    for member in constraint.members:
        yield from _pools_of(member)


def make_pool(storm: Storm, action: StormAction) -> None:
    """Make a pool of hosts."""
    cluster_of(storm).clients.command("operator", POOLS_OWNER, message=MakeHostPool(LEFT))


def move_host(storm: Storm, action: StormAction) -> None:
    """Move a host to another pool; an order from the wrong one is refused."""
    cluster = cluster_of(storm)
    host = cluster.hosts[action.which % len(cluster.hosts)]
    source, other = (DEFAULT, LEFT) if action.other % 3 else (LEFT, DEFAULT)
    storm.strike(action.name, f"{host} to {other}")

    def made(_: object) -> None:
        message = AssignHost(host, source, other)
        cluster.clients.command("operator", POOLS_OWNER, message=message)

    cluster.clients.command("operator", POOLS_OWNER, message=MakeHostPool(LEFT), answered=made)


def drop_pool(storm: Storm, action: StormAction) -> None:
    """Delete the pool, whose hosts then are of the default one."""
    storm.strike(action.name)
    cluster_of(storm).clients.command("operator", POOLS_OWNER, message=DropHostPool(LEFT))


def create_in_pool(storm: Storm, action: StormAction) -> None:
    """Create a job for hosts of some pools."""
    cluster = cluster_of(storm)
    spec = job_spec(max(1, action.count), constraint=FORMS[action.which % len(FORMS)])
    create_job(cluster, action, message=CreateJob(spec))


def limit_controllers(storm: Storm, action: StormAction) -> None:
    """Limit controllers to a quarter of the pool, or half: there is room for one."""
    cluster = cluster_of(storm)
    capacity = cluster.setup.host_capacity.times(len(cluster.hosts))
    percent = (25.0, 50.0)[action.other % 2]
    config = PoolConfig("p", ROOT, HOST_CAPACITY, capacity, controller_percent=percent)
    storm.strike(action.name)
    message = UpdatePool(config, force=True)
    cluster.clients.command(
        "operator", STORM_POOL, message=message,
        answered=lambda _: create_controllers(storm, action),
    )  # fmt: skip


def create_controllers(storm: Storm, action: StormAction) -> None:
    """Create jobs whose first instance is their controller."""
    cluster = cluster_of(storm)
    default, first = (
        TaskConfig(command=Command("x"), resources=NEED, controller=controls)
        for controls in (False, True)
    )
    spec = JobSpec("controlled", "me", STORM_POOL, 1, default, own_configs=1)
    message = CreateJob(spec, ((0, (Override(0, first),)),))
    for _ in range(2 + action.count):
        create_job(cluster, action, message=message)


def calm(cluster: SimulatedCluster) -> None:
    """Delete the pool as an operator, whatever the storm's orders have left of it."""
    orders = (AssignHost, MakeHostPool)
    if not any(isinstance(each.message, orders) for each in cluster.clients.requests):
        return

    def seen(answer: Any) -> None:
        if not isinstance(answer, HostPools) or LEFT not in answer.names:
            return
        cluster.clients.command("operator", POOLS_OWNER, message=DropHostPool(LEFT))

    def look() -> None:
        cluster.clients.command("operator", POOLS_OWNER, message=GetHostPools(), answered=seen)

    for after_s in (0.0, 30.0, 60.0):  # orders of the storm may still be under way
        cluster.world.later.at(cluster.world.now + after_s, look)


WORK: dict[str, Callable[[Storm, StormAction], None]] = {
    "make host pool": make_pool,
    "move host": move_host,
    "drop host pool": drop_pool,
    "create in host pool": create_in_pool,
    "limit controllers": limit_controllers,
    "create controllers": create_controllers,
}
WEIGHTS = {
    "make host pool": 4, "move host": 6, "drop host pool": 1, "create in host pool": 5,
    "limit controllers": 2, "create controllers": 3,
}  # fmt: skip


DRAWN = ActionDraw(
    "host pools",
    SHARE,
    ACTIONS,
    by_weight(WEIGHTS),
    lambda chance: chance.choice((1, 2, 5)),
)
