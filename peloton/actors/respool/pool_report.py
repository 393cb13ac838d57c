"""The report of one pool: its entitlement, the tasks that wait there, and those that give back.

It explains a copy of the tree by the code that decides on the tree itself. `planning.py` tells what
happens next.
"""

from __future__ import annotations

from typing import NamedTuple

from peloton.actors.resources import Resources
from peloton.actors.respool.admission import admissions
from peloton.actors.respool.blockers import ExplainedTree
from peloton.actors.respool.copies import PoolsCopy, fork
from peloton.actors.respool.division import DivisionSteps
from peloton.actors.respool.lanes import lanes_of
from peloton.actors.respool.messages import ROOT, PoolView
from peloton.actors.respool.queries import view
from peloton.actors.respool.tree import Tree
from peloton.actors.respool.walks import find_pool
from peloton.runtime.vocabulary import Key

LOTS_SHOWN_MAX = 20
"""Lots that wait, and lots that give back, in one report."""
POOLS_SHOWN_MAX = 200
"""Siblings, and children."""


class LotInLine(NamedTuple):
    """Tasks of one job that wait, in the order of the queue."""

    job: str
    tasks: int
    priority: int
    need: Resources  # of one of them; of a gang, of all
    gang: bool
    because: str


class GivingLot(NamedTuple):
    """Tasks of one job that give back what they hold, and why; the reason names for whom."""

    pool: str
    job: str
    tasks: int
    amount: Resources
    reason: str


class PoolReport(NamedTuple):
    """What people are told of a pool."""

    pool: PoolView
    above: PoolView | None  # none above the root
    steps: tuple[DivisionSteps, ...]  # by kind; none of the root
    siblings: list[PoolView]
    children: list[PoolView]
    waiting: list[LotInLine]
    waiting_in_all: int  # tasks, in the queues of this pool
    giving: list[GivingLot]  # of this pool and those below


def report(of: PoolsCopy, path: str, *, now: float) -> PoolReport | None:
    """Return the report of the pool at a path; None if there is none."""
    tree = fork(of)
    admissions(tree)  # finds who can never be admitted, and so needs nothing; it admits nobody
    pool = find_pool(tree, path)
    if pool is None or pool not in tree.pools:
        return None
    parent = tree.pools[pool].config.parent if pool != ROOT else None
    siblings = [each for each in tree.below(parent) if each != pool] if parent else []
    waiting, in_all = _waiting(tree, pool, now=now)
    return PoolReport(
        view(tree, pool),
        view(tree, parent) if parent else None,
        tree.steps(pool),
        _views(tree, siblings),
        _views(tree, [*tree.below(pool)]),
        waiting,
        in_all,
        _giving(tree, pool),
    )


def _views(tree: Tree, pools: list[Key]) -> list[PoolView]:
    found = sorted(pools, key=lambda each: (tree.pools[each].config.name, each))
    return [view(tree, each, children=False) for each in found[:POOLS_SHOWN_MAX]]


def _waiting(tree: ExplainedTree, pool: Key, *, now: float) -> tuple[list[LotInLine], int]:
    found: list[LotInLine] = []
    in_all = 0
    for lane in lanes_of(pool):
        for key in tree.queues[lane].in_order() if lane in tree.queues else ():
            lot = tree.lots[key]
            in_all += len(lot.waiting)
            if len(found) < LOTS_SHOWN_MAX:
                unit = tree.unit(key)
                because = tree.waits(key, now).because
                found.append(
                    LotInLine(
                        key.split("/")[1], len(lot.waiting), lot.shape.priority, unit.need,
                        bool(unit.lots), because,
                    )
                )  # fmt: skip
    return found, in_all


def _giving(tree: Tree, pool: Key) -> list[GivingLot]:
    found: list[GivingLot] = []
    for key, lot in tree.lots.items():
        if lot.coming and len(found) < LOTS_SHOWN_MAX and pool in tree.up(lot.shape.pool):
            reason = lot.order.reason if lot.order is not None else ""
            amount = lot.shape.resources.times(lot.coming)
            path, job = tree.path(lot.shape.pool), key.split("/")[1]
            found.append(GivingLot(path, job, lot.coming, amount, reason))
    return found
