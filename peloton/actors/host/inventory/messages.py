"""Messages an inventory receives; those it sends to placers are in `placement.messages`.

None must concern a single run: hosts report those.
"""

from __future__ import annotations

from peloton.actors.host.state import HostStates, Maintenance
from peloton.actors.resources import Resources
from peloton.placement.messages import HostSummary, SnapshotWanted
from peloton.runtime.vocabulary import Key, Message, Query, Value, key

PLACERS_ALL = Key("placer/all")
"""Every placer of every region."""


class OpenInventory(Message, frozen=True, gc=False, array_like=True):
    """Assembly to an inventory: begin to exist."""


class ListHosts(Query, frozen=True, gc=False, array_like=True):
    """Every host of the shard, as `HostView`."""


class HostView(Value, frozen=True, gc=False, array_like=True):
    """A host as people see it."""

    summary: HostSummary
    state: HostStates
    runs: int
    because: str = ""
    maintenance: Maintenance = Maintenance.NONE
    hold: str = ""  # the name of its hold
    held: Resources = Resources()  # what it has: neither free nor used
    foreign: int = 0  # runs that no task has


MESSAGES: dict[int, type] = {1: OpenInventory, 2: SnapshotWanted}


def inventory_key(shard_number: int) -> Key:
    """The inventory of one hostmgr shard."""
    return key("inventory", shard_number)
