"""Daemons as processes on their servers, with simulated runs: what the fleet's benchmark measures.

Turns a shape (which journal, how many daemons) into processes that are ready, and says what each
has used and owns. It must not load them, nor leave one behind.
"""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import yaml
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from bench.parts.measure import cpu_s, resident_bytes
from bench.parts.servers import Outside, keyspace
from peloton.api.v0 import peloton_pb2
from peloton.api.v0.job import job_pb2_grpc
from peloton.api.v0.respool import respool_pb2, respool_pb2_grpc
from peloton.api.v0.task import task_pb2_grpc
from peloton.assembly.kinds import kinds
from peloton.ops.v1 import ops_pb2, ops_pb2_grpc
from peloton.runtime.adapters.cassandra_session import CassandraSettings, connect
from peloton.runtime.adapters.zookeeper_nodes import Paths, member_of, owner_of, shard_of
from peloton.runtime.core.owning.ownership import ranked
from peloton.runtime.core.sharding import Sharding
from peloton.runtime.ports import ShardId
from peloton.runtime.vocabulary import Key

ROOT = Path(__file__).resolve().parent.parent.parent
START_S_MAX = 120.0
LOOK_S = 0.1
HOST = {"cpus": 10.0, "memory_mb": 100_000.0, "disk_mb": 100_000.0}
CHANNEL = [
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.max_receive_message_length", 64 * 1024 * 1024),
]


class Shape(NamedTuple):
    """What is compared."""

    journal: str  # "sqlite" or "cassandra"
    daemons: int

    def __str__(self) -> str:
        return f"{self.journal} x{self.daemons}"


class Sizes(NamedTuple):
    """How large a cluster is, whatever its shape."""

    hosts: int
    shards: Mapping[str, int]


def until(
    holds: Callable[[], bool], what: str, *, limit_s: float = START_S_MAX, again_s: float = LOOK_S
) -> None:
    """Look again and again; ends the run when it takes too long."""
    late = time.monotonic() + limit_s
    while not holds():
        if time.monotonic() > late:
            raise SystemExit(f"{what}: not within {limit_s:g} s")
        time.sleep(again_s)


class Daemon:
    """One process, and the calls that go to it."""

    def __init__(self, file: Path, settings: Mapping[str, Any]) -> None:
        self.name = file.stem
        file.write_text(yaml.safe_dump(settings))
        words = [sys.executable, "-m", "peloton", "daemon", "--config", str(file)]
        # As tests do it: should we be killed, the kernel ends the daemon.
        setpriv = shutil.which("setpriv")
        bound = (setpriv, "--pdeathsig", "KILL") if setpriv else ()
        self._errors = file.with_suffix(".log")
        with self._errors.open("w") as errors:
            self._process = subprocess.Popen(
                [*bound, *words], cwd=ROOT, stdout=subprocess.PIPE, stderr=errors, text=True
            )
        self.pid = self._process.pid

    def ready(self) -> None:
        """Wait until it listens."""
        assert self._process.stdout is not None
        words = self._process.stdout.readline().split()
        if words[:2] != ["ready:", "grpc"]:
            raise SystemExit(f"{self.name} did not start: {self._errors.read_text()}")
        self.http = self._errors.read_text().partition("ready: http ")[2].split()[0]
        self._channel = channel = grpc.insecure_channel(words[-1], CHANNEL)
        self.jobs = job_pb2_grpc.JobManagerStub(channel)
        self.tasks = task_pb2_grpc.TaskManagerStub(channel)
        self.pools = respool_pb2_grpc.ResourceManagerStub(channel)
        self.ops = ops_pb2_grpc.OpsStub(channel)

    def instances(self) -> dict[str, int]:
        """Instances of all jobs by state, as the whole cluster has them."""
        with urllib.request.urlopen(f"http://{self.http}/metrics", timeout=20) as answer:
            lines = answer.read().decode().splitlines()
        found = {}
        for line in lines:
            name, _, count = line.rpartition(" ")
            if name.startswith("peloton_instances{"):
                found[name.split('"')[1]] = int(float(count))
        return found

    def healthy(self) -> bool:
        """Whether it says that it is ready."""
        with (
            contextlib.suppress(OSError),
            urllib.request.urlopen(f"http://{self.http}/ready", timeout=20) as answer,
        ):
            return bool(answer.status == 200)
        return False

    def close(self) -> None:
        """At once: nobody takes over, for what it owned is not used again."""
        self._process.kill()
        self._process.communicate()


