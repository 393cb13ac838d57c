"""Messages an inventory receives; those it sends to placers are in `placement.messages`.

The first inventory also has the host pools: it alone knows which there are and which host belongs
to which, so that a pool cannot be deleted while a host is moved into it.

Slices of daemon jobs follow the hosts of an inventory: a slice asks once, and is told from then on
which hosts match, all of them first, and then what has changed.
"""

from __future__ import annotations

from typing import ClassVar

from peloton.actors.host.holds.hold_messages import TaskHold
from peloton.actors.host.stages import HostStates, Maintenance
from peloton.actors.host.state import Host
from peloton.actors.resources import Resources
from peloton.placement.conditions import DEFAULT_HOST_POOL
from peloton.placement.messages import Constraint, HostSummary, SnapshotWanted
from peloton.runtime.vocabulary import Delivery, Key, Latest, Message, Query, Value, key

PLACERS_ALL = Key("placer/all")
"""Every placer of every region."""


class OpenInventory(Message, frozen=True, gc=False, array_like=True):
    """Assembly to an inventory: begin to exist."""


class ListHosts(Query, frozen=True, gc=False, array_like=True):
    """Asks for the hosts of the shard, as `HostView`; with names of tasks, only those held for one
    of them.

    `labels`: with the labels of the tasks on them. `troubled`: only those that are out of reach,
    lost or in maintenance.
    """

    tasks: tuple[str, ...] = ()
    labels: bool = False
    troubled: bool = False


class HostView(Value, frozen=True, gc=False, array_like=True):
    """A host as people see it."""

    summary: HostSummary
    state: HostStates
    runs: int
    because: str = ""
    maintenance: Maintenance = Maintenance.NONE
    pool: str = DEFAULT_HOST_POOL
    hold: str = ""  # the name of its hold
    held: Resources = Resources()  # what it has: neither free nor used
    foreign: int = 0  # runs that no task has
    task_holds: tuple[TaskHold, ...] = ()  # for which it is held
    moving: str = ""  # the pool that it joins once it has drained


OUT_OF_REACH = frozenset((HostStates.UNREACHABLE, HostStates.LOST))
"""States of hosts of which nothing is known for now."""


def is_troubled(host: Host | HostView) -> bool:
    """Return whether a host is out of reach, lost or in maintenance."""
    return host.state in OUT_OF_REACH or host.maintenance != Maintenance.NONE


HOST_POOLS_MAX = 1000

# Codes of refusals.
BAD_POOL = "BAD_POOL"
POOL_EXISTS = "POOL_EXISTS"
NO_POOL = "NO_POOL"
WRONG_SOURCE = "WRONG_SOURCE"


class MakeHostPool(Message, frozen=True, gc=False, array_like=True):
    """Operator to the first inventory: make a host pool of this name."""

    name: str


class DropHostPool(Message, frozen=True, gc=False, array_like=True):
    """Operator to the first inventory: remove this host pool; its hosts join the default one."""

    name: str


class AssignHost(Message, frozen=True, gc=False, array_like=True):
    """Operator to the first inventory: the host leaves one pool for another.

    The sender has made sure that the host exists.
    """

    host: Key
    source: str
    destination: str


class HostPoolSeen(Message, frozen=True, gc=False, array_like=True):
    """Host to the first inventory: the host knows its pool as of this version."""

    version: int


class MoveHostPool(Message, frozen=True, gc=False, array_like=True):
    """Host to the first inventory: the host is down, and asks to leave one pool for another.

    Each request is answered by `SetHostPool` or `PoolMoveRefused`.
    """

    source: str
    destination: str


class HostPoolChanged(Value, frozen=True, gc=False, array_like=True):
    """Answer to the orders of operators; `version` is that of a host's order, or 0."""

    version: int = 0


class GetHostPools(Query, frozen=True, gc=False, array_like=True):
    """Asks for the host pools, answered `HostPools`."""


class HostPools(Value, frozen=True, gc=False, array_like=True):
    """The names of host pools, the default one first, and the hosts in other ones, by key."""

    names: tuple[str, ...]
    members: tuple[tuple[Key, str], ...] = ()


class FollowTerms(Value, frozen=True, gc=False, array_like=True):
    """Which hosts are followed: those of one part of the names that the constraint allows."""

    constraint: Constraint | None = None
    part: int = 0
    parts: int = 1


class HostsOf(Value, frozen=True, gc=False, array_like=True):
    """The inventory whose hosts a slice of a daemon job has its instances on.

    `first`: these hosts keep room for the slice.
    """

    inventory: Key
    terms: FollowTerms
    first: bool = False


class FollowHosts(Message, frozen=True, gc=False, array_like=True):
    """Slice to inventory: tell the hosts that match.

    `asked` numbers the requests of the slice; a higher number is answered with all hosts anew.
    """

    delivery: ClassVar[Delivery] = Delivery.OWED

    asked: int
    terms: FollowTerms


class UnfollowHosts(Message, frozen=True, gc=False, array_like=True):
    """Slice to inventory: end what was asked for by this number."""

    asked: int


class HostsTold(Latest, frozen=True, gc=False, array_like=True):
    """Inventory to slice: which hosts match.

    `previous` is the version that the changes are based on; 0 if `joined` are all of them.
    """

    asked: int
    previous: int
    joined: tuple[Key, ...] = ()
    left: tuple[Key, ...] = ()


MESSAGES: dict[int, type] = {
    1: OpenInventory,
    2: SnapshotWanted,
    3: MakeHostPool,
    4: DropHostPool,
    5: AssignHost,
    6: HostPoolSeen,
    7: MoveHostPool,
    68: FollowHosts,
    69: UnfollowHosts,
}


def inventory_key(shard_number: int) -> Key:
    """Return the key of the inventory of one hostmgr shard."""
    return key("inventory", shard_number)


POOLS_OWNER = inventory_key(0)
"""The inventory that has the pools of hosts."""
