"""Plans with the command line, against a real cluster: they change nothing, and come true."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e import cluster as c

POOL = "name: plans\nresources: [{{kind: cpu, limit: {}}}, {{kind: memory, limit: 1000}}]\n"
JOB = """\
name: waits
type: BATCH
instanceCount: 3
defaultConfig:
  resource: {cpuLimit: 0.5, memLimitMb: 1.0}
  command: {shell: true, value: "exec sleep 600"}
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[c.Cluster]:
    with c.running(tmp_path_factory.mktemp("cluster")) as running:
        yield running


def test_plans_come_true(cluster: c.Cluster, tmp_path: Path) -> None:
    pool, job = tmp_path / "pool.yaml", tmp_path / "job.yaml"
    pool.write_text(POOL.format(1))
    job.write_text(JOB)
    told = cluster.cli("plan", "pool", str(pool)).stdout
    assert "/plans" in told and "nobody who waits would be admitted" in told
    assert "/plans" not in cluster.cli("respool", "dump", "-o", "name").stdout
    cluster.cli("respool", "create", "/plans", str(pool))
    planned = cluster.cli("plan", "job", str(job), "/plans", check=False)
    assert planned.returncode == 80, planned.stderr
    assert planned.stdout.splitlines()[0] == (
        "of 3 instances 2 would be admitted by pool /plans at once, and 2 would get a host"
    )
    assert "1 would wait: pool-limit: limit of pool /plans reached" in planned.stdout
    active = json.loads(cluster.cli("-j", "job", "active-list").stdout)
    assert not active.get("ids")
    cluster.cli("job", "create", "/plans", str(job))

    def waits() -> bool:
        answer = json.loads(cluster.cli("why", "waits", "-o", "json").stdout)
        return [one["code"] for one in answer["reasons"]] == ["pool-limit"]

    c.wait_for(waits, "the third waits")
    why = cluster.cli("why", "waits").stdout
    assert "In the way of instance 2:" in why and "to do: raise the limit to 1.5 cpu" in why
    assert "no estimate: no task in pool /plans has released cpu lately" in why
    pool.write_text(POOL.format(2))
    assert "admitted: 1 of job" in cluster.cli("plan", "pool", str(pool)).stdout
    cluster.cli("job", "stop", "waits")
    bad = cluster.cli("plan", "job", str(pool), "/plans", check=False)
    assert bad.returncode == 65 and "resources" in bad.stderr
