"""Which lots give back, how much, and for which lane: pools take back what they lent.

It is used when nothing more can be admitted, and plans orders to lots. A lane whose head has waited
for long enough gets room in one of two ways, in this order:

- *owed*: its pool is entitled to the room. It comes from pools below the one that lacks it: those
  that use more than their entitlement, the one with the most first, and of each kind no more than
  that.
- *inside*: others of its own pool end for its head, whatever it lacks, once others owe nothing to
  the pool. Those are tasks on slack, if it is not; and those of a lower priority, in pools that the
  policy names.

No more is given than is missing: what is free and what is already coming back is counted first. No
lot gives in vain: not if it is too little for one task, nor if another lane would get it. `giving`
has the order of victims. The slices choose the tasks.

The cost is that of the pools in use and of the lots that give; it is paid once for each lane that
waits for long enough, not in every turn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from operator import sub

from peloton.actors.mentions import job_mention, pool_mention
from peloton.actors.resources import EPSILON, Resources, amount
from peloton.actors.respool.admission import is_still_entitled
from peloton.actors.respool.giving import (
    Cover,
    LookAgain,
    Overdraft,
    Overdrafts,
    Shortfall,
    coming_by_pool,
    cover,
    first_waiting,
    free_in,
    least_of,
    may_give,
    missing_of,
    plan_orders,
    size_of_first,
    total_of,
)
from peloton.actors.respool.head_waits import spare_entitlement
from peloton.actors.respool.lanes import is_slack, pool_of_lane
from peloton.actors.respool.lot.messages import Displacement, Reclaim
from peloton.actors.respool.messages import ROOT
from peloton.actors.respool.node import ZERO
from peloton.actors.respool.proofs import PROVING
from peloton.actors.respool.proving import prove, wake_next
from peloton.actors.respool.reclaims import ASKED_LATER, REST_S_MIN, EarmarkedRoom
from peloton.actors.respool.tree import Tree
from peloton.runtime.vocabulary import Key

LANES_PER_TURN_MAX = 16
"""Lanes of each way that are looked at in one turn; the next turn follows at once."""

ExcessLookup = Callable[[Key], dict[Key, list[int]]]
"""What children of a pool use beyond their entitlement, by kind."""

ON_THE_WAY = "other pools give back what it is entitled to"
NONE_OVER = "nobody gives back: no pool uses more than it is entitled to"
NOT_PREEMPTIBLE = "nobody gives back: what others use beyond their entitlement is not preemptible"
NO_GAIN = "nobody gives back: it would not make room for a task that waits"
NOT_ENOUGH_YET = "others give back, but not enough yet"

ASKED_INSIDE = "tasks of its pool are asked to give it back once it has waited for {after}"
GIVE_BACK = "tasks of its pool of a lower priority give back"
REVOCABLE_GIVE_BACK = "revocable tasks of its pool give back"
COMING = "what it waits for is on its way"
OTHERS_FIRST = "nobody of its pool gives back: another pool would get what is freed"
NONE_LOWER = "nobody of its pool gives back: none of a lower priority may be preempted"
TOO_YOUNG = "nobody of its pool gives back: those of a lower priority have not run for {} s yet"
IN_VAIN = "nobody of its pool gives back: it would not make room for a task that waits"
OFTEN = "nobody of its pool gives back: it has done so as often as it may"

OWED_MAY_COME = ("", ASKED_LATER, ON_THE_WAY, PROVING)
"""The verdicts of lanes for which other pools give back, or may, as they were not asked yet."""


def take_back(tree: Tree, now: float) -> list[tuple[Key, Reclaim]]:
    """Return the orders to lots that are due now; the same again until the lots have them."""
    books = tree.reclaims
    planned = books.planned(now)
    if planned:
        return planned  # the lots have to have them before the next plan counts what comes
    _follow(tree, now)
    wake_next(tree, now)
    excess = cache(tree.excess)  # nothing changes in between
    for lanes, ask, again in (
        (books.owed, _owed, books.rest_owed),
        (books.inside, _inside, books.inside.again),
    ):
        for _ in range(LANES_PER_TURN_MAX):
            lane = lanes.due(now)
            if lane is None:
                break
            short = ask(tree, lane, excess=excess, now=now)
            later = (
                _give(tree, short, lane=lane, now=now) if isinstance(short, Shortfall) else short
            )
            if later is not None:
                again(lane, later.at, verdict=later.verdict)
            planned = books.planned(now)
            if planned:
                return planned
    return []


def _follow(tree: Tree, now: float) -> None:
    """Record lanes that begin or cease to wait for others to give back."""
    books, waiting = tree.reclaims, tree.waiting
    books.note(now)
    news, waiting.news = waiting.news, {}
    ended, waiting.ended = waiting.ended, {}
    for lane in ended:
        books.drop_owed(lane)
        books.inside.end(lane)
    for lane in news:
        if waiting.awaits(lane) is None:
            books.drop_owed(lane)
        else:
            books.await_owed(lane, now)
        pool = pool_of_lane(lane)
        may_end = (not is_slack(lane) and tree.ends_slack(pool)) or tree.ends_own(pool)
        if waiting.head(lane) is None or not may_end:
            books.inside.end(lane)
        else:
            since = books.inside.begin(lane, now, verdict=ASKED_INSIDE)
            books.inside.push(lane, since + tree.policy.rest_s)


def _give(tree: Tree, short: Shortfall, *, lane: Key, now: float) -> LookAgain | None:
    """Plan the orders for what a lane lacks; return when to look again if nobody gives."""
    found, inside = cover(tree, short, now=now), short.inside
    if not found.gain:
        if inside is None:
            return _why_none_owed(tree, short.over, now=now)
        return _why_none_inside(tree, short, inside=inside, picked=bool(found.picked), now=now)
    books, later = tree.reclaims, now + tree.policy.rest_s
    if inside is not None and not found.picked:
        return LookAgain(later, COMING)
    proven = prove(tree, lane, cover=found, now=now)
    if isinstance(proven, LookAgain):
        return proven
    found = proven
    if inside is None:
        books.claims[lane] = EarmarkedRoom(total_of(found.gain), tree.up(short.pool))
        books.owed.ordered(lane, later, verdict=ON_THE_WAY)
    else:
        revocable = all(tree.lots[each.lot].shape.on_slack for each in found.picked)
        verdict = REVOCABLE_GIVE_BACK if revocable else GIVE_BACK
        books.inside.ordered(lane, later, verdict=verdict)
    plan_orders(tree, cover=found, reason=lambda key: _reason(tree, key, of=found), now=now)
    return None


def _reason(tree: Tree, giver: Key, *, of: Cover) -> str:
    shape, inside = tree.lots[giver].shape, of.short.inside
    pool = pool_mention(tree.path(shape.pool))
    if inside is None:
        kind = next((kind for kind, missing in enumerate(of.short.missing) if missing), 0)
        used, entitled = (each(shape.pool).amounts()[kind] for each in (tree.use, tree.entitlement))
        return (
            f"preempted: {pool} is entitled to {amount(entitled):.10g} {Resources.KINDS[kind]} and "
            f"uses {amount(used):.10g}; {pool_mention(tree.path(of.short.pool))} waits for what it "
            "is entitled to"
        )
    job = job_mention(inside.lot.split("/")[1])
    if shape.on_slack:
        return f"preempted: a task that is not revocable waits in {pool}, this one is; for {job}"
    return (
        f"preempted: a task of priority {inside.priority} waits in {pool}, this one has priority "
        f"{shape.priority}; for {job}"
    )


def _spare(tree: Tree, lane: Key) -> list[Resources]:
    """Return what entitlement leaves for a lane; and for one on slack, what the limit on that
    does."""
    spare = spare_entitlement(tree, lane, taken={})
    return [spare, tree.slack_room(pool_of_lane(lane))] if is_slack(lane) else [spare]


# ---- from other pools ----


def _owed(
    tree: Tree, lane: Key, *, excess: ExcessLookup, now: float
) -> Shortfall | LookAgain | None:
    books, awaited, pool = tree.reclaims, tree.waiting.awaits(lane), pool_of_lane(lane)
    books.claims.pop(lane, None)
    if awaited is None:
        return None
    for other in [*books.claims]:
        if not is_still_entitled(tree, other):
            del books.claims[other]  # others get what comes
            books.owed.verdicts[other] = ASKED_LATER
    books.sort(tree.lots)
    wanted, where = first_waiting(tree, lane, room=least_of(_spare(tree, lane))), awaited[0]
    if not wanted:
        return LookAgain(now + tree.policy.rest_s, "")
    coming = coming_by_pool(tree)
    over = _overdrafts(tree, pool, where=where, excess=excess, coming=coming)
    free = free_in(tree, where, coming=coming)
    return Shortfall(pool, where, size_of_first(tree, lane), wanted, free, over)


def _overdrafts(
    tree: Tree, asks: Key, *, where: Key, excess: ExcessLookup, coming: Mapping[Key, Resources]
) -> Overdrafts:
    """Return the pools below one that use more than they are entitled to.

    What is being given back counts as used no more. What those above the asking pool use in all
    does not matter for the pools that give below them: it stays the same.
    """
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
                if tree.reclaims.count_victims(child):
                    found.pools.append(Overdraft(child, (child, *chain)))
    return found


def _why_none_owed(tree: Tree, over: Overdrafts, *, now: float) -> LookAgain:
    later, books = now + tree.policy.rest_s, tree.reclaims
    if not over.excess:
        return LookAgain(later, NONE_OVER)
    if not over.pools:
        return LookAgain(later, NOT_PREEMPTIBLE)
    if any(books.in_flight.get(each.pool) for each in over.pools):
        return LookAgain(now + REST_S_MIN, NOT_ENOUGH_YET)
    spent = [each.pool for each in over.pools if books.budget(each.pool, now) <= 0]
    if not spent:
        return LookAgain(later, NO_GAIN)
    who = pool_mention(tree.path(spent[0]))
    ends = min(books.window_ends(pool, now) for pool in spent)
    return LookAgain(
        min(later, ends), f"nobody gives back: {who} has given back as often as it may"
    )


# ---- from others of its pool ----


def _inside(
    tree: Tree, lane: Key, *, excess: ExcessLookup, now: float
) -> Shortfall | LookAgain | None:
    books, pool, later = tree.reclaims, pool_of_lane(lane), now + tree.policy.rest_s
    if tree.waiting.head(lane) is None:
        return None  # noted when it waits again
    if books.owed.verdicts.get(lane) in OWED_MAY_COME:
        return LookAgain(later, "")
    if _others_first(tree, lane):
        return LookAgain(later, OTHERS_FIRST)
    books.sort(tree.lots)
    first, coming = next(iter(tree.queues[lane].eligible())), coming_by_pool(tree)
    min_run_s = books.min_run_s.get(tree.path(pool), 0.0)
    inside = Displacement(first, tree.lots[first].shape.priority, min_run_s)
    wanted = first_waiting(tree, lane, priority=inside.priority)
    spare, *rooms = _spare(tree, lane)
    rooms += [free_in(tree, above, coming=coming) for above in tree.up(pool)]
    room = least_of([spare + coming.get(pool, ZERO), *rooms])
    # Hosts have to have room only if the cluster has none.
    where = ROOT if any(missing_of(wanted, rooms[-1])) else pool
    over = Overdrafts()
    over.excess[pool] = tree.use(pool).amounts()
    over.pools = [Overdraft(pool, (pool,))] if books.count_victims(pool) else []
    short = Shortfall(pool, where, size_of_first(tree, lane), wanted, room, over, inside)
    return short if any(short.missing) else LookAgain(later, COMING)


def _others_first(tree: Tree, lane: Key) -> bool:
    """Return whether another lane is entitled to room that it awaits in this pool or above it."""
    above = tree.up(pool_of_lane(lane))
    return any(
        each != lane and is_still_entitled(tree, each)
        for where in above
        for each in tree.waiting.awaiting_in(where, by_slack=True)
    )


def _why_none_inside(
    tree: Tree, short: Shortfall, *, inside: Displacement, picked: bool, now: float
) -> LookAgain:
    policy, books, pool = tree.policy, tree.reclaims, short.pool
    later = now + policy.rest_s
    lower = [key for key in books.victims(pool) if may_give(tree, key, inside=inside)]
    if not lower:
        return LookAgain(later, NONE_LOWER if tree.ends_own(pool) else "")
    if books.budget(pool, now) <= 0:
        return LookAgain(books.window_ends(pool, now), OFTEN)
    if books.in_flight.get(pool) or books.may_go(pool, now) <= 0:
        return LookAgain(now + REST_S_MIN, COMING)
    if not picked and any(books.rests(key, ZERO, inside=True, now=now) for key in lower):
        until = max(now + REST_S_MIN, min(later, now + (inside.min_run_s or policy.sustained_s)))
        young = TOO_YOUNG.format(f"{inside.min_run_s:g}") if inside.min_run_s else IN_VAIN
        return LookAgain(until, young)
    return LookAgain(later, IN_VAIN)
