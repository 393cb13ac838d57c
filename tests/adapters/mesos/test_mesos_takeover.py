"""Two daemons, four agents, a master that leads and a standby, one ZooKeeper: and what dies of it.

Five hundred tasks go through all of that. No run twice, none lost, each end exact; a maintenance
that is begun is finished. The tests share the cluster: the second finds it whole, and leaves it
with one daemon.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import urllib.error
from collections import Counter
from collections.abc import Iterator, Set
from http import HTTPStatus
from pathlib import Path

import grpc
import pytest

from peloton.api.v0.job import job_pb2
from peloton.api.v0.task import task_pb2
from tests.adapters.mesos.mesos_jobs import (
    Job,
    OnMesos,
    closed,
    codes_of,
    deployed,
    ends_of,
    noting,
    on,
    raised,
    running,
    running_at,
    runs_noted,
    subscribed,
    subscriber,
    unlocked,
)
from tests.adapters.mesos.test_mesos_executor import executor_processes
from tests.adapters.mesos.test_mesos_maintenance import machines, state
from tests.adapters.test_daemon_servers import (
    cluster_in,
    owners,
    patient_command,
    patiently,
)
from tests.adapters.test_daemon_wiring import WAIT_S_MAX, until
from tests.channels import channel_to
from tests.e2e.cluster import until_there
from tests.gateway.fleet_fixture import Deployment, default_config
from tests.servers.mesos import Agent, Master, Mesos
from tests.servers.mesos_home import needed_home

AGENTS, TASKS, BEGUN = 4, 500, 100
EVERYWHERE = job_pb2.PLACEMENT_STRATEGY_SPREAD_JOB
pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


class Fleet:
    """The daemons, and what they need."""

    def __init__(self, daemons: OnMesos, mesos: Mesos) -> None:
        self.daemons, self.mesos = daemons, mesos
        self._processes: dict[str, subprocess.Popen[str]] = {}
        self._channels: dict[str, grpc.Channel] = {}
        self._deployments: dict[str, Deployment] = {}
        self._stack = contextlib.ExitStack()
        self.places: dict[str, str] = {}

    def start(self, name: str) -> None:
        """One more daemon, or one of before."""
        self._processes[name], self.places[name] = self.daemons.start(name)
        self._channels[name] = self._stack.enter_context(channel_to(self.places[name]))

    @property
    def ask(self) -> Deployment:
        """What clients of a daemon that lives see."""
        name = next(iter(self.places))
        if name not in self._deployments:
            channel = self._channels[name]
            self._deployments[name] = until(lambda: patiently(lambda: deployed(channel)))
        return self._deployments[name]

    def kill_subscribed(self) -> str:
        """`kill -9` of the daemon that has the subscription; its name."""
        dead = subscriber(self.mesos, {name: self._processes[name] for name in self.places})
        self._processes[dead].kill()
        self._processes[dead].wait()
        self.places.pop(dead)
        self._deployments.pop(dead, None)
        return dead

    def say(self, *words: str) -> str:
        """What a command prints at a daemon that lives, typed again while shards move."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PELOTON_API", next(iter(self.places.values())))
            return patient_command(*words).out

    def wait_subscribed(self) -> None:
        until(lambda: [one for one in subscribed(self.mesos) if one["active"]])

    def wait_host(self, agent: Agent, wanted: str = "UP") -> None:
        until(lambda: state(f"mesos.{agent.hostname}", self.say), lambda found: found == wanted)

    def close(self) -> None:
        self._stack.close()


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    needed_home()
    folder = tmp_path_factory.mktemp("fleet")
    with (
        cluster_in(folder, of=__name__) as cluster,
        running(
            folder / "mesos", agents=AGENTS, masters=2, zookeeper=cluster.zookeeper.address
        ) as mesos,
    ):
        found = Fleet(on(cluster, mesos), mesos)
        found.start("two")
        until(lambda: owners(cluster.zookeeper))
        raised(cluster)
        found.wait_subscribed()  # it has read the level
        found.start("one")  # which reads it at once: its hosts tell what they run, so all get some
        until(lambda: len({*owners(cluster.zookeeper)}) == len(found.places))
        found.wait_subscribed()
        try:
            yield found
        finally:
            found.close()


