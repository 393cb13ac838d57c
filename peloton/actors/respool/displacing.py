"""Room inside a pool: work on slack ends for other work, and a low priority for a higher one.

It is used when nothing more can be admitted, and gives orders to lots. If the first lot in the
queue of a pool has waited for long enough, others of the pool give back what it lacks: of its
pool's entitlement, of the limits above, or of the cluster. Those are tasks on slack, if it is not;
and those of a lower priority, in pools that the policy names. What others owe to the pool comes
first. No lot gives in vain: not if it is too little for one task, nor if another lot is before it.

The cost is that of the lots that give and of the pools that wait, paid once for each lane that
waits for long enough. The slices choose the tasks.
"""

from __future__ import annotations

from peloton.actors.mentions import job_mention, pool_mention
from peloton.actors.resources import Resources
from peloton.actors.respool.admission import is_still_entitled
from peloton.actors.respool.giving import (
    Overdraft,
    Overdrafts,
    Shortfall,
    TaskBatch,
    coming_in,
    cover,
    first_waiting,
    free_in,
    least_of,
    may_give,
    missing_of,
    most_of,
    orders_for,
    size_of_first,
)
from peloton.actors.respool.lanes import is_slack, pool_of_lane
from peloton.actors.respool.lot.messages import Displacement, Reclaim
from peloton.actors.respool.messages import ROOT
from peloton.actors.respool.proving import prove
from peloton.actors.respool.reclaims import REST_S_MIN
from peloton.actors.respool.tree import Tree
from peloton.runtime.vocabulary import Key

LANES_PER_TURN_MAX = 16

GIVE_BACK = "tasks of its pool of a lower priority give back"
REVOCABLE_GIVE_BACK = "revocable tasks of its pool give back"
COMING = "what it waits for is on its way"
OTHERS_FIRST = "nobody of its pool gives back: another pool would get what is freed"
NONE_LOWER = "nobody of its pool gives back: none of a lower priority may be preempted"
TOO_YOUNG = "nobody of its pool gives back: those of a lower priority have not run for {} s yet"
IN_VAIN = "nobody of its pool gives back: it would not make room for a task that waits"
OFTEN = "nobody of its pool gives back: it has done so as often as it may"


def displacements(tree: Tree, now: float) -> list[tuple[Key, Reclaim]]:
    """Return the orders to lots that are due now; to be called once `reclaims` has nothing to
    order."""
    books = tree.displacements
    books.follow(tree.waiting, path=tree.path, now=now)
    found: list[tuple[Key, Reclaim]] = []
    for _ in range(LANES_PER_TURN_MAX):
        lane = books.due(now)
        if lane is None:
            break
        min_run_s = books.min_run_s.get(tree.path(pool_of_lane(lane)))
        if tree.waiting.head(lane) is None:
            continue  # noted when it waits again
        found += _for_lane(tree, lane, min_run_s=min_run_s or 0.0, now=now)
        if found:
            break  # the lots have to have them before the next plan counts what comes
    return found


def _for_lane(tree: Tree, lane: Key, *, min_run_s: float, now: float) -> list[tuple[Key, Reclaim]]:
    books, pool = tree.displacements, pool_of_lane(lane)
    later = now + tree.policy.rest_s
    if tree.reclaims.is_open(lane):
        books.again(lane, later, verdict="")
        return []
    if _others_first(tree, lane):
        books.again(lane, later, verdict=OTHERS_FIRST)
        return []
    tree.reclaims.sort(tree.lots)
    first = next(iter(tree.queues[lane].eligible()))
    inside = Displacement(first, tree.lots[first].shape.priority, min_run_s)
    wanted, room = first_waiting(tree, lane, priority=inside.priority), _room(tree, lane)
    where, size = _where(tree, pool, wanted=wanted), size_of_first(tree, lane)
    short, over = Shortfall(pool, where, size, wanted, room, inside), _all_of(tree, pool)
    if not any(short.missing):
        books.again(lane, later, verdict=COMING)
        return []
    found = cover(tree, over, short=short, now=now)
    if not found.gain:
        until, verdict = _why_not(tree, short, picked=bool(found.picked), now=now)
        books.again(lane, until, verdict=verdict)
        return []
    if not found.picked:
        books.again(lane, later, verdict=COMING)
        return []
    proven = prove(tree, lane, over=over, cover=found, now=now)
    if proven.cover is None:
        books.again(lane, proven.again_at, verdict=proven.verdict)
        return []
    found = proven.cover
    revocable = all(tree.lots[each.lot].shape.on_slack for each in found.picked)
    books.ordered(lane, later, verdict=REVOCABLE_GIVE_BACK if revocable else GIVE_BACK)
    return orders_for(
        tree, over, cover=found, reason=lambda key: _reason(tree, key, inside=inside), now=now
    )


