"""Who is admitted next: priority, then arrival, as far as the room goes.

Turns a tree into admissions: the head of each pool's queue takes what it can, and a head that does
not fit blocks those behind it (which is what FIFO promises), unless it can never fit: then it is
stepped over until a limit changes, for its turn would not come however long all others waited.
Admitting touches the head, never the queue. It must not change use: that follows the lots.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from peloton.actors.resources import COUNT_MAX, Resources
from peloton.actors.respool.entitlement import entitlement
from peloton.actors.respool.lot.state import Lot
from peloton.actors.respool.shortage import never
from peloton.actors.respool.tree import Tree
from peloton.runtime.vocabulary import Bits, Key

LOTS_PER_LOOK_MAX = 1000


class Admission(NamedTuple):
    """Members of a lot for whom there is room."""

    lot: Key
    members: Bits


def admissions(tree: Tree) -> list[Admission]:
    """What every pool can admit now. Asked twice it says the same: nothing is admitted here."""
    found: list[Admission] = []
    taken: dict[Key, Resources] = {}
    for pool in [pool for pool in tree.hungry if pool not in tree.stuck]:
        if len(found) < LOTS_PER_LOOK_MAX:
            found += _look(tree, pool, taken=taken, most=LOTS_PER_LOOK_MAX - len(found))
    return found


def room_for(tree: Tree, pool: Key, *, need: Resources, taken: Mapping[Key, Resources]) -> int:
    """How many of `need` the pool, and every pool above it, still has room for."""
    count = COUNT_MAX
    for above in tree.up(pool):
        room = entitlement(tree, above) - tree.use(above) - taken.get(above, Resources())
        count = min(count, need.fits(room))
    return count


def _look(tree: Tree, pool: Key, *, taken: dict[Key, Resources], most: int) -> list[Admission]:
    found: list[Admission] = []
    for key in tree.queues[pool].line() if pool in tree.pools else ():
        lot: Lot = tree.lots[key]
        need = lot.shape.resources
        count = room_for(tree, pool, need=need, taken=taken)
        if not count and never(tree, pool, need=need):
            tree.queues[pool].step_over(key)
            continue
        if count:
            members = lot.waiting.lowest(count)
            found.append(Admission(key, members))
            for above in tree.up(pool):
                taken[above] = taken.get(above, Resources()) + need.times(len(members))
        if count < len(lot.waiting) or len(found) >= most:
            break
    if not found and not taken:
        # The same until the tree changes; where others have just taken room it may be less so.
        tree.stuck[pool] = None
    return found
