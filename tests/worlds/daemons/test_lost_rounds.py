"""A round that is lost takes all with it that followed from it, in services, too."""

from __future__ import annotations

from typing import Any

import pytest

from peloton.actors.resources import UNIT, Resources
from peloton.chaos.cluster.world.cluster import ClusterSetup, SimulatedCluster
from peloton.runtime.shells.shard import ShardShell
from tests.worlds.planted import Planted, planted

SLOTS = 4
BEGUN_S_MAX, OVER_S_MAX = 100.0, 60.0


class BreaksOnce:
    """The shard of the jobs breaks when its tasks are launched, and the host has accepted them and
    has told the placers that nothing is free; not a word of it is in the journal."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self.broke = 0
        self._cluster = cluster
        self._version = 0  # of the host, when the last round was closed

    def __call__(self, close_frame: Any) -> Any:
        def close(shell: Any) -> Any:
            [host] = self._cluster.cells("host").values()
            if shell.shard.group == "jobmgr":
                if not self.broke and not host.free.cpu and host.version > self._version + 2:
                    self.broke += 1
                    raise RuntimeError("broken once")
                self._version = host.version
            return close_frame(shell)

        return close


@pytest.mark.parametrize("seed", range(4))
def test_placers_forget_what_hosts_said_in_a_round_that_was_lost(seed: int) -> None:
    capacity = Resources(SLOTS * UNIT, SLOTS * 1024 * UNIT, SLOTS * 1024 * UNIT, 0)
    sizes = {"jobmgr": 1, "resmgr": 1, "hostmgr": 1}
    cluster = SimulatedCluster(
        seed=seed, daemons=1, hosts=1, sizes=sizes, setup=ClusterSetup(host_capacity=capacity)
    )
    world = cluster.world
    world.run_until(cluster.ready, within_s=BEGUN_S_MAX)
    fault = BreaksOnce(cluster)
    with planted(Planted(ShardShell, "close_frame", fault)):
        for number in range(SLOTS):
            cluster.create(client=f"c{number}")
        world.run_until(cluster.over, within_s=OVER_S_MAX)
    assert fault.broke == 1
