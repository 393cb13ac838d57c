"""Messages and queries a pool receives from clients and inventories, and its answers.

Lots receive the messages that concern tasks; the tree is derived from the lots.
"""

from __future__ import annotations

import enum

from peloton.actors.resources import Resources
from peloton.placement.messages import GangRoomFound
from peloton.runtime.vocabulary import Bits, Key, Latest, Message, Query, Value, key

ROOT = Key("respool/root")
ROOT_ID = "root"
TREE_PARTITION = "tree"
"""All pools and lots of one tree share a shard."""


MILLIONTHS_MAX = 1 << 62
NO_SLACK_LIMIT = Resources(slack=MILLIONTHS_MAX)
"""A config says nothing of slack: a pool may use all that its share of it gives."""


class FillStage(enum.IntEnum):
    """How far an entitlement goes."""

    RESERVED = 0
    """It does not reach: the reservations that are needed exceed it."""
    SHARED = 1
    """The reservations are served, some needs beyond them are not."""
    OFFERED = 2
    """All needs are met, and the rest is offered."""


class Within(enum.IntEnum):
    """How far the tasks of a pool that may not be preempted keep to its reservation.

    Not at all, in the kinds of which it reserves any, or in all kinds. CLUSTER: as the cluster
    says.
    """

    CLUSTER = 0
    NEVER = 1
    RESERVED = 2
    ALWAYS = 3


class Queueing(enum.IntEnum):
    """Whether tickets behind the first of a queue, while that cannot begin, pass it if they fit,
    or wait."""

    BEST_EFFORT = 0
    STRICT = 1


class PoolConfig(Value, frozen=True, gc=False, array_like=True):
    """The config of a pool. A kind that is not given has reservation 0 and limit 0."""

    name: str
    parent: Key
    reservation: Resources
    limit: Resources
    share: tuple[float, float, float, float] = (1.0, 1.0, 1.0, 1.0)
    static: tuple[bool, bool, bool, bool] = (False, False, False, False)
    controller_percent: float | None = None
    slack_percent: float = 20.0
    raw: bytes = b""  # the config as the client wrote it, for reading back
    problem: str = ""  # an error in the config itself, found when it was translated
    within: Within = Within.CLUSTER
    queueing: Queueing = Queueing.BEST_EFFORT


class PoolHour(Value, frozen=True, gc=False, array_like=True):
    """What a pool held, borrowed and left unused in an hour or more.

    It `borrowed` what it held beyond its reservation, and left `unused` what it did not hold of it,
    which others may have borrowed. Amounts are for an hour: one cpu for two hours is 2. `given`:
    what tasks held that were ended for others, and how many these were. Times are in seconds since
    1970. Pools below are included.
    """

    began: float
    ended: float
    used: Resources
    borrowed: Resources
    unused: Resources
    given: Resources
    tasks: int


class OpenRoot(Message, frozen=True, gc=False, array_like=True):
    """Assembly to the root pool: begin to exist."""


class CreatePool(Message, frozen=True, gc=False, array_like=True):
    """Client to a pool that does not exist yet: create it."""

    config: PoolConfig


class UpdatePool(Message, frozen=True, gc=False, array_like=True):
    """Client to a pool: change the config; `force` skips the validation."""

    config: PoolConfig
    force: bool = False


class DeletePool(Message, frozen=True, gc=False, array_like=True):
    """Client to a pool: delete it, if it is a leaf without use and demand."""


class Capacity(Latest, frozen=True, gc=False, array_like=True):
    """Inventory to the root pool: the capacity of its hosts."""

    inventory: Key
    capacity: Resources


class KeepHour(Message, frozen=True, gc=False, array_like=True):
    """Root to a pool: this time of it is over."""

    hour: PoolHour


class LeaversFound(Message, frozen=True, gc=False, array_like=True):
    """Slice to the root, in answer to `AskLeavers`: which members of a lot could give back.

    So many `idle` members wait for a host; each other one runs on one of `hosts`, in the order in
    which they would be chosen.
    """

    lot: Key
    number: int
    idle: int
    hosts: tuple[Key, ...]


class PoolDone(Value, frozen=True, gc=False, array_like=True):
    """Answer to a command that succeeded."""

    pool: Key


class ListPools(Query, frozen=True, gc=False, array_like=True):
    """Asks the root for pools as `PoolView`, parents before children, siblings by name.

    `most` limits the page (0: all pools at once). The next page comes `after` the last pool of this
    one, given as name and key of each pool on the path to it, without the root. With `parent` only
    its children are listed.
    """

    most: int = 0
    after: tuple[tuple[str, Key], ...] | None = None
    parent: Key | None = None


class GetPool(Query, frozen=True, gc=False, array_like=True):
    """Asks the root for one pool, by its path if given, and those above it: a `PoolView` of each.

    The pool comes first and the root last; the answer is empty if there is no such pool. Only the
    view of the pool itself has children (on request) and the reason why its first ticket waits.
    With `config_only` the views show neither use nor demand nor that reason, so that an answer
    stays true until a pool changes.
    """

    pool: Key = ROOT
    path: str = ""
    children: bool = False
    config_only: bool = False


class ListQueue(Query, frozen=True, gc=False, array_like=True):
    """Asks the root for the lots with waiting members in the queue of a pool, as `QueuedLot`, in
    order.

    They have `most` members in all at most; the last lot is cut to that.
    """

    pool: Key
    most: int


class GetPoolHistory(Query, frozen=True, gc=False, array_like=True):
    """Asks the root for the hours of the pool at a path, as `PoolHistory`; None if there is no
    pool."""

    path: str


class PoolHistory(Value, frozen=True, gc=False, array_like=True):
    """The hours that a pool has kept, the oldest first, and the hour that is still open."""

    path: str
    kept: tuple[PoolHour, ...]
    open: PoolHour | None


class QueuedLot(Value, frozen=True, gc=False, array_like=True):
    """The waiting members of one lot, and their crowd."""

    lot: Key
    crowd: Key
    waiting: Bits


class PoolView(Value, frozen=True, gc=False, array_like=True):
    """A pool as clients see it."""

    pool: Key
    path: str
    config: PoolConfig
    children: tuple[Key, ...]
    allocation: Resources
    demand: Resources
    because: str = ""  # why its first ticket waits, if one does
    child_count: int = 0
    on_slack: Resources = Resources()  # of `allocation`, what tasks hold that run on slack
    entitlement: Resources | None = None  # None: not asked for, or by an owner before it was shown


MESSAGES: dict[int, type] = {
    1: OpenRoot,
    2: CreatePool,
    3: UpdatePool,
    4: DeletePool,
    5: Capacity,
    6: KeepHour,
    77: LeaversFound,
    78: GangRoomFound,
}
ANSWERS: dict[int, type] = {1: PoolDone}


def pool_key(pool_id: str) -> Key:
    """Return the key of a pool by its id."""
    return key("respool", pool_id)
