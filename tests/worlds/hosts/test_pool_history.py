"""What pools held, hour by hour, in a whole cluster: kept over a recovery, with a gap there."""

from __future__ import annotations

import pytest

from peloton.actors.resources import UNIT
from peloton.actors.respool.messages import (
    ROOT,
    GetPoolHistory,
    PoolHistory,
    PoolHour,
)
from peloton.chaos.cluster.checked import CheckedCluster
from peloton.chaos.cluster.world.cluster import ClusterSetup, job_spec
from peloton.chaos.cluster.world.machines import Fate

HOUR_S = 3600.0
FULL = 12
"""Tasks that all hosts have room for."""


def cluster_of(hours: float = 2.25) -> CheckedCluster:
    """Its tasks run for so long."""
    setup = ClusterSetup(fates=lambda run: Fate(hours * HOUR_S))
    return CheckedCluster(setup=setup)


def history(cluster: CheckedCluster, path: str) -> PoolHistory:
    found = cluster.ask(ROOT, GetPoolHistory(path))
    assert isinstance(found, PoolHistory)
    return found


def cpu_hours(hours: tuple[PoolHour, ...]) -> float:
    return sum(hour.used.cpu for hour in hours) / UNIT


def test_what_was_held_is_kept_and_a_recovery_loses_the_open_hour_only() -> None:
    cluster = cluster_of()
    first = cluster.create_job(job_spec(3), "first")
    cluster.run_until(lambda: cluster.counts(first).get("RUNNING") == 3)
    cluster.run_for(1.5 * HOUR_S)
    assert history(cluster, "/p").kept == ()
    second = cluster.create_job(job_spec(1), "second")
    cluster.run_until(lambda: cluster.counts(second).get("RUNNING") == 1)
    cluster.run_for(10.0)
    kept = history(cluster, "/p").kept
    assert cpu_hours(kept) == pytest.approx(4.5, abs=0.1)
    assert cpu_hours(history(cluster, "/").kept) == cpu_hours(kept)
    began = cluster.world.now
    cluster.run_for(0.25 * HOUR_S)
    cluster.crash_shard(ROOT)
    cluster.run_for(0.5 * HOUR_S)
    cluster.run_until(lambda: cluster.counts(first) == {"SUCCEEDED": 3}, within_s=HOUR_S)
    cluster.run_for(10.0)
    found = history(cluster, "/p")
    assert found.kept[: len(kept)] == kept and found.open is not None
    later = (*found.kept[len(kept) :], found.open)
    assert later[0].began > began + 0.2 * HOUR_S, "what was open is lost"
    assert cpu_hours(later) == pytest.approx(2.0, abs=0.2)
    assert cluster.ask(ROOT, GetPoolHistory("/none")) is None
    cluster.run_until(cluster.over, within_s=2 * HOUR_S)
    cluster.check_quiet()


def test_an_hour_that_is_over_holds_up_nobody() -> None:
    """The first end closes an hour, and makes room for one that waits."""
    cluster = cluster_of(hours=1.5)
    first = cluster.create_job(job_spec(1), "first")
    cluster.run_for(60.0)
    job = cluster.create_job(job_spec(3 * FULL), "more")
    cluster.run_until(cluster.over, within_s=6 * HOUR_S)
    assert cluster.counts(first) == {"SUCCEEDED": 1}
    assert cluster.counts(job) == {"SUCCEEDED": 3 * FULL}
    cluster.check_quiet()
