"""Which lots give back, how many of their tasks, and whether that is enough for tasks that wait.

What is missing is covered by members of lots that hold it: of the pools given, in the order of
their victims, no more of each kind than is missing and than the pool may lose. What a task holds of
a kind that is not missing does not count. `reclaiming.py` decides between pools which waits for
what, and `displacing.py` inside of one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from peloton.actors.resources import EPSILON, Resources
from peloton.actors.respool.admission import fitting_rations
from peloton.actors.respool.lanes import pool_of_lane
from peloton.actors.respool.lot.messages import Displacement, Reclaim
from peloton.actors.respool.messages import ROOT
from peloton.actors.respool.node import KINDS, ZERO
from peloton.actors.respool.tree import Tree
from peloton.runtime.vocabulary import Key, counted

LOTS_MAX = 1000
"""Lots that wait, and lots that give, for one pool in one turn."""


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
    """What is missing for a pool, and in which pool at or above it."""

    pool: Key
    where: Key
    size: Resources  # of one of the tasks that wait first: hosts must have room for such
    wanted: list[TaskBatch]
    free: Resources
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


def coming_in(tree: Tree, pool: Key) -> Resources:
    """Return what will be given back in a pool and all below."""
    total = ZERO
    for giver, coming in tree.reclaims.coming.items():
        if pool in tree.up(giver):
            total = total + coming
    return total


def free_in(tree: Tree, pool: Key) -> Resources:
    """Return what a limit leaves for any lot, once all that is given back to the pool has come."""
    return tree.available(pool) + coming_in(tree, pool) - tree.reclaims.claimed(pool)


def cover(tree: Tree, over: Overdrafts, *, short: Shortfall, now: float) -> Cover:
    """Return the lots that give for all wanted tasks, or else for the first that fit then.

    If there is no gain, the lots are named that could give, but not enough.
    """
    picked, gained = pick_givers(tree, over, short=short, now=now)
    gain = fitting(short.wanted, short.free + gained)
    if gain and gain != short.wanted:
        short = short._replace(wanted=gain)
        picked, _ = pick_givers(tree, over, short=short, now=now)
    return Cover(short, gain, picked)


def pick_givers(
    tree: Tree, over: Overdrafts, *, short: Shortfall, now: float, wide: bool = False
) -> tuple[list[LotShare], Resources]:
    """Return members that cover what is missing, as far as they can, and what they give.

    `wide`: all of each lot that could give something, as if no other did.
    """
    left = [*short.missing]
    excess = {pool: list(kinds) for pool, kinds in over.excess.items()}
    kinds = [kind for kind in KINDS if left[kind]]
    found: list[LotShare] = []
    gained = ZERO
    order = sorted(
        over.pools, key=lambda each: ([-over.excess[each.pool][kind] for kind in kinds], each.pool)
    )
    for each in order:
        most = most_of(tree, each.pool, now=now)
        for key in _givers(tree, each.pool, short=short, now=now):
            lot = tree.lots[key]
            size = lot.shape.resources.amounts()
            room = [min(excess[pool][kind] for pool in each.chain) for kind in KINDS]
            wanted = [
                sizable(room[kind] if wide else min(left[kind], room[kind])) for kind in KINDS
            ]
            if most <= 0 or not any(wanted[kind] for kind in kinds):
                break
            count = min(_needed(wanted, size, kinds=kinds), len(lot.admitted - lot.leaving), most)
            if not count:
                continue  # it has nothing of what is still missing
            found.append(LotShare(key, len(lot.admitted - lot.leaving) if wide else count))
            if wide:
                continue
            most -= count
            gained = gained + lot.shape.resources.times(count)
            for kind in KINDS:
                left[kind] = max(0, left[kind] - size[kind] * count)
                for pool in each.chain:
                    excess[pool][kind] = max(0, excess[pool][kind] - size[kind] * count)
    return found, gained


def _needed(wanted: Sequence[int], size: Sequence[int], *, kinds: Sequence[int]) -> int:
    """Return how many of a size are needed for what is wanted of these kinds."""
    return max((-(-wanted[kind] // size[kind]) for kind in kinds if size[kind]), default=0)


def may_lose(
    tree: Tree, over: Overdrafts, *, shares: Sequence[LotShare], short: Shortfall, now: float
) -> bool:
    """Return whether pools, and those above them, may give all of this back together."""
    excess = {pool: list(kinds) for pool, kinds in over.excess.items()}
    chains = {each.pool: each.chain for each in over.pools}
    kinds = [kind for kind, missing in enumerate(short.missing) if missing]
    most = {pool: most_of(tree, pool, now=now) for pool in chains}
    for each in shares:
        lot = tree.lots.get(each.lot)
        if lot is None or lot.order is not None or lot.shape.pool not in chains:
            return False
        pool, size = lot.shape.pool, lot.shape.resources.amounts()
        room = [sizable(min(excess[above][kind] for above in chains[pool])) for kind in KINDS]
        able = min(_needed(room, size, kinds=kinds), len(lot.admitted - lot.leaving), most[pool])
        if each.tasks > able:
            return False
        most[pool] -= each.tasks
        for above in chains[pool]:
            for kind in KINDS:
                excess[above][kind] = max(0, excess[above][kind] - size[kind] * each.tasks)
    return True


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
    for number, key in enumerate(tree.reclaims.victims(pool)):
        if number >= LOTS_MAX:
            return
        if tree.lots[key].order is not None:
            continue
        if short.inside is not None:
            if may_give(tree, key, inside=short.inside) and not tree.displacements.rests(key, now):
                yield key
        elif not tree.reclaims.rests(key, short.for_hosts, now=now):
            yield key


def most_of(tree: Tree, pool: Key, *, now: float) -> int:
    """Return how many more tasks of a pool may give back now."""
    policy, books = tree.policy, tree.reclaims
    flying = books.in_flight.get(pool, 0)
    if 2 * flying > policy.in_flight_max:
        return 0  # many at once cost less than one for each that has gone
    return min(policy.in_flight_max - flying, books.budget(pool, policy, now))


def orders_for(
    tree: Tree, over: Overdrafts, *, cover: Cover, reason: Callable[[Key], str], now: float
) -> list[tuple[Key, Reclaim]]:
    """Return the orders to the lots that were picked; `reason` returns the reason for a lot."""
    need, picked, gain = cover.short.for_hosts, cover.picked, _gain_text(tree, over, cover=cover)
    sizes = [tree.lots[each.lot].shape.resources for each in picked]
    if not cover.proven and not all(need.within(size) for size in sizes):
        # Several have to leave one host, so that only one slice at a time may choose them.
        picked = picked[:1]
    found = []
    for lot_key, count, hosts in picked:
        lot = tree.lots[lot_key]
        tree.reclaims.count(lot.shape.pool, tree.policy, tasks=count, now=now)
        text = f"{reason(lot_key)}: {gain}"
        found.append((lot_key, Reclaim(lot.orders, count, need, text, cover.short.inside, hosts)))
    return found


def _gain_text(tree: Tree, over: Overdrafts, *, cover: Cover) -> str:
    """Return text about what is gained, and how many lots that could be asked are not."""
    tasks = counted(sum(each.tasks for each in cover.gain), "task", many="tasks")
    if cover.gain[0].gang:
        members = sum(len(tree.lots[lot].waiting) for lot in cover.gain[0].gang)
        tasks = f"a gang of {members}"
    able = sum(tree.reclaims.count_victims(each.pool) for each in over.pools)
    lots = able - len(cover.picked)
    spared = f"; {counted(lots, 'other lot is', many='other lots are')} spared" if lots > 0 else ""
    return f"room for {tasks}{spared}"
