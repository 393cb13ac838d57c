"""The kind "respool", as registered with the runtime. All pools of a tree share a shard."""

from __future__ import annotations

from functools import partial

from peloton.actors.respool import messages as m
from peloton.actors.respool.blockers import ExplainedTree
from peloton.actors.respool.copies import CopyPools, PoolsCopy, copy_pools
from peloton.actors.respool.decide import ABSENT, DECIDE
from peloton.actors.respool.facts import FACTS
from peloton.actors.respool.goals import keep, pursue
from peloton.actors.respool.queries import get_pool, list_pools, list_queue, pool_history
from peloton.actors.respool.reclaims import PreemptionPolicy
from peloton.actors.respool.state import EVOLVE, Pool
from peloton.runtime.kinds import Kind
from peloton.runtime.vocabulary import KIND_STATES, Query


def _depends(query: Query) -> str:
    # All other answers show use and demand, which are derived from lots.
    return KIND_STATES if isinstance(query, m.GetPool) and query.config_only else ""


def kind(policy: PreemptionPolicy = PreemptionPolicy()) -> Kind:  # noqa: B008
    """Return the kind, for pools that take back what they lent by this policy."""
    return Kind(
        name="respool",
        group="resmgr",
        state=Pool,
        decide=DECIDE,
        absent=ABSENT,
        pursue=pursue,
        at_rest=keep,
        evolve=EVOLVE,
        messages=m.MESSAGES,
        facts=FACTS,
        answers={
            **m.ANSWERS,
            501: m.PoolView,
            502: m.QueuedLot,
            510: PoolsCopy,
            511: m.PoolHistory,
        },
        partition=lambda key: m.TREE_PARTITION,
        parent=lambda key, state: m.ROOT,
        index=partial(ExplainedTree, policy),
        inspect={
            m.ListPools: list_pools,
            m.GetPool: get_pool,
            m.ListQueue: list_queue,
            CopyPools: copy_pools,
            m.GetPoolHistory: pool_history,
        },
        depends=_depends,
        recall_s=lambda notes: notes.wake_at,
        queries={
            501: m.ListPools,
            502: m.GetPool,
            503: m.ListQueue,
            510: CopyPools,
            511: m.GetPoolHistory,
        },
    )
