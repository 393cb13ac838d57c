"""Who gives back, how much, and for whom: pools take back what they are entitled to.

Turns a tree in which nothing more can be admitted into orders to lots. A pool whose head waits for
room to which it is entitled, for as long as the policy says, gets it from pools below the one that
lacks room: those that use more than their entitlement, the one with the most first. Of each kind
they give no more than that, and no more than is missing: what is free and what already comes back
is counted first. Where it would not be enough for a single task, nobody gives anything.

The cost is that of the pools in use and of the lots that give; it is paid once for each pool that
waits for long enough, not in every turn. Must not choose tasks: their slice does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from peloton.actors.resources import EPSILON, Resources, amount
from peloton.actors.respool.admission import fitting_rations
from peloton.actors.respool.lanes import is_slack, pool_of_lane
from peloton.actors.respool.lot.messages import Reclaim
from peloton.actors.respool.messages import ROOT
from peloton.actors.respool.node import KINDS, ZERO
from peloton.actors.respool.reclaims import REST_S_MIN
from peloton.actors.respool.tree import Tree
from peloton.runtime.vocabulary import Key

POOLS_PER_TURN_MAX = 16
"""Pools that are given back to in one turn; the next turn follows at once."""
LOTS_MAX = 1000
"""Lots that wait, and lots that give, for one pool in one turn."""

NONE_OVER = "nobody gives back: no pool uses more than it is entitled to"
NOT_PREEMPTIBLE = "nobody gives back: what others use beyond their entitlement is not preemptible"
NO_GAIN = "nobody gives back: it would not make room for a task that waits"


class TaskBatch(NamedTuple):
    """So many tasks that wait, each of which needs this."""

    need: Resources
    tasks: int


class LotShare(NamedTuple):
    """How many members of a lot are to give back."""

    lot: Key
    tasks: int


class Overdraft(NamedTuple):
    """A pool that uses more than its entitlement, and the pools above it that do, too."""

    pool: Key
    chain: tuple[Key, ...]


class Shortfall(NamedTuple):
    """What is missing for a pool, and where: in that pool above it."""

    pool: Key
    where: Key
    size: Resources  # of one of the tasks that wait first: hosts must have room for such
    missing: tuple[int, ...]


def reclaims(tree: Tree, now: float) -> list[tuple[Key, Reclaim]]:
    """The orders to lots that are due now. They count as given once the lots have them."""
    books = tree.reclaims
    books.follow(tree.waiting, tree.policy, now)
    found: list[tuple[Key, Reclaim]] = []
    for _ in range(POOLS_PER_TURN_MAX):
        lane = books.due(now)
        if lane is None:
            break
        found += _for_lane(tree, lane, now=now)
        if found:
            break  # the lots have to have them before the next plan counts what comes
    return found


def _for_lane(tree: Tree, lane: Key, *, now: float) -> list[tuple[Key, Reclaim]]:
    books, awaited = tree.reclaims, tree.waiting.awaits(lane)
    books.unclaim(lane)
    if awaited is None:
        return []
    where, _ = awaited
    books.sort(tree.lots)
    later = now + max(tree.policy.sustained_s, REST_S_MIN)
    wanted, pool = _wanted(tree, lane), pool_of_lane(lane)
    if not wanted:
        books.again(lane, later, verdict="")
        return []
    free = tree.available(where) + _coming(tree, where) - books.claimed(where)
    over = _overdrafts(tree, where)
    short = Shortfall(pool, where, _size(tree, lane), _missing(_sum(wanted), free))
    picked, gained = _pick(tree, over, short=short, now=now)
    possible = _fitting(wanted, free + gained)
    if not possible:
        until, verdict = _why_not(tree, over, later=later, now=now)
        books.again(lane, until, verdict=verdict)
        return []
    if possible != wanted:
        short = short._replace(missing=_missing(_sum(possible), free))
        picked, _ = _pick(tree, over, short=short, now=now)
    books.verdicts.pop(lane, None)
    books.claim(lane, _sum(possible), above=tree.up(pool))
    books.on_the_way(lane)
    return _orders(tree, short, picked=picked, now=now)


def _wanted(tree: Tree, lane: Key) -> list[TaskBatch]:
    """The tasks to which a pool is entitled beyond those it has, in the order of the queue."""
    pool = pool_of_lane(lane)
    spare = tree.entitlement(pool) - tree.use(pool) - tree.set_aside(lane)
    found: list[TaskBatch] = []
    rationed = [ZERO, ZERO, ZERO]
    room = tree.slack_room(pool) if is_slack(lane) else None
    for key in tree.queues[lane].eligible():
        unit = tree.unit(key)
        fitting = fitting_rations(tree, pool, unit=unit, rationed=rationed)
        if not fitting:
            continue  # it blocks nobody
        waiting = 1 if unit.lots else len(tree.lots[key].waiting)
        count = min(waiting, fitting, unit.need.fits(spare))
        if room is not None:
            count = min(count, unit.need.fits(room))
            room = room - unit.need.times(count)
        if count:
            found.append(TaskBatch(unit.need, count))
            spare = spare - unit.need.times(count)
            for each, part in unit.rationed:
                rationed[each] = rationed[each] + part.times(count)
        if count < min(waiting, fitting) or len(found) >= LOTS_MAX:
            break  # as its admission: the first that does not fit blocks those behind it
    return found


def _size(tree: Tree, lane: Key) -> Resources:
    """What one task needs of those that wait first; of a gang, the one that needs most."""
    first = next(iter(tree.queues[lane].eligible()))
    lots = tree.unit(first).lots or (first,)
    return max((tree.lots[key].shape.resources for key in lots), key=Resources.amounts)


def _sum(batches: Sequence[TaskBatch]) -> Resources:
    total = ZERO
    for each in batches:
        total = total + each.need.times(each.tasks)
    return total


def _fitting(batches: Sequence[TaskBatch], room: Resources) -> list[TaskBatch]:
    found: list[TaskBatch] = []
    for each in batches:
        count = min(each.tasks, each.need.fits(room))
        if count:
            found.append(TaskBatch(each.need, count))
            room = room - each.need.times(count)
        if count < each.tasks:
            break
    return found


def _missing(total: Resources, free: Resources) -> tuple[int, ...]:
    pairs = zip(total.amounts(), free.amounts(), strict=True)
    return tuple(need - have if need - have >= EPSILON else 0 for need, have in pairs)


def _coming(tree: Tree, pool: Key) -> Resources:
    """What will be given back in a pool and all below."""
    total = ZERO
    for giver, coming in tree.reclaims.coming.items():
        if pool in tree.up(giver):
            total = total + coming
    return total


class Overdrafts:
    """Pools below one that use more than they are entitled to, of each kind; what comes back is
    used no more."""

    def __init__(self) -> None:
        self.pools: list[Overdraft] = []
        self.excess: dict[Key, tuple[int, ...]] = {}


def _overdrafts(tree: Tree, where: Key) -> Overdrafts:
    coming: dict[Key, Resources] = {}
    for giver, amount_ in tree.reclaims.coming.items():
        for above in tree.up(giver):
            coming[above] = coming.get(above, ZERO) + amount_
    found, overview = Overdrafts(), tree.overview()
    open_pools: list[tuple[Key, tuple[Key, ...]]] = [(where, ())]
    while open_pools:
        pool, chain = open_pools.pop()
        for child in overview.overdrawn(pool):
            use = tree.use(child)
            if use == ZERO:
                continue
            excess = use - coming.get(child, ZERO) - overview.entitled(child)
            kinds = tuple(each if each >= EPSILON else 0 for each in excess.amounts())
            if any(kinds):
                found.excess[child] = kinds
                open_pools.append((child, (child, *chain)))
                if tree.reclaims.has_victims(child):
                    found.pools.append(Overdraft(child, (child, *chain)))
    return found


def _pick(
    tree: Tree, over: Overdrafts, *, short: Shortfall, now: float
) -> tuple[list[LotShare], Resources]:
    """Members that cover what is missing, as far as they can, and what they give."""
    left = list(short.missing)
    excess = {pool: list(kinds) for pool, kinds in over.excess.items()}
    kinds = [kind for kind in KINDS if left[kind]]
    found: list[LotShare] = []
    gained = ZERO
    order = sorted(
        over.pools, key=lambda each: ([-over.excess[each.pool][kind] for kind in kinds], each.pool)
    )
    for each in order:
        most = _most(tree, each.pool, now=now)
        for key in _givers(tree, each.pool, short=short, now=now):
            lot = tree.lots[key]
            size = lot.shape.resources.amounts()
            room = [min(excess[pool][kind] for pool in each.chain) for kind in KINDS]
            wanted = [min(left[kind], room[kind]) for kind in KINDS]
            if most <= 0 or not any(wanted):
                break
            counts = [-(-wanted[kind] // size[kind]) for kind in kinds if size[kind]]
            count = min(max(counts, default=0), len(lot.admitted - lot.leaving), most)
            if not count:
                continue  # it has nothing of what is still missing
            found.append(LotShare(key, count))
            most -= count
            gained = gained + lot.shape.resources.times(count)
            for kind in KINDS:
                left[kind] = max(0, left[kind] - size[kind] * count)
                for pool in each.chain:
                    excess[pool][kind] = max(0, excess[pool][kind] - size[kind] * count)
    return found, gained


def _givers(tree: Tree, pool: Key, *, short: Shortfall, now: float) -> Iterator[Key]:
    for number, key in enumerate(tree.reclaims.victims(pool)):
        if number >= LOTS_MAX:
            return
        lot = tree.lots[key]
        if lot.order is None and not tree.reclaims.rests(key, _for_hosts(short), now=now):
            yield key


def _most(tree: Tree, pool: Key, *, now: float) -> int:
    """How many more tasks of a pool may give back now."""
    policy, books = tree.policy, tree.reclaims
    flying = books.in_flight.get(pool, 0)
    if 2 * flying > policy.in_flight_max:
        return 0  # many at once cost less than one for each that has gone
    return min(policy.in_flight_max - flying, books.budget(pool, policy, now))


def _for_hosts(short: Shortfall) -> Resources:
    """For what hosts must have room: for nothing, where only the limit of a pool is short."""
    return short.size if short.where == ROOT else ZERO


def _orders(
    tree: Tree, short: Shortfall, *, picked: list[LotShare], now: float
) -> list[tuple[Key, Reclaim]]:
    need = _for_hosts(short)
    if any(not need.within(tree.lots[each.lot].shape.resources) for each in picked):
        # Several have to leave one host, so that only one slice at a time may choose them.
        picked = picked[:1]
    found = []
    for lot_key, count in picked:
        lot = tree.lots[lot_key]
        tree.reclaims.count(lot.shape.pool, tree.policy, tasks=count, now=now)
        reason = _reason(tree, lot.shape.pool, short=short)
        found.append((lot_key, Reclaim(lot.orders, count, need, reason)))
    return found


def _reason(tree: Tree, giver: Key, *, short: Shortfall) -> str:
    kind = next(kind for kind in KINDS if short.missing[kind])
    used, entitled = (of(giver).amounts()[kind] for of in (tree.use, tree.entitlement))
    return (
        f"preempted: pool {tree.path(giver)} is entitled to {amount(entitled):.10g} "
        f"{Resources.KINDS[kind]} and uses {amount(used):.10g}; "
        f"pool {tree.path(short.pool)} waits for what it is entitled to"
    )


def _why_not(tree: Tree, over: Overdrafts, *, later: float, now: float) -> tuple[float, str]:
    """When to look again, and why nobody gives back."""
    policy, books = tree.policy, tree.reclaims
    if not over.excess:
        return later, NONE_OVER
    if not over.pools:
        return later, NOT_PREEMPTIBLE
    spent = [each.pool for each in over.pools if books.budget(each.pool, policy, now) <= 0]
    if spent:
        text = f"nobody gives back: pool {tree.path(spent[0])} has given back as often as it may"
        return min(books.window_ends(pool, policy) for pool in spent), text
    if any(books.in_flight.get(each.pool) for each in over.pools):
        return now + REST_S_MIN, "others give back, but not enough yet"
    return later, NO_GAIN
