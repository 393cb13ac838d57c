"""The gangs of a tree: lots whose members are admitted all at once, or not at all.

One head stands for all lots of a gang in the queue of their pool, once every member has come. It is
dated by the first of its lots, so waiting for each other costs no place. What is left waiting of a
gang that was admitted in part, because an owner died between two lots, is one head again.
"""

from __future__ import annotations

from typing import NamedTuple

from peloton.actors.resources import Resources
from peloton.actors.respool.lot.state import Lot
from peloton.actors.respool.node import ZERO
from peloton.actors.respool.rations import Ration, rations_of
from peloton.runtime.vocabulary import Bits, Key


class QueuedUnit(NamedTuple):
    """What is admitted at once: the need in all, of which a part counts in rations."""

    need: Resources
    rationed: tuple[tuple[Ration, Resources], ...] = ()
    lots: tuple[Key, ...] = ()  # all lots of a gang; none where members are admitted one by one


class GangHead(NamedTuple):
    """A complete gang in the queue, by the first of its lots."""

    key: Key
    arrived: float
    waiting: int
    unit: QueuedUnit


class Gang:
    """The lots of one gang, and its head while it is complete and waits."""

    def __init__(self) -> None:
        self.lots: dict[Key, Lot] = {}
        self.head: GangHead | None = None

    def here(self) -> tuple[int, int]:
        """Return how many members have come, and how many are to come as far as known."""
        joined = sum(len(lot.joined & wanted_of(lot)) for lot in self.lots.values())
        return joined, sum(len(wanted_of(lot)) for lot in self.lots.values())

    def found_head(self) -> GangHead | None:
        """Return the head, by the lots there are; None while a member is missing, or none waits."""
        newest = max(self.lots.values(), key=_age).gang
        assert newest is not None
        if len(self.lots) != newest.lots:
            return None
        waiting, need, rationed = 0, ZERO, dict[Ration, Resources]()
        for lot in self.lots.values():
            assert lot.gang is not None
            if wanted_of(lot) - lot.joined or lot.gang.round != newest.round:
                return None
            count = len(lot.waiting)
            waiting += count
            need = need + lot.shape.resources.times(count)
            for each in rations_of(lot.shape):
                rationed[each] = rationed.get(each, ZERO) + lot.shape.resources.times(count)
        if not waiting:
            return None
        keys = tuple(sorted(self.lots))
        arrived = min(lot.arrived for lot in self.lots.values() if lot.waiting)
        return GangHead(
            keys[0], arrived, waiting, QueuedUnit(need, tuple(sorted(rationed.items())), keys)
        )


class Gangs:
    """The gangs of a tree that are being admitted, by job."""

    def __init__(self) -> None:
        self._gangs: dict[str, Gang] = {}

    def __bool__(self) -> bool:
        return bool(self._gangs)

    def put(self, key: Key, lot: Lot | None) -> Gang | None:
        """Apply a lot that is new, changed or gone; return the gang that it belongs to, or
        belonged to."""
        job = key.split("/")[1]
        gang = self._gangs.get(job)
        if lot is not None and lot.forming:
            if gang is None:
                gang = self._gangs[job] = Gang()
            gang.lots[key] = lot
            return gang
        if gang is None or key not in gang.lots:
            return None
        del gang.lots[key]
        if not gang.lots:
            del self._gangs[job]
        return gang

    def of(self, key: Key) -> Gang | None:
        """Return the gang of a lot; None if its members are admitted one by one."""
        if not self._gangs:
            return None
        gang = self._gangs.get(key.split("/")[1])
        return gang if gang is not None and key in gang.lots else None


def wanted_of(lot: Lot) -> Bits:
    """Return the members of a lot that are to be admitted together with others."""
    return lot.gang.members if lot.gang is not None else Bits()


def _age(lot: Lot) -> tuple[int, int]:
    return (lot.gang.round, lot.gang.version) if lot.gang is not None else (-1, -1)
