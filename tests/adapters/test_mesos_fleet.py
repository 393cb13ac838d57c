"""Two daemons of a fleet whose hosts are the agents of a real Mesos, and what dies meanwhile.

The tasks' own notes say how often each ran, and their exit codes are known: no run twice, none
lost, whichever daemon, master or agent dies. It must not look into a daemon.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from peloton.api.v0.task import task_pb2
from tests.adapters.test_daemon_servers import Cluster, cluster, owners, patiently
from tests.adapters.test_daemon_wiring import until
from tests.channels import channel_to
from tests.cli.terminal import typed
from tests.e2e.cluster import until_there
from tests.gateway.fleet_fixture import Deployment, default_config, named
from tests.servers import mesos_home
from tests.servers.mesos import ROOMY, Mesos, ask

__all__ = ["cluster"]
AGENTS, INSTANCES = 2, 24
CPU = 0.1
TASK = task_pb2.TaskState


@pytest.fixture
def mesos(tmp_path: Path) -> Iterator[Mesos]:
    mesos_home.needed_home()
    found = Mesos(tmp_path / "mesos", agents=AGENTS, resources=ROOMY)
    try:
        found.launch()
        yield found
    finally:
        found.stop()


class OnMesos(Cluster):
    """The same daemons, with other hosts."""

    master = ""

    def settings(self) -> dict[str, Any]:
        return super().settings() | {"backend": {"mesos": {"master": self.master}}}


@pytest.fixture
def daemons(cluster: Cluster, mesos: Mesos) -> OnMesos:
    return on(cluster, mesos)


def on(cluster: Cluster, mesos: Mesos) -> OnMesos:
    """The same daemons on hosts of Mesos."""
    cluster.__class__ = OnMesos
    assert isinstance(cluster, OnMesos)
    cluster.master = mesos.address
    return cluster


def subscribed(mesos: Mesos) -> list[dict[str, Any]]:
    """The frameworks that the master hears."""
    state = ask(mesos.leader().port, "/frameworks") or {"frameworks": []}
    return [one for one in state["frameworks"] if one["connected"]]


def noting(folder: Path, gate: Path) -> task_pb2.TaskConfig:
    """Tasks that note their run, wait for the gate, and fail by their number."""
    config = default_config()
    config.resource.cpuLimit, config.resource.memLimitMb = CPU, 16.0
    code = "exit $((PELOTON_INSTANCE_ID % 3))"
    config.command.value = f"echo $PELOTON_POD_ID >> {folder}/ran; {until_there(gate)}; {code}"
    return config


class Job:
    """One job at one daemon."""

    def __init__(
        self, deployment: Deployment, config: task_pb2.TaskConfig, count: int = INSTANCES
    ) -> None:
        self._deployment = deployment
        request = deployment.request(count, defaultConfig=config)
        self.name = patiently(lambda: deployment.create(request))

    def counts(self, deployment: Deployment | None = None) -> dict[str, int]:
        """Instances by state, but those of none."""
        at = deployment or self._deployment
        found = patiently(lambda: at.job(self.name)).runtime.taskStats
        return {state: count for state, count in found.items() if count}

    def codes(self, deployment: Deployment) -> dict[int, int]:
        """The exit code of each instance."""
        request = task_pb2.ListRequest(jobId=named(self.name))
        found = patiently(lambda: deployment.tasks.List(request)).result.value
        return {
            number: one.runtime.terminationStatus.exit_code if one.runtime.state == TASK.FAILED
            else {TASK.SUCCEEDED: 0}[one.runtime.state]
            for number, one in found.items()
        }  # fmt: skip


def each_ran_once(folder: Path, job: str, count: int = INSTANCES) -> None:
    runs = sorted((folder / "ran").read_text().split())
    assert runs == sorted(f"{job}-{number}-1" for number in range(count))


def raised(cluster: Cluster) -> None:
    """What hosts of Mesos need is of a feature level that a new fleet does not have."""
    printed = typed("features", "raise", "--config", str(cluster.folder / "two.yaml"))
    assert printed.code == 0, printed.err


ENDED = {"SUCCEEDED": INSTANCES // 3, "FAILED": INSTANCES - INSTANCES // 3}
CODES = {number: number % 3 for number in range(INSTANCES)}


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


def subscriber(mesos: Mesos, processes: dict[str, Any]) -> str:
    """The daemon that has a connection to the master."""
    ports = {f"{mesos.leader().port:04X}"}
    inodes = set()
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        words = line.split()
        if words[2].rpartition(":")[2] in ports and words[3] == "01":
            inodes.add(f"socket:[{words[9]}]")
    for name, process in processes.items():
        for file in Path(f"/proc/{process.pid}/fd").iterdir():
            try:
                if str(file.readlink()) in inodes:
                    return name
            except OSError:  # it was closed meanwhile
                continue
    raise AssertionError(json.dumps(subscribed(mesos)))


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
