"""More pools wait than one turn looks at: after their owner recovers, all come to their turn."""

from __future__ import annotations

from peloton.actors.job.messages import CreateJob
from peloton.actors.respool.goals import HEADS_PER_TURN_MAX
from peloton.actors.respool.messages import ROOT
from peloton.chaos.cluster.checked import CheckedCluster
from peloton.chaos.cluster.world.cluster import NEED, job_id, job_spec

POOLS = 2 * HEADS_PER_TURN_MAX + 5


def test_all_pools_that_wait_come_to_their_turn_after_a_recovery() -> None:
    """Each may run one task at a time, and has a job of three."""
    cluster = CheckedCluster(hosts=30)
    pools = [cluster.make_pool(f"p{number}", NEED) for number in range(POOLS)]
    for number, pool in enumerate(pools):
        cluster.tell(job_id(f"j{number}"), CreateJob(job_spec(3, pool=pool)))
    cluster.run_for(0.5)
    waiting = sum(bool(lot.waiting) for lot in cluster.cells("lot").values())
    assert waiting > HEADS_PER_TURN_MAX
    cluster.crash_shard(ROOT)
    cluster.run_until(cluster.over)
    cluster.check_quiet()
