"""No path of normal work waits for a timer: with all timers a hundred times longer, work goes on.

Timers heal what was lost; here nothing is. All time is virtual.
"""

from __future__ import annotations

import sys
from typing import Any

import msgspec
import pytest

from peloton.actors.host.messages import BackendUp, ConfigureHost
from peloton.actors.job.messages import StopJob
from peloton.actors.job.stages import JobStates
from peloton.actors.resources import UNIT, Resources
from peloton.chaos.cluster.checked import CheckedCluster
from peloton.chaos.cluster.world.cluster import ClusterSetup, job_spec
from peloton.chaos.cluster.world.machines import MACHINE_BACKEND, Fate
from peloton.runtime.vocabulary import Key

TIMES = 100
TIMERS = (
    "ACK_S", "COLD_CHECK_S", "LAZY_S_MAX", "KEPT_LOST_S", "KEPT_REPEAT_S", "PING_S",
    "PLACE_RETRY_S", "PROPOSAL_KEEP_S",
    "QUIET_S", "REFUSED_REST_S", "REPORT_RETRY_S", "RESEND_TICK_S", "SNAPSHOT_RETRY_S",
    "STALL_S_MAX", "TALLY_INTERVAL_S", "WISH_TIMEOUT_S",
)  # fmt: skip
TASK_S = 2.0
SLACK_S = 0.5
"""Of a whole life: what messages take on their way."""


@pytest.fixture(autouse=True)
def _planted_slowness(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them, wherever they were imported to."""
    found = set()
    for name, module in [*sys.modules.items()]:
        for timer in TIMERS if name.startswith("peloton.") else ():
            if timer in vars(module):
                monkeypatch.setattr(module, timer, vars(module)[timer] * TIMES)
                found.add(timer)
    assert found == {*TIMERS}


def furnished(hosts: int, cpus: int, *, daemons: int = 1, **setup: Any) -> CheckedCluster:
    capacity = Resources(cpus * UNIT, 10**12, 10**12, 0)
    made = ClusterSetup(host_capacity=capacity, fates=lambda run: Fate(TASK_S), **setup)
    return CheckedCluster(daemons=daemons, hosts=hosts, setup=made)


def test_a_job_ends_as_soon_as_its_task_did() -> None:
    cluster = furnished(1, 1)
    began = cluster.world.now
    job = cluster.create_job(job_spec(1))
    cluster.run_until(lambda: cluster.job(job).summary.state == JobStates.SUCCEEDED, within_s=60)
    assert cluster.world.now - began <= TASK_S + SLACK_S


def test_a_full_pool_is_worked_off_at_the_pace_of_its_tasks() -> None:
    cluster = furnished(2, 2)
    began = cluster.world.now
    job = cluster.create_job(job_spec(100))
    cluster.run_until(lambda: cluster.job(job).summary.state == JobStates.SUCCEEDED, within_s=600)
    assert cluster.world.now - began <= 100 / 4 * TASK_S * 1.1 + SLACK_S


def test_what_is_admitted_and_fits_no_host_yet_runs_as_soon_as_one_has_room() -> None:
    """Three of six cpus are free for the pool that no single host has."""
    cluster = furnished(3, 3)
    began = cluster.world.now
    jobs = [cluster.create_job(job_spec(10, resources=two()), name) for name in ("a", "b", "c")]
    cluster.run_until(cluster.over, within_s=600)
    assert cluster.world.now - began <= 30 / 3 * TASK_S * 1.1 + SLACK_S
    assert all(cluster.job(job).summary.state == JobStates.SUCCEEDED for job in jobs)


def two() -> Resources:
    return Resources(2 * UNIT, UNIT, 0, 0)


def test_a_limit_of_a_job_is_used_by_all_of_its_slices_without_pauses() -> None:
    cluster = furnished(4, 100, checked=False)
    began = cluster.world.now
    spec = msgspec.structs.replace(job_spec(1200), maximum_running=300)
    job = cluster.create_job(spec)
    cluster.run_until(lambda: cluster.job(job).summary.state == JobStates.SUCCEEDED, within_s=600)
    assert cluster.world.now - began <= 1200 / 300 * TASK_S * 1.1 + SLACK_S


def test_a_job_that_is_stopped_lets_the_next_one_in_at_once() -> None:
    cluster = furnished(1, 2)
    first = cluster.create_job(job_spec(50), "first")
    second = cluster.create_job(job_spec(2), "second")
    cluster.run_for(TASK_S / 2)
    began = cluster.world.now
    cluster.ask(first, StopJob())
    cluster.run_until(
        lambda: cluster.job(second).summary.state == JobStates.SUCCEEDED, within_s=600
    )
    assert cluster.world.now - began <= TASK_S + SLACK_S


def test_a_host_that_joins_runs_at_once_what_no_host_could_run() -> None:
    cluster = furnished(2, 1)
    job = cluster.create_job(job_spec(1, resources=two()))
    cluster.run_for(5.0)
    assert cluster.instances(job, 1)[0].code == "NEVER", "no single host is large enough"
    began = cluster.world.now
    host = Key("host/large")
    capacity = Resources(4 * UNIT, 10**12, 10**12, 0)
    cluster.tell(host, ConfigureHost(capacity, (), MACHINE_BACKEND))
    cluster.tell(host, BackendUp())
    cluster.run_until(lambda: cluster.job(job).summary.state == JobStates.SUCCEEDED, within_s=600)
    assert cluster.world.now - began <= TASK_S + SLACK_S


OWNERS = ("jobmgr", "resmgr", "hostmgr")


@pytest.mark.parametrize(
    "roles",
    [
        pytest.param((), id="each daemon's slices wish from its own placer"),
        pytest.param((OWNERS, ("placement",), ("placement",)), id="wishes go to each in turn"),
    ],
)
def test_several_placers_leave_no_room_unused(roles: tuple[tuple[str, ...], ...]) -> None:
    cluster = furnished(3, 3, daemons=3, roles=roles)
    began = cluster.world.now
    jobs = [cluster.create_job(job_spec(10, resources=two()), name) for name in ("a", "b", "c")]
    cluster.run_until(cluster.over, within_s=600)
    assert cluster.world.now - began <= 30 / 3 * TASK_S * 1.1 + SLACK_S
    assert all(cluster.job(job).summary.state == JobStates.SUCCEEDED for job in jobs)
