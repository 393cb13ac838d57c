"""A host that fails whatever runs on it, among others that do not, on a simulated cluster.

What counts is where runs go, and how jobs end.
"""

from __future__ import annotations

from peloton.actors.host.inventory.messages import ListHosts, inventory_key
from peloton.actors.host.quarantine import QUARANTINE_S
from peloton.actors.job.stages import JobStates
from peloton.actors.task.messages import End, RunOutcome
from peloton.chaos.cluster.checked import CheckedCluster
from peloton.chaos.cluster.world.cluster import ClusterSetup
from peloton.chaos.cluster.world.furnished import SIZES
from peloton.chaos.cluster.world.machines import FAILURE, SUCCESS, Fate
from peloton.runtime.vocabulary import Key

NOT_STARTED = RunOutcome(End.LOST, reason="could not be started", system=True)


def quarantined(cluster: CheckedCluster) -> list[Key]:
    """The hosts that placers leave out, by what is listed."""
    views = [
        view
        for number in range(SIZES["hostmgr"])
        for view in cluster.ask(inventory_key(number), ListHosts())
    ]
    return sorted(view.summary.host for view in views if view.summary.quarantined)


def cluster_of(outcome: RunOutcome, *, hosts: int = 12) -> CheckedCluster:
    """One on whose host h0 runs end so at once."""
    found: list[CheckedCluster] = []

    def fate(run: str) -> Fate:
        where = found[0].machines.started.get(run)
        return Fate(0.5, outcome) if where == "host/h0" else Fate(2.0, SUCCESS)

    setup = ClusterSetup(fates=fate, quarantine_after=4)
    found.append(CheckedCluster(hosts=hosts, setup=setup))
    return found[0]


def test_a_black_hole_is_left_out_until_its_time_is_over() -> None:
    cluster = cluster_of(NOT_STARTED)
    for number in range(36):
        cluster.create(6, name=f"j{number}")
    cluster.run_until(cluster.over)
    assert quarantined(cluster) == ["host/h0"]
    later = cluster.create(44, name="later").job
    cluster.run_until(cluster.over)
    assert cluster.job(later).summary.state == JobStates.SUCCEEDED
    assert not any(view.host == "host/h0" for view in cluster.instances(later, 44))
    cluster.run_for(QUARANTINE_S + 10.0)
    assert quarantined(cluster) == []
    cluster.check_quiet()


def test_a_quarantine_outlives_its_shard() -> None:
    cluster = cluster_of(NOT_STARTED)
    for number in range(36):
        cluster.create(6, name=f"j{number}")
    cluster.run_until(cluster.over)
    cluster.crash_shard(Key("host/h0"))
    cluster.run_for(20.0)
    assert quarantined(cluster) == ["host/h0"]
    cluster.run_for(QUARANTINE_S)
    assert quarantined(cluster) == []


def test_one_job_that_fails_everywhere_quarantines_nothing() -> None:
    setup = ClusterSetup(fates=lambda run: Fate(0.5, FAILURE), quarantine_after=2)
    cluster = CheckedCluster(hosts=3, setup=setup)
    cluster.create(200, name="bad")
    cluster.run_until(cluster.over)
    assert quarantined(cluster) == []
