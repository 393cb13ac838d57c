"""Masters that ZooKeeper elects, and agents that are silent for a while: the tasks go on.

Tasks note their runs and have exit codes that are known, so none was lost or doubled unseen. It
must not look into a daemon.
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
from tests.adapters.test_daemon_wiring import until
from tests.adapters.test_mesos_fleet import CODES, ENDED, INSTANCES, Job, each_ran_once, noting
from tests.channels import channel_to
from tests.gateway.fleet_fixture import Deployment
from tests.gateway.fleet_fixture import until as patiently_until
from tests.servers import mesos_home, zookeeper
from tests.servers.mesos import ROOMY, Agent, Mesos, ask


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


def running_at(mesos: Mesos) -> dict[str, str]:
    """The tasks that run, as the master that leads knows, each with the id of its agent."""
    told = ask(mesos.leader().port, "/tasks?limit=1000") or {"tasks": []}
    found = [task for task in told["tasks"] if task["state"] == "TASK_RUNNING"]
    return {task["id"]: task["slave_id"] for task in found}


def busiest(mesos: Mesos) -> Agent:
    """The agent with the most tasks."""
    counts = Counter(running_at(mesos).values())
    ids = mesos.registered()
    return max(mesos.agents, key=lambda agent: counts[ids[agent.hostname]])


@pytest.mark.timeout(300)
def test_tasks_outlive_the_master_that_leads(tmp_path: Path) -> None:
    mesos_home.needed_home()
    server, gate = zookeeper.shared(), tmp_path / "gate"
    mesos = Mesos(
        tmp_path / "elected", agents=2, masters=2, quorum=1, zookeeper=server.address,
        resources=ROOMY,
    )  # fmt: skip
    try:
        mesos.launch()
        with serving(tmp_path, mesos) as deployment:
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
    finally:
        mesos.stop()


@pytest.fixture
def mesos(tmp_path: Path) -> Iterator[Mesos]:
    mesos_home.needed_home()
    found = Mesos(tmp_path / "mesos", agents=2, resources=ROOMY)
    try:
        found.launch()
        yield found
    finally:
        found.stop()


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
    runs = (tmp_path / "ran").read_text().split()
    assert sorted(runs) == sorted({*before, *anew}), "each run began once"
