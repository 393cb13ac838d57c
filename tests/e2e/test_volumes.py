"""A service with a volume on a real cluster: it counts its runs there, over kills and restarts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.e2e import cluster as c

COUNT = "echo x >> data/runs; sleep 1000"


def test_a_volume_outlives_runs_and_daemons(tmp_path: Path) -> None:
    with c.running(tmp_path) as cluster:
        with cluster.client() as client:
            config = {"volume": {"containerPath": "/data", "sizeMB": 10}}
            spec = c.job(1, COUNT, config=config, type="SERVICE")
            job = str(client.jobs.create(c.pool(client), spec).jobId.value)
            c.wait_for(lambda: runs(tmp_path) == 1, "the first run")
            (volume,) = listed(cluster, job)
            assert volume["id"]["value"] == f"{job}-0" and volume["sizeMB"] == 10
        cluster.cli("task", "restart", job)
        c.wait_for(lambda: runs(tmp_path) == 2, "the second run")
        cluster.kill()
        cluster.start()
        cluster.cli("task", "restart", job)
        c.wait_for(lambda: runs(tmp_path) == 3, "the third run")
        assert listed(cluster, job) == [volume]
        refused = cluster.cli("volume", "delete", f"{job}-0", check=False)
        assert refused.returncode != 0 and "stop it first" in refused.stderr
        cluster.cli("job", "stop", job)
        with cluster.client() as client:
            assert c.ended(client, job)[0] == "KILLED"
        cluster.cli("volume", "delete", f"{job}-0")
        c.wait_for(lambda: runs(tmp_path) == 0, "the directory to be gone")
        assert "No volume was found" in cluster.cli("volume", "list", job).stdout


def listed(cluster: c.Cluster, job: str) -> list[dict[str, Any]]:
    found = json.loads(cluster.cli("volume", "list", job, "-j").stdout)
    return [*found["volumes"].values()]


def runs(folder: Path) -> int:
    """How many runs have written into the one volume that there is."""
    found = [*folder.glob("data/**/volumes/*/*/runs")]
    return sum(len(one.read_text().split()) for one in found)