# ---- five hundred tasks ----


def instance_of(run: str) -> int:
    """A run is named by its job, its instance, and the number of its attempt."""
    return int(run.split("-")[-2])


class Runs:
    """All instances run, and what becomes of their runs with each strike."""

    def __init__(self, mesos: Mesos) -> None:
        self._mesos = mesos
        self.now = self._all_run()
        self.begun = {*self.now}

    def _all_run(self, *, but: Set[str] = frozenset()) -> dict[str, str]:
        """Where each run is, once there is one of each instance, and none of these."""

        def fits(found: dict[str, str]) -> bool:
            return sorted(map(instance_of, found)) == [*range(TASKS)] and not but & found.keys()

        return dict(until(lambda: running_at(self._mesos), fits))

    def on(self, agent: Agent) -> set[str]:
        """The runs of an agent, which has some."""
        id_ = self._mesos.registered()[agent.hostname]
        found = {run for run, at in self.now.items() if at == id_}
        assert found
        return found

    def lose(self, lost: Set[str]) -> None:
        """These are over and begun anew, and all others are what they were."""
        before, self.now = self.now, self._all_run(but=lost)
        assert before.keys() - lost == before.keys() & self.now.keys()
        self.begun |= {*self.now}


def wait_leads(mesos: Mesos, *, but: Master) -> None:
    """Another master leads, and knows all agents."""
    until(lambda: mesos.leader() is not but)
    mesos.wait_registered(mesos.agents)


def test_whatever_dies_no_run_is_lost_or_doubled(fleet: Fleet, tmp_path: Path) -> None:
    mesos, gate = fleet.mesos, tmp_path / "gate"
    config = noting(tmp_path, gate, waits=unlocked(gate), cpu=0.02, memory_mb=8.0)
    for agent in mesos.agents:  # one that comes too late would have none of the runs
        fleet.wait_host(agent)
    with closed(gate) as open_gate:
        job = Job(fleet.ask, config, TASKS, placementStrategy=EVERYWHERE)
        until(lambda: job.counts(fleet.ask).get("RUNNING", 0) >= BEGUN)
        dead = fleet.kill_subscribed()
        assert len(runs_noted(tmp_path)) < TASKS, "it died amid launches"
        until(lambda: job.counts(fleet.ask) == {"RUNNING": TASKS})
        fleet.start(dead)
        runs = Runs(mesos)
        assert runs.begun == {f"{job.name}-{number}-1" for number in range(TASKS)}
        of_executor, of_agent, recovers, silent = mesos.agents

        lost = runs.on(of_executor)
        os.kill(executor_processes(of_executor.folder)[1], signal.SIGKILL)
        runs.lose(lost)

        recovers.kill()
        mesos.restart(recovers)
        runs.lose(set())

        lost = runs.on(of_agent)
        of_agent.kill()
        mesos.restart(of_agent, recover=False)
        runs.lose(lost)

        master = mesos.leader()
        master.kill()
        wait_leads(mesos, but=master)
        master.restart()
        silent.pause()
        mesos.wait_gone(silent)
        silent.go_on()
        mesos.wait_registered([silent])
        runs.lose(set())

        without_zookeeper(fleet)
        runs.lose(set())

        until(lambda: job.counts(fleet.ask) == {"RUNNING": TASKS})
        open_gate()
        until(lambda: sum(map(job.counts(fleet.ask).get, ("SUCCEEDED", "FAILED"), (0, 0))) >= BEGUN)
        dead = fleet.kill_subscribed()
        until(lambda: job.counts(fleet.ask) == ends_of(TASKS))
        assert job.codes(fleet.ask) == codes_of(TASKS)
    noted = Counter(runs_noted(tmp_path))
    assert {*noted} >= runs.begun and {*noted.values()} == {1}
    fleet.start(dead)


