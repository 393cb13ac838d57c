"""Jobs on a real Mesos whose tasks say how often they ran, and the daemons that are asked for them.

Each task notes its run, waits for a gate, and ends with a code that follows from its number: so
what was lost, doubled or told wrongly is seen from outside.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc

from peloton.api.v0.task import task_pb2
from tests.adapters.test_daemon_servers import Cluster, patiently
from tests.cli.terminal import typed
from tests.descriptors import held_by
from tests.e2e.cluster import until_there
from tests.gateway.fleet_fixture import Deployment, default_config, named
from tests.servers import mesos_home
from tests.servers.mesos import ROOMY, Mesos, ask

INSTANCES, CPU, MEMORY_MB = 24, 0.1, 16.0
TASK = task_pb2.TaskState


@contextlib.contextmanager
def running(
    folder: Path, *, agents: int = 2, masters: int = 1, zookeeper: str = ""
) -> Iterator[Mesos]:
    """A Mesos with room for many tasks, gone afterwards; its standbys need no majority."""
    mesos_home.needed_home()
    found = Mesos(
        folder, agents=agents, masters=masters, quorum=1, zookeeper=zookeeper, resources=ROOMY
    )
    try:
        found.launch()
        yield found
    finally:
        found.stop()


# ---- tasks ----


@contextlib.contextmanager
def closed(gate: Path) -> Iterator[Callable[[], None]]:
    """Who asks for a shared lock of the gate waits, and costs nothing, until it is opened."""
    with gate.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield lambda: fcntl.flock(held, fcntl.LOCK_UN)


def unlocked(gate: Path) -> str:
    """Words of a shell that wait for a gate that was `closed`."""
    return f"flock --shared {gate} true"


def noting(
    folder: Path, gate: Path, *, waits: str = "", cpu: float = CPU, memory_mb: float = MEMORY_MB
) -> task_pb2.TaskConfig:
    """Tasks that note their run, wait until the gate is there or as `waits` says, and fail by
    their number."""
    config = default_config()
    config.resource.cpuLimit, config.resource.memLimitMb = cpu, memory_mb
    code = "exit $((PELOTON_INSTANCE_ID % 3))"
    config.command.value = (
        f"echo $PELOTON_POD_ID >> {folder}/ran; {waits or until_there(gate)}; {code}"
    )
    return config


def codes_of(count: int) -> dict[int, int]:
    """The exit code of each instance."""
    return {number: number % 3 for number in range(count)}


def ends_of(count: int) -> dict[str, int]:
    """How many instances end how."""
    fine = sum(not code for code in codes_of(count).values())
    return {"SUCCEEDED": fine, "FAILED": count - fine}


CODES, ENDED = codes_of(INSTANCES), ends_of(INSTANCES)


def runs_noted(folder: Path) -> list[str]:
    """The names of all runs that began, as often as they did."""
    return sorted((folder / "ran").read_text().split())


def each_ran_once(folder: Path, job: str, count: int = INSTANCES) -> None:
    """Every instance had one run, which began once."""
    assert runs_noted(folder) == sorted(f"{job}-{number}-1" for number in range(count))


class Job:
    """One job at one daemon; `more` are other fields of its config."""

    def __init__(
        self, deployment: Deployment, config: task_pb2.TaskConfig, count: int = INSTANCES,
        **more: Any,
    ) -> None:  # fmt: skip
        self._deployment = deployment
        request = deployment.request(count, defaultConfig=config, **more)
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


def running_at(mesos: Mesos) -> dict[str, str]:
    """The tasks that run, as the master that leads knows, each with the id of its agent."""
    told = ask(mesos.leader().port, "/tasks?limit=1000") or {"tasks": []}
    found = [task for task in told["tasks"] if task["state"] == "TASK_RUNNING"]
    return {task["id"]: task["slave_id"] for task in found}


# ---- daemons ----


class OnMesos(Cluster):
    """The same daemons, with other hosts."""

    master = ""

    def settings(self) -> dict[str, Any]:
        return super().settings() | {"backend": {"mesos": {"master": self.master}}}


def on(cluster: Cluster, mesos: Mesos) -> OnMesos:
    """The same daemons on hosts of Mesos."""
    cluster.__class__ = OnMesos
    assert isinstance(cluster, OnMesos)
    cluster.master = mesos.address
    return cluster


def raised(cluster: Cluster) -> None:
    """What hosts of Mesos need is of a feature level that a new fleet does not have."""
    printed = typed("features", "raise", "--config", str(cluster.folder / "two.yaml"))
    assert printed.code == 0, printed.err


def deployed(channel: grpc.Channel) -> Deployment | None:
    """None before so many agents are known that its pool has room in the root's."""
    try:
        return Deployment(None, channel, http=None)
    except AssertionError as error:
        assert "exceeds limit" in str(error)
        return None


def subscribed(mesos: Mesos) -> list[dict[str, Any]]:
    """The frameworks that the master hears."""
    state = ask(mesos.leader().port, "/frameworks") or {"frameworks": []}
    return [one for one in state["frameworks"] if one["connected"]]


def subscriber(mesos: Mesos, processes: dict[str, Any]) -> str:
    """The daemon that has a connection to the master."""
    port, inodes = f"{mesos.leader().port:04X}", set()
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        words = line.split()
        if words[2].rpartition(":")[2] == port and words[3] == "01":
            inodes.add(f"socket:[{words[9]}]")
    for name, process in processes.items():
        if inodes & {*held_by(process.pid)}:
            return name
    raise AssertionError(json.dumps(subscribed(mesos)))
