"""Who is admitted next: priority, then arrival, as far as the room goes.

Turns a tree into admissions: the head of each pool's queue takes what it can, and a head that does
not fit blocks those behind it (which is what FIFO promises), unless it can never fit: then it is
stepped over until a limit changes, for its turn would not come however long all others waited.
Admitting touches the head, never the queue. It must not change use: that follows the lots.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from peloton.actors.resources import COUNT_MAX, EPSILON, Resources
from peloton.actors.respool.lot.state import Lot
from peloton.actors.respool.tree import Tree
from peloton.actors.respool.waiting import Place
from peloton.runtime.vocabulary import Bits, Key

LOTS_PER_LOOK_MAX = 1000

Taken = Mapping[Key, Resources]
"""What this look has given away already, by pool, those above included."""


class AdmissionBatch(NamedTuple):
    """Members of a lot for whom there is room."""

    lot: Key
    members: Bits


def admissions(tree: Tree) -> list[AdmissionBatch]:
    """What every pool can admit now. Asked twice it says the same: nothing is admitted here."""
    found: list[AdmissionBatch] = []
    taken: dict[Key, Resources] = {}
    for pool in _candidates(tree, taken):
        found += _look(tree, pool, taken=taken, most=LOTS_PER_LOOK_MAX - len(found))
        if len(found) >= LOTS_PER_LOOK_MAX:
            break
    return found


def room_for(tree: Tree, pool: Key, *, need: Resources, taken: Taken) -> int:
    """How many of `need` the pool, and every pool above it, still has room for."""
    count = COUNT_MAX
    for above in tree.up(pool):
        room = tree.room(above)
        if above in taken:
            room = room - taken[above]
        count = min(count, need.fits(room))
    return count


def _candidates(tree: Tree, taken: Taken) -> Iterator[Key]:
    """The pools that may admit somebody, those first that began to wait first.

    That is who changed, and of those that wait for room at a place where there is more, who fits
    into what is left of it when their turn comes.
    """
    waiting = tree.waiting
    line: list[tuple[int, Key, Place | None]] = [
        (waiting.hungry[pool], pool, None) for pool in waiting.fresh
    ]
    for grown in [*waiting.grown]:
        first = waiting.blocked.first(grown, start=0, most=_most(tree, grown, taken=taken))
        if first is None:
            del waiting.grown[grown]
        else:
            line.append((first, waiting.blocked.item(first), grown))
    heapify(line)
    while line:
        number, pool, place = heappop(line)
        if place is None:
            yield pool
            continue
        again = waiting.blocked.first(place, start=number, most=_most(tree, place, taken=taken))
        if again == number:
            yield pool
            most = _most(tree, place, taken=taken)
            again = waiting.blocked.first(place, start=number + 1, most=most)
        if again is not None:
            heappush(line, (again, waiting.blocked.item(again), place))


def _most(tree: Tree, place: Place, *, taken: Taken) -> int:
    """The largest need of its kind that a place has room for."""
    room = tree.room(place.pool) - taken.get(place.pool, Resources())
    return room.amounts()[place.kind] + EPSILON - 1


def _look(tree: Tree, pool: Key, *, taken: dict[Key, Resources], most: int) -> list[AdmissionBatch]:
    found: list[AdmissionBatch] = []
    head: Resources | None = None
    for key in tree.queues[pool].line() if pool in tree.pools else ():
        lot: Lot = tree.lots[key]
        need = lot.shape.resources
        count = room_for(tree, pool, need=need, taken=taken)
        if not count:
            shut = _short(tree, pool, need=need, of=tree.limit)
            if shut is not None:
                tree.step_over(key, shut)
                continue
            head = need
            break
        members = lot.waiting.lowest(count)
        found.append(AdmissionBatch(key, members))
        for above in tree.up(pool):
            taken[above] = taken.get(above, Resources()) + need.times(len(members))
        if count < len(lot.waiting) or len(found) >= most:
            break
    if not found:
        _wait(tree, pool, head=head)
    return found


def _wait(tree: Tree, pool: Key, *, head: Resources | None) -> None:
    """Nobody was admitted: note what the head waits for, if there is one."""
    if head is None:
        tree.waiting.park(pool)
        return
    place = _short(tree, pool, need=head, of=tree.room)
    # What this look alone has taken is no reason to wait: its lot may have left by now.
    if place is not None:
        tree.waiting.block(pool, place=place, need=head)


def _short(
    tree: Tree, pool: Key, *, need: Resources, of: Callable[[Key], Resources]
) -> Place | None:
    """The first place on the way up that has less than `need`, by what `of` says of a pool."""
    for above in tree.up(pool):
        for kind, (wants, has) in enumerate(zip(need.amounts(), of(above).amounts(), strict=True)):
            if wants - has >= EPSILON:
                return Place(above, kind)
    return None
