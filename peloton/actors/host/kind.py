"""The kind "host", as registered with the runtime. Its parent is its shard's inventory.

Must hold nothing but the table.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping

from peloton.actors.host import hold_messages as hm
from peloton.actors.host import messages as m
from peloton.actors.host import view
from peloton.actors.host.decide import ABSENT, DECIDE, owed
from peloton.actors.host.facts import (
    FACTS,
    HoldEnded,
    HoldTaken,
    HostDrained,
    HostTakenDown,
    MaintenanceCompleted,
    MaintenanceStarted,
    RunsForgotten,
    SetForgotten,
)
from peloton.actors.host.goals import deadline, pursue, recall_s
from peloton.actors.host.inventory.messages import HostView, inventory_key
from peloton.actors.host.state import EVOLVE, Host
from peloton.runtime.vocabulary import Key, Kind

SINCE: Mapping[type, int] = {
    **dict.fromkeys(
        (MaintenanceStarted, HostDrained, HostTakenDown, MaintenanceCompleted, m.MaintenanceSet),
        m.LEVEL_MAINTENANCE,
    ),
    **dict.fromkeys(
        (
            *(HoldTaken, HoldEnded, hm.HostHeld, hm.HoldReleased),
            *(hm.ForeignLaunched, hm.ForeignKilled),
        ),
        hm.LEVEL_HOLDS,
    ),
}
"""The feature levels of classes that earlier versions do not know."""


def _partition(key: Key) -> str:
    return key.partition("/")[2]


def _parent(shards: int) -> Callable[[Key, object], Key]:
    inventories = [inventory_key(number) for number in range(shards)]
    return lambda key, state: inventories[zlib.crc32(_partition(key).encode()) % shards]


def kind(shards: int) -> Kind:
    """The kind, for a cluster whose hostmgr group has `shards` shards."""
    return Kind(
        name="host",
        group="hostmgr",
        state=Host,
        decide=DECIDE,
        absent=ABSENT,
        pursue=pursue,
        evolve=EVOLVE,
        messages={**m.MESSAGES, **hm.HOLD_MESSAGES},
        facts=FACTS,
        partition=_partition,
        deadline=deadline,
        owed=owed,
        recall_s=recall_s,
        # A run that is still there owes its end to its task, which answers that it has seen it.
        lazy=frozenset((RunsForgotten, SetForgotten)),
        parent=_parent(shards),
        inspect={m.GetHost: view.get_host},
        queries={501: m.GetHost},
        answers={
            501: view.HostAnswer,
            502: HostView,
            503: m.MaintenanceSet,
            504: hm.HostHeld,
            505: hm.HoldReleased,
            506: hm.ForeignLaunched,
            507: hm.ForeignKilled,
        },
        view=view.waiting,
        schema=2,
        upcasters={Host: {1: view.upcast}},
        since=SINCE,
        schemas_since={Host: {2: m.LEVEL_SETS}},
        downcasters={Host: {2: view.downcast}},
    )
