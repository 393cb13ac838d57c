"""Messages an inventory receives; those it sends to placers are in `placement.messages`.

None must concern a single run: hosts report those.
"""

from __future__ import annotations

from peloton.actors.host.state import HostStates, Maintenance
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


MESSAGES: dict[int, type] = {1: OpenInventory, 2: SnapshotWanted}


def inventory_key(shard_number: int) -> Key:
    """The inventory of one hostmgr shard."""
    return key("inventory", shard_number)
