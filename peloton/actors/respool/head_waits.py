"""What a lane whose head cannot begin waits for: more of which resources lets a ticket begin.

The needs of a head, and of those that may pass it, become thresholds of `Waiting` and of
entitlements. The cost depends on how many different needs these are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from peloton.actors.resources import EPSILON, Resources
from peloton.actors.respool.lanes import is_slack, pool_of_lane
from peloton.actors.respool.node import ZERO
from peloton.actors.respool.tree import Tree
from peloton.actors.respool.waiting import PoolResource
from peloton.runtime.vocabulary import Key

Taken = Mapping[Key, Resources]
"""What this pass has admitted already, by pool, with the pools above it."""


def spare_entitlement(tree: Tree, lane: Key, *, taken: Taken) -> Resources:
    """Return what a lane of a pool is entitled to beyond what the pool uses."""
    pool = pool_of_lane(lane)
    spare = tree.entitlement(pool) - tree.use(pool) - tree.set_aside(lane)
    return spare - taken[pool] if pool in taken else spare


def lacked_kind(need: Resources, spare: Resources) -> int | None:
    """Return a kind of which a pool is entitled to less than a task needs, first one of which
    nothing is left."""
    lacked = [Resources.KINDS.index(kind) for kind in need.short_of(spare)]
    return min(lacked, key=lambda kind: spare.amounts()[kind] >= EPSILON, default=None)


def lacked_rooms(tree: Tree, lane: Key, *, need: Resources) -> list[PoolResource]:
    """Return all resources that are less than what a lane needs."""
    pool, wanted = pool_of_lane(lane), need + tree.set_aside(lane)
    found = [
        PoolResource(above, Resources.KINDS.index(kind))
        for above in tree.up(pool)
        for kind in wanted.short_of(tree.available(above))
    ]
    spare = spare_entitlement(tree, lane, taken={})
    kinds = [Resources.KINDS.index(kind) for kind in need.short_of(spare)]
    found += [PoolResource(pool, kind, entitled=True) for kind in kinds]
    of_slack = lacked_slack(pool, need=need, room=tree.slack_room(pool)) if is_slack(lane) else None
    return [*found, of_slack] if of_slack is not None else found


def block(tree: Tree, lane: Key, *, unfit: list[Resources], whole_head: bool) -> None:
    """Record what the head of a lane waits for, as nothing was admitted.

    It also records what lets any of the tickets begin that may pass the head. `unfit` has the needs
    of all of them, of the head first; a head that no ticket may pass is alone. `whole_head`: which
    may pass depends on each kind that the head lacks.
    """
    lacked = {need: lacked_rooms(tree, lane, need=need) for need in unfit}
    if not all(lacked.values()):
        return  # what only this pass has taken is no reason to block: that lot may have left by now
    head, *others = unfit
    more = _block_head(tree, lane, head=head)
    aside = tree.set_aside(lane).amounts()
    watched = [(need, lacked[need][0]) for need in others]
    watched += [(head, each) for each in lacked[head]] if whole_head else []
    for need, each in watched:
        amount = need.amounts()[each.kind]
        if each.entitled:
            more[each.kind] = min(amount + 1 - EPSILON, more.get(each.kind, amount))
        else:
            amount += 0 if each.slack else aside[each.kind]
            tree.waiting.block_too(lane, resource=each, amount=amount)
    if more:
        tree.lack(lane, more)


def _block_head(tree: Tree, lane: Key, *, head: Resources) -> dict[int, int]:
    """Record what the head of a lane waits for.

    Returns how much more of a kind its pool has to be entitled to.
    """
    pool, waiting = pool_of_lane(lane), tree.waiting
    of_slack = lacked_slack(pool, need=head, room=tree.slack_room(pool)) if is_slack(lane) else None
    if of_slack is not None:
        waiting.block(lane, resource=of_slack, need=head)
        return {}
    aside = tree.set_aside(lane)
    resource = bottleneck(tree, pool, need=head + aside, of=tree.available)
    spare = spare_entitlement(tree, lane, taken={})
    kind = lacked_kind(head, spare)
    if kind is None:
        assert resource is not None
        set_aside, entitled = aside.amounts()[resource.kind], aside == ZERO
        waiting.block(lane, resource=resource, need=head, entitled=entitled, aside=set_aside)
        return {}
    whole, part = head.amounts()[kind] + 1 - EPSILON, spare.amounts()[kind] >= EPSILON
    if not part:
        resource = PoolResource(pool, kind, entitled=True)
    if resource is not None:
        waiting.block(lane, resource=resource, need=head, aside=aside.amounts()[resource.kind])
    else:
        waiting.wait_with_part(lane, need=head)
    # Some is enough where it has none: a task may be rounded up.
    return {kind: whole if part else min(whole, EPSILON)}


def bottleneck(
    tree: Tree, pool: Key, *, need: Resources, of: Callable[[Key], Resources]
) -> PoolResource | None:
    """Return the first resource on the way to the root of which `of(pool)` is less than `need`."""
    for above in tree.up(pool):
        for kind in need.short_of(of(above)):
            return PoolResource(above, Resources.KINDS.index(kind))
    return None


def lacked_slack(pool: Key, *, need: Resources, room: Resources) -> PoolResource | None:
    """Return what tasks on slack lack of the room that their pool has for them."""
    for kind in need.short_of(room):
        return PoolResource(pool, Resources.KINDS.index(kind), slack=True)
    return None