def without_zookeeper(fleet: Fleet) -> None:
    """It is away until the masters have given up, which whoever started them starts again."""
    server = fleet.daemons.zookeeper
    leads = fleet.mesos.leader()
    assert leads.process is not None
    server.kill()
    leads.process.wait(WAIT_S_MAX)
    for master in fleet.mesos.masters:
        master.kill()
    server.restart()
    for master in fleet.mesos.masters:
        master.launch()
    for master in fleet.mesos.masters:
        master.wait_until_ready()
    fleet.mesos.wait_registered(fleet.mesos.agents)


# ---- maintenance ----


def stubborn(agent: Agent, gate: Path) -> task_pb2.TaskConfig:
    """A task of this agent that ends, when it is asked to or not, once the gate is there."""
    config = default_config()
    config.command.value = f"trap '{until_there(gate)}; exit 1' TERM; {until_there(gate)}"
    config.constraint.type = task_pb2.Constraint.LABEL_CONSTRAINT
    label = config.constraint.labelConstraint
    label.kind = task_pb2.LabelConstraint.HOST
    label.condition = task_pb2.LabelConstraint.CONDITION_EQUAL
    label.label.key, label.label.value, label.requirement = "host", agent.hostname, 1
    return config


class Maintained:
    """A host, and the maintenance of it."""

    def __init__(self, fleet: Fleet, agent: Agent, gate: Path) -> None:
        self._fleet, self.agent, self.gate = fleet, agent, gate
        self._host = f"mesos.{agent.hostname}"
        self.wait("UP")
        self.job = Job(fleet.ask, stubborn(agent, gate), 1)
        until(lambda: self.job.counts(fleet.ask) == {"RUNNING": 1})

    def order(self, what: str) -> None:
        self._fleet.say("host", "maintenance", what, self._host)

    def wait(self, wanted: str) -> None:
        self._fleet.wait_host(self.agent, wanted)

    def comes_back(self) -> None:
        """Its agent was ended by the master, and is started; the task runs there again."""
        self.agent.kill()
        self._fleet.mesos.restart(self.agent)
        self.wait("UP")
        until(lambda: self.job.counts(self._fleet.ask) == {"SUCCEEDED": 1})


def maintained(mesos: Mesos) -> tuple[list[str], list[str]] | None:
    """As `machines`; None while who leads has just begun, and knows nothing yet."""
    try:
        return machines(mesos)
    except urllib.error.HTTPError as error:
        assert error.code == HTTPStatus.SERVICE_UNAVAILABLE
        return None


def test_a_maintenance_is_finished_whatever_dies(fleet: Fleet, tmp_path: Path) -> None:
    mesos = fleet.mesos
    one, two = (Maintained(fleet, each, tmp_path / each.hostname) for each in mesos.agents[:2])

    one.order("start")
    until(lambda: maintained(mesos) == (["h1"], []))
    one.wait("DRAINING")
    dead = fleet.kill_subscribed()
    one.gate.touch()
    one.wait("DOWN")
    assert maintained(mesos) == (["h1"], ["h1"])
    mesos.wait_gone(one.agent)
    fleet.start(dead)

    two.order("start")
    until(lambda: maintained(mesos) == (["h1", "h2"], ["h1"]))
    two.wait("DRAINING")
    master = mesos.leader()
    master.kill()
    two.gate.touch()
    until(lambda: mesos.leader() is not master)
    two.wait("DOWN")
    assert maintained(mesos) == (["h1", "h2"], ["h1", "h2"])
    mesos.wait_gone(two.agent)

    leads = mesos.leader()
    leads.kill()
    one.order("complete")  # nobody leads
    # The other one's log ends where it died. With it a quorum of one may choose that, and lose what
    # was written since: the one that has it all leads alone before there is a standby again.
    leads.restart()
    until(lambda: maintained(mesos) == (["h2"], ["h2"]))
    master.restart()
    one.comes_back()

    two.order("complete")
    fleet.kill_subscribed()
    until(lambda: maintained(mesos) == ([], []))
    two.comes_back()
