"""The state of an inventory (nothing but being there), and the index over its hosts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from peloton.actors.host.inventory.facts import InventoryOpened
from peloton.actors.host.state import Host, HostStates
from peloton.actors.resources import Resources
from peloton.placement.messages import HostDeltas, HostSummary
from peloton.runtime.vocabulary import Key, Value


class Inventory(Value, frozen=True, gc=False, array_like=True):
    """An open inventory."""


EVOLVE: Mapping[type, Callable[[Any, Any], Inventory]] = {
    InventoryOpened: lambda inventory, fact: Inventory()
}


class Hosts:
    """The hosts of one shard: their summaries, the sum of their capacity, and what changed.

    `take` hands out what changed since the last time, numbered; the first after a recovery is a
    snapshot, because nobody knows what the placers have heard.
    """

    def __init__(self) -> None:
        self.hosts: dict[Key, Host] = {}
        self.capacity = Resources()
        self._changed: dict[Key, None] = {}
        self._gone: dict[Key, None] = {}
        self._sequence = 0
        self._snapshot = True
        self._told: Resources | None = None
        self._unsure: dict[Key, None] | None = {}  # None once they were handed out

    def take_unsure(self) -> list[Key]:
        """Of a new index, all hosts, those that are no more included; afterwards none.

        An index is new after a recovery. Then orders to backends may have been lost between the
        journal and the wire, and reports of backends on their way to the journal: also the only
        word that a backend is up again, without which its hosts would stay lost for good.
        """
        unsure, self._unsure = self._unsure, None
        return [*unsure] if unsure else []

    def put(self, key: Key, *, old: Host | None, new: Host | None) -> None:
        """A host has a new state."""
        self.capacity = self.capacity + _capacity(new) - _capacity(old)
        if self._unsure is not None:
            self._unsure[key] = None
        if new is None or new.removed:
            if self.hosts.pop(key, None) is not None:
                self._changed.pop(key, None)
                self._gone[key] = None
            return
        self.hosts[key] = new
        self._gone.pop(key, None)  # one that is back already: its new summary says all
        if old is None or old.version != new.version:
            self._changed[key] = None

    def take(self, inventory: Key) -> HostDeltas | None:
        """What placers do not know yet."""
        if not (self._changed or self._gone or self._snapshot):
            return None
        keys = self.hosts if self._snapshot else self._changed
        return self._deltas(inventory, [*keys])

    def take_capacity(self) -> Resources | None:
        """The sum, if it is not what was handed out last."""
        if self._told == self.capacity:
            return None
        self._told = self.capacity
        return self.capacity

    def snapshot(self, inventory: Key) -> HostDeltas:
        """All of it."""
        self._snapshot = True
        return self._deltas(inventory, [*self.hosts])

    def _deltas(self, inventory: Key, keys: list[Key]) -> HostDeltas:
        summaries: tuple[HostSummary, ...] = tuple(
            self.hosts[key].summary(key) for key in keys if key in self.hosts
        )
        self._sequence += 1
        gone = () if self._snapshot else tuple(self._gone)
        deltas = HostDeltas(inventory, self._sequence, summaries, self._snapshot, gone)
        self._changed, self._gone, self._snapshot = {}, {}, False
        return deltas


def _capacity(host: Host | None) -> Resources:
    """What a host adds to the cluster: nothing once it is lost."""
    if host is None or host.state == HostStates.LOST:
        return Resources()
    return host.capacity
