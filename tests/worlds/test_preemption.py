"""Pools take back what they lent: who gives, how much, what becomes of the victims and the freed.

Whole clusters in virtual time. Must not look into the plans: `tests/actors/test_reclaiming.py`.
"""

from __future__ import annotations

import msgspec

from peloton.actors.job.spec import JobSpec
from peloton.actors.respool.lot.messages import LEVEL_PREEMPTION
from peloton.actors.respool.reclaims import PreemptionPolicy
from peloton.actors.task.messages import PREEMPTED, crowd_key
from peloton.actors.task.state import TaskStates
from peloton.chaos.cluster.checked import CheckedCluster
from peloton.chaos.cluster.cluster import (
    HOST_CAPACITY,
    NEED,
    STORM_POOL,
    ClusterSetup,
    job_spec,
)
from peloton.chaos.cluster.machines import Fate
from peloton.runtime.vocabulary import Key

SUSTAINED_S = 30.0
POLICY = PreemptionPolicy(sustained_s=SUSTAINED_S)
HOSTS = 3
ALL = HOSTS * 4  # tasks of one cpu


def for_ever(run: str) -> Fate:
    return Fate(None)


def cluster_of(policy: PreemptionPolicy = POLICY, seed: int = 0) -> tuple[CheckedCluster, Key]:
    """A cluster with a second pool of equal rights."""
    setup = ClusterSetup(fates=for_ever, preemption=policy, level=LEVEL_PREEMPTION)
    cluster = CheckedCluster(hosts=HOSTS, setup=setup, seed=seed)
    return cluster, cluster.make_pool("q", HOST_CAPACITY.times(HOSTS))


def spec(count: int, pool: Key = STORM_POOL, **fields: object) -> JobSpec:
    size = fields.pop("size", 1)
    assert isinstance(size, int)
    found = job_spec(count, pool=pool, resources=NEED.times(size))
    return msgspec.structs.replace(found, **fields)


def running(cluster: CheckedCluster, job: Key) -> int:
    crowd = cluster.crowds().get(crowd_key(job.partition("/")[2], 0))
    if crowd is None:
        return 0
    return int(crowd.where(lambda task: task.state == TaskStates.RUNNING).bit_count())


def run_all(cluster: CheckedCluster, job: Key, count: int) -> None:
    cluster.run_until(lambda: running(cluster, job) == count, within_s=300)


def past_runs(cluster: CheckedCluster, job: Key) -> int:
    return sum(len(view.runs) for view in cluster.instances(job, ALL))


def test_the_other_pool_gets_its_half_back() -> None:
    cluster, q = cluster_of()
    lent = cluster.create_job(spec(ALL), "a")
    run_all(cluster, lent, ALL)
    asked = cluster.create_job(spec(ALL, q), "b")
    cluster.run_for(SUSTAINED_S - 5)
    assert running(cluster, asked) == 0 and past_runs(cluster, lent) == 0
    run_all(cluster, asked, ALL // 2)
    assert running(cluster, lent) == ALL // 2
    assert past_runs(cluster, lent) == ALL // 2, "as many as the other is entitled to"
    victims = [view for view in cluster.instances(lent, ALL) if view.runs]
    assert {view.failures for view in victims} == {0}
    outcome = victims[0].runs[0].outcome
    assert outcome is not None and outcome.reason == PREEMPTED
    assert "pool /q waits for what it is entitled to" in outcome.message
    cluster.run_for(10 * SUSTAINED_S)
    assert past_runs(cluster, lent) == ALL // 2, "their new tickets move nobody"
    assert past_runs(cluster, asked) == 0