def _others_first(tree: Tree, lane: Key) -> bool:
    """Return whether another lane is entitled to room that it awaits in this pool or above it."""
    above = tree.up(pool_of_lane(lane))
    return any(
        each != lane and is_still_entitled(tree, each)
        for where in above
        for each in tree.waiting.awaiting_in(where, by_slack=True)
    )


def _room(tree: Tree, lane: Key) -> Resources:
    """Return what entitlement and limits leave for a lane, once all that is given back has come."""
    pool = pool_of_lane(lane)
    spare = tree.entitlement(pool) - tree.use(pool) - tree.set_aside(lane)
    rooms = [spare + coming_in(tree, pool)]
    rooms += [free_in(tree, above) for above in tree.up(pool)]
    if is_slack(lane):
        rooms.append(tree.slack_room(pool))
    return least_of(rooms)


def _all_of(tree: Tree, pool: Key) -> Overdrafts:
    over = Overdrafts()
    over.excess[pool] = tree.use(pool).amounts()
    over.pools = [Overdraft(pool, (pool,))] if tree.reclaims.has_victims(pool) else []
    return over


def _where(tree: Tree, pool: Key, *, wanted: list[TaskBatch]) -> Key:
    """Return the pool in which room is missing.

    Hosts have to have room only if the cluster has none.
    """
    return ROOT if any(missing_of(wanted, free_in(tree, ROOT))) else pool


def _reason(tree: Tree, giver: Key, *, inside: Displacement) -> str:
    shape = tree.lots[giver].shape
    if shape.on_slack:
        where, job = pool_mention(tree.path(shape.pool)), job_mention(inside.lot.split("/")[1])
        return f"preempted: a task that is not revocable waits in {where}, this one is; for {job}"
    return (
        f"preempted: a task of priority {inside.priority} waits in "
        f"{pool_mention(tree.path(shape.pool))}, this one has priority {shape.priority}; for "
        f"{job_mention(inside.lot.split('/')[1])}"
    )


def _why_not(tree: Tree, short: Shortfall, *, picked: bool, now: float) -> tuple[float, str]:
    """Return when to look again, and why no lot gives back."""
    policy, books, inside = tree.policy, tree.reclaims, short.inside
    assert inside is not None
    later = now + policy.rest_s
    lower = [key for key in books.victims(short.pool) if may_give(tree, key, inside=inside)]
    if not lower:
        return later, NONE_LOWER if tree.ends_own(short.pool) else ""
    if books.budget(short.pool, policy, now) <= 0:
        return books.window_ends(short.pool, policy), OFTEN
    if books.in_flight.get(short.pool) or most_of(tree, short.pool, now=now) <= 0:
        return now + REST_S_MIN, COMING
    if not picked and any(tree.displacements.rests(key, now) for key in lower):
        until = max(now + REST_S_MIN, min(later, now + (inside.min_run_s or policy.sustained_s)))
        return until, TOO_YOUNG.format(f"{inside.min_run_s:g}") if inside.min_run_s else IN_VAIN
    return later, IN_VAIN
