"""All that keeps a ticket waiting, not only the first cause, and when that may be over.

It lists each limit, entitlement and place in a queue that blocks a lot, with numbers, and estimates
the wait from what was released lately. It costs the path to the root and the first entries of the
queue.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from peloton.actors.mentions import pool_mention
from peloton.actors.resources import EPSILON, Resources, amount
from peloton.actors.respool import shortage as s
from peloton.actors.respool.lanes import lane_of
from peloton.actors.respool.lot.messages import LotWaits, Outlook, PoolBlocker, QueuePosition
from peloton.actors.respool.messages import ROOT
from peloton.actors.respool.node import KINDS
from peloton.actors.respool.rations import Ration
from peloton.actors.respool.tree import Tree
from peloton.runtime.vocabulary import Key

QUEUE, SLACK = "queue", "slack"
RATION_RULES = {Ration.CONTROLLERS: "controllers", Ration.NON_PREEMPTIBLE: "reservation"}
LOOKED_AT_MAX = 64
"""Entries of a queue that are looked at for one answer."""


class QueueAhead(NamedTuple):
    """The first entries before a lot: what they want, and how many they are."""

    need: Resources
    tasks: int
    gangs: int
    entries: int


class MissingRoom(NamedTuple):
    """What has to be released in a pool before a ticket has its turn."""

    pool: Key
    kind: int
    missing: int


class ExplainedTree(Tree):
    """The tree as the index of pools and lots, with the answers that a lot asks it for."""

    def waits(self, key: Key, now: float = 0.0) -> LotWaits:
        """Return why the waiting members of a lot wait, and how many tickets are before them."""
        return explained(self, key, found=s.why_lot_waits(self, key), now=now)

    def lot_verdict(self, key: Key) -> str:
        """`verdict` of the lane in which a lot waits; nobody gives back for one that never runs."""
        if key not in self.lots or s.why_lot_waits(self, key).never:
            return ""
        return self.verdict(lane_of(self.lots[key].shape))


def explained(tree: Tree, key: Key, *, found: LotWaits, now: float) -> LotWaits:
    """Return the answer with all blockers, the place in the queue and the outlook."""
    if not found.waiting or found.rule == s.DELETED:
        return found
    blockers = tuple(_blockers(tree, key))
    gang = tree.gang(key)
    if found.never or (gang is not None and gang.head is None):
        return msgspec.structs.replace(found, blockers=blockers)
    ahead = _ahead(tree, key)
    place = _place(tree, key, ahead=ahead, found=found) if found.position else None
    if place is not None:
        waits = PoolBlocker(QUEUE, found.path, wanted=1, missing=place.tasks)
        blockers = (*blockers, waits)
    outlook = _outlook(tree, key, ahead=ahead, found=found, now=now)
    return msgspec.structs.replace(found, blockers=blockers, place=place, outlook=outlook)


def _blockers(tree: Tree, key: Key) -> Iterator[PoolBlocker]:
    """Yield blockers in the order of `shortage`: what is too low for ever comes first."""
    lot, unit, gang = tree.lots[key], tree.unit(key), tree.gang(key)
    pool = lot.shape.pool
    if gang is not None and gang.head is None:
        came, wanted = gang.here()
        yield PoolBlocker(
            s.GANG, tree.path(pool), "", came, came, wanted, missing=wanted - came, in_all=wanted
        )
        return
    need = unit.need
    in_all = need if unit.lots else lot.shape.resources.times(len(lot.waiting))
    above = [*tree.up(pool)]
    limits = [each for one in above for each in _of_limit(tree, one, need=need, in_all=in_all)]
    too_low = [each for each in limits if each.wanted - each.limit >= EPSILON]
    yield from too_low
    for of, part in unit.rationed:
        yield from _of_ration(tree, pool, of=of, need=part, in_all=in_all)
    if lot.shape.on_slack:
        yield from _of_slack(tree, pool, need=need, in_all=in_all)
    yield from (each for each in limits if each not in too_low)
    yield from _of_entitlement(tree, pool, need=need, in_all=in_all)


def _of_entitlement(
    tree: Tree, pool: Key, *, need: Resources, in_all: Resources
) -> Iterator[PoolBlocker]:
    """Yield blockers of the entitlement.

    If a pool is entitled to all that a limit above allows, the limit alone is the blocker.
    """
    entitled, used = tree.entitlement(pool), tree.use(pool)
    limits = [tree.limit(above) for above in tree.up(pool)]
    for kind in KINDS:
        bound = any(not _short(most, entitled, kind=kind) for most in limits)
        if not bound and _short(need, entitled - used, kind=kind):
            where = s.ENTITLEMENT, tree.path(pool)
            yield _blocker(where, kind, most=entitled, used=used, wants=(need, in_all))


def _of_limit(
    tree: Tree, pool: Key, *, need: Resources, in_all: Resources
) -> Iterator[PoolBlocker]:
    most, used = tree.limit(pool), tree.use(pool)
    rule = s.CAPACITY if pool == ROOT else s.LIMIT
    for kind in KINDS:
        if _short(need, most - used, kind=kind):
            found = _blocker(
                (rule, tree.path(pool)), kind, most=most, used=used, wants=(need, in_all)
            )
            # Hosts come, and come back: what the cluster has is no proof of never.
            never = pool != ROOT and _short(need, most, kind=kind)
            yield msgspec.structs.replace(found, never=never) if never else found


def _of_ration(
    tree: Tree, pool: Key, *, of: Ration, need: Resources, in_all: Resources
) -> Iterator[PoolBlocker]:
    most, free = tree.ration(pool, of), tree.ration_left(pool, of)
    if most is not None and free is not None:
        where = RATION_RULES[of], tree.path(pool)
        yield from _of_part(where, most=most, free=free, wants=(need, in_all))


def _of_slack(
    tree: Tree, pool: Key, *, need: Resources, in_all: Resources
) -> Iterator[PoolBlocker]:
    most, free = tree.slack_limit(pool), tree.slack_room(pool)
    where = SLACK, tree.path(pool)
    yield from _of_part(where, most=most, free=free, wants=(need, in_all))


def _of_part(
    where: tuple[str, str],
    *,
    most: Resources,
    free: Resources,
    wants: tuple[Resources, Resources],
) -> Iterator[PoolBlocker]:
    """Yield the kinds of which too little is left of what such tasks of a pool may hold."""
    for kind in KINDS:
        if _short(wants[0], free, kind=kind):
            found = _blocker(where, kind, most=most, used=most - free, wants=wants)
            never = _short(wants[0], most, kind=kind)
            yield msgspec.structs.replace(found, never=never) if never else found


def _blocker(
    where: tuple[str, str],
    kind: int,
    *,
    most: Resources,
    used: Resources,
    wants: tuple[Resources, Resources],
) -> PoolBlocker:
    limit, taken, wanted, in_all = (of.amounts()[kind] for of in (most, used, *wants))
    missing = wanted - (limit - taken)
    name = Resources.KINDS[kind]
    return PoolBlocker(*where, name, limit, taken, wanted, missing, max(in_all, wanted))


def _short(need: Resources, available: Resources, *, kind: int) -> bool:
    return Resources.KINDS[kind] in need.short_of(available)


# ---- the queue ----


def _ahead(tree: Tree, key: Key) -> QueueAhead:
    queue, head = tree.queues[lane_of(tree.lots[key].shape)], _head_of(tree, key)
    need, tasks, gangs, entries = Resources(), 0, 0, 0
    for each in queue.ahead(head, LOOKED_AT_MAX):
        unit, other = tree.unit(each), tree.lots[each]
        count = len(other.waiting)
        gang = tree.gang(each)
        if gang is not None and gang.head is not None:
            count = gang.head.waiting
        need = need + (unit.need if unit.lots else unit.need.times(count))
        tasks, gangs, entries = tasks + count, gangs + bool(unit.lots), entries + 1
    return QueueAhead(need, tasks, gangs, entries)


def _head_of(tree: Tree, key: Key) -> Key:
    """Return the queue entry of a lot: itself, or the first lot of its gang."""
    gang = tree.gang(key)
    return gang.head.key if gang is not None and gang.head is not None else key


def _place(tree: Tree, key: Key, *, ahead: QueueAhead, found: LotWaits) -> QueuePosition | None:
    queue = tree.queues[lane_of(tree.lots[key].shape)]
    first = next(queue.eligible(), None)
    if first is None:
        return None
    return QueuePosition(
        tasks=found.position,
        higher=queue.higher(_head_of(tree, key)),
        gangs=ahead.gangs,
        looked_at=ahead.entries,
        head=first.split("/")[1],
        head_priority=tree.lots[first].shape.priority,
    )


# ---- the estimate ----


def _outlook(tree: Tree, key: Key, *, ahead: QueueAhead, found: LotWaits, now: float) -> Outlook:
    need = tree.unit(key).need + _scaled(ahead, found.position)
    after_s, basis = 0.0, ""
    for short in _shortfalls(tree, found.pool, need=need):
        kind = Resources.KINDS[short.kind]
        if short.pool == ROOT and tree.unit(key).need.amounts()[short.kind] > _whole(tree, short):
            has = f"{_shown(kind, _whole(tree, short))} {kind}"
            return Outlook(None, f"the hosts that are up have {has} in all: others have to come")
        where = "the cluster" if short.pool == ROOT else pool_mention(tree.path(short.pool))
        rate = tree.releases.rate(short.pool, short.kind, now=now, up=tree.up)
        if rate is None:
            return Outlook(None, f"no task in {where} has released {kind} lately")
        takes_s = short.missing / rate.per_s
        if takes_s >= after_s:
            after_s = takes_s
            before = f" and the {found.position} before it" if found.position else ""
            basis = (
                f"{_shown(kind, short.missing)} {kind} has to be released in {where} for it"
                f"{before}; {_rounded(rate.per_s)}{s.UNITS[kind]} {kind} a second was lately, by "
                f"about {max(rate.tasks, 1):.0f} tasks"
            )
    return Outlook(after_s, basis or "nothing is missing: it is its turn")


def _whole(tree: Tree, short: MissingRoom) -> int:
    """Return what the pool may have of that kind, in use or not."""
    return tree.limit(short.pool).amounts()[short.kind]


def _scaled(ahead: QueueAhead, position: int) -> Resources:
    """Return what all entries before it want, if those that were not looked at want as much
    each."""
    if not ahead.tasks or position <= ahead.tasks:
        return ahead.need
    return Resources(*(each * position // ahead.tasks for each in ahead.need.amounts()))


def _shortfalls(tree: Tree, pool: Key, *, need: Resources) -> Iterator[MissingRoom]:
    rooms = [(above, tree.limit(above) - tree.use(above)) for above in tree.up(pool)]
    rooms.append((pool, tree.entitlement(pool) - tree.use(pool)))
    for above, room in rooms:
        for kind in KINDS:
            if _short(need, room, kind=kind):
                yield MissingRoom(above, kind, need.amounts()[kind] - room.amounts()[kind])


def _shown(kind: str, millionths: int) -> str:
    return f"{amount(millionths):.10g}{s.UNITS[kind]}"


def _rounded(millionths: float) -> str:
    return f"{millionths / 1e6:.3g}"
