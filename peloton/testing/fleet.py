"""Real daemons as processes of their own, in real time, for the few tests that need them.

Without servers it is one daemon with its journal in SQLite, as a minicluster is; with Cassandra and
ZooKeeper at addresses that the test names, as many daemons as it wants. All ends with the test, the
tasks included; a keyspace that was made stays, as only an operator deletes a journal.

    job = fleet.submit(command="sleep 1")
    job.until("SUCCEEDED", within_s=60)
    fleet.crash(); fleet.restart()
"""

from __future__ import annotations

import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Unpack

import yaml

from peloton.chaos.nemesis.fleet import end_keeper
from peloton.sdk.client import Client
from peloton.sdk.errors import AlreadyExists, BadSpec, PelotonError, ServiceUnavailable, TryLater
from peloton.testing.jobs import DEFAULT_POOL_PATH, JobHandle, JobShape, spec_for
from peloton.testing.serving_process import ServingProcess

POLL_S = 0.05
TIMEOUT_S = 60.0
WITHIN_S = 120.0
"""For what takes a moment, on a machine that has other things to do."""
LOOPBACK_PORT = "127.0.0.1:0"


class FleetShape(NamedTuple):
    """What a fleet is made of.

    `backend`: `process` runs the commands of tasks, `simulated` only pretends to. Sizes are those
    of each host: cpus, MB, MB. `cassandra` and `zookeeper` are HOST:PORT; of several, with commas.
    `replication` is DATA-CENTRE:COPIES of the keyspace that is made there.
    """

    daemons: int = 1
    hosts: int = 3
    cpu: float = 4.0
    memory_mb: float = 2048.0
    disk_mb: float = 20000.0
    backend: str = "process"
    cassandra: str = ""
    zookeeper: str = ""
    replication: str = "datacenter1:1"

    def check(self) -> None:
        """Raise BadSpec for a fleet that cannot be."""
        if self.backend not in ("process", "simulated"):
            raise BadSpec(f"must be process or simulated, got {self.backend!r}", field="backend")
        for field in ("daemons", "hosts"):
            if getattr(self, field) < 1:
                raise BadSpec(f"must be ≥ 1, got {getattr(self, field)}", field=field)
        if bool(self.cassandra) != bool(self.zookeeper):
            raise BadSpec("goes together with zookeeper", field="cassandra")
        if self.daemons > 1 and not self.cassandra:
            text = f"must be 1 without cassandra and zookeeper, got {self.daemons}"
            raise BadSpec(text, field="daemons")


class FleetDaemon(ServingProcess):
    """One daemon, by a file of settings."""

    def __init__(self, folder: Path, name: str, *, settings: Mapping[str, Any]) -> None:
        super().__init__(folder, name)
        self._file = folder / f"{name}.yaml"
        folder.mkdir(parents=True, exist_ok=True)
        self._file.write_text(yaml.safe_dump(dict(settings)))

    def words(self) -> Sequence[str]:
        """Return what is typed behind the name of the program."""
        return ("daemon", "--config", str(self._file))


