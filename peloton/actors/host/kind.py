"""The kind "host", as registered with the runtime. Its parent is its shard's inventory."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping

from peloton.actors.host import machine_messages as mm
from peloton.actors.host import messages as m
from peloton.actors.host import view
from peloton.actors.host.decide import ABSENT, deadline, decide_with, owed
from peloton.actors.host.facts import (
    FACTS,
    RunsForgotten,
    SetForgotten,
)
from peloton.actors.host.folds import EVOLVE
from peloton.actors.host.goals import pursue, recall_s
from peloton.actors.host.holds import hold_messages as hm
from peloton.actors.host.inventory.messages import (
    HostPoolChanged,
    HostView,
    inventory_key,
)
from peloton.actors.host.live.live_messages import LIVE_MESSAGES
from peloton.actors.host.state import Host
from peloton.runtime.kinds import Kind, Listing
from peloton.runtime.vocabulary import Key

MESSAGES: Mapping[int, type] = {
    **m.MESSAGES,
    **hm.HOLD_MESSAGES,
    **mm.MACHINE_MESSAGES,
    **LIVE_MESSAGES,
}


def _partition(key: Key) -> str:
    return key.partition("/")[2]


def _parent(shards: int) -> Callable[[Key, object], Key]:
    inventories = [inventory_key(number) for number in range(shards)]
    return lambda key, state: inventories[zlib.crc32(_partition(key).encode()) % shards]


def kind(shards: int, *, quarantine_after: int = 0) -> Kind:
    """Return the kind, for a cluster whose hostmgr group has `shards` shards.

    A host is quarantined after so many failures that are its own; with 0 it never is.
    """
    return Kind(
        name="host",
        group="hostmgr",
        state=Host,
        decide=decide_with(quarantine_after=quarantine_after),
        absent=ABSENT,
        pursue=pursue,
        evolve=EVOLVE,
        messages=MESSAGES,
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
            501: Host,
            502: HostView,
            503: m.MaintenanceSet,
            504: HostPoolChanged,
            505: hm.HostHeld,
            506: hm.HoldReleased,
            507: hm.ForeignLaunched,
            508: hm.ForeignKilled,
            509: hm.HeldForTask,
            510: hm.TaskHoldsReleased,
            591: mm.VolumeDeleted,
        },
        listing=Listing(summary=view.waiting),
    )
