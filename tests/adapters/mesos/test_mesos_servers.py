"""A real Mesos as tests start it: killed, restarted, frozen, elected; and pymesos on it.

Mesos itself is not tested, only that the fixture does what it says, and leaves nothing behind.
"""

from __future__ import annotations

import http.client
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from peloton.backends.mesos.masters.agent_book import AgentBook
from peloton.backends.mesos.masters.leading_master import LeadingMaster
from peloton.backends.mesos.masters.operator_api import Credential, HttpDoor
from tests.begun_process import begun_process
from tests.contracts.mesos_calls import Run, framework
from tests.servers import leftovers, mesos_home, zookeeper
from tests.servers.cache import NotInstalled
from tests.servers.mesos import ASKED_TOO_EARLY, Mesos, MesosServer, until
from tests.servers.process import ServerFailed
from tests.servers.pymesos_client import Client
from tests.servers.v1_client import PATH


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mesos]:
    mesos_home.needed_home()
    started = Mesos.start(tmp_path_factory.mktemp("mesos"), agents=2)
    yield started
    started.stop()
    assert leftovers.below(started.folder) == []


def test_a_switchboard_of_an_agent_that_is_gone_is_ended(tmp_path: Path) -> None:
    """It knows no sandbox, and waits for good; one that works elsewhere is another's."""
    ours, other = tmp_path / "mesos" / "agent1", tmp_path / "mesos2"
    begun: list[subprocess.Popen[bytes]] = []
    for folder in (ours, other):
        folder.mkdir(parents=True)
        begun.append(begun_process(leftovers.SWITCHBOARD.decode(), cwd=folder))
    try:
        assert leftovers.below(tmp_path / "mesos") == [begun[0].pid] == leftovers.below(ours)
        leftovers.end_below(tmp_path / "mesos")
        assert begun[0].wait(30) == -signal.SIGKILL and begun[1].poll() is None
    finally:
        for process in begun:
            process.kill()
            process.communicate()


class _EndsFirst(MesosServer):
    """Ends with `words` as its last ones where it runs for the first time, then stays."""

    name = "ends-first"

    def __init__(self, folder: Path, words: str) -> None:
        super().__init__(folder, 0)
        self.words = words

    def command(self) -> list[str]:
        begins = 'echo "it started on a port"; exec sleep 600'
        script = 'if mkdir begun; then echo "$0"; exit 1; fi; ' + begins
        return ["/bin/sh", "-c", script, self.words]

    def serves(self) -> bool:
        return True


def test_a_server_that_was_asked_too_early_is_started_again(tmp_path: Path) -> None:
    early, other = _EndsFirst(tmp_path / "early", ASKED_TOO_EARLY), _EndsFirst(tmp_path / "o", "?")
    try:
        early.launch()
        early.wait_until_ready()
        other.launch()
        with pytest.raises(ServerFailed, match="ended with 1 before"):
            other.wait_until_ready()
    finally:
        early.kill()
        other.kill()


def test_a_server_is_asked_only_once_it_said_again_that_it_started(tmp_path: Path) -> None:
    server = _EndsFirst(tmp_path / "server", "it started on a port, said its first life")
    server.launch()
    try:
        assert server.process is not None
        server.process.wait()
        assert server.answers()
        server.process = None
        (server.folder / "begun").rmdir()
        server.words = "nothing yet"
        server.launch()
        assert server.process is not None
        server.process.wait()
        assert not server.answers(), "what an earlier life said is not of this one"
    finally:
        server.process = None


def test_a_container_that_its_agent_has_not_let_begin_is_ended(tmp_path: Path) -> None:
    """It has none of the variables of a task yet, and where its agent is killed it stays."""
    at = tmp_path / "mesos" / "agent1" / "run" / "containers" / "c1"
    variables = {"MESOS_CONTAINERIZER_RUNTIME_DIRECTORY": str(at)}
    with begun_process("mesos-containerizer", cwd=tmp_path, env=variables) as process:
        try:
            assert leftovers.below(tmp_path / "mesos2") == []
            leftovers.end_below(tmp_path / "mesos")
            assert process.wait(30) == -signal.SIGKILL
        finally:
            process.kill()


def test_each_agent_is_a_machine_of_its_own(cluster: Mesos) -> None:
    assert {*cluster.registered()} == {"h1", "h2"}
    assert {agent.port for agent in cluster.agents}.isdisjoint({cluster.leader().port})


def test_pymesos_runs_a_task_to_its_end(cluster: Mesos) -> None:
    client = Client(cluster.address, framework())
    try:
        client.next("registered")
        offer = client.next("offers")[0]
        task = {
            "name": "a", "task_id": {"value": "a"}, "agent_id": offer["agent_id"],
            "command": {"value": "true"},
            "resources": [
                {"name": name, "type": "SCALAR", "scalar": {"value": value}}
                for name, value in (("cpus", 0.1), ("mem", 32))
            ],
        }  # fmt: skip
        client.call("launchTasks", offer["id"], [task])
        states = []
        while not states or states[-1] != "TASK_FINISHED":
            status = client.next("update")
            states.append(status["state"])
            client.call("acknowledgeStatusUpdate", status)
        assert states == ["TASK_STARTING", "TASK_RUNNING", "TASK_FINISHED"]
    finally:
        client.close()


