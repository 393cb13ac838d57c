"""The fleet of real daemons: jobs, crashes, and nothing left behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from peloton.sdk.errors import BadSpec, ServiceUnavailable
from peloton.testing.assertions import assert_counts, assert_waits_because
from peloton.testing.fleet import Fleet, FleetShape
from tests.processes import naming

BAD = [
    (FleetShape(backend="mesos"), "backend: must be process or simulated, got 'mesos'"),
    (FleetShape(hosts=0), "hosts: must be ≥ 1, got 0"),
    (FleetShape(daemons=2), "daemons: must be 1 without cassandra and zookeeper, got 2"),
    (FleetShape(cassandra="a:1"), "cassandra: goes together with zookeeper"),
]


@pytest.mark.parametrize(("shape", "text"), BAD)
def test_a_fleet_that_cannot_be_is_refused(tmp_path: Path, shape: FleetShape, text: str) -> None:
    with pytest.raises(BadSpec, match=text):
        Fleet(tmp_path, shape)


@pytest.mark.slow
@pytest.mark.peloton_fleet(hosts=2, cpu=1)
def test_real_tasks_survive_a_crash_and_end_with_the_fleet(fleet: Fleet, tmp_path: Path) -> None:
    note = tmp_path / "note"
    job = fleet.submit(instances=2, cpu=0.1, command=f"while [ ! -e {note} ]; do sleep 0.05; done")
    fleet.run_until(lambda: job.counts()["RUNNING"] == 2)
    large = fleet.submit(cpu=2)
    assert_waits_because(large, "cpu")
    fleet.crash()
    with pytest.raises(ServiceUnavailable):
        fleet.client.jobs.get(job.id)
    fleet.restart()
    note.touch()
    job.until("SUCCEEDED", within_s=60)
    assert_counts(job, SUCCEEDED=2)
    fleet.submit(command="sleep 1000")
    fleet.close()
    assert naming(fleet.folder / "keeper") == []
