"""Words between hosts and backends that a crash swallowed: somebody asks again.

Each test loses one word by hand.
"""

from __future__ import annotations

import pytest

from peloton.actors.host import messages as m
from peloton.actors.host.stages import HostStates
from peloton.actors.resources import Resources
from peloton.chaos.cluster.checked import CheckedCluster
from peloton.chaos.cluster.checks import ledgers_equal_the_machines
from peloton.chaos.cluster.world.cluster import ClusterSetup, job_spec
from peloton.chaos.cluster.world.machines import Fate


def state(cluster: CheckedCluster) -> HostStates:
    return cluster.cells("host")[cluster.hosts[0]].state  # type: ignore[no-any-return]


@pytest.mark.parametrize("away_s", [5.0, 100.0])
def test_a_backend_that_came_back_while_the_shard_was_away(away_s: float) -> None:
    """Its word that it is up found nobody: the host would have stayed lost for good."""
    cluster = CheckedCluster(hosts=1, setup=ClusterSetup(fates=lambda run: Fate(None)))
    job = cluster.create_job(job_spec(2))
    cluster.run_for(1.0)
    cluster.cut(cluster.hosts[0])
    cluster.run_for(away_s)
    assert state(cluster) == (HostStates.UNREACHABLE if away_s < 60 else HostStates.LOST)
    cluster.machines.cut_off.clear()
    cluster.crash_shard(cluster.hosts[0])
    cluster.run_for(60.0)
    assert state(cluster) == HostStates.UP
    assert cluster.counts(job) == {"RUNNING": 2}
    ledgers_equal_the_machines(cluster)


def test_a_backend_that_went_away_while_the_shard_was_away() -> None:
    """Its word that it is down found nobody: its runs would have been taken for running."""
    cluster = CheckedCluster(hosts=2, setup=ClusterSetup(fates=lambda run: Fate(None)))
    job = cluster.create_job(job_spec(4))
    cluster.run_for(1.0)
    cluster.machines.cut_off[cluster.hosts[0]] = None
    cluster.crash_shard(cluster.hosts[0])
    cluster.run_for(1.0)
    assert state(cluster) == HostStates.UNREACHABLE
    cluster.run_for(70.0)
    assert state(cluster) == HostStates.LOST
    assert cluster.counts(job) == {"RUNNING": 4}


def test_a_shard_that_dies_while_its_host_is_out_of_reach_keeps_counting() -> None:
    """To look again must not begin the time limit anew."""
    cluster = CheckedCluster(hosts=1, setup=ClusterSetup(fates=lambda run: Fate(None)))
    cluster.cut(cluster.hosts[0])
    for _ in range(7):
        cluster.run_for(9.0)
        cluster.crash_shard(cluster.hosts[0])
    assert state(cluster) == HostStates.LOST


def test_a_host_that_is_no_more_is_no_room_for_anybody() -> None:
    cluster = CheckedCluster(hosts=2, setup=ClusterSetup(fates=lambda run: Fate(None)))
    job = cluster.create_job(job_spec(8))
    cluster.run_for(1.0)
    gone = cluster.hosts[0]
    cluster.tell(gone, m.HostGone())
    cluster.run_for(5.0)
    assert cluster.counts(job) == {"RUNNING": 4, "PENDING": 4}
    assert cluster.machines.used(gone) == Resources(), "what it ran is killed"
    reasons = {view.because for view in cluster.instances(job, 8) if view.state != "RUNNING"}
    assert all("2" not in reason for reason in reasons), reasons
    placed = cluster.placers["d1"].placer.index
    assert int(placed.has_host.sum()) == 1, "the placer has heard of it"
    cluster.crash_shard(gone)
    cluster.run_for(5.0)
    assert int(placed.has_host.sum()) == 1, "and does not again"


def test_kills_that_were_lost_with_the_shard_are_given_again() -> None:
    """The host was removed, and its shard died before the order to kill left."""
    cluster = CheckedCluster(hosts=1, setup=ClusterSetup(fates=lambda run: Fate(None)))
    cluster.create_job(job_spec(2))
    cluster.run_for(1.0)
    host = cluster.hosts[0]
    cluster.machines.cut_off[host] = None
    cluster.tell(host, m.HostGone())
    cluster.run_for(1.0)
    assert len(cluster.machines.running) == 2, "the order was lost"
    cluster.machines.cut_off.clear()
    cluster.crash_shard(host)
    cluster.run_for(1.0)
    assert not cluster.machines.running


def test_an_end_that_nobody_heard_has_its_own_time() -> None:
    """The machine could not be asked when the run ended: clients see when it did, for good."""
    cluster = CheckedCluster(hosts=1, setup=ClusterSetup(fates=lambda run: Fate(3.0)))
    job = cluster.create_job(job_spec(2))
    cluster.run_for(1.0)
    began = cluster.world.now
    cluster.cut(cluster.hosts[0])
    cluster.run_for(30.0)
    cluster.mend(cluster.hosts[0])
    cluster.run_until(cluster.over, within_s=5.0)
    ends = [view.ended_at for view in cluster.instances(job, 2)]
    assert all(began + 1.9 < at < began + 2.2 for at in ends if at), (began, ends)
    cluster.crash_shard(job)
    cluster.run_for(5.0)
    assert [view.ended_at for view in cluster.instances(job, 2)] == ends
