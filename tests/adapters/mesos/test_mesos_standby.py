"""Masters that ZooKeeper elects, and agents that are silent for a while: the tasks go on.

Tasks note their runs and have exit codes that are known, so none was lost or doubled unseen.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from peloton.actors.host.messages import UNREACHABLE_TIMEOUT_S
from peloton.assembly.daemon import Daemon
from peloton.assembly.readiness import Readiness
from peloton.runtime.vocabulary import key
from peloton.settings.daemon import parse
from tests.adapters.mesos.mesos_jobs import (
    CODES,
    ENDED,
    INSTANCES,
    Job,
    each_ran_once,
    noting,
    running,
    running_at,
    runs_noted,
)
from tests.adapters.test_daemon_wiring import until
from tests.channels import channel_to
from tests.gateway.fleet_fixture import Deployment
from tests.gateway.fleet_fixture import until as patiently_until
from tests.servers import zookeeper
from tests.servers.mesos import Agent, Mesos
from tests.servers.mesos_home import needed_home


@contextlib.contextmanager
def serving(folder: Path, mesos: Mesos) -> Iterator[Deployment]:
    """A daemon that is alone, with all agents as hosts."""
    raw: dict[str, Any] = {
        "cluster": "test",
        "listen": dict.fromkeys(("grpc", "http"), "127.0.0.1:0"),
        "journal": {"sqlite": {"folder": "data"}},
        "backend": {"mesos": {"master": mesos.address}},
        "shards": {"jobmgr": 1, "hostmgr": 2},
    }
    daemon = Daemon(parse(raw, folder), failed=lambda: None)
    try:
        hosts = [key("host", f"mesos.{agent.hostname}") for agent in mesos.agents]
        known = Readiness(daemon._region, daemon._inventories)
        until(lambda: known.all_up(hosts, alone=True))
        with channel_to(daemon.grpc) as channel:
            yield Deployment(daemon._region, channel, http=daemon.http)
    finally:
        daemon.stop()


def busiest(mesos: Mesos) -> Agent:
    """The agent with the most tasks."""
    counts = Counter(running_at(mesos).values())
    ids = mesos.registered()
    return max(mesos.agents, key=lambda agent: counts[ids[agent.hostname]])


@pytest.mark.timeout(300)
def test_tasks_outlive_the_master_that_leads(tmp_path: Path) -> None:
    needed_home()
    server, gate = zookeeper.shared(), tmp_path / "gate"
    with (
        running(tmp_path / "elected", masters=2, zookeeper=server.address) as mesos,
        serving(tmp_path, mesos) as deployment,
    ):
        job = Job(deployment, noting(tmp_path, gate))
        until(lambda: job.counts() == {"RUNNING": INSTANCES})
        first = mesos.leader()
        first.kill()
        until(lambda: mesos.leader() is not first)
        mesos.wait_registered(mesos.agents)
        assert job.counts() == {"RUNNING": INSTANCES}
        gate.touch()
        until(lambda: job.counts() == ENDED)
        assert job.codes(deployment) == CODES
    each_ran_once(tmp_path, job.name)


@pytest.fixture
def mesos(tmp_path: Path) -> Iterator[Mesos]:
    with running(tmp_path / "mesos") as found:
        yield found


@pytest.mark.timeout(300)
def test_an_agent_that_is_silent_for_a_while_keeps_its_tasks(mesos: Mesos, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with serving(tmp_path, mesos) as deployment:
        job = Job(deployment, noting(tmp_path, gate))
        until(lambda: job.counts() == {"RUNNING": INSTANCES})
        agent = busiest(mesos)
        agent.pause()
        mesos.wait_gone(agent)
        gate.touch()  # what ends on it meanwhile is told when it is back
        agent.go_on()
        until(lambda: job.counts() == ENDED)
        assert job.codes(deployment) == CODES
    each_ran_once(tmp_path, job.name)


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_an_agent_that_is_silent_for_too_long_ends_what_was_begun_anew_elsewhere(
    mesos: Mesos, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    with serving(tmp_path, mesos) as deployment:
        job = Job(deployment, noting(tmp_path, gate))
        until(lambda: job.counts() == {"RUNNING": INSTANCES})
        before, agent = {*running_at(mesos)}, busiest(mesos)
        agent.pause()
        mesos.wait_gone(agent)
        assert len(running_at(mesos)) < INSTANCES
        patiently_until(
            lambda: len(running_at(mesos)) == INSTANCES, within_s=2 * UNREACHABLE_TIMEOUT_S
        )
        anew = running_at(mesos).keys() - before
        assert anew and all(name.endswith("-2") for name in anew)
        agent.go_on()
        mesos.wait_registered([agent])
        until(lambda: len(running_at(mesos)) == INSTANCES)
        gate.touch()
        until(lambda: job.counts() == ENDED)
        assert job.codes(deployment) == CODES
    assert runs_noted(tmp_path) == sorted({*before, *anew}), "each run began once"
