"""Copies of the tree of pools, for plans: what the tree would do, without doing it.

A copy may leave the shard, and becomes a tree of its own. The values are those of the shard and
never change, so a copy costs a reference for each lot.
"""

from __future__ import annotations

from itertools import islice

from peloton.actors.respool.blockers import ExplainedTree
from peloton.actors.respool.lot.state import Lot
from peloton.actors.respool.reclaims import PreemptionPolicy
from peloton.actors.respool.releases import ReleaseSum
from peloton.actors.respool.state import Pool
from peloton.runtime.vocabulary import At, Key, Query, Value


class CopyPools(Query, frozen=True, gc=False, array_like=True):
    """Asks the root for all pools, and at most so many lots; answered `PoolsCopy`."""

    lots_max: int


class CopiedRelease(Value, frozen=True, gc=False, array_like=True):
    """What a pool released, as `ReleaseSum`."""

    pool: Key
    amounts: tuple[float, ...]
    tasks: float
    at: float


class PoolsCopy(Value, frozen=True, gc=False, array_like=True):
    """Answer to `CopyPools`.

    `more_lots`: how many lots are left out, as there are too many. The rest is how pools take back
    what they lent, and what their tasks released lately.
    """

    pools: tuple[tuple[Key, Pool], ...]
    lots: tuple[tuple[Key, Lot], ...]
    more_lots: int
    policy: PreemptionPolicy
    since: float | None
    releases: tuple[CopiedRelease, ...]


def copy_pools(pool: Pool, query: CopyPools, at: At) -> PoolsCopy:
    """Return the tree as it is."""
    tree: ExplainedTree = at.index
    noted = tree.releases.noted
    return PoolsCopy(
        pools=tuple(tree.pools.items()),
        lots=tuple(islice(tree.lots.items(), query.lots_max)),
        more_lots=max(0, len(tree.lots) - query.lots_max),
        policy=tree.policy,
        since=noted.since,
        releases=tuple(CopiedRelease(key, *known) for key, known in noted.sums.items()),
    )


def fork(of: PoolsCopy) -> ExplainedTree:
    """A tree of its own, with queues, needs and entitlements derived as by a recovery.

    Pools begin to wait in the order in which the first ticket of each came.
    """
    tree = ExplainedTree(of.policy)
    for key, pool in of.pools:
        tree.put(key, old=None, new=pool)
    for key, lot in sorted(of.lots, key=lambda pair: (pair[1].arrived, pair[0])):
        tree.put(key, old=None, new=lot)
    sums = {one.pool: ReleaseSum(one.amounts, one.tasks, one.at) for one in of.releases}
    tree.releases.restore(of.since, sums)
    return tree
