"""A host that fails whatever runs on it is left out, and the storms' check of that can fail.

Chance is not enough: storms rarely have work left once a quarantine is known everywhere.
"""

from __future__ import annotations

import msgspec
import pytest

from peloton.actors.host.machine_messages import VolumeConfig
from peloton.actors.host.messages import CompleteMaintenance, StartMaintenance
from peloton.actors.host.stages import Maintenance
from peloton.actors.job.messages import StartJob, StopJob
from peloton.actors.job.stages import TERMINAL_JOB_STATES
from peloton.actors.resources import UNIT, Resources
from peloton.chaos.cluster.checked import CheckedCluster
from peloton.chaos.cluster.work.quarantining import HOSTS_MIN, QUARANTINED_AFTER, TOLD_S_MAX
from peloton.chaos.cluster.work.stateful import free_homes
from peloton.chaos.cluster.world.cluster import ClusterSetup, job_spec
from peloton.chaos.cluster.world.machines import Fate
from peloton.placement.quarantines import Quarantines
from peloton.runtime.simulation.scan import Contradiction
from peloton.runtime.vocabulary import Key
from tests.worlds.planted import Planted, planted

FOR_EVER = Fate(None)


def quarantining_cluster() -> CheckedCluster:
    """Runs of a job `s` never end, those of others after a second."""

    def fate(run: str) -> Fate:
        return FOR_EVER if "s-" in run else Fate(1.0)

    setup = ClusterSetup(fates=fate, quarantine_after=QUARANTINED_AFTER)
    return CheckedCluster(hosts=HOSTS_MIN, setup=setup)


def quarantined() -> tuple[CheckedCluster, Key]:
    """A cluster that has known for a while that one of its hosts fails everything."""
    cluster = quarantining_cluster()
    host = cluster.hosts[0]
    fail_all(cluster, host)
    return cluster, host


def fail_all(cluster: CheckedCluster, host: Key) -> None:
    """Have this host fail everything, until that is known everywhere."""
    cluster.machines.spoiled[host] = None
    for number in range(4):
        on_each(cluster, f"a{number}")
    assert cluster.checks is not None
    assert [*cluster.checks.promises.quarantines.known] == [host]
    cluster.machines.spoiled.clear()
    cluster.run_for(TOLD_S_MAX + 5.0)


def on_each(cluster: CheckedCluster, name: str) -> None:
    spread = msgspec.structs.replace(job_spec(HOSTS_MIN), spread=True)
    job = cluster.create_job(spread, name)
    cluster.run_until(lambda: cluster.job(job).summary.state in TERMINAL_JOB_STATES)


def test_a_host_that_fails_everything_is_left_out() -> None:
    cluster, _ = quarantined()
    on_each(cluster, "b")
    cluster.check_quiet()


def test_one_that_is_not_left_out_is_noticed() -> None:
    with planted(Planted(Quarantines, "judge", lambda _: lambda found, up: [])):
        cluster, host = quarantined()
        with pytest.raises(Contradiction, match=f"^R27 {host} is in quarantine"):
            on_each(cluster, "b")


def waits_for_its_home() -> tuple[CheckedCluster, Key, Key]:
    """An instance whose volume is on a host that fails everything; its job and that host."""
    cluster = quarantining_cluster()
    spec = job_spec(1, resources=Resources(UNIT), volume=VolumeConfig("/data", 40))
    service = cluster.create_job(msgspec.structs.replace(spec, job_type="SERVICE"), "s")
    cluster.run_until(lambda: cluster.counts(service) == {"RUNNING": 1})
    home = Key(cluster.instances(service, 1)[0].host)
    fail_all(cluster, home)
    cluster.order(service, StopJob())
    cluster.run_until(lambda: cluster.counts(service) == {"KILLED": 1})
    cluster.order(service, StartJob())
    cluster.run_for(TOLD_S_MAX)
    assert cluster.counts(service) == {"PENDING": 1}
    why = cluster.instances(service, 1)[0]
    assert home.partition("/")[2] in f"{why}" and "quarantine" in f"{why}"
    return cluster, service, home


def test_an_instance_whose_volume_is_on_a_quarantined_host_waits_for_it() -> None:
    cluster, service, home = waits_for_its_home()

    def phase() -> Maintenance:
        return cluster.world.cells("host")[home].maintenance

    cluster.order(home, StartMaintenance(), keyed=False)
    cluster.run_until(lambda: phase() == Maintenance.DOWN)
    cluster.order(home, CompleteMaintenance(), keyed=False)
    cluster.run_until(lambda: cluster.counts(service) == {"RUNNING": 1}, within_s=60.0)
    assert cluster.instances(service, 1)[0].host == home


def test_in_the_calm_of_a_storm_it_waits_no_longer() -> None:
    cluster, service, home = waits_for_its_home()
    free_homes(cluster, cluster.world.now + 600.0)
    cluster.run_until(lambda: cluster.counts(service) == {"RUNNING": 1}, within_s=60.0)
    assert cluster.instances(service, 1)[0].host == home
    state = cluster.world.cells("host")[home]
    assert state.quarantine is None and state.maintenance == Maintenance.NONE
