"""Which tickets are admitted next: by priority, then arrival, as far as limits and shares allow.

Turns a tree into admissions. The head of each pool's queue is admitted as far as it fits into the
limits on its way to the root and into the entitlement of its pool. One that does not fit blocks
those behind it (FIFO), unless it can never fit under the limits: then it is skipped until a limit
changes, for waiting would never admit it. A task whose ration is used up (of controllers, or of
tasks that may not be preempted) is skipped until another one of it ends.

Tasks on slack have a lane of their own (`lanes`). Its turn comes after all others, and it leaves to
the first of the others of its pool what that needs of memory, disk and gpus.

Entitlements are rarely whole tasks. If no head fits, and none that is entitled to room waits for
it, one task is admitted in each pool that is entitled to a part of it: else what is left over would
be used by nobody. The cost depends on the heads, not on the length of a queue. Must not change use:
that is derived from the lots.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from peloton.actors.resources import COUNT_MAX, EPSILON, Resources
from peloton.actors.respool.gangs import QueuedUnit
from peloton.actors.respool.lanes import is_slack, pool_of_lane, slack_lane
from peloton.actors.respool.lot.state import Lot
from peloton.actors.respool.messages import ROOT
from peloton.actors.respool.node import ZERO
from peloton.actors.respool.tree import Tree
from peloton.actors.respool.waiting import PoolResource, Waiting
from peloton.runtime.vocabulary import Bits, Key

LOTS_PER_PASS_MAX = 256
"""What is found in one turn: others have theirs before the next."""

Taken = Mapping[Key, Resources]
"""What this pass has admitted already, by pool, with the pools above it."""


PendingLane = tuple[int, Key, PoolResource | tuple[()]]
"""A lane by its number: one that changed, or the first of those blocked on a resource. It may be
both, where the other lane of its pool has just had its turn."""


class AdmissionBatch(NamedTuple):
    """Members of a lot that are admitted."""

    lot: Key
    members: Bits


def admissions(tree: Tree, heads: int = COUNT_MAX) -> list[AdmissionBatch]:
    """What every pool can admit now. It changes nothing, so a second call returns the same.

    Once so many heads were looked at, the rest is left to the next call: then `waiting.unfinished`.
    """
    tree.settle()
    while True:
        taken: dict[Key, Resources] = {}
        found: list[AdmissionBatch] = []
        tree.waiting.unfinished = False
        for looks, lane in enumerate(_candidates(tree, taken, heads=heads)):
            if looks == heads:
                tree.waiting.unfinished = True
                break
            admit = _admit_on_slack if is_slack(lane) else _admit
            found += admit(tree, lane, taken=taken, most=LOTS_PER_PASS_MAX - len(found))
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
        elif not _is_part(need, _spare(tree, lane, taken={})) or (
            by_slack and not need.within(tree.slack_room(pool))
        ):
            waiting.recheck(lane)
        else:
            waiting.rounded_up[lane] = None
            lots = tree.unit(key).lots
            one = AdmissionBatch(key, tree.lots[key].waiting.lowest(1))
            found += _batches(tree, lots) if lots else [one]
            for each in above:
                taken[each] = taken.get(each, Resources()) + need
    return not found and bool(waiting.changed)


def _is_awaited(
    tree: Tree, where: Key, *, by_slack: bool, known: dict[tuple[Key, bool], bool]
) -> bool:
    """Whether room in a pool is awaited by a head that is entitled to it. Heads that were, and are
    not as others need more since, are checked again."""
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
    """Whether a lane whose head waits is entitled to what that needs: others may need more since
    it began to."""
    need = tree.waiting.head(lane)
    return need is not None and need.within(_spare(tree, lane, taken={}))


def count_fitting(tree: Tree, pool: Key, *, need: Resources, taken: Taken) -> int:
    """How many of `need` fit into the limits from a pool to the root, and its entitlement."""
    count = _count_within_limits(tree, pool, need=need, taken=taken)
    if not count or tree.is_ample(pool):
        return count
    return min(count, need.fits(_spare(tree, pool, taken=taken)))


def _count_within_limits(tree: Tree, pool: Key, *, need: Resources, taken: Taken) -> int:
    count = COUNT_MAX
    for above in tree.up(pool):
        available = tree.available(above)
        if above in taken:
            available = available - taken[above]
        count = min(count, need.fits(available))
    return count


def _spare(tree: Tree, lane: Key, *, taken: Taken) -> Resources:
    """What a lane of a pool is entitled to beyond what the pool uses."""
    pool = pool_of_lane(lane)
    spare = tree.entitlement(pool) - tree.use(pool) - tree.set_aside(lane)
    return spare - taken[pool] if pool in taken else spare


def _with_aside(tree: Tree, lane: Key, *, taken: Taken) -> Taken:
    """What is taken for a lane: what another lane of its pool has set aside, too."""
    aside = tree.set_aside(lane)
    if aside is ZERO:
        return taken
    above = tree.up(pool_of_lane(lane))
    return {**taken, **{each: taken.get(each, ZERO) + aside for each in above}}


def _lacked(need: Resources, spare: Resources) -> int | None:
    """A kind of which a pool is entitled to less than a task needs: best to nothing."""
    lacked = [Resources.KINDS.index(kind) for kind in need.short_of(spare)]
    return min(lacked, key=lambda kind: spare.amounts()[kind] >= EPSILON, default=None)


def _is_part(need: Resources, spare: Resources) -> bool:
    """Whether a pool is entitled to a part of each kind that it lacks for a task."""
    lacked = _lacked(need, spare)
    return lacked is not None and spare.amounts()[lacked] >= EPSILON


def _candidates(tree: Tree, taken: Taken, *, heads: int) -> Iterator[Key]:
    """The lanes that may admit a ticket, in the order in which they began to wait.

    These are those that changed; and of those blocked on a resource of which more is
    available, the ones whose head fits into what is left of it when their turn comes. The lane of
    a pool for slack follows the other one, which may have set something else aside. Of very many
    that changed, those come first that changed first.
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
    """The largest need that fits into what is available of a resource."""
    if resource.slack:
        return tree.slack_room(resource.pool).amounts()[resource.kind] + EPSILON - 1
    available = tree.available(resource.pool) - taken.get(resource.pool, Resources())
    return available.amounts()[resource.kind] + EPSILON - 1


