"""Operators that create, change, delete and read pools during a storm, without any job.

Turns a scenario's action into requests about pools whose histories are searched afterwards. Each
config is unlike all others, so that an answer shows which request it comes from. Drawn separately
from all other work, so that older seeds keep their storms.
"""

from __future__ import annotations

from collections.abc import Callable

from peloton.actors.resources import Resources
from peloton.actors.respool.messages import (
    ROOT,
    CreatePool,
    DeletePool,
    GetPool,
    PoolConfig,
    UpdatePool,
    pool_key,
)
from peloton.chaos.cluster.rules.pool_history import POOL_PREFIX
from peloton.chaos.cluster.work.drawing import ActionDraw, by_weight
from peloton.chaos.cluster.work.workload import client_of, cluster_of
from peloton.runtime.simulation.daemon import SimulatedDaemon
from peloton.runtime.simulation.scenario import StormAction
from peloton.runtime.simulation.storms import Storm
from peloton.runtime.vocabulary import Key, Message

POOLS = 2
SHARE = 0.3
ACTIONS = (4, 12)
WEIGHTS = {"create pool": 3, "change pool": 4, "delete pool": 1, "look at pool": 6}


def _pool(action: StormAction) -> Key:
    return pool_key(f"{POOL_PREFIX}{action.which % POOLS}")


def _config(storm: Storm, action: StormAction) -> PoolConfig:
    number = len(cluster_of(storm).clients.requests)
    pool = _pool(action).partition("/")[2]
    return PoolConfig(pool, ROOT, Resources(), Resources(1 + number, 0, 0, 0))


def _ask(storm: Storm, action: StormAction, *, to: Key, message: Message) -> None:
    client = client_of(action)
    cluster_of(storm).clients.command(client, to, message=message)


def create_pool(storm: Storm, action: StormAction) -> None:
    _ask(storm, action, to=_pool(action), message=CreatePool(_config(storm, action)))


def change_pool(storm: Storm, action: StormAction) -> None:
    """Give a pool another limit."""
    _ask(storm, action, to=_pool(action), message=UpdatePool(_config(storm, action), force=True))


def delete_pool(storm: Storm, action: StormAction) -> None:
    """Delete a pool, which has no job."""
    _ask(storm, action, to=_pool(action), message=DeletePool())


def look_at_pool(storm: Storm, action: StormAction, *, at: SimulatedDaemon | None = None) -> None:
    """Get the config of a pool; `at` is the daemon that is asked first."""
    look = GetPool(_pool(action), config_only=True)
    cluster_of(storm).clients.query(client_of(action), ROOT, query=look, at=at)


WORK: dict[str, Callable[[Storm, StormAction], None]] = {
    "create pool": create_pool,
    "change pool": change_pool,
    "delete pool": delete_pool,
    "look at pool": look_at_pool,
}


DRAWN = ActionDraw(
    "pools",
    SHARE,
    ACTIONS,
    by_weight(WEIGHTS),
)
