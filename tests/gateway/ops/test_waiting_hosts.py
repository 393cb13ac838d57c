"""Hosts that wait for a person are shown by health, though their daemon is ready."""

from __future__ import annotations

from peloton.actors.host.messages import ConfigureHost
from peloton.actors.job.messages import StopJob
from peloton.chaos.cluster.checked import CheckedCluster
from peloton.chaos.cluster.world.cluster import HOST_CAPACITY, ClusterSetup, job_spec
from peloton.chaos.cluster.world.machines import Fate
from peloton.gateway.ops.health_notes import SHOWN_MAX, waiting_hosts
from peloton.runtime.vocabulary import Key, key

OTHER = key("backend", "other")
HOSTS_HERE = SHOWN_MAX + 2


def configure(cluster: CheckedCluster, hosts: list[Key], backend: Key) -> None:
    """A daemon starts, and brings this backend for them."""
    for host in hosts:
        cluster.tell(host, ConfigureHost(HOST_CAPACITY, (), backend))


def shown(cluster: CheckedCluster) -> list[str]:
    """What each daemon shows of hosts."""
    found = [waiting_hosts(daemon.region) for daemon in cluster.world.living()]
    return [str(reason) for reasons in found for reason in reasons]


def test_a_host_that_waits_for_a_person_is_shown_until_it_does_not() -> None:
    setup = ClusterSetup(fates=lambda run: Fate(None))
    cluster = CheckedCluster(hosts=HOSTS_HERE, setup=setup)
    job = cluster.create_job(job_spec(HOSTS_HERE * 4))
    cluster.run_until(lambda: len(cluster.machines.running) == HOSTS_HERE * 4)
    (daemon,) = cluster.world.living()
    assert shown(cluster) == []

    cluster.cut(cluster.hosts[0])
    cluster.run_for(5)
    assert shown(cluster) == [], "its backend may come back by itself"
    cluster.mend(cluster.hosts[0])
    cluster.run_for(5)

    configure(cluster, cluster.hosts[:1], OTHER)
    cluster.run_until(lambda: bool(shown(cluster)), within_s=1)
    (line,) = shown(cluster)
    assert line.startswith("hosts: 1 wait for a person: h0: a daemon brings backend/other for this")
    assert daemon.region.health() == (True, []), "it serves everything else"
    cluster.crash_shard(cluster.hosts[0])
    assert shown(cluster) == [line], "also after a recovery"

    # Here the own backend is there as well: a host that asks it again is soon up.
    cluster.run_until(lambda: not shown(cluster), within_s=30)
    configure(cluster, cluster.hosts, OTHER)
    all_wait = f"hosts: {HOSTS_HERE} wait for a person: "
    cluster.run_until(lambda: all_wait in str(shown(cluster)), within_s=1)
    (line,) = shown(cluster)
    assert line.count("a daemon brings") == SHOWN_MAX and line.endswith("; and 2 more")

    cluster.run_until(lambda: not shown(cluster), within_s=30)
    cluster.order(job, StopJob())
    cluster.run_until(cluster.over)
    cluster.run_for(40)
    cluster.check_quiet()


def test_a_host_is_shown_by_the_daemon_of_its_shard() -> None:
    setup = ClusterSetup(fates=lambda run: Fate(None))
    cluster = CheckedCluster(daemons=2, hosts=2, setup=setup)
    cluster.create_job(job_spec(8))
    cluster.run_until(lambda: len(cluster.machines.running) == 8)
    configure(cluster, cluster.hosts[:1], OTHER)
    cluster.run_until(lambda: len(shown(cluster)) == 1, within_s=1)
