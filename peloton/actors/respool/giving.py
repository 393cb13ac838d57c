"""Which lots give back, how many of their tasks, and whether that is enough for tasks that wait.

What is missing is covered by members of lots that hold it: of the pools given, in the order of
their victims, no more of each kind than is missing and than the pool may lose. What a task holds of
a kind that is not missing does not count. `taking_back.py` decides which lane lacks what, and who
may be asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from peloton.actors.resources import EPSILON, Resources
from peloton.actors.respool.admission import fitting_rations
from peloton.actors.respool.lanes import pool_of_lane
from peloton.actors.respool.lot.messages import Displacement, Reclaim
from peloton.actors.respool.lot.state import Lot
from peloton.actors.respool.messages import MILLIONTHS_MAX, ROOT
from peloton.actors.respool.node import KINDS, ZERO
from peloton.actors.respool.tree import Tree
from peloton.runtime.vocabulary import Key, counted

LOTS_MAX = 1000
"""Lots that wait, and lots that give, for one pool in one turn."""
UNBOUNDED = (MILLIONTHS_MAX,) * len(KINDS)


class TaskBatch(NamedTuple):
    """Tasks that wait, each of which needs this; a gang is one, of all these lots."""

    need: Resources
    tasks: int
    gang: tuple[Key, ...] = ()


class LotShare(NamedTuple):
    """How many members of a lot are to give back.

    `hosts`: where the running ones of them run, if that is decided.
    """

    lot: Key
    tasks: int
    hosts: tuple[Key, ...] | None = None


class Overdraft(NamedTuple):
    """A pool that uses more than its entitlement, and the pools above it that do, too."""

    pool: Key
    chain: tuple[Key, ...]


class Overdrafts:
    """Pools that may be asked, and how much of each kind they and those above may lose."""

    def __init__(self) -> None:
        self.pools: list[Overdraft] = []
        self.excess: dict[Key, tuple[int, ...]] = {}


class Shortfall(NamedTuple):
    """What is missing for a pool, in which pool at or above it, and who may be asked."""

    pool: Key
    where: Key
    size: Resources  # of one of the tasks that wait first: hosts must have room for such
    wanted: list[TaskBatch]
    free: Resources
    over: Overdrafts
    inside: Displacement | None = None  # it comes from tasks of the same pool

    @property
    def missing(self) -> tuple[int, ...]:
        """Return what is wanted beyond what is free, of each kind."""
        return missing_of(self.wanted, self.free)

    @property
    def for_hosts(self) -> Resources:
        """Return what hosts must have room for: nothing, if only the limit of a pool is short."""
        return self.size if self.where == ROOT else ZERO


class Cover(NamedTuple):
    """The lots that give for what is missing, and for which of the tasks there is room then."""

    short: Shortfall
    gain: list[TaskBatch]
    picked: list[LotShare]
    proven: bool = False  # that all it is for goes on the hosts then


class LookAgain(NamedTuple):
    """When a lane is looked at again for which nobody gives back now, and why nobody does."""

    at: float
    verdict: str


def size_of_first(tree: Tree, lane: Key) -> Resources:
    """Return what one task needs of those that wait first; of a gang, the one that needs most."""
    first = next(iter(tree.queues[lane].eligible()))
    lots = tree.unit(first).lots or (first,)
    return max((tree.lots[key].shape.resources for key in lots), key=Resources.amounts)


def first_waiting(
    tree: Tree, lane: Key, *, room: Resources | None = None, priority: int | None = None
) -> list[TaskBatch]:
    """Return the tasks that wait first, in the order of the queue, as they would be admitted.

    These are all that have this priority, as far as there is room. A gang is alone: it has a proof
    of its own.
    """
    found: list[TaskBatch] = []
    rationed = [ZERO, ZERO, ZERO]
    for key in islice(tree.queues[lane].eligible(), LOTS_MAX):
        lot, unit = tree.lots[key], tree.unit(key)
        if priority is not None and lot.shape.priority != priority:
            break
        if unit.lots and found:
            break
        fitting = fitting_rations(tree, pool_of_lane(lane), unit=unit, rationed=rationed)
        most = min(fitting, 1 if unit.lots else len(lot.waiting))
        if not most:
            continue  # it blocks nobody
        count = most if room is None else min(most, unit.need.fits(room))
        if count:
            found.append(TaskBatch(unit.need, count, unit.lots))
            for each, part in unit.rationed:
                rationed[each] = rationed[each] + part.times(count)
        if count < most or unit.lots:
            break  # the first that does not fit blocks those behind it
        room = room - unit.need.times(count) if room is not None else None
    return found


def least_of(rooms: Sequence[Resources]) -> Resources:
    """Return what all of these rooms leave, of each kind."""
    return Resources(*map(min, zip(*(each.amounts() for each in rooms), strict=True)))


def total_of(batches: Sequence[TaskBatch]) -> Resources:
    """Return what all batches need together."""
    total = ZERO
    for each in batches:
        total = total + each.need.times(each.tasks)
    return total


def fitting(batches: Sequence[TaskBatch], room: Resources) -> list[TaskBatch]:
    """Return the batches that fit, in their order, up to the first that does not."""
    found: list[TaskBatch] = []
    for each in batches:
        count = min(each.tasks, each.need.fits(room))
        if count:
            found.append(each._replace(tasks=count))
            room = room - each.need.times(count)
        if count < each.tasks:
            break
    return found


def missing_of(wanted: Sequence[TaskBatch], free: Resources) -> tuple[int, ...]:
    """Return what is wanted beyond what is free, of each kind; of slack, or cpu, only if any is
    wanted."""
    short = total_of(wanted).short_of(free)
    return tuple(short.get(kind, 0) for kind in Resources.KINDS)


def coming_by_pool(tree: Tree) -> dict[Key, Resources]:
    """Return what will be given back in each pool and all below it; pools without any are left
    out."""
    found: dict[Key, Resources] = {}
    for giver, coming in tree.reclaims.coming.items():
        for above in tree.up(giver):
            found[above] = found.get(above, ZERO) + coming
    return found


def free_in(tree: Tree, pool: Key, *, coming: Mapping[Key, Resources]) -> Resources:
    """Return what a limit leaves for any lot, once all that is given back to the pool has come."""
    return tree.available(pool) + coming.get(pool, ZERO) - tree.reclaims.claimed(pool)


def cover(tree: Tree, short: Shortfall, *, now: float) -> Cover:
    """Return the lots that give for all wanted tasks, or else for the first that fit then.

    If there is no gain, the lots are named that could give, but not enough.
    """
    picked, gained = pick_givers(tree, short, now=now)
    gain = fitting(short.wanted, short.free + gained)
    if gain and gain != short.wanted:
        short = short._replace(wanted=gain)
        picked, _ = pick_givers(tree, short, now=now)
    return Cover(short, gain, picked)


def pick_givers(
    tree: Tree, short: Shortfall, *, now: float, wide: bool = False
) -> tuple[list[LotShare], Resources]:
    """Return members that cover what is missing, as far as they can, and what they give.

    In the order of victims: of pools, first the one with the most beyond its entitlement; of lots
    in a pool, by `VictimRank`. `wide`: all of each lot that could give something, as if no other
    did.
    """
    left = [*short.missing]
    allowance = Allowance(tree, short, now=now)
    found: list[LotShare] = []
    gained = ZERO
    order = sorted(
        short.over.pools,
        key=lambda each: (
            [-short.over.excess[each.pool][kind] for kind in allowance.kinds],
            each.pool,
        ),
    )
    for each in order:
        for key in _givers(tree, each.pool, short=short, now=now):
            lot = tree.lots[key]
            wanted = allowance.of(each.pool, UNBOUNDED if wide else left)
            if not any(wanted):
                break
            count = allowance.members(lot, wanted)
            if not count:
                continue  # it has nothing of what is still missing
            if wide:
                found.append(LotShare(key, len(lot.admitted - lot.leaving)))
                continue
            found.append(LotShare(key, count))
            gained = gained + lot.shape.resources.times(count)
            allowance.take(lot, count)
            less(left, (lot.shape.resources.times(count),))
    return found, gained


class Allowance:
    """What pools that give, and those above them, may still lose in one plan.

    `kinds` are those that are missing; what a task holds of others does not count.
    """

    def __init__(self, tree: Tree, short: Shortfall, *, now: float) -> None:
        self.kinds = [kind for kind, missing in enumerate(short.missing) if missing]
        self._excess = {pool: [*amounts] for pool, amounts in short.over.excess.items()}
        self._chains = {each.pool: each.chain for each in short.over.pools}
        self._most = {pool: tree.reclaims.may_go(pool, now) for pool in self._chains}

    def of(self, pool: Key, left: Sequence[int]) -> list[int]:
        """Return what a pool may give of each missing kind, but no more than is left of it."""
        if pool not in self._chains or self._most[pool] <= 0:
            return []
        excess = [self._excess[above] for above in self._chains[pool]]
        least = (min(left[kind], *(each[kind] for each in excess)) for kind in KINDS)
        return [sizable(each) if kind in self.kinds else 0 for kind, each in enumerate(least)]

    def members(self, lot: Lot, wanted: Sequence[int]) -> int:
        """Return how many members of a lot give so much, which is not empty, or else all that
        may."""
        pairs = zip(wanted, lot.shape.resources.amounts(), strict=True)
        needed = max(-(-some // size) if size else 0 for some, size in pairs)
        return min(needed, len(lot.admitted - lot.leaving), self._most[lot.shape.pool])

    def take(self, lot: Lot, count: int) -> None:
        """Count members of a lot as given."""
        self._most[lot.shape.pool] -= count
        for above in self._chains[lot.shape.pool]:
            less(self._excess[above], (lot.shape.resources.times(count),))


def may_lose(tree: Tree, short: Shortfall, *, shares: Sequence[LotShare], now: float) -> bool:
    """Return whether pools, and those above them, may give all of this back together."""
    allowance = Allowance(tree, short, now=now)
    for each in shares:
        lot = tree.lots.get(each.lot)
        wanted = allowance.of(lot.shape.pool, UNBOUNDED) if lot is not None else []
        if lot is None or lot.order is not None or not wanted:
            return False
        if each.tasks > allowance.members(lot, wanted):
            return False
        allowance.take(lot, each.tasks)
    return True


def less(left: list[int], sizes: Iterable[Resources]) -> None:
    """Subtract the sizes from what is left of each kind, down to none."""
    for size in sizes:
        for kind, amount in enumerate(size.amounts()):
            left[kind] = max(0, left[kind] - amount)


def sizable(missing: int) -> int:
    """Return the amount less the epsilon of comparisons, as entitlements are rounded."""
    return max(0, missing - EPSILON + 1)


def may_give(tree: Tree, key: Key, *, inside: Displacement) -> bool:
    """Return whether a lot gives back for another of its own pool.

    Work on slack does for any that is not on slack, and for nothing else a task on slack gets room,
    which others reserve. In pools that end tasks of their own, a lot of a lower priority does too.
    """
    shape, asks = tree.lots[key].shape, tree.lots[inside.lot].shape
    if shape.on_slack and not asks.on_slack:
        return True
    lower = shape.priority < inside.priority and shape.on_slack == asks.on_slack
    return lower and tree.ends_own(shape.pool)


def _givers(tree: Tree, pool: Key, *, short: Shortfall, now: float) -> Iterator[Key]:
    books, inside = tree.reclaims, short.inside
    for key in islice(books.victims(pool), LOTS_MAX):
        if tree.lots[key].order is not None or (inside and not may_give(tree, key, inside=inside)):
            continue
        if not books.rests(key, short.for_hosts, inside=inside is not None, now=now):
            yield key


def plan_orders(tree: Tree, *, cover: Cover, reason: Callable[[Key], str], now: float) -> None:
    """Plan the orders to the lots that were picked; `reason` returns the reason for a lot."""
    need, picked, gain = cover.short.for_hosts, cover.picked, _gain_text(tree, cover)
    sizes = [tree.lots[each.lot].shape.resources for each in picked]
    if not cover.proven and not all(need.within(size) for size in sizes):
        # Several have to leave one host, so that only one slice at a time may choose them.
        picked = picked[:1]
    for key, count, hosts in picked:
        lot, text = tree.lots[key], f"{reason(key)}: {gain}"
        order = Reclaim(lot.orders, count, need, text, cover.short.inside, hosts)
        tree.reclaims.plan(key, order, pool=lot.shape.pool, now=now)


def _gain_text(tree: Tree, cover: Cover) -> str:
    """Return text about what is gained, and how many lots that could be asked are not."""
    tasks = counted(sum(each.tasks for each in cover.gain), "task", many="tasks")
    if cover.gain[0].gang:
        members = sum(len(tree.lots[lot].waiting) for lot in cover.gain[0].gang)
        tasks = f"a gang of {members}"
    able = sum(tree.reclaims.count_victims(each.pool) for each in cover.short.over.pools)
    lots = able - len(cover.picked)
    spared = f"; {counted(lots, 'other lot is', many='other lots are')} spared" if lots > 0 else ""
    return f"room for {tasks}{spared}"
