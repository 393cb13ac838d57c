"""Which lots give back, how much, and for which: pools take back what they are entitled to.

It is used when nothing more can be admitted, and gives orders to lots. A pool whose head has waited
for room to which it is entitled, for as long as the policy says, gets it from pools below the one
that lacks room: those that use more than their entitlement, the one with the most first. Of each
kind they give no more than that, and no more than is missing: what is free and what is already
coming back is counted first. If it would not be enough for a single task, nothing is given.

The cost is that of the pools in use and of the lots that give; it is paid once for each pool that
waits for long enough, not in every turn. The slices choose the tasks.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from operator import sub

from peloton.actors.mentions import pool_mention
from peloton.actors.resources import EPSILON, Resources, amount
from peloton.actors.respool.admission import is_still_entitled
from peloton.actors.respool.giving import (
    Overdraft,
    Overdrafts,
    Shortfall,
    TaskBatch,
    cover,
    first_waiting,
    free_in,
    least_of,
    orders_for,
    size_of_first,
    total_of,
)
from peloton.actors.respool.lanes import is_slack, pool_of_lane
from peloton.actors.respool.lot.messages import Reclaim
from peloton.actors.respool.node import ZERO
from peloton.actors.respool.proving import prove, wake_next
from peloton.actors.respool.reclaims import REST_S_MIN
from peloton.actors.respool.tree import Tree
from peloton.runtime.vocabulary import Key

POOLS_PER_TURN_MAX = 16
"""Pools that are given back to in one turn; the next turn follows at once."""

ExcessLookup = Callable[[Key], dict[Key, list[int]]]
"""What children of a pool use beyond their entitlement, by kind."""

NONE_OVER = "nobody gives back: no pool uses more than it is entitled to"
NOT_PREEMPTIBLE = "nobody gives back: what others use beyond their entitlement is not preemptible"
NO_GAIN = "nobody gives back: it would not make room for a task that waits"


def reclaims(tree: Tree, now: float) -> list[tuple[Key, Reclaim]]:
    """Return the orders to lots that are due now. They count as given once the lots have them."""
    books = tree.reclaims
    books.follow(tree.waiting, tree.policy, now)
    wake_next(tree, now)
    found: list[tuple[Key, Reclaim]] = []
    excess = cache(tree.excess)  # nothing changes in between
    for _ in range(POOLS_PER_TURN_MAX):
        lane = books.due(now)
        if lane is None:
            break
        found += _for_lane(tree, lane, excess=excess, now=now)
        if found:
            break  # the lots have to have them before the next plan counts what comes
    return found


def _for_lane(
    tree: Tree, lane: Key, *, excess: ExcessLookup, now: float
) -> list[tuple[Key, Reclaim]]:
    books, awaited = tree.reclaims, tree.waiting.awaits(lane)
    books.unclaim(lane)
    if awaited is None:
        return []
    where, _ = awaited
    for other in books.claimants:
        if not is_still_entitled(tree, other):
            books.unclaim(other)  # others get what comes
    books.sort(tree.lots)
    later = now + tree.policy.rest_s
    wanted, pool = _wanted(tree, lane), pool_of_lane(lane)
    if not wanted:
        books.again(lane, later, verdict="")
        return []
    over = _overdrafts(tree, pool, where=where, excess=excess)
    short = Shortfall(pool, where, size_of_first(tree, lane), wanted, free_in(tree, where))
    found = cover(tree, over, short=short, now=now)
    if not found.gain:
        until, verdict = _why_not(tree, over, later=later, now=now)
        books.again(lane, until, verdict=verdict)
        return []
    proven = prove(tree, lane, over=over, cover=found, now=now)
    if proven.cover is None:
        books.again(lane, proven.again_at, verdict=proven.verdict)
        return []
    found = proven.cover
    books.verdicts.pop(lane, None)
    books.claim(lane, total_of(found.gain), above=tree.up(pool))
    books.on_the_way(lane, until=later)
    kind = next((kind for kind, missing in enumerate(found.short.missing) if missing), 0)
    return orders_for(
        tree,
        over,
        cover=found,
        reason=lambda key: _reason(tree, key, asks=pool, kind=kind),
        now=now,
    )


def _wanted(tree: Tree, lane: Key) -> list[TaskBatch]:
    """Return the tasks to which a pool is entitled beyond those it has, in the order of the
    queue."""
    pool = pool_of_lane(lane)
    rooms = [tree.entitlement(pool) - tree.use(pool) - tree.set_aside(lane)]
    if is_slack(lane):
        rooms.append(tree.slack_room(pool))
    return first_waiting(tree, lane, room=least_of(rooms))


def _overdrafts(tree: Tree, asks: Key, *, where: Key, excess: ExcessLookup) -> Overdrafts:
    """Return the pools below one that use more than they are entitled to.

    What is being given back counts as used no more. What those above the asking pool use in all
    does not matter for the pools that give below them: it stays the same.
    """
    coming: dict[Key, Resources] = {}
    for giver, amount_ in tree.reclaims.coming.items():
        for above in tree.up(giver):
            coming[above] = coming.get(above, ZERO) + amount_
    found = Overdrafts()
    lineage = tree.up(asks)
    asking = lineage[: lineage.index(where) + 1]
    open_pools: list[tuple[Key, tuple[Key, ...]]] = [(each, ()) for each in asking]
    while open_pools:
        pool, chain = open_pools.pop()
        for child, more in excess(pool).items():
            if child in asking:
                continue
            left = map(sub, more, coming.get(child, ZERO).amounts())
            kinds = tuple(each if each >= EPSILON else 0 for each in left)
            if any(kinds):
                found.excess[child] = kinds
                open_pools.append((child, (child, *chain)))
                if tree.reclaims.has_victims(child):
                    found.pools.append(Overdraft(child, (child, *chain)))
    return found


def _reason(tree: Tree, lot: Key, *, asks: Key, kind: int) -> str:
    giver = tree.lots[lot].shape.pool
    used, entitled = (of(giver).amounts()[kind] for of in (tree.use, tree.entitlement))
    return (
        f"preempted: {pool_mention(tree.path(giver))} is entitled to {amount(entitled):.10g} "
        f"{Resources.KINDS[kind]} and uses {amount(used):.10g}; "
        f"{pool_mention(tree.path(asks))} waits for what it is entitled to"
    )


def _why_not(tree: Tree, over: Overdrafts, *, later: float, now: float) -> tuple[float, str]:
    """Return when to look again, and why no lot gives back."""
    policy, books = tree.policy, tree.reclaims
    if not over.excess:
        return later, NONE_OVER
    if not over.pools:
        return later, NOT_PREEMPTIBLE
    if any(books.in_flight.get(each.pool) for each in over.pools):
        return now + REST_S_MIN, "others give back, but not enough yet"
    spent = [each.pool for each in over.pools if books.budget(each.pool, policy, now) <= 0]
    if spent:
        who = pool_mention(tree.path(spent[0]))
        text = f"nobody gives back: {who} has given back as often as it may"
        return min(later, *(books.window_ends(pool, policy) for pool in spent)), text
    return later, NO_GAIN
