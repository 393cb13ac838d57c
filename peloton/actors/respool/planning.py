"""Plans: what pools would do with more work, or with another config of a pool.

A copy of the tree and a change determine which lots would be admitted, which would wait and why,
and which would give back, by the code that decides it (`admission.py`, `taking_back.py`). What
would happen without the change is subtracted. The tree that was copied does not change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import immutables
import msgspec

from peloton.actors.resources import Resources
from peloton.actors.respool.admission import admissions
from peloton.actors.respool.copies import PoolsCopy, fork
from peloton.actors.respool.lot.messages import GangTerms, LotShape, LotWaits, Reclaim
from peloton.actors.respool.lot.state import Lot, LotOrder, with_admitted
from peloton.actors.respool.messages import PoolConfig
from peloton.actors.respool.rules import check
from peloton.actors.respool.state import Pool
from peloton.actors.respool.taking_back import take_back
from peloton.actors.respool.tree import Tree
from peloton.runtime.vocabulary import Bits, Key, Refused, Unavailable

PASSES_MAX = 4000
"""Passes of admission, each of which admits a few hundred lots."""
ORDERS_MAX = 256
"""Times that pools are asked to give back."""


class NewLot(NamedTuple):
    """Members of a job that does not exist yet.

    `gang_lots`: of how many lots its gang is, or 0.
    """

    key: Key
    shape: LotShape
    crowd: Key
    members: Bits
    gang_lots: int = 0


class GivenBack(NamedTuple):
    """What one pool would give back: tasks of a job, and what they hold."""

    pool: str
    job: str
    tasks: int
    amount: Resources


class LotsPlan(NamedTuple):
    """What would become of lots that do not exist yet.

    `later`: the members that would be admitted once others have given back, which takes
    `sustained_s` and as long as their tasks take to end.
    """

    admitted: dict[Key, Bits]
    waits: dict[Key, LotWaits]
    shapes: dict[Key, LotShape]
    given_back: list[GivenBack]
    later: dict[Key, Bits]
    sustained_s: float
    verdict: str  # why nobody gives back, if that is known


class PlannedShare(NamedTuple):
    """A pool before and after: what it is entitled to, uses, and wants in all."""

    path: str
    before: Resources
    after: Resources
    used: Resources
    wanted: Resources


class AdmittedJob(NamedTuple):
    """How many waiting instances of a job would be admitted."""

    pool: str
    job: str
    tasks: int


class PoolPlan(NamedTuple):
    """What another config of a pool would change."""

    shares: list[PlannedShare]
    admitted: list[AdmittedJob]
    given_back: list[GivenBack]
    sustained_s: float


def plan_lots(of: PoolsCopy, new: Sequence[NewLot], *, now: float) -> LotsPlan:
    """Return what would become of these lots if they came now."""
    tree = fork(of)
    admit_all(tree)
    lots = {each.key: _queued(each, now) for each in new}
    for key, lot in lots.items():
        tree.put(key, old=None, new=lot)
    admitted = _of_lots(admit_all(tree), lots)
    waiting = [key for key in lots if tree.lots[key].waiting]
    waits = {key: tree.waits(key, now) for key in waiting}
    shapes = {each.key: each.shape for each in new}
    if not waiting or not of.policy.enabled:
        return LotsPlan(admitted, waits, shapes, [], {}, of.policy.sustained_s, "")
    orders = take_all_back(tree, now)
    verdicts = (tree.lot_verdict(key) for key in waiting)
    verdict = "" if orders else next(filter(None, verdicts), "")
    given = _given_back(tree, _less(orders, _orders_without(of, now)))
    later = _of_lots(admit_all(tree), lots) if given else {}
    return LotsPlan(admitted, waits, shapes, given, later, of.policy.sustained_s, verdict)


def plan_pool(
    of: PoolsCopy, pool: Key, *, config: PoolConfig, now: float
) -> PoolPlan | Refused | Unavailable:
    """Return what this config would change, for a pool that exists or a new one; or why it is
    refused."""
    before, tree = fork(of), fork(of)
    refused = check(tree, pool, config=config)
    if refused is not None:
        return refused
    admit_all(before)
    admit_all(tree)
    known = tree.pools.get(pool)
    new = Pool(config) if known is None else msgspec.structs.replace(known, config=config)
    tree.put(pool, old=known, new=new)
    admitted = _by_job(tree, admit_all(tree))
    shown = [*tree.below(config.parent), *tree.below(pool)]
    shares = [
        PlannedShare(
            tree.path(each),
            before.entitlement(each),
            tree.entitlement(each),
            before.use(each),
            tree.use(each) + tree.demand(each),
        )
        for each in shown
    ]
    given: list[GivenBack] = []
    if of.policy.enabled:
        orders = take_all_back(tree, now)
        given = _given_back(tree, _less(orders, take_all_back(before, now)))
    return PoolPlan(shares, admitted, given, of.policy.sustained_s)


def _queued(new: NewLot, now: float) -> Lot:
    """Return the lot once all of its members have queued."""
    lot = Lot(new.shape, new.crowd, now, immutables.Map(), waiting=new.members)
    if not new.gang_lots:
        return lot
    terms = GangTerms(1, 1, new.gang_lots, new.members)
    return msgspec.structs.replace(lot, gang=terms, joined=new.members)


def admit_all(tree: Tree) -> dict[Key, Bits]:
    """Admit what fits, pass after pass, as the root does; return the admitted members by lot."""
    found: dict[Key, Bits] = {}
    for _ in range(PASSES_MAX):
        batches = admissions(tree)
        if not batches:
            break
        for key, members in batches:
            old = tree.lots[key]
            tree.put(key, old=old, new=with_admitted(old, members))
            found[key] = found.get(key, Bits()) | members
    return found


def take_all_back(tree: Tree, now: float) -> dict[Key, int]:
    """Let pools give back what others are entitled to; return what they gave by lot.

    As if all that wait had begun to wait now, and all that are asked could be chosen.
    """
    found: dict[Key, int] = {}
    moment = now
    for _ in range(ORDERS_MAX):
        for key, order in take_back(tree, moment):
            found[key] = found.get(key, 0) + _give_back(tree, key, order=order, now=now)
        due = tree.reclaims.wake_at
        if due is None or due > now + tree.policy.sustained_s:
            break
        moment = max(moment, due)
    return found


def _give_back(tree: Tree, key: Key, *, order: Reclaim, now: float) -> int:
    """Let a lot carry out an order at once; return how many of its members give back."""
    lot = tree.lots[key]
    going = _last(lot.admitted, order.count)
    ordered = msgspec.structs.replace(
        lot,
        order=LotOrder(lot.orders + 1, order.count, order.need, order.reason, order.inside),
    )
    tree.put(key, old=lot, new=ordered)
    # They queue again, or their pool would be entitled to less.
    after = msgspec.structs.replace(
        lot,
        orders=lot.orders + 1,
        admitted=lot.admitted - going,
        waiting=lot.waiting | going,
        arrived=lot.arrived if lot.waiting else now,
    )
    tree.put(key, old=ordered, new=after)
    return len(going)


def _last(members: Bits, count: int) -> Bits:
    """Return the `count` highest of these members."""
    return members - members.lowest(max(len(members) - count, 0))


def _orders_without(of: PoolsCopy, now: float) -> dict[Key, int]:
    """Return what would be given back anyway."""
    tree = fork(of)
    admit_all(tree)
    return take_all_back(tree, now)


def _less(orders: Mapping[Key, int], anyway: Mapping[Key, int]) -> dict[Key, int]:
    found = {key: count - anyway.get(key, 0) for key, count in orders.items()}
    return {key: count for key, count in found.items() if count > 0}


def _of_lots(admitted: Mapping[Key, Bits], lots: Mapping[Key, Lot]) -> dict[Key, Bits]:
    return {key: members for key, members in admitted.items() if key in lots}


def _given_back(tree: Tree, orders: Mapping[Key, int]) -> list[GivenBack]:
    found: dict[tuple[str, str], GivenBack] = {}
    for key, count in orders.items():
        shape, job = tree.lots[key].shape, key.split("/")[1]
        name = tree.path(shape.pool), job
        known = found.get(name, GivenBack(*name, 0, Resources()))
        amount = known.amount + shape.resources.times(count)
        found[name] = known._replace(tasks=known.tasks + count, amount=amount)
    return [found[name] for name in sorted(found)]


def _by_job(tree: Tree, admitted: Mapping[Key, Bits]) -> list[AdmittedJob]:
    found: dict[tuple[str, str], int] = {}
    for key, members in admitted.items():
        name = tree.path(tree.lots[key].shape.pool), key.split("/")[1]
        found[name] = found.get(name, 0) + len(members)
    return [AdmittedJob(*name, found[name]) for name in sorted(found)]
