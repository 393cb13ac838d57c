"""The backup and the restore of a journal in Cassandra, as docs/fleet.md has them, on real servers.

The commands of the page are carried out, with names in place of its capitals. Two days of work go
on after the backup: one of jobs, where owners of shards change, and one of services and
maintenance, after which the machine of the keeper is lost as well.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import signal
import subprocess
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from peloton.cli.shared import exits
from peloton.runtime.adapters import cassandra_schema
from peloton.runtime.adapters.cassandra_session import CassandraSettings, connect
from peloton.sdk.client import Client
from peloton.sdk.errors import NotFound
from peloton.testing.serving_process import STOP_S_MAX
from tests import processes
from tests.adapters.test_daemon_wiring import SHARDS
from tests.cli.terminal import typed
from tests.conftest import ROOT
from tests.e2e import cluster as c
from tests.house import readme
from tests.servers import cache
from tests.servers.cassandra import EXPORTS, OPENS, QUICK_START, Cassandra
from tests.servers.patient import executed
from tests.servers.process import free_ports
from tests.servers.zookeeper import ZooKeeper

SNAPSHOT = "monday"
HOSTS = ("a", "b", "c")
PAGE = (ROOT / "docs" / "fleet.md").read_text()
BACKUP, RESTORE, LOST_KEEPER = readme.BLOCK.findall(PAGE.partition("\n## Backups\n")[2])[:3]


class Managed(Cassandra):
    """A Cassandra with the port that `nodetool` calls."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.management = free_ports(1)[0]

    def command(self) -> list[str]:
        java, *words = super().command()
        return [java, f"-Dcassandra.jmx.local.port={self.management}", *words]

    def nodetool(self, *words: str) -> None:
        """What the script of that name does in an installed Cassandra."""
        doors = [f"--add-exports={door}=ALL-UNNAMED" for door in EXPORTS]
        doors += [f"--add-opens={door}=ALL-UNNAMED" for door in OPENS]
        program = ("-cp", f"{cache.libraries()}/*", "org.apache.cassandra.tools.NodeTool")
        places = ("cassandra.storagedir", "user.home", "java.io.tmpdir")
        home = [f"-D{place}={self.folder}" for place in places]
        where = ("-h", "127.0.0.1", "-p", str(self.management))
        command = [cache.java(), QUICK_START, *doors, *home, *program, *where, *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (words, done.stdout, done.stderr)


class Fleet:
    """Two daemons on one machine, with servers of their own."""

    def __init__(
        self, folder: Path, cassandra: Managed, zookeeper: ZooKeeper, *, keyspace: str
    ) -> None:
        self.folder, self.cassandra, self.keyspace = folder, cassandra, keyspace
        self.kept = folder / "backup"
        self.keeper = folder / "keeper"
        self.file = folder / "one.yaml"
        self.running: dict[str, subprocess.Popen[str]] = {}
        self.addresses: dict[str, str] = {}
        where = {"contacts": ["127.0.0.1"], "port": cassandra.port, "keyspace": keyspace}
        settings = {
            "cluster": "west",
            "listen": dict.fromkeys(("exchange", "grpc", "http"), "127.0.0.1:0"),
            "zookeeper": {"hosts": [zookeeper.address], "session_timeout_s": 4.0},
            "journal": {"cassandra": where},
            "backend": {"process": {"folder": "keeper", "hosts": [{"name": n} for n in HOSTS]}},
            "shards": SHARDS,
        }
        for name in ("one", "two"):
            (folder / f"{name}.yaml").write_text(yaml.safe_dump(settings))

    def start(self, *names: str) -> Client:
        """These daemons, until all serve; a client of all that run."""
        for name in names:
            with (self.folder / f"{name}.errors").open("a") as errors:
                words = ("daemon", "--config", str(self.folder / f"{name}.yaml"))
                self.running[name] = subprocess.Popen(
                    [sys.executable, "-m", "peloton", *words],
                    stdout=subprocess.PIPE, stderr=errors, text=True, cwd=ROOT,
                )  # fmt: skip
        for name in names:
            stdout = self.running[name].stdout
            assert stdout is not None
            ready = stdout.readline().split()
            assert ready[:2] == ["ready:", "grpc"], self.errors()
            self.addresses[name] = ready[-1]
        return Client([self.addresses[name] for name in self.running], timeout_s=c.WAIT_MAX_S)

    def end(self, *names: str, by: int = signal.SIGTERM) -> None:
        """These daemons, or all."""
        for name in names or (*self.running,):
            process = self.running.pop(name)
            process.send_signal(by)
            process.communicate(timeout=STOP_S_MAX)

    def raise_level(self) -> None:
        """Until then instances cannot be restarted, nor hosts be maintained."""
        words = ("features", "raise", "--config", str(self.file))
        raised = typed(*words)
        while raised.code == exits.UNAVAILABLE:  # Cassandra did not answer in its time
            raised = typed(*words)
        assert raised.code == 0, raised

    def errors(self) -> str:
        return "".join(file.read_text() for file in self.folder.glob("*.errors"))

    # ---- the page ----

    def back_up(self) -> None:
        """The first block of the page."""
        (self.kept / "KEEPER").mkdir(parents=True)
        self._play(BACKUP)

    def restore(self, *, keeper: bool) -> None:
        """The other blocks; the last one where the keeper's folder is lost."""
        self._play(RESTORE)
        if keeper:
            self._play(LOST_KEEPER)

    def _play(self, block: str) -> None:
        for line in readme.commands(f"```bash\n{block}```"):
            for table in self._tables() if "TABLE" in line else [""]:
                self._do(self._named(line, table))

    def _tables(self) -> list[str]:
        return sorted(
            path.name.partition("-")[0]
            for path in self.cassandra.folder.glob(f"data/{self.keyspace}/*")
        )

    def _named(self, line: str, table: str) -> str:
        kept = line.replace("BACKUP/KEEPER", str(self.kept / "KEEPER"))
        names = {
            "DATA": str(self.cassandra.folder / "data"), "BACKUP": str(self.kept),
            "KEYSPACE": self.keyspace, "TABLE": table, "NAME": SNAPSHOT, "FILE": str(self.file),
        }  # fmt: skip
        named = re.sub(r"(?<!/)\bKEEPER\b", str(self.keeper), kept)
        return re.sub("|".join(names), lambda found: names[found[0]], named)

    def _do(self, line: str) -> None:
        program, _, rest = line.partition(" ")
        if program == "nodetool":
            self.cassandra.nodetool(*rest.split())
        elif program == "cqlsh":
            settings = CassandraSettings(port=self.cassandra.port)
            with contextlib.closing(connect(settings, keyspace=False)) as connected:
                executed(connected, rest.partition(" ")[2].strip('"'))
        elif program == "peloton":
            printed = typed(*rest.split())
            assert (printed.code, printed.err) == (0, ""), printed
        else:
            subprocess.run(line, shell=True, check=True)


@pytest.fixture(scope="module")
def cassandra(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Managed]:
    server = Managed(tmp_path_factory.mktemp("cassandra"))
    server.launch()
    server.wait_until_ready()
    yield server
    server.kill()
    shutil.rmtree(server.folder, ignore_errors=True)


@pytest.fixture
def fleet(tmp_path: Path, cassandra: Managed, request: pytest.FixtureRequest) -> Iterator[Fleet]:
    settings = CassandraSettings(port=cassandra.port)
    with contextlib.closing(connect(settings, keyspace=False)) as connected:
        keyspace = f"restored_{zlib.crc32(request.node.nodeid.encode())}"
        cassandra_schema.apply(connected, keyspace, replication={Cassandra.data_centre: 1})
    zookeeper = ZooKeeper.start(tmp_path / "zookeeper")
    made = Fleet(tmp_path, cassandra, zookeeper, keyspace=keyspace)
    try:
        yield made
    finally:
        made.end(by=signal.SIGKILL)
        zookeeper.kill()
        c.end_keeper(tmp_path)


def until_all_up(client: Client, *names: str) -> None:
    wanted = sorted(names)

    def up() -> bool:
        found = client.hosts.query(["up"]).host_infos
        return sorted(one.hostname for one in found) == wanted

    c.wait_for(up, f"{wanted} to be up")


def job(client: Client, command: str, **more: Any) -> str:
    return str(client.jobs.create("/tests", c.job(1, command, **more)).jobId.value)


def service_of(client: Client, command: str) -> str:
    """Daemons follow a raised level after a while."""
    return str(c.wait_for(lambda: job(client, command, type="SERVICE"), "services to be known"))


def run_of(client: Client, job_id: str) -> str:
    found = client.tasks.get(job_id, 0).result.runtime
    return str(found.mesosTaskId.value)


def until_it_runs(client: Client, *jobs: str) -> None:
    for each in jobs:
        c.wait_for(lambda each=each: c.counts(client, each)[1].get("RUNNING"), f"{each} to run")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_day_of_jobs_and_of_owners_that_change(fleet: Fleet) -> None:
    go, end = fleet.folder / "go", fleet.folder / "end"
    client = fleet.start("one", "two")
    fleet.raise_level()
    c.pool(client)
    service = service_of(client, c.until_there(go))
    goes_on = job(client, c.until_there(go))
    ends = job(client, f"echo >> {fleet.folder / 'ran'}; {c.until_there(end)}")
    done = job(client, "true")
    until_it_runs(client, goes_on, ends, service)
    assert c.ended(client, done)[0] == "SUCCEEDED"
    running = run_of(client, goes_on)
    fleet.end()
    fleet.back_up()

    client = fleet.start("one", "two")
    until_all_up(client, *HOSTS)
    end.touch()
    assert c.ended(client, ends)[0] == "SUCCEEDED"
    later = job(client, c.until_there(go))
    until_it_runs(client, later)
    for number in range(2, 5):  # of runs that the backup does not know
        client.tasks.restart(service)
        wanted = f"-{number}"
        c.wait_for(lambda wanted=wanted: run_of(client, service).endswith(wanted), "the next run")
        until_it_runs(client, service)
    for _ in range(2):  # each owner that begins has a higher epoch than the one before
        fleet.end("two", by=signal.SIGKILL)
        until_all_up(client, *HOSTS)
        client = fleet.start("two")
    until_it_runs(client, later)
    killed = run_of(client, later)
    fleet.end()
    fleet.restore(keeper=False)

    client = fleet.start("one", "two")
    until_all_up(client, *HOSTS)
    assert "was obeyed before" in fleet.errors()
    with pytest.raises(NotFound):
        client.jobs.get(later)
    assert run_of(client, goes_on) == running, "it ran all the time"
    assert c.ended(client, ends)[0] == "SUCCEEDED", client.ops.story(f"task/{ends}/0")
    assert (fleet.folder / "ran").read_text() == 2 * "\n", "its end was not in the backup"
    new = job(client, "true")
    assert c.ended(client, new)[0] == "SUCCEEDED"
    c.wait_for(
        lambda: int(run_of(client, service).rpartition("-")[2]) > 4, "a number that is not used yet"
    )
    until_it_runs(client, service)
    assert killed.encode() not in b"".join(
        variable for one in processes.every() for variable in one.variables
    ), "nobody owns it any more"
    go.touch()
    assert c.ended(client, goes_on)[0] == "SUCCEEDED"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_day_of_services_and_maintenance_whose_keeper_is_lost(fleet: Fleet) -> None:
    go = fleet.folder / "go"
    client = fleet.start("one", "two")
    fleet.raise_level()
    c.pool(client)
    until_all_up(client, *HOSTS)
    c.wait_for(lambda: client.hosts.start_maintenance("c") is not None, "maintenance of c")
    until_all_up(client, "a", "b")
    service = service_of(client, c.until_there(go))
    until_it_runs(client, service)
    fleet.end()
    fleet.back_up()

    client = fleet.start("one", "two")
    until_all_up(client, "a", "b")
    client.hosts.complete_maintenance("c")
    until_all_up(client, *HOSTS)
    client.hosts.start_maintenance("b")
    until_all_up(client, "a", "c")
    for _ in range(3):
        client.tasks.restart(service)
        until_it_runs(client, service)
    fleet.end("one", by=signal.SIGKILL)
    until_all_up(client, "a", "c")
    fleet.end()
    shutil.rmtree(fleet.keeper)  # the keeper ends, with all that it runs
    fleet.restore(keeper=True)

    client = fleet.start("one", "two")
    until_all_up(client, "a", "b")
    until_it_runs(client, service)
    other = job(client, "true")
    assert c.ended(client, other)[0] == "SUCCEEDED"
    client.hosts.complete_maintenance("c")
    until_all_up(client, *HOSTS)
    client.jobs.stop(service)
    assert c.ended(client, service)[0] == "KILLED"