def _batches(tree: Tree, lots: tuple[Key, ...]) -> list[AdmissionBatch]:
    """All members of a gang that wait, of all its lots."""
    waiting = ((lot, tree.lots[lot].waiting) for lot in lots)
    return [AdmissionBatch(lot, members) for lot, members in waiting if members]


def _admit(
    tree: Tree, pool: Key, *, taken: dict[Key, Resources], most: int
) -> list[AdmissionBatch]:
    found: list[AdmissionBatch] = []
    head: Resources | None = None
    rationed = [ZERO, ZERO, ZERO]
    for key in tree.queues[pool].eligible() if pool in tree.pools else ():
        lot: Lot = tree.lots[key]
        unit = tree.unit(key)
        need, gang = unit.need, unit.lots
        count = count_fitting(tree, pool, need=need, taken=taken)
        count = min(count, 1) if gang else count
        short = short_ration(tree, pool, unit=unit)
        if short is not None:
            tree.skip(key, short)
            continue
        fitting = fitting_rations(tree, pool, unit=unit, rationed=rationed)
        if not fitting:
            continue  # only this pass has taken it: the next one decides
        count = min(count, fitting)
        if not count:
            too_low = _bottleneck(tree, pool, need=need, of=tree.limit)
            if too_low is not None:
                tree.skip(key, too_low)
                continue
            head = need
            break
        count = count if gang else min(count, len(lot.waiting))
        found += _batches(tree, gang) if gang else [AdmissionBatch(key, lot.waiting.lowest(count))]
        for each, part in unit.rationed:
            rationed[each] = rationed[each] + part.times(count)
        for above in tree.up(pool):
            taken[above] = taken.get(above, Resources()) + need.times(count)
        if (not gang and count < len(lot.waiting)) or len(found) >= most:
            break
    if not found:
        _block(tree, pool, head=head)
    if not found and head is None:
        tree.restore_rationed(pool)  # somebody else may fit in place of those that were looked at
    tree.waiting.recheck(slack_lane(pool))
    return found


