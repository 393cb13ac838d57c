"""Jobs of other strategies in a calm cluster: where their tasks run."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest

from peloton.chaos.cluster.checked import CheckedCluster
from peloton.chaos.cluster.world.cluster import ClusterSetup, job_spec

HOSTS = 3


def hosts_of(cluster: CheckedCluster, strategy: str, **fields: object) -> list[int]:
    """How many tasks of a job of six each host runs, the most first."""
    spec = msgspec.structs.replace(job_spec(2 * HOSTS), strategy=strategy, **fields)
    job = cluster.create_job(spec, f"of {strategy}")
    cluster.run_until(lambda: cluster.counts(job) == {"RUNNING": 2 * HOSTS}, within_s=1.0)
    runs = [name for name in cluster.machines.running if job.partition("/")[2] in name]
    assert len(runs) == 2 * HOSTS
    found: Counter[str] = Counter()
    for name, host in cluster.cells("host").items():
        found[name] += sum(run in host.runs for run in runs)
    return sorted(found.values(), reverse=True)


@pytest.mark.parametrize(
    ("strategy", "expected"), [("", [4, 2, 0]), ("pack", [4, 2, 0]), ("mimir", [2, 2, 2])]
)
def test_the_strategy_of_a_job_decides_where_its_tasks_run(
    strategy: str, expected: list[int]
) -> None:
    assert hosts_of(CheckedCluster(hosts=HOSTS), strategy) == expected


@pytest.mark.parametrize(
    ("strategy", "expected"), [("pack", [4, 2, 0]), ("spread", [2, 2, 2]), ("mimir", [2, 2, 2])]
)
def test_it_does_so_for_gangs(strategy: str, expected: list[int]) -> None:
    cluster = CheckedCluster(hosts=HOSTS, setup=ClusterSetup())
    assert hosts_of(cluster, strategy, minimum_running=2 * HOSTS) == expected
