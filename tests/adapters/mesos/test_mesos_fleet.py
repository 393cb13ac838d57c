"""Two daemons of a fleet whose hosts are the agents of a real Mesos, and what dies meanwhile.

The tasks' own notes say how often each ran, and their exit codes are known: no run twice, none
lost, whichever daemon, master or agent dies.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.adapters.mesos.mesos_jobs import (
    CODES,
    ENDED,
    INSTANCES,
    Job,
    OnMesos,
    each_ran_once,
    noting,
    on,
    raised,
    running,
    subscribed,
    subscriber,
)
from tests.adapters.test_daemon_servers import Cluster, cluster, owners, patiently
from tests.adapters.test_daemon_wiring import until
from tests.channels import channel_to
from tests.gateway.fleet_fixture import Deployment
from tests.servers.mesos import Mesos

__all__ = ["cluster"]


@pytest.fixture
def mesos(tmp_path: Path) -> Iterator[Mesos]:
    with running(tmp_path / "mesos") as found:
        yield found


@pytest.fixture
def daemons(mesos: Mesos, cluster: Cluster) -> OnMesos:
    """Where there is no Mesos, no other server is started either."""
    return on(cluster, mesos)


@pytest.mark.timeout(300)
def test_no_run_is_lost_or_doubled_when_the_subscribed_daemon_dies(
    daemons: OnMesos, mesos: Mesos, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    processes = {}
    processes["one"], at_one = daemons.start("one")
    processes["two"], at_two = daemons.start("two")
    until(lambda: len(set(owners(daemons.zookeeper))) == 2)
    raised(daemons)
    places = {"one": at_one, "two": at_two}
    found = until(lambda: [one for one in subscribed(mesos) if one["active"]])
    assert len(found) == 1, "only one daemon subscribes"
    with channel_to(at_one) as first, channel_to(at_two) as second:
        deployments = {
            name: patiently(lambda channel=channel: Deployment(None, channel, http=None))  # type: ignore[misc]
            for name, channel in (("one", first), ("two", second))
        }
        job = Job(deployments["one"], noting(tmp_path, gate))
        until(lambda: job.counts().get("RUNNING", 0) >= INSTANCES // 3)
        dead = subscriber(mesos, processes)
        (left,) = places.keys() - {dead}
        processes[dead].kill()
        processes[dead].wait()
        until(lambda: job.counts(deployments[left]) == {"RUNNING": INSTANCES})
        gate.touch()
        until(lambda: job.counts(deployments[left]) == ENDED)
        assert job.codes(deployments[left]) == CODES
    each_ran_once(tmp_path, job.name)


@pytest.mark.timeout(300)
def test_tasks_outlive_a_master_and_an_agent_that_recovers(
    daemons: OnMesos, mesos: Mesos, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    _, at_one = daemons.start("one")
    daemons.start("two")
    raised(daemons)
    with channel_to(at_one) as channel:
        deployment = patiently(lambda: Deployment(None, channel, http=None))
        job = Job(deployment, noting(tmp_path, gate))
        until(lambda: job.counts() == {"RUNNING": INSTANCES})
        mesos.leader().kill()
        mesos.masters[0].restart()
        agent = mesos.agents[0]
        agent.kill()
        mesos.restart(agent)
        mesos.wait_registered(mesos.agents)
        until(lambda: [one for one in subscribed(mesos) if one["active"]])
        gate.touch()
        until(lambda: job.counts() == ENDED)
        assert job.codes(deployment) == CODES
    each_ran_once(tmp_path, job.name)
