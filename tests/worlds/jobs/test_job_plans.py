"""Plans in a living cluster: nothing of it changes, and what is planned then happens.

Whole clusters in virtual time. The plans themselves: `tests/actors/pools/test_planning.py`.
"""

from __future__ import annotations

from typing import Any

import msgspec

from peloton.actors.host.inventory.messages import HostView, ListHosts
from peloton.actors.job.messages import StopJob
from peloton.actors.resources import Resources
from peloton.actors.respool.copies import CopyPools, PoolsCopy
from peloton.actors.respool.lot.messages import LotShape
from peloton.actors.respool.messages import ROOT
from peloton.actors.respool.planning import NewLot, PoolPlan, plan_lots, plan_pool
from peloton.chaos.cluster.checked import CheckedCluster
from peloton.chaos.cluster.world.cluster import NEED, STORM_POOL
from peloton.placement.messages import Shape, Wish
from peloton.placement.planning import plan_hosts
from peloton.runtime.core.entities.encoding import encode
from peloton.runtime.vocabulary import Bits, Key, key
from tests.worlds.hosts.test_preemption import ALL, cluster_of, run_all, running, spec

KINDS = ("job", "slice", "lot", "respool", "host", "inventory", "archive")
LOT = key("lot", "plan", 0, 0)


def everything(cluster: CheckedCluster) -> Any:
    """The journal, in which each change of a task stands, and every other state in memory."""
    frames = [(str(frame.shard), frame.position) for frame in cluster.frames()]
    states = {
        kind: {name: encode(state) for name, state in cluster.cells(kind).items()} for kind in KINDS
    }
    return frames, states


def copied(cluster: CheckedCluster) -> PoolsCopy:
    found = cluster.ask(ROOT, CopyPools(1000))
    assert isinstance(found, PoolsCopy)
    return found


def hosts_of(cluster: CheckedCluster) -> list[HostView]:
    answers = [cluster.ask(name, ListHosts()) for name in sorted(cluster.cells("inventory"))]
    return [view for answer in answers for view in answer]


def lots(pool: Key, count: int) -> list[NewLot]:
    return [NewLot(LOT, LotShape(pool, NEED), key("task", "plan", 0), Bits.span(0, count))]


def test_nothing_changes_and_what_is_planned_happens() -> None:
    cluster, q = cluster_of()
    lent = cluster.create_job(spec(ALL - 2), "a")
    run_all(cluster, lent, ALL - 2)
    cluster.run_for(60.0)
    before = everything(cluster)
    of, views = copied(cluster), hosts_of(cluster)
    plan = plan_lots(of, lots(q, ALL), now=cluster.world.now)
    wish = Wish(key("slice", "plan", 0), 1, plan.admitted[LOT], Shape(NEED))
    summaries = [view.summary for view in views]
    hosts = plan_hosts(summaries, [wish], scarce_gpu=False, now=cluster.world.now)
    narrow = msgspec.structs.replace(dict(of.pools)[STORM_POOL].config, limit=Resources())
    assert isinstance(plan_pool(of, STORM_POOL, config=narrow, now=cluster.world.now), PoolPlan)
    assert everything(cluster) == before
    assert len(plan.admitted[LOT]) == hosts.placed == 2
    assert sum(each.tasks for each in plan.given_back) == ALL // 2 - 2
    assert len(plan.later[LOT]) == ALL // 2 - 2
    asked = cluster.create_job(spec(ALL, q), "b")
    run_all(cluster, asked, 2)
    run_all(cluster, asked, ALL // 2)
    assert running(cluster, lent) == ALL // 2
    for job in (lent, asked):
        cluster.ask(job, StopJob())