def test_a_killed_agent_comes_back_as_what_it_was_and_with_its_task(cluster: Mesos) -> None:
    run = Run(cluster.leader().port, framework())
    run.subscribe()
    try:
        run.next("OFFERS")
        offer = run.offers[0]
        run.agent_id = offer["agent_id"]
        run.launch("kept", "sleep 1000", offer=offer["id"]["value"])
        run.updates("kept", 2)
        agent = next(one for one in cluster.agents if one.hostname == offer["hostname"])
        before = cluster.registered()[agent.hostname]
        agent.kill()
        assert leftovers.below(agent.folder)  # the executor goes on
        assert cluster.restart(agent) == before
        run.reconcile(("kept", True))
        run.updates("kept")
        # From the master, or once more from the agent, if it was killed before the acknowledgement.
        event = [note["event"] for note in run.notes if "event" in note][-1]
        assert event["update"]["status"]["state"] == "TASK_RUNNING"
        agent.kill()
        assert cluster.restart(agent, recover=False) != before
        assert leftovers.below(agent.folder) == []
        run.call("TEARDOWN")
    finally:
        run.close()


def test_a_frozen_agent_is_removed_and_comes_back(cluster: Mesos) -> None:
    agent = cluster.agents[1]
    agent.pause()
    cluster.wait_gone(agent)
    agent.go_on()
    cluster.wait_registered([agent])


def test_a_killed_master_comes_back_with_its_agents(cluster: Mesos) -> None:
    before = cluster.registered()
    cluster.leader().kill()
    cluster.masters[0].restart()
    assert cluster.wait_registered(cluster.agents) == before


@pytest.mark.slow
def test_a_standby_takes_over(tmp_path: Path) -> None:
    mesos_home.needed_home()
    server = zookeeper.shared()
    cluster = Mesos.start(tmp_path / "elected", masters=3, zookeeper=server.address)
    try:
        first = cluster.leader()
        standby = next(master for master in cluster.masters if master is not first)
        connection = http.client.HTTPConnection("127.0.0.1", standby.port)
        connection.request("POST", PATH, body="{}", headers={"Content-Type": "application/json"})
        answer = connection.getresponse()
        location = f"//{first.address}/master{PATH}"
        assert (answer.status, answer.getheader("Location")) == (307, location)
        connection.close()
        agent = HttpDoor("127.0.0.1", cluster.agents[0].port, "h1")
        places = cluster.address, standby.address
        books = [AgentBook(LeadingMaster(where, Credential())) for where in places]
        for book in books:
            assert book.door_of("h1") == agent
            assert book.leader is not None and str(book.leader) == first.address
        first.kill()
        until(lambda: cluster.leader() is not first or None, "no other leads")
        cluster.wait_registered(cluster.agents)
        books[0].doubt("h1")
        assert books[0].door_of("h1") == agent
        assert str(books[0].leader) == cluster.leader().address
    finally:
        cluster.stop()


PROGRAM = """
import os, sys
from pathlib import Path
from peloton.backends.mesos.masters.agent_book import AgentBook
from peloton.backends.mesos.masters.operator_api import Credential, HttpDoor
from tests.contracts.mesos_calls import Run, framework
from tests.servers.mesos import Mesos

cluster = Mesos.start(Path(sys.argv[1]))
run = Run(cluster.leader().port, framework())
run.subscribe()
run.next("OFFERS")
run.agent_id = run.offers[0]["agent_id"]
run.launch("left", "sleep 1000", offer=run.offers[0]["id"]["value"])
run.updates("left", 2)
os.kill(os.getpid(), 9)
"""


def test_nothing_outlives_tests_that_die(tmp_path: Path, root: Path) -> None:
    mesos_home.needed_home()
    words = [sys.executable, "-c", PROGRAM, str(tmp_path / "mesos")]
    done = subprocess.run(words, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == -9, done.stderr

    def none() -> bool | None:
        words = ("environ", "cmdline")
        for entry in Path("/proc").iterdir():
            for word in words if entry.name.isdigit() else ():
                try:
                    if bytes(tmp_path) in (entry / word).read_bytes():
                        return None
                except OSError:
                    continue
        return True

    until(none, "something is left")


def test_what_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MESOS_HOME", str(tmp_path))
    mesos_home.home.cache_clear()
    try:
        with pytest.raises(NotInstalled, match="is no Mesos: it has no sbin/mesos-master"):
            mesos_home.home()
        with pytest.raises(pytest.skip.Exception, match="is no Mesos"):
            mesos_home.needed_home()
    finally:
        mesos_home.home.cache_clear()
