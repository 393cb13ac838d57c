"""The state of an inventory, and the index over its hosts.

The state has only the followers of its hosts and, in the first inventory, the host pools. What a
host itself reports is not in the state: the index follows it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import immutables
import msgspec

from peloton.actors.host.holds.hold_messages import TaskHold
from peloton.actors.host.inventory import facts as f
from peloton.actors.host.inventory.following import FollowedHosts
from peloton.actors.host.stages import HostStates, Maintenance
from peloton.actors.host.state import Host
from peloton.actors.resources import Resources
from peloton.placement.conditions import DEFAULT_HOST_POOL
from peloton.placement.messages import HostDeltas
from peloton.runtime.vocabulary import Key, Value


class Inventory(Value, frozen=True, gc=False, array_like=True):
    """An open inventory.

    `pools` are the names beside the default one, `dropped` those whose hosts have to leave.
    `members` has the pool of each host that does not belong to the default one, `untold` the hosts
    that may not know theirs, with the version of the order; `version` is that of the newest.
    """

    pools: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    members: immutables.Map[Key, str] = immutables.Map()
    untold: immutables.Map[Key, int] = immutables.Map()
    version: int = 0
    followers: immutables.Map[Key, f.FollowerNoted] = immutables.Map()  # slices of daemon jobs

    def pool_of(self, host: Key) -> str:
        """Return the pool that a host belongs to; once that is dropped, the default one."""
        pool = self.members.get(host, DEFAULT_HOST_POOL)
        return DEFAULT_HOST_POOL if pool in self.dropped else pool


replace = msgspec.structs.replace


def _assigned(inventory: Inventory, fact: f.HostAssigned) -> Inventory:
    members, version = inventory.members, inventory.version + 1
    if fact.pool != DEFAULT_HOST_POOL:
        members = members.set(fact.host, fact.pool)
    elif fact.host in members:
        members = members.delete(fact.host)
    untold = inventory.untold.set(fact.host, version)
    return replace(inventory, members=members, untold=untold, version=version)


def _told(inventory: Inventory, fact: f.HostTold) -> Inventory:
    return replace(inventory, untold=inventory.untold.delete(fact.host))


def _made(inventory: Inventory, fact: f.HostPoolMade) -> Inventory:
    return replace(inventory, pools=tuple(sorted((*inventory.pools, fact.name))))


def _dropped(inventory: Inventory, fact: f.HostPoolDropped) -> Inventory:
    pools = tuple(one for one in inventory.pools if one != fact.name)
    return replace(inventory, pools=pools, dropped=(*inventory.dropped, fact.name))


def _emptied(inventory: Inventory, fact: f.HostPoolEmptied) -> Inventory:
    return replace(inventory, dropped=tuple(x for x in inventory.dropped if x != fact.name))


EVOLVE: Mapping[type, Callable[[Any, Any], Inventory]] = {
    f.InventoryOpened: lambda inventory, fact: Inventory(),
    f.HostPoolMade: _made,
    f.HostPoolDropped: _dropped,
    f.HostPoolEmptied: _emptied,
    f.HostAssigned: _assigned,
    f.HostTold: _told,
    f.FollowerNoted: lambda inventory, fact: replace(
        inventory, followers=inventory.followers.set(fact.follower, fact)
    ),
    f.FollowerGone: lambda inventory, fact: replace(
        inventory, followers=inventory.followers.delete(fact.follower)
    ),
}


class Hosts:
    """The hosts of one shard: their summaries, the sum of their capacity, and what changed.

    `deltas` are what changed since the last report, numbered; the first after a recovery are a
    snapshot, because it is not known what the placers have received.
    """

    def __init__(self) -> None:
        self.hosts: dict[Key, Host] = {}
        self.capacity = Resources()
        self.followed = FollowedHosts()
        self._changed: dict[Key, None] = {}
        self._gone: dict[Key, None] = {}
        self._sequence = 0
        self._snapshot = True
        self._reported: Resources | None = None
        self._recovered: dict[Key, None] | None = {}  # None once they were reported
        self._held_for: dict[str, dict[Key, None]] = {}  # by the name of a task

    @property
    def recovered(self) -> list[Key]:
        """Return the hosts of a new index, removed ones included; once it has reported, none.

        An index is new after a recovery. Orders to backends may then have been lost between the
        journal and the wire, and reports of backends on their way to the journal: among them the
        only `BackendUp`, without which its hosts would stay lost.
        """
        return [*(self._recovered or ())]

    def put(self, key: Key, *, old: Host | None, new: Host | None) -> None:
        """Apply the change of a host's state."""
        self.capacity = self.capacity + counted_capacity(new) - counted_capacity(old)
        self._follow_task_holds(key, old=_task_holds(self.hosts.get(key)), new=_task_holds(new))
        if self._recovered is not None:
            self._recovered[key] = None
        if new is None or new.removed:
            if self.hosts.pop(key, None) is not None:
                self._changed.pop(key, None)
                self._gone[key] = None
                self.followed.changed[key] = None
            return
        known = self.hosts.get(key)
        if known is None or known.labels is not new.labels or known.pool != new.pool:
            self.followed.changed[key] = None
        self.hosts[key] = new
        self._gone.pop(key, None)  # it is back: its new summary is enough
        if old is None or old.version != new.version:
            self._changed[key] = None

    def held_for(self, tasks: Iterable[str]) -> set[Key]:
        """Return the hosts that are held for one of these tasks."""
        return {host for task in tasks for host in self._held_for.get(task, ())}

    def _follow_task_holds(
        self, key: Key, *, old: tuple[TaskHold, ...], new: tuple[TaskHold, ...]
    ) -> None:
        if old is new:
            return
        for hold in old:
            hosts = self._held_for[hold.task]
            hosts.pop(key, None)
            if not hosts:
                del self._held_for[hold.task]
        for hold in new:
            self._held_for.setdefault(hold.task, {})[key] = None

    def deltas(self, inventory: Key) -> HostDeltas | None:
        """Return what changed since the last report, or None."""
        if not (self._changed or self._gone or self._snapshot):
            return None
        keys = self.hosts if self._snapshot else self._changed
        summaries = tuple(self.hosts[key].summary(key) for key in keys if key in self.hosts)
        gone = () if self._snapshot else tuple(self._gone)
        return HostDeltas(inventory, self._sequence + 1, summaries, self._snapshot, gone)

    @property
    def new_capacity(self) -> Resources | None:
        """Return the sum of capacities, if it differs from the one reported last."""
        return None if self._reported == self.capacity else self.capacity

    def reported(self, deltas: HostDeltas | None) -> None:
        """Record that all of this was reported, with these deltas.

        It comes last: a report that raises is made again, and has to say the same.
        """
        if deltas is not None:
            self._sequence = deltas.sequence
            self._changed, self._gone, self._snapshot = {}, {}, False
        self._reported, self._recovered = self.capacity, None

    def snapshot(self, inventory: Key) -> HostDeltas:
        """Return all hosts, for one placer.

        The snapshot has the number of the last deltas, and takes nothing pending: with a number of
        its own all other placers would see a gap, and each of them would request a snapshot, too.
        """
        summaries = tuple(host.summary(key) for key, host in self.hosts.items())
        return HostDeltas(inventory, self._sequence, summaries, snapshot=True)


def _task_holds(host: Host | None) -> tuple[TaskHold, ...]:
    return () if host is None or host.removed else host.task_holds


def counted_capacity(host: Host | None) -> Resources:
    """Return what a host adds to the cluster's capacity.

    A lost host adds nothing, a host in maintenance what its runs still hold: these are charged to
    pools until they end, and would otherwise count against the room of the other hosts.
    """
    if host is None or host.state == HostStates.LOST:
        return Resources()
    if host.maintenance != Maintenance.NONE:
        return host.used_by_runs
    return host.capacity
