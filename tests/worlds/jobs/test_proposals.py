"""What a placer proposed has landed when its host shows it: no time has to pass for that.

A whole simulated cluster; only what the placer believes afterwards is looked at.
"""

from __future__ import annotations

import math

from peloton.chaos.cluster.checked import CheckedCluster
from peloton.chaos.cluster.world.cluster import ClusterSetup, job_spec
from peloton.chaos.cluster.world.machines import Fate


def test_proposals_land_by_what_hosts_show_and_not_by_a_timer() -> None:
    cluster = CheckedCluster(hosts=3, setup=ClusterSetup(fates=lambda run: Fate(None)))
    index = cluster.placers["d1"].placer.index
    index._flights.keep_s = math.inf
    job = cluster.create_job(job_spec(9))
    cluster.run_until(lambda: cluster.counts(job) == {"RUNNING": 9}, within_s=5.0)
    cluster.run_until(lambda: not index._in_flight.any(), within_s=0.001)
    for name, host in cluster.cells("host").items():
        assert index.free[:5, index.rows[name]].tolist() == [*host.free.amounts()]
