"""How long work stands still when a daemon dies: as long as nobody owns its shards, and no longer.

Virtual time, so the bounds are exact. Only when all is over counts.
"""

from __future__ import annotations

import pytest

from peloton.chaos.cluster.world.cluster import ClusterSetup, SimulatedCluster
from peloton.chaos.cluster.world.machines import Fate

RUN_S = 2.0
REST_S_MAX = 4.0
"""From the last takeover to the last end. With the slow rate alone it was up to 26 s."""


@pytest.mark.parametrize("seed", range(6))
def test_a_takeover_is_all_that_a_job_waits_for(seed: int) -> None:
    cluster = SimulatedCluster(
        seed=seed, daemons=3, hosts=6, setup=ClusterSetup(fates=lambda run: Fate(RUN_S))
    )
    world = cluster.world
    world.run_until(cluster.ready, within_s=120.0)
    for _ in range(6):
        cluster.create(instances=3)
    world.run_for(0.05 + seed / 10)
    world.kill(world.living()[seed % 3])
    world.run_until(world.whole, within_s=60.0)
    taken_over_s = world.now
    world.run_until(cluster.over, within_s=60.0)
    assert world.now - taken_over_s <= REST_S_MAX
    world.end()