class Used(NamedTuple):
    """CPU seconds so far, by name, and when that was looked at."""

    at_s: float
    cpu_s: Counter[str]

    def since(self, before: Used) -> Used:
        """What was used from then to now."""
        spent = Counter({name: s - before.cpu_s[name] for name, s in self.cpu_s.items()})
        return Used(self.at_s - before.at_s, spent)


class Cluster:
    """Some daemons that are one cluster."""

    def __init__(self, shape: Shape, sizes: Sizes, *, outside: Outside, folder: Path) -> None:
        self.shape = shape
        self.sizes = sizes
        self._outside = outside
        self._folder = folder
        self._name = folder.name
        self._sharding = Sharding(kinds(sizes.shards), sizes.shards)
        self._owners: dict[ShardId, str] = {}
        self.daemons = [
            Daemon(folder / f"d{number}.yaml", self._settings()) for number in range(shape.daemons)
        ]

    def begin(self) -> None:
        """Wait until all is there that tasks need, and make their pool."""
        for daemon in self.daemons:
            daemon.ready()
        until(self._hosts_up, f"{self.shape}: hosts")
        until(self._all_owned, f"{self.shape}: owners")
        self.pool = peloton_pb2.ResourcePoolID()
        until(self._made_pool, f"{self.shape}: the pool")
        until(lambda: all(d.healthy() for d in self.daemons), f"{self.shape}: health")

    def used(self) -> Used:
        """CPU of every daemon and server."""
        pids = {daemon.name: daemon.pid for daemon in self.daemons}
        if self.shape.journal != "sqlite":
            servers = {
                "cassandra": self._outside.cassandra_pid,
                "zookeeper": self._outside.zookeeper_pid,
            }
            pids |= {name: pid for name, pid in servers.items() if pid}
        found = Counter({name: cpu_s(pid) for name, pid in pids.items()})
        found["client"] = time.process_time()
        return Used(time.perf_counter(), found)

    def resident_bytes(self) -> int:
        """Memory of all daemons."""
        return sum(resident_bytes(daemon.pid) for daemon in self.daemons)

    def frames(self) -> int:
        """How many the journal holds, of all shards, since the beginning of the cluster."""
        if self.shape.journal == "sqlite":
            file = self._folder / "data" / "journal.sqlite"
            with contextlib.closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as journal:
                return int(journal.execute("SELECT sum(last_position) FROM register").fetchone()[0])
        settings = CassandraSettings(port=self._outside.cassandra, keyspace=self._name)
        with contextlib.closing(connect(settings)) as connected:
            rows = connected.session.execute("SELECT last_position FROM shard_registers")
            return sum(int(row[0]) for row in rows)

    def shards(self) -> Counter[str]:
        """How many each daemon owns."""
        owned = Counter(self._owners.values())
        return Counter({daemon.name: owned[daemon.name] for daemon in self.daemons})

    def owner(self, key: Key) -> str:
        """Name of the daemon that owns the shard of an entity."""
        if self.shape.daemons == 1:
            return self.daemons[0].name
        return self._owners[self._sharding.shard_of(key)]

    def close(self) -> None:
        """End all, and wait for that."""
        for daemon in self.daemons:
            daemon.close()

    # ---- beginning ----

    def _settings(self) -> dict[str, Any]:
        hosts = [{"name": f"host{number}", **HOST} for number in range(self.sizes.hosts)]
        settings: dict[str, Any] = {
            "cluster": self._name,
            "listen": dict.fromkeys(("exchange", "grpc", "http"), "127.0.0.1:0")
            | {"open_loopback": True},
            "backend": {"simulated": {"hosts": hosts}},
            "shards": dict(self.sizes.shards),
        }
        if self.shape.journal == "sqlite":
            return settings | {"journal": {"sqlite": {"folder": "data"}}}
        store = keyspace(self._outside, self._name)
        where = {"contacts": ["127.0.0.1"], "port": store.port, "keyspace": store.keyspace}
        # A root of its own: another cluster's is refused.
        address = f"127.0.0.1:{self._outside.zookeeper}"
        zookeeper = {"hosts": [address], "root": f"/{self._name}"}
        return settings | {"journal": {"cassandra": where}, "zookeeper": zookeeper}

    def _hosts_up(self) -> bool:
        with contextlib.suppress(grpc.RpcError):
            hosts = self.daemons[0].ops.ListHosts(ops_pb2.ListHostsRequest(), timeout=10).hosts
            return sum(host.state == "UP" for host in hosts) == self.sizes.hosts
        return False

    def _all_owned(self) -> bool:
        if self.shape.journal == "sqlite":
            every = (ShardId(group, n) for group, c in self.sizes.shards.items() for n in range(c))
            self._owners = dict.fromkeys(every, self.daemons[0].name)
            return True
        paths = Paths(self._name, root=f"/{self._name}")
        found = {name: member_of(data) for name, data in self._nodes(paths.members).items()}
        members = {name: node for name, node in found.items() if node is not None}
        nodes = self._nodes(paths.owners)
        owners = {
            shard: owner_of(data) for name, data in nodes.items() if (shard := shard_of(name))
        }
        names = {
            member: daemon.name
            for member in members
            for daemon in self.daemons
            if f"-{daemon.pid}-" in member
        }
        self._owners = {shard: names[who] for shard, who in owners.items() if who in names}
        # Owned by somebody each is long before: until it is with its first in rank it will move.
        return (
            len(names) == len(members) == len(self.daemons)
            and len(self._owners) == sum(self.sizes.shards.values())
            and all(ranked(shard, members)[0] == who for shard, who in owners.items())
        )

    def _nodes(self, folder: str) -> dict[str, bytes]:
        """What is below it, by name."""
        client = KazooClient(f"127.0.0.1:{self._outside.zookeeper}")
        client.start(timeout=30)
        try:
            return {name: client.get(f"{folder}/{name}")[0] for name in client.get_children(folder)}
        except NoNodeError:
            return {}  # it was there a moment ago, or comes in a moment: the caller looks again
        finally:
            client.stop()
            client.close()

    def _made_pool(self) -> bool:
        """Until the root has heard of all hosts, a pool of this size is too large for it."""
        config = respool_pb2.ResourcePoolConfig(name="bench")
        config.parent.value = "root"
        limits = [HOST["cpus"], HOST["memory_mb"], HOST["disk_mb"], 0.0]
        for kind, limit in zip(("cpu", "memory", "disk", "gpu"), limits, strict=True):
            whole = limit * self.sizes.hosts
            config.resources.add(kind=kind, reservation=0, limit=whole, share=1)
        with contextlib.suppress(grpc.RpcError):
            asked = respool_pb2.CreateRequest(config=config)
            made = self.daemons[0].pools.CreateResourcePool(asked, timeout=10)
            self.pool.CopyFrom(made.result)
            return bool(self.pool.value)
        return False


def parse_shards(words: str) -> dict[str, int]:
    """`jobmgr=8,resmgr=1,hostmgr=8`."""
    return {name: int(count) for name, _, count in (w.partition("=") for w in words.split(","))}


def shapes_of(words: Sequence[str]) -> list[Shape]:
    """`sqlite`, or `cassandra` with `x` and a number of daemons."""
    found = []
    for word in words:
        journal, _, count = word.partition("x")
        found.append(Shape(journal, int(count or 1)))
    return found
