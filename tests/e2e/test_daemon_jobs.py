"""A daemon job on a real cluster: by the command line, on every host, and on those that join."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.e2e import cluster as c

SPEC = """
name: agent
type: DAEMON
defaultConfig:
  resource: {cpuLimit: 0.01, memLimitMb: 1, diskLimitMb: 1}
  command: {shell: true, value: 'echo began >> SAID; exec sleep 1000'}
"""


def hosts_of(cluster: c.Cluster, job: str, *, state: str = "RUNNING") -> list[str]:
    """The hosts of the instances in this state, one for each."""
    tasks = json.loads(cluster.cli("-o", "json", "task", "list", job).stdout)
    found: list[dict[str, Any]] = [*tasks["result"]["value"].values()]
    return sorted(one["runtime"]["host"] for one in found if one["runtime"]["state"] == state)


def test_it_runs_on_every_host_leaves_one_that_drains_and_joins_a_new_one(tmp_path: Path) -> None:
    spec, said = tmp_path / "agent.yaml", tmp_path / "said"
    spec.write_text(SPEC.replace("SAID", str(said)))
    with c.running(tmp_path, "--hosts", "3") as cluster:
        with cluster.client() as client:
            pool = c.pool(client)
        names = sorted(cluster.cli("-o", "name", "host", "list").stdout.split())
        job = cluster.cli("-o", "name", "job", "create", pool, str(spec)).stdout.strip()
        c.wait_for(lambda: hosts_of(cluster, job) == names, "one on each host")
        first, *others = names
        cluster.cli("host", "maintenance", "start", first)
        c.wait_for(lambda: hosts_of(cluster, job) == others, "the host to be drained")
        c.wait_for(lambda: hosts_of(cluster, job, state="PENDING") == [first], "it to wait")
        why = cluster.cli("why", job, check=False).stdout
        assert f"its host {first} is not up" in why
        assert "to do: bring it up" in why and "will never run" not in why
        cluster.cli("host", "maintenance", "complete", first)
        c.wait_for(lambda: hosts_of(cluster, job) == names, "the host to have it again")
        c.wait_for(lambda: len(said.read_text().split()) == 4, "4 runs to have said it")
        assert cluster.stop() == 0
        cluster.options = ("--hosts", "4")
        cluster.start()
        c.wait_for(lambda: len({*hosts_of(cluster, job)}) == 4, "the new host to have one")
        # Five, as the others went on. A run says it a moment after it has begun.
        c.wait_for(lambda: len(said.read_text().split()) == 5, "5 runs to have said it")
        cluster.cli("job", "stop", job)
        c.wait_for(lambda: not hosts_of(cluster, job), "all to end")
        plan = cluster.cli("plan", "job", str(spec), pool, check=False)
        assert plan.returncode and "a daemon job cannot be planned yet" in plan.stderr
