"""Gangs of real processes on a real cluster: all together, or none, and again over a death."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from peloton.sdk.client import Client
from tests.e2e import cluster as c

LARGE = {"resource": {"cpuLimit": 1.0, "memLimitMb": 1.0, "diskLimitMb": 1.0}}


def create(client: Client, instances: int, command: str, **extra: object) -> str:
    sla = {"minimumRunningInstances": instances}
    spec = c.job(
        instances, command, config={**LARGE, "restartPolicy": {"maxFailures": 2}}, sla=sla, **extra
    )
    return str(client.jobs.create("/tests", spec).jobId.value)


def running(client: Client, job: str) -> int:
    return int(client.jobs.get(job).jobInfo.runtime.taskStats.get("RUNNING", 0))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[c.Cluster]:
    with c.running(tmp_path_factory.mktemp("gangs"), "--host-cpus", "4") as running:
        with running.client() as client:
            c.pool(client)
        yield running


def test_gangs_run_together_one_after_the_other_over_a_death(
    cluster: c.Cluster, tmp_path: Path
) -> None:
    with cluster.client() as client:
        go = tmp_path / "go"
        first = create(client, 8, c.until_there(go))
        c.wait_for(lambda: running(client, first) == 8, "the first gang")
        second = create(client, 5, "true")
        third = create(client, 40, "true")
        assert running(client, second) == 0
    cluster.kill()
    cluster.start()
    with cluster.client() as client:
        assert (running(client, first), running(client, second)) == (8, 0)
        go.touch()
        assert c.ended(client, first) == ("SUCCEEDED", {"SUCCEEDED": 8})
        assert c.ended(client, second) == ("SUCCEEDED", {"SUCCEEDED": 5})
        assert "a gang of 40: requested 40 cpu" in str(client.ops.why(third))
        client.jobs.stop(third)
        c.ended(client, third)


def test_a_gang_restarts_as_one(cluster: c.Cluster) -> None:
    """The first runs of the others would go on for ever."""
    fails = 'case "$PELOTON_POD_ID" in *-2-1) exit 1;; *-1) exec sleep 600;; esac'
    label = [{"key": "peloton.gang", "value": "restart-together"}]
    with cluster.client() as client:
        job = create(client, 4, fails, labels=label)
        assert c.ended(client, job) == ("SUCCEEDED", {"SUCCEEDED": 4})
