"""How a pool decides commands of clients and reports of inventories.

Commands become a pool's config, under the rules of the tree, and the sums of inventories the root's
capacity. `goals` serves lots and queues.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from peloton.actors.resources import Resources
from peloton.actors.respool import facts as f
from peloton.actors.respool import messages as m
from peloton.actors.respool.rules import BUSY, NOT_FOUND, check, check_delete, check_forced
from peloton.actors.respool.state import Pool, PoolNotes
from peloton.placement.messages import GangRoomFound
from peloton.runtime.vocabulary import At, Decision, Refused


def open_root(message: m.OpenRoot, at: At) -> Decision:
    """Open the root pool; its limit is the capacity of the cluster."""
    config = m.PoolConfig(m.ROOT_ID, m.ROOT, Resources(), Resources())
    return Decision(facts=(f.PoolConfigured(config),), because="first start")


def root_open(pool: Pool, message: m.OpenRoot, at: At) -> Decision:
    """Do nothing, because the root exists."""
    return Decision()


def create(message: m.CreatePool, at: At) -> Decision:
    """Create a pool, if the rules of the tree allow it."""
    refused = check(at.index, at.key, config=message.config)
    if refused is not None:
        return Decision(reply=refused, because=refused.text)
    return Decision(facts=(f.PoolConfigured(message.config),), reply=m.PoolDone(at.key))


def exists(pool: Pool, message: m.CreatePool, at: At) -> Decision:
    """Refuse, because the id is taken; a repeat of the same creation succeeds."""
    if pool.config == message.config:
        return Decision(reply=m.PoolDone(at.key))
    return Decision(reply=Refused(BUSY, "resource pool already exists", "id"))


def update(pool: Pool, message: m.UpdatePool, at: At) -> Decision:
    """Change the config, under the same rules; if forced, only under those of `check_forced`."""
    rules = check_forced if message.force else check
    refused = rules(at.index, at.key, config=message.config)
    if refused is not None:
        return Decision(reply=refused, because=refused.text)
    return Decision(facts=(f.PoolConfigured(message.config),), reply=m.PoolDone(at.key))


def delete(pool: Pool, message: m.DeletePool, at: At) -> Decision:
    """Delete the pool."""
    refused = check_delete(at.index, at.key)
    if refused is not None:
        return Decision(reply=refused, because=refused.text)
    return Decision(facts=(f.PoolDeleted(),), reply=m.PoolDone(at.key))


def missing(message: Any, at: At) -> Decision:
    """Answer that there is no such pool."""
    return Decision(reply=Refused(NOT_FOUND, "resource pool not found", "id"))


def capacity(pool: Pool, message: m.Capacity, at: At) -> Decision:
    """Record the sum of an inventory, unless the report is older or unchanged."""
    known = pool.inventories.get(message.inventory)
    if known is not None and message.version <= known.version:
        return Decision(because="an older report of this inventory")
    if known is not None and known.capacity == message.capacity:
        return Decision()
    fact = f.CapacityChanged(message.inventory, message.version, message.capacity)
    return Decision(facts=(fact,), because="capacity of the cluster changed")


def early(message: m.Capacity, at: At) -> Decision:
    """Create the root with the sum of an inventory that reported before the root was opened."""
    fact = f.CapacityChanged(message.inventory, message.version, message.capacity)
    opened = open_root(m.OpenRoot(), at)
    return Decision(facts=(*opened.facts, fact), because="an inventory reported first")


def keep_hour(pool: Pool, message: m.KeepHour, at: At) -> Decision:
    """Keep what the root has counted, unless it is known."""
    if pool.hours and message.hour.began < pool.hours[-1].ended:
        return Decision(because="a time that is known")
    return Decision(facts=(f.HourKept(message.hour),))


def heard(pool: Pool, message: m.LeaversFound | GangRoomFound, at: At) -> Decision:
    """Record an answer about a gang, which the next step of the root uses."""
    if at.index is None or not at.index.pending:
        return Decision(because="nobody waits")
    notes = at.notes if at.notes is not None else PoolNotes()
    return Decision(notes=msgspec.structs.replace(notes, heard=(*notes.heard, message)))


DECIDE: Mapping[type, Callable[[Any, Any, At], Decision]] = {
    m.OpenRoot: root_open,
    m.CreatePool: exists,
    m.UpdatePool: update,
    m.DeletePool: delete,
    m.Capacity: capacity,
    m.KeepHour: keep_hour,
    m.LeaversFound: heard,
    GangRoomFound: heard,
}

ABSENT: Mapping[type, Callable[[Any, At], Decision]] = {
    m.OpenRoot: open_root,
    m.CreatePool: create,
    m.UpdatePool: missing,
    m.DeletePool: missing,
    m.Capacity: early,
}