class Fleet:
    """The daemons of one test; `close` ends them, and what they run."""

    def __init__(self, folder: Path, shape: FleetShape = FleetShape()) -> None:  # noqa: B008
        shape.check()
        self.folder = folder
        self._shape = shape
        self._name = f"test_{uuid.uuid4().hex[:12]}"
        self._client: Client | None = None
        if shape.cassandra:
            self._make_tables()
        self.daemons = {
            f"d{number}": FleetDaemon(folder, f"d{number}", settings=self._settings())
            for number in range(1, shape.daemons + 1)
        }
        try:
            self.restart()
            self.run_until(self._is_ready)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Fleet:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Kill all processes of the fleet, tasks included."""
        self._forget_client()
        for daemon in self.daemons.values():
            daemon.kill()
        end_keeper(self.folder / "keeper")

    @property
    def client(self) -> Client:
        """Return a client of all daemons that run."""
        if self._client is None:
            found = [daemon.address for daemon in self.daemons.values() if daemon.runs]
            self._client = Client(found or ["127.0.0.1:1"], timeout_s=TIMEOUT_S)
        return self._client

    def run_until(self, reached: Callable[[], object], *, within_s: float = WITHIN_S) -> float:
        """Ask until the condition is true; return the seconds that took.

        Daemons that cannot answer now are asked again. Raises AssertionError after `within_s`.
        """
        begun_s, last = time.monotonic(), ""
        while time.monotonic() < begun_s + within_s:
            try:
                if reached():
                    return time.monotonic() - begun_s
            except (ServiceUnavailable, TryLater) as error:
                last = f"; at last: {error}"
            time.sleep(POLL_S)
        raise AssertionError(f"not reached within {within_s:g} s{last}\n{self.errors()}")

    def crash(self, daemon: str = "") -> None:
        """Kill one daemon, such as "d1", or all, as by `kill -9`; tasks go on."""
        if daemon and daemon not in self.daemons:
            raise ValueError(f"daemon: there is {', '.join(self.daemons)}, got {daemon!r}")
        for name in (daemon,) if daemon else self.daemons:
            self.daemons[name].kill()
        self._forget_client()

    def restart(self) -> None:
        """Begin all daemons that do not run, and return once each serves."""
        for daemon in self.daemons.values():
            if not daemon.runs:
                daemon.start()
        self._forget_client()

    def submit(
        self,
        spec: Mapping[str, Any] | None = None,
        *,
        pool: str = DEFAULT_POOL_PATH,
        **shape: Unpack[JobShape],
    ) -> JobHandle:
        """Submit a job: a whole spec of v0, or one of this shape."""
        wanted = spec_for(spec, shape)
        made = self.client.jobs.create(pool, wanted)
        return JobHandle(self, made.jobId.value, name=str(wanted.get("name", "")))

    def errors(self) -> str:
        """Return the last lines that the daemons wrote to stderr."""
        texts = {name: daemon.errors()[-2000:] for name, daemon in self.daemons.items()}
        return "\n".join(f"{name}:\n{text}" for name, text in texts.items() if text)

    # ---- inside ----

    def _forget_client(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def _is_ready(self) -> bool:
        """Make `/default` over all hosts, once these are up."""
        hosts = self.client.ops.hosts().hosts
        if len(hosts) < self._shape.hosts or any(host.state != "UP" for host in hosts):
            return False
        try:
            self.client.pools.create(DEFAULT_POOL_PATH, {"name": DEFAULT_POOL_PATH[1:]})
        except AlreadyExists:
            pass
        except PelotonError as error:
            if "no host is up" not in str(error):
                raise
            return False
        return True

    def _settings(self) -> dict[str, Any]:
        shape = self._shape
        size = {"cpus": shape.cpu, "memory_mb": shape.memory_mb, "disk_mb": shape.disk_mb}
        hosts = [{"name": f"host{number}", **size} for number in range(shape.hosts)]
        backend: dict[str, Any] = {"hosts": hosts}
        if shape.backend == "process":
            backend["folder"] = str(self.folder / "keeper")
        listen = {"grpc": LOOPBACK_PORT, "http": LOOPBACK_PORT}
        found = {"cluster": self._name, "listen": listen, "backend": {shape.backend: backend}}
        if not shape.cassandra:
            return found | {"journal": {"sqlite": {"folder": str(self.folder / "data")}}}
        contacts = [one.partition(":") for one in shape.cassandra.split(",")]
        store = {
            "contacts": [host for host, _, _ in contacts],
            "port": int(contacts[0][2] or 9042),
            "keyspace": self._name,
        }
        return found | {
            "listen": listen | {"exchange": LOOPBACK_PORT},
            "zookeeper": {"hosts": shape.zookeeper.split(","), "root": f"/{self._name}"},
            "journal": {"cassandra": store},
        }

    def _make_tables(self) -> None:
        words = [word for one in self._shape.cassandra.split(",") for word in ("--cassandra", one)]
        words += ["--keyspace", self._name, "--replication", self._shape.replication]
        command = [sys.executable, "-m", "peloton", "schema", "apply", *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise AssertionError(f"the tables could not be made:\n{done.stderr}")
