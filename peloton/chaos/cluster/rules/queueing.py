"""R30: within a pool no lot overtakes one that needs no more than it.

Turns committed facts of lots into a `Contradiction` or nothing: a member that is admitted had
nobody before it in its pool, by priority and then by arrival, that asked for no more of any kind
under no stricter rule. Gangs are admitted by the first of their lots, and are not compared. The
queue that is judged is not used.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from peloton.actors.resources import Resources
from peloton.actors.respool.lot import facts as lf
from peloton.actors.respool.lot.messages import LotShape
from peloton.runtime.core.entities.codec import Entry
from peloton.runtime.simulation.scan import Contradiction
from peloton.runtime.vocabulary import Key


class WaitingLot:
    """A lot: who waits in it, and since when."""

    def __init__(self, shape: LotShape, arrived: float) -> None:
        self.shape = shape
        self.arrived = arrived
        self.waiting = 0
        self.gang = shape.gang


class QueueCheck:
    """The queues of all pools, by their lots."""

    def __init__(self) -> None:
        self.checked = 0
        self._lots: dict[Key, WaitingLot] = {}
        self._pools: dict[Key, dict[Key, WaitingLot]] = {}  # those in which anybody waits
        self.noted: dict[type, Callable[[Entry, Any], None]] = {
            lf.LotOpened: self._opens,
            lf.LotGangSet: self._joins,
            lf.LotEnqueued: self._waits,
            lf.LotAdmitted: self._admitted,
            lf.LotReleased: self._leaves,
        }

    def _opens(self, entry: Entry, fact: lf.LotOpened) -> None:
        self._lots[entry.key] = WaitingLot(fact.shape, fact.at)

    def _joins(self, entry: Entry, fact: lf.LotGangSet) -> None:  # noqa: ARG002
        self._lots[entry.key].gang = True

    def _waits(self, entry: Entry, fact: lf.LotEnqueued) -> None:
        lot = self._lots[entry.key]
        if not lot.waiting:
            lot.arrived = fact.at
        lot.waiting |= fact.members.raw
        self._pools.setdefault(lot.shape.pool, {})[entry.key] = lot

    def _admitted(self, entry: Entry, fact: lf.LotAdmitted) -> None:
        lot = self._lots[entry.key]
        for key, other in self._pools.get(lot.shape.pool, {}).items():
            if _is_overtaken(other, lot):
                text = f"{fact.members} are admitted before those of {key}, which came first"
                raise Contradiction(f"R30 {entry.key}: {text}")
            self.checked += other is not lot
        self._leaves(entry, fact)

    def _leaves(self, entry: Entry, fact: lf.LotAdmitted | lf.LotReleased) -> None:
        lot = self._lots[entry.key]
        lot.waiting &= ~fact.members.raw
        if not lot.waiting:
            self._pools.get(lot.shape.pool, {}).pop(entry.key, None)


def _is_overtaken(other: WaitingLot, lot: WaitingLot) -> bool:
    if other is lot or other.gang or lot.gang:
        return False
    shape, admitted = other.shape, lot.shape
    if (-shape.priority, other.arrived) >= (-admitted.priority, lot.arrived):
        return False
    return _rules(shape) == _rules(admitted) and _needs_no_more(shape.resources, admitted.resources)


def _rules(shape: LotShape) -> tuple[bool, bool, bool]:
    """Return what decides under which limits a task is."""
    return shape.controller, shape.preemptible, shape.revocable


def _needs_no_more(one: Resources, other: Resources) -> bool:
    pairs = zip(one.amounts(), other.amounts(), strict=True)
    return all(wanted <= given for wanted, given in pairs)
