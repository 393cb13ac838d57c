"""A fleet of several daemons, on a Cassandra and a ZooKeeper that the test names."""

from __future__ import annotations

from pathlib import Path

import pytest

from peloton.testing.assertions import assert_counts
from peloton.testing.fleet import Fleet, FleetShape
from tests.servers import cassandra, zookeeper


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_several_daemons_on_cassandra_take_over(tmp_path: Path) -> None:
    store = cassandra.shared()
    shape = FleetShape(
        daemons=2,
        backend="simulated",
        cassandra=f"127.0.0.1:{store.port}",
        zookeeper=f"127.0.0.1:{zookeeper.shared().port}",
        replication=f"{store.data_centre}:1",
    )
    with Fleet(tmp_path, shape) as fleet:
        job = fleet.submit(instances=4, cpu=0.1)
        fleet.crash("d1")
        fleet.run_until(lambda: job.has_ended)
        assert_counts(job, SUCCEEDED=4)
