"""The facts of a pool. Numbers and meanings are permanent, because journals hold them."""

from __future__ import annotations

from peloton.actors.resources import Resources
from peloton.actors.respool.messages import PoolConfig, PoolHour
from peloton.runtime.vocabulary import Fact, Key


class PoolConfigured(Fact, frozen=True, gc=False, array_like=True):
    """The pool has this config; it exists from the first one on."""

    config: PoolConfig


class PoolDeleted(Fact, frozen=True, gc=False, array_like=True):
    """The pool is deleted."""


class CapacityChanged(Fact, frozen=True, gc=False, array_like=True):
    """The capacity of an inventory's hosts is this (root pool only)."""

    inventory: Key
    version: int
    capacity: Resources


class HourKept(Fact, frozen=True, gc=False, array_like=True):
    """What the pool used and borrowed in a time that is over; the oldest such time is dropped."""

    hour: PoolHour


FACTS: dict[int, type] = {
    1: PoolConfigured,
    3: PoolDeleted,
    4: CapacityChanged,
    5: HourKept,
}
