"""Which tickets are admitted next: by priority, then arrival, as far as limits and shares allow.

The head of each pool's queue is admitted as far as it fits into the limits on its way to the root
and into the entitlement of its pool. While it does not fit, those behind it that do pass it, except
if the pool is strict, or ends tasks of its own for its head. Once a head has waited for
`HEAD_KEPT_AFTER_S`, or if tasks on slack are ended for it, only tickets pass it that need nothing
of what it lacks: that is kept for it.

A ticket that can never fit under the limits is skipped until a limit changes, for waiting would
never admit it. A task whose ration is used up (of controllers, or of tasks that may not be
preempted) is skipped until another one of it ends.

Tasks on slack have a lane of their own (`lanes`). Its turn comes after all others, and it leaves to
the first of the others of its pool what that needs of memory, disk and gpus.

Entitlements are rarely whole tasks. If no head fits, and no head that is entitled to room waits for
it, one task is admitted in each pool that is entitled to a part of it: else what is left over would
be used by no pool. The cost depends on the heads, not on the length of a queue. Use is derived from
the lots, and changes only with them.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from peloton.actors.resources import COUNT_MAX, EPSILON, Resources
from peloton.actors.respool.gangs import QueuedUnit
from peloton.actors.respool.head_waits import (
    Taken,
    block,
    bottleneck,
    lacked_kind,
    lacked_rooms,
    lacked_slack,
    spare_entitlement,
)
from peloton.actors.respool.lanes import is_slack, pool_of_lane, slack_lane
from peloton.actors.respool.messages import ROOT, Queueing
from peloton.actors.respool.node import ZERO
from peloton.actors.respool.queue import QueueEntry
from peloton.actors.respool.tree import Tree
from peloton.actors.respool.waiting import PoolResource, Waiting
from peloton.runtime.vocabulary import Bits, Key

LOTS_PER_PASS_MAX = 256
"""What is found in one turn: others have theirs before the next."""

HEAD_KEPT_AFTER_S = 300.0
PASSING_MAX = 500
"""Lots behind a head that does not fit that are looked at in one turn of a lane."""
PASSERS_PER_HEAD = 16
"""So many of them count as one head, where a turn looks at so many heads at most."""
NO_KINDS: frozenset[int] = frozenset()

PendingLane = tuple[int, Key, PoolResource | tuple[()]]
"""A lane by its number: one that changed, or the first of those blocked on a resource. It may be
both, where the other lane of its pool has just had its turn."""


class AdmissionBatch(NamedTuple):
    """Members of a lot that are admitted."""

    lot: Key
    members: Bits


def admissions(
    tree: Tree, heads: int = COUNT_MAX, *, now: float | None = 0.0
) -> list[AdmissionBatch]:
    """Return what every pool can admit now.

    Nothing is changed, so a second call returns the same. Without the time no ticket passes a head,
    as that depends on how long the head has waited. After `heads` heads the rest is left to the
    next call: then `waiting.unfinished`.
    """
    tree.settle()
    while True:
        taken: dict[Key, Resources] = {}
        found: list[AdmissionBatch] = []
        tree.waiting.unfinished = False
        tree.waiting.passers_seen = 0
        for looks, lane in enumerate(_candidates(tree, taken, heads=heads)):
            if looks + tree.waiting.passers_seen // PASSERS_PER_HEAD >= heads:
                tree.waiting.unfinished = True
                break
            most = LOTS_PER_PASS_MAX - len(found)
            found += _admit(tree, lane, taken=taken, most=most, now=now)
            if len(found) >= LOTS_PER_PASS_MAX:
                break
        # A lot that was skipped needs nothing any more, which may entitle other pools.
        if found or tree.waiting.unfinished or (not tree.settle() and not _round_up(tree, found)):
            return found


def _round_up(tree: Tree, found: list[AdmissionBatch]) -> bool:
    """Admit one task in each pool that is entitled to a part of it, as far as there is room.

    Not while a head that is entitled to all of it waits for room: it would wait for ever, if small
    tasks of others took what is freed. Returns whether pools have to be checked again.
    """
    waiting = tree.waiting
    taken: dict[Key, Resources] = {}
    awaited: dict[tuple[Key, bool], bool] = {}
    parts = waiting.parts()
    if parts and _is_awaited(tree, ROOT, by_slack=False, known=awaited):
        parts = []  # all are below it
    for lane in parts:
        pool, by_slack = pool_of_lane(lane), is_slack(lane)
        if len(found) == LOTS_PER_PASS_MAX:
            break
        above = tree.up(pool)
        if any(_is_awaited(tree, each, by_slack=by_slack, known=awaited) for each in above):
            continue
        key = next(iter(tree.queues[lane].eligible()))
        need = tree.unit(key).need
        room = _with_aside(tree, lane, taken={})
        if not _count_within_limits(tree, pool, need=need, taken=room):
            waiting.recheck(lane)
        elif not _count_within_limits(
            tree, pool, need=need, taken=_with_aside(tree, lane, taken=taken)
        ):
            continue  # only this pass has taken the room
        elif not _is_part(need, spare_entitlement(tree, lane, taken={})) or (
            by_slack and not need.within(tree.slack_room(pool))
        ):
            waiting.recheck(lane)
        else:
            waiting.rounded_up[lane] = None
            lots = tree.unit(key).lots
            one = AdmissionBatch(key, tree.lots[key].waiting.lowest(1))
            found += _batches(tree, lots) if lots else [one]
            _take(tree, pool, taken=taken, amount=need)
    return not found and bool(waiting.changed)


def _take(tree: Tree, pool: Key, *, taken: dict[Key, Resources], amount: Resources) -> None:
    for above in tree.up(pool):
        taken[above] = taken.get(above, ZERO) + amount


def _is_awaited(
    tree: Tree, where: Key, *, by_slack: bool, known: dict[tuple[Key, bool], bool]
) -> bool:
    """Return whether room in a pool is awaited by a head that is entitled to it.

    Heads that were entitled, and no longer are as others need more since, are checked again.
    """
    found = known.get((where, by_slack))
    if found is None:
        no_more: list[Key] = []
        found = False
        for lane in tree.waiting.awaiting_in(where, by_slack=by_slack):
            found = is_still_entitled(tree, lane)
            if found:
                break
            no_more.append(lane)
        for lane in no_more:
            tree.waiting.recheck(lane)
        known[where, by_slack] = found
    return found


def is_still_entitled(tree: Tree, lane: Key) -> bool:
    """Return whether a lane whose head waits is entitled to what the head needs.

    Others may need more since it began to wait.
    """
    need = tree.waiting.head(lane)
    return need is not None and need.within(spare_entitlement(tree, lane, taken={}))


def count_fitting(tree: Tree, pool: Key, *, need: Resources, taken: Taken) -> int:
    """Return how many of `need` fit into the limits from a pool to the root, and its
    entitlement."""
    count = _count_within_limits(tree, pool, need=need, taken=taken)
    if not count or tree.is_ample(pool):
        return count
    return min(count, need.fits(spare_entitlement(tree, pool, taken=taken)))


def _count_within_limits(tree: Tree, pool: Key, *, need: Resources, taken: Taken) -> int:
    count = COUNT_MAX
    for above in tree.up(pool):
        available = tree.available(above)
        if above in taken:
            available = available - taken[above]
        count = min(count, need.fits(available))
    return count


def _with_aside(tree: Tree, lane: Key, *, taken: Taken) -> Taken:
    """Return what is taken for a lane, including what another lane of its pool has set aside."""
    aside = tree.set_aside(lane)
    if aside is ZERO:
        return taken
    above = tree.up(pool_of_lane(lane))
    return {**taken, **{each: taken.get(each, ZERO) + aside for each in above}}


def _is_part(need: Resources, spare: Resources) -> bool:
    """Return whether a pool is entitled to a part of each kind that it lacks for a task."""
    lacked = lacked_kind(need, spare)
    return lacked is not None and spare.amounts()[lacked] >= EPSILON


def _candidates(tree: Tree, taken: Taken, *, heads: int) -> Iterator[Key]:
    """Yield the lanes that may admit a ticket, in the order in which they began to wait.

    These are those that changed; and of those blocked on a resource of which more is available, the
    ones whose head fits into what is left of it when their turn comes. The lane of a pool for slack
    follows the other one, which may have set something else aside. If very many changed, those come
    first that changed first.
    """
    waiting = tree.waiting
    changed = waiting.changed if len(waiting.changed) <= heads else waiting.first_changed(heads + 1)
    pending: list[PendingLane] = [(waiting.numbers[pool], pool, ()) for pool in changed]
    for grown in [*waiting.grown]:
        first = waiting.blocked.first(grown, start=0, most=_most(tree, grown, taken=taken))
        if first is None:
            del waiting.grown[grown]
        else:
            pending.append((first, waiting.blocked.item(first), grown))
    heapify(pending)
    known = {*changed}
    while pending:
        number, pool, resource = heappop(pending)
        if not resource:
            yield pool
            _follow(waiting, pool, pending=pending, known=known)
            continue
        again = waiting.blocked.first(
            resource, start=number, most=_most(tree, resource, taken=taken)
        )
        if again == number:
            yield pool
            _follow(waiting, pool, pending=pending, known=known)
            most = _most(tree, resource, taken=taken)
            again = waiting.blocked.first(resource, start=number + 1, most=most)
        if again is not None:
            heappush(pending, (again, waiting.blocked.item(again), resource))


def _follow(
    waiting: Waiting,
    pool: Key,
    *,
    pending: list[PendingLane],
    known: set[Key],
) -> None:
    lane = slack_lane(pool)
    if lane in waiting.changed and lane not in known:
        known.add(lane)
        heappush(pending, (waiting.numbers[lane], lane, ()))


def _most(tree: Tree, resource: PoolResource, *, taken: Taken) -> int:
    """Return the largest need that fits into what is available of a resource."""
    if resource.slack:
        return tree.slack_room(resource.pool).amounts()[resource.kind] + EPSILON - 1
    available = tree.available(resource.pool) - taken.get(resource.pool, Resources())
    return available.amounts()[resource.kind] + EPSILON - 1


def _batches(tree: Tree, lots: tuple[Key, ...]) -> list[AdmissionBatch]:
    """Return all members of a gang that wait, of all its lots."""
    waiting = ((lot, tree.lots[lot].waiting) for lot in lots)
    return [AdmissionBatch(lot, members) for lot, members in waiting if members]


def _admit(
    tree: Tree, lane: Key, *, taken: dict[Key, Resources], most: int, now: float | None
) -> list[AdmissionBatch]:
    pool, by_slack = pool_of_lane(lane), is_slack(lane)
    if by_slack and pool in tree.waiting.changed:
        return []  # what the others of the pool need next is not known before they have their turn
    found: list[AdmissionBatch] = []
    unfit: dict[Resources, None] = {}  # what does not fit, of the head first
    barred: frozenset[int] | None = NO_KINDS
    rationed, came, queue, behind = [ZERO, ZERO, ZERO], ZERO, tree.queues[lane], 0
    for position in queue.positions() if pool in tree.pools else ():
        key, need = position.lot, position.need
        behind += bool(unfit)
        tree.waiting.passers_seen += bool(unfit)
        if behind > PASSING_MAX or barred is None or len(unfit) == len(queue.needs):
            break
        if need in unfit or any(need.amounts()[kind] for kind in barred):
            continue
        waiting, unit = tree.lots[key].waiting, tree.unit(key)
        short = short_ration(tree, pool, unit=unit)
        if short is not None:
            tree.skip(key, short)
            continue
        fitting = fitting_rations(tree, pool, unit=unit, rationed=rationed)
        if not fitting:
            continue  # only this pass has taken it: the next one decides
        count = count_fitting(tree, pool, need=need, taken=_with_aside(tree, lane, taken=taken))
        count = min(count, fitting, 1 if unit.lots else len(waiting))
        count = min(count, need.fits(tree.slack_room(pool) - came)) if by_slack else count
        if not count:
            too_low = _too_low(tree, lane, need=need)
            if too_low is not None:
                tree.skip(key, too_low)
                continue
            unfit[need] = None
            if len(unfit) == 1:
                barred = _barred(tree, lane, head=position, now=now)
            continue
        if not unfit:
            tree.waiting.began(lane)
        lots = unit.lots
        found += _batches(tree, lots) if lots else [AdmissionBatch(key, waiting.lowest(count))]
        for each, part in unit.rationed:
            rationed[each] = rationed[each] + part.times(count)
        came = came + need.times(count)
        _take(tree, pool, taken=taken, amount=need.times(count))
        if (not lots and count < len(waiting)) or len(found) >= most:
            break
    _looked(tree, lane, found=bool(found), unfit=unfit, barred=barred)
    return found


def _looked(
    tree: Tree,
    lane: Key,
    *,
    found: bool,
    unfit: dict[Resources, None],
    barred: frozenset[int] | None,
) -> None:
    """Record that a lane has had its turn."""
    if found:
        tree.waiting.recheck(lane)
    elif unfit:
        block(tree, lane, unfit=[*unfit], whole_head=bool(barred))
    else:
        tree.waiting.settle(lane)
        if not is_slack(lane):
            # Somebody else may fit in place of those that were looked at.
            tree.restore_rationed(lane)
    if not is_slack(lane):
        tree.waiting.recheck(slack_lane(lane))


def _barred(tree: Tree, lane: Key, *, head: QueueEntry, now: float | None) -> frozenset[int] | None:
    """Return the kinds that tickets passing a head may not need; None: no ticket passes it."""
    pool = pool_of_lane(lane)
    strict = tree.pools[pool].config.queueing == Queueing.STRICT or tree.ends_own(pool)
    if strict or now is None:
        return None
    lacked = lacked_rooms(tree, lane, need=head.need)
    if not lacked:
        return None  # only this pass has taken what it needs
    since = tree.waiting.headed(lane, head.lot, now)
    kept = now - since >= HEAD_KEPT_AFTER_S or (not is_slack(lane) and tree.ends_slack(pool))
    return frozenset(each.kind for each in lacked) if kept else NO_KINDS


def short_ration(tree: Tree, pool: Key, *, unit: QueuedUnit) -> PoolResource | None:
    """Return the first ration that leaves less than what is admitted at once needs of it."""
    for each, part in unit.rationed:
        left = tree.ration_left(pool, each)
        kind = next(iter(part.short_of(left)), None) if left is not None else None
        if kind is not None:
            return PoolResource(pool, Resources.KINDS.index(kind), each)
    return None


def fitting_rations(tree: Tree, pool: Key, *, unit: QueuedUnit, rationed: list[Resources]) -> int:
    """Return how many fit into all rations, less what this pass has taken of them."""
    count = COUNT_MAX
    for each, part in unit.rationed:
        left = tree.ration_left(pool, each)
        if left is not None:
            count = min(count, part.fits(left - rationed[each]))
    return count


def _too_low(tree: Tree, lane: Key, *, need: Resources) -> PoolResource | None:
    """Return the first limit under which one task can never be admitted."""
    pool = pool_of_lane(lane)
    found = bottleneck(tree, pool, need=need, of=tree.limit)
    if found is not None or not is_slack(lane):
        return found
    return lacked_slack(pool, need=need, room=tree.slack_limit(pool))
