"""The state of a pool: its config; of the root, the capacity of the cluster by inventory.

The use and demand of its lots must not be state: a second copy could differ from the lots.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import immutables
import msgspec

from peloton.actors.resources import Resources
from peloton.actors.respool import facts as f
from peloton.actors.respool.messages import LeaversFound, PoolConfig, PoolHour
from peloton.placement.messages import GangRoomFound
from peloton.runtime.vocabulary import Key, Value


class InventorySum(Value, frozen=True, gc=False, array_like=True):
    """The last report of one inventory."""

    version: int
    capacity: Resources


class Pool(Value, frozen=True, gc=False, array_like=True):
    """One pool. Its use and its queue are not state: they are derived from lots (`tree.Tree`)."""

    config: PoolConfig
    inventories: immutables.Map[Key, InventorySum] = immutables.Map()
    hours: tuple[PoolHour, ...] = ()  # the last ones that are over, the oldest first

    @property
    def terms(self) -> tuple[PoolConfig, immutables.Map[Key, InventorySum]]:
        """Return all that the tree of pools is made of, which leaves out the history."""
        return self.config, self.inventories

    @property
    def capacity(self) -> Resources:
        """Return the sum of all inventories, which is the limit of the root."""
        total = Resources()
        for inventory in sorted(self.inventories):
            total = total + self.inventories[inventory].capacity
        return total


HOURS_KEPT_MAX = 48


class PoolNotes(Value, frozen=True, gc=False, array_like=True):
    """When the root has to look at its pools again without a message. Never journaled."""

    wake_at: float | None = None
    heard: tuple[LeaversFound | GangRoomFound, ...] = ()  # answers, until the next step
    asked: int = 0  # the last questions that were sent: `GangProofs.asked`


def _capacity(pool: Pool, fact: f.CapacityChanged) -> Pool:
    found = InventorySum(fact.version, fact.capacity)
    return msgspec.structs.replace(pool, inventories=pool.inventories.set(fact.inventory, found))


def _hour_kept(pool: Pool, fact: f.HourKept) -> Pool:
    hours = (*pool.hours, fact.hour)[-HOURS_KEPT_MAX:]
    return msgspec.structs.replace(pool, hours=hours)


def _configured(pool: Pool | None, fact: f.PoolConfigured) -> Pool:
    if pool is None:
        return Pool(fact.config)
    return msgspec.structs.replace(pool, config=fact.config)


EVOLVE: Mapping[type, Callable[[Any, Any], Pool | None]] = {
    f.PoolConfigured: _configured,
    f.PoolDeleted: lambda pool, fact: None,
    f.CapacityChanged: _capacity,
    f.HourKept: _hour_kept,
}
