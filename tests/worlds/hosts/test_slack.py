"""Revocable jobs on simulated clusters: they run on slack alone, and leave when it is taken back.

Whole clusters in virtual time. The tree of pools is tested in `tests/actors/pools/test_lanes.py`.
"""

from __future__ import annotations

import msgspec
import pytest

from peloton.actors.host import slack
from peloton.actors.host.machine_messages import SlackReported
from peloton.actors.host.messages import ConfigureHost, GetHost
from peloton.actors.job.spec import JobSpec
from peloton.actors.resources import UNIT, Resources
from peloton.actors.respool.lot.messages import GetLot
from peloton.actors.task.messages import SLACK_TAKEN
from peloton.chaos.cluster import checks
from peloton.chaos.cluster.checked import CheckedCluster
from peloton.chaos.cluster.world.cluster import HOST_CAPACITY, NEED, ClusterSetup, job_spec
from peloton.chaos.cluster.world.machines import MACHINE_BACKEND, Fate
from peloton.runtime.simulation.scan import Contradiction
from peloton.runtime.vocabulary import Key
from tests.worlds.planted import Planted, planted

SLACK = 2 * UNIT
WITH_SLACK = HOST_CAPACITY + Resources(slack=SLACK)
RUN_S = 150.0
FULL = 4
"""Tasks that one host has room for."""


def cluster_of(hosts: int = 1, **setup: object) -> CheckedCluster:
    given = {"fates": lambda run: Fate(RUN_S), "host_capacity": WITH_SLACK}
    return CheckedCluster(hosts=hosts, setup=ClusterSetup(**{**given, **setup}))


def revocable(count: int, **fields: object) -> JobSpec:
    only_cpu = Resources(NEED.cpu).revocable()
    of = job_spec(count, resources=only_cpu)
    return msgspec.structs.replace(of, revocable=True, **fields)


def running(cluster: CheckedCluster, job: Key) -> int:
    return cluster.counts(job).get("RUNNING", 0)


def end(cluster: CheckedCluster, *jobs: Key) -> None:
    cluster.run_until(cluster.over, within_s=10 * RUN_S)
    assert [cluster.counts(job).keys() for job in jobs] == [{"SUCCEEDED"}] * len(jobs)
    cluster.check_quiet()


def measure(cluster: CheckedCluster, slack: int | None, host: Key | None = None) -> None:
    cluster.tell(host or cluster.hosts[0], SlackReported(slack))


def test_they_run_where_all_else_is_taken() -> None:
    cluster = cluster_of()
    full = cluster.create_job(job_spec(FULL), "full")
    cluster.run_until(lambda: running(cluster, full) == FULL)
    more = cluster.create_job(job_spec(1), "more")
    job = cluster.create_job(revocable(3), "on slack")
    cluster.run_until(lambda: running(cluster, job) == 2)
    cluster.run_for(5.0)
    assert cluster.counts(job) == {"RUNNING": 2, "PENDING": 1}
    assert cluster.counts(more) == {"PENDING": 1}, "slack is for nobody else"
    end(cluster, full, more, job)


def test_no_more_is_measured_than_the_host_has_cpu() -> None:
    """What a run has of its own is read from its environment, where a program may write it."""
    cluster = cluster_of()
    measure(cluster, 99 * UNIT)
    cluster.run_for(1.0)
    found = cluster.ask(cluster.hosts[0], GetHost())
    assert found.capacity.slack == HOST_CAPACITY.cpu
    cluster.check_quiet()


def test_those_that_wait_for_slack_hold_nobody_up() -> None:
    cluster = cluster_of()
    job = cluster.create_job(revocable(5, priority=9), "on slack")
    cluster.run_until(lambda: running(cluster, job) == 2)
    others = cluster.create_job(job_spec(FULL), "others")
    cluster.run_until(lambda: running(cluster, others) == FULL)


def test_less_slack_ends_the_lowest_priority_first_and_the_newest() -> None:
    cluster = cluster_of()
    low = cluster.create_job(revocable(1), "low")
    cluster.run_until(lambda: running(cluster, low) == 1)
    high = cluster.create_job(revocable(1, priority=1), "high")
    cluster.run_until(lambda: running(cluster, high) == 1)
    measure(cluster, UNIT)
    cluster.run_until(lambda: running(cluster, low) == 0, within_s=90)
    cluster.run_for(40.0)
    assert running(cluster, high) == 1
    (found,) = cluster.instances(low, 1)
    assert (found.state, found.failures) == ("PENDING", 0), found
    (past,) = found.runs
    assert past.outcome is not None and past.outcome.reason == SLACK_TAKEN
    measure(cluster, SLACK)
    cluster.run_until(lambda: running(cluster, low) == 1)
    end(cluster, low, high)


def test_one_that_is_killed_on_preemption_does_not_come_back() -> None:
    cluster = cluster_of()
    spec = revocable(2)
    config = msgspec.structs.replace(spec.default, kill_on_preempt=True)
    job = cluster.create_job(msgspec.structs.replace(spec, default=config))
    cluster.run_until(lambda: running(cluster, job) == 2)
    measure(cluster, UNIT)
    cluster.run_until(lambda: cluster.counts(job).get("KILLED", 0) == 1, within_s=90)
    measure(cluster, SLACK)
    cluster.run_until(cluster.over, within_s=10 * RUN_S)
    assert cluster.counts(job) == {"SUCCEEDED": 1, "KILLED": 1}
    cluster.check_quiet()


def test_a_machine_that_measures_no_more_has_what_its_configuration_says() -> None:
    cluster = cluster_of()
    measure(cluster, 0)
    job = cluster.create_job(revocable(1))
    cluster.run_for(3.0)
    assert cluster.counts(job) == {"PENDING": 1}
    measure(cluster, None)
    cluster.run_until(lambda: running(cluster, job) == 1)
    larger = ConfigureHost(HOST_CAPACITY, (), MACHINE_BACKEND)
    cluster.tell(cluster.hosts[0], larger)
    cluster.run_until(lambda: running(cluster, job) == 0, within_s=60)


def test_the_reason_to_wait_names_slack() -> None:
    cluster = cluster_of(host_capacity=HOST_CAPACITY)
    job = cluster.create_job(revocable(1))
    cluster.run_for(1.0)
    (found,) = cluster.instances(job, 1)
    because = cluster.ask(found.lot, GetLot()).because
    assert because == "requested 1 cpu of slack, but hosts have 0: it waits for them to have more"


def test_a_pool_lets_them_have_a_part_of_its_reservation() -> None:
    cluster = cluster_of()
    large = Resources(NEED.cpu, NEED.memory).revocable()
    spec = msgspec.structs.replace(job_spec(1, resources=large), revocable=True)
    job = cluster.create_job(spec)
    cluster.run_for(2.0)
    (found,) = cluster.instances(job, 1)
    text = "the limit of <pool /p> for tasks on slack is 0 MB: it can never be admitted"
    assert text in cluster.ask(found.lot, GetLot()).because


def take_half() -> None:
    cluster = cluster_of()
    job = cluster.create_job(revocable(2))
    cluster.run_until(lambda: running(cluster, job) == 2)
    measure(cluster, UNIT)
    cluster.run_for(60.0)
    checks.hosts_keep_their_slack(cluster)


def test_a_host_that_keeps_what_it_does_not_have_is_found_out() -> None:
    take_half()
    kept = Planted(slack, "occupying_runs", lambda _: lambda host: ())
    with planted(kept), pytest.raises(Contradiction, match="^R9 .* slack used"):
        take_half()