def short_ration(tree: Tree, pool: Key, *, unit: QueuedUnit) -> PoolResource | None:
    """The first ration that leaves less than what is admitted at once needs of it."""
    for each, part in unit.rationed:
        left = tree.ration_left(pool, each)
        kind = next(iter(part.short_of(left)), None) if left is not None else None
        if kind is not None:
            return PoolResource(pool, Resources.KINDS.index(kind), each)
    return None


def fitting_rations(tree: Tree, pool: Key, *, unit: QueuedUnit, rationed: list[Resources]) -> int:
    """How many fit into all rations, less what this pass has taken of them."""
    count = COUNT_MAX
    for each, part in unit.rationed:
        left = tree.ration_left(pool, each)
        if left is not None:
            count = min(count, part.fits(left - rationed[each]))
    return count


def _admit_on_slack(
    tree: Tree, lane: Key, *, taken: dict[Key, Resources], most: int
) -> list[AdmissionBatch]:
    """As `_admit`, for tasks on slack; a part of the reservation of their pool is their limit."""
    found: list[AdmissionBatch] = []
    head: Resources | None = None
    pool, came = pool_of_lane(lane), Resources()
    if pool in tree.waiting.changed:
        return []  # what the others of the pool need next is not known before they have their turn
    for key in tree.queues[lane].eligible() if pool in tree.pools else ():
        waiting, need = tree.lots[key].waiting, tree.unit(key).need
        before = _with_aside(tree, lane, taken=taken)
        count = count_fitting(tree, pool, need=need, taken=before)
        count = min(count, need.fits(tree.slack_room(pool) - came), len(waiting))
        if not count:
            too_low = _bottleneck(tree, pool, need=need, of=tree.limit) or _of_slack(
                pool, need=need, room=tree.slack_limit(pool)
            )
            if too_low is not None:
                tree.skip(key, too_low)
                continue
            head = need
            break
        found.append(AdmissionBatch(key, waiting.lowest(count)))
        came = came + need.times(count)
        for above in tree.up(pool):
            taken[above] = taken.get(above, Resources()) + need.times(count)
        if count < len(waiting) or len(found) >= most:
            break
    if not found:
        _block(tree, lane, head=head)
    return found


def _of_slack(pool: Key, *, need: Resources, room: Resources) -> PoolResource | None:
    """What tasks on slack lack of the room that their pool has for them."""
    for kind in need.short_of(room):
        return PoolResource(pool, Resources.KINDS.index(kind), slack=True)
    return None


def _block(tree: Tree, lane: Key, *, head: Resources | None) -> None:
    """Nothing was admitted: note what the head waits for, if there is one."""
    pool, waiting = pool_of_lane(lane), tree.waiting
    if head is None:
        waiting.settle(lane)
        return
    of_slack = _of_slack(pool, need=head, room=tree.slack_room(pool)) if is_slack(lane) else None
    if of_slack is not None:
        waiting.block(lane, resource=of_slack, need=head)
        return
    aside = tree.set_aside(lane)
    resource = _bottleneck(tree, pool, need=head + aside, of=tree.available)
    spare = _spare(tree, lane, taken={})
    short = _lacked(head, spare)
    if short is None:
        # What only this pass has taken is no reason to block: that lot may have left by now.
        if resource is not None:
            set_aside, entitled = aside.amounts()[resource.kind], aside == ZERO
            waiting.block(lane, resource=resource, need=head, entitled=entitled, aside=set_aside)
        return
    kind, part = short, spare.amounts()[short] >= EPSILON
    tree.lack(lane, need=head, kind=kind, part=part)
    if not part:
        resource = PoolResource(pool, kind, entitled=True)
    if resource is not None:
        waiting.block(lane, resource=resource, need=head, aside=aside.amounts()[resource.kind])
    else:
        waiting.wait_with_part(lane, need=head)


def _bottleneck(
    tree: Tree, pool: Key, *, need: Resources, of: Callable[[Key], Resources]
) -> PoolResource | None:
    """The first resource on the way to the root of which `of(pool)` is less than `need`."""
    for above in tree.up(pool):
        for kind in need.short_of(of(above)):
            return PoolResource(above, Resources.KINDS.index(kind))
    return None
