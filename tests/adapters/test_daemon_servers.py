"""Daemons as processes on a real ZooKeeper and a real Cassandra, with real tasks.

One story, because each beginning costs seconds: work begun at one daemon survives its death, is
seen at the other, and clients find who owns what. What storms do to it is tested elsewhere.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import yaml
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from peloton.api.v0.job import job_pb2, job_pb2_grpc
from peloton.api.v0.task import task_pb2
from peloton.assembly.kinds import kinds
from peloton.runtime.adapters import cassandra_schema
from peloton.runtime.adapters.cassandra_session import CassandraSettings, connect
from peloton.runtime.adapters.zookeeper_nodes import ClusterMark, mark_bytes
from peloton.runtime.core.entities.codec import Codec
from peloton.settings.daemon import ALONE_SHARDS
from tests.adapters.test_daemon_wiring import SHARDS, until
from tests.channels import channel_to
from tests.cli.terminal import Printed, typed
from tests.conftest import ROOT
from tests.e2e.cluster import until_there
from tests.gateway.fleet_fixture import Deployment, default_config, named
from tests.servers import cassandra, connects
from tests.servers.zookeeper import ZooKeeper

SESSION_S = 6.0
KEYSPACE = "daemons"
WAIT_S_MAX = 90.0


class Cluster:
    """Files and processes of one cluster."""

    def __init__(self, folder: Path, zookeeper: ZooKeeper, *, keyspace: str) -> None:
        self.folder = folder
        self.zookeeper = zookeeper
        self.keyspace = keyspace
        self.running: list[subprocess.Popen[str]] = []

    def start(self, name: str, **more: Any) -> tuple[subprocess.Popen[str], str]:
        """A daemon that is ready, and where clients reach it. `more`: other settings."""
        process = self.begin(name, **more)
        assert process.stdout is not None
        ready = process.stdout.readline().split()
        assert ready[:2] == ["ready:", "grpc"], self.errors(name)
        return process, ready[-1]

    def begin(self, name: str, **more: Any) -> subprocess.Popen[str]:
        """A daemon that may never be ready."""
        process = subprocess.Popen(
            [sys.executable, "-m", "peloton", "daemon", "--config", self.config(name, **more)],
            stdout=subprocess.PIPE,
            stderr=(self.folder / f"{name}.errors").open("w"),
            text=True,
            cwd=ROOT,
        )
        self.running.append(process)
        return process

    def config(self, name: str, **more: Any) -> str:
        """The file of a daemon."""
        file = self.folder / f"{name}.yaml"
        file.write_text(yaml.safe_dump(self.settings() | more))
        return str(file)

    def errors(self, name: str) -> str:
        """What a daemon said on stderr so far."""
        return (self.folder / f"{name}.errors").read_text()

    def close(self) -> None:
        for process in self.running:
            process.kill()
            process.communicate()

    def settings(self) -> dict[str, Any]:
        """Of each of its daemons."""
        port = cassandra.shared().port
        hosts = [{"name": name} for name in ("a", "b", "c")]
        return {
            "cluster": "test",
            "listen": dict.fromkeys(("exchange", "grpc", "http"), "127.0.0.1:0"),
            "zookeeper": {
                "hosts": [f"127.0.0.1:{self.zookeeper.port}"],
                "session_timeout_s": SESSION_S,
            },
            "journal": {
                "cassandra": {"contacts": ["127.0.0.1"], "port": port, "keyspace": self.keyspace}
            },
            "backend": {"process": {"folder": "keeper", "hosts": hosts}},
            "shards": SHARDS,
        }


@contextlib.contextmanager
def cluster_in(folder: Path, *, of: str) -> Iterator[Cluster]:
    """A cluster without daemons, with a keyspace of its own, by the name of who wants it: what
    another test has left would be recovered, and its runs waited for."""
    keyspace = f"{KEYSPACE}_{zlib.crc32(of.encode())}"
    settings = CassandraSettings(port=cassandra.shared().port)
    with contextlib.closing(connect(settings, keyspace=False)) as connected:
        replication = {cassandra.Cassandra.data_centre: 1}
        cassandra_schema.apply(connected, keyspace, replication=replication)
    zookeeper = ZooKeeper.start(folder / "zookeeper")
    cluster = Cluster(folder, zookeeper, keyspace=keyspace)
    try:
        yield cluster
    finally:
        cluster.close()
        zookeeper.kill()


@pytest.fixture
def cluster(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with cluster_in(tmp_path, of=request.node.nodeid) as found:
        yield found


def marking_until(file: Path) -> task_pb2.TaskConfig:
    """A task that marks its run, and runs until the file is made."""
    config = default_config()
    config.command.value = f"echo >> ran; {until_there(file)}"
    return config


def patiently(ask: Callable[[], Any]) -> Any:
    """What a client does: ask again while nobody answers."""

    def once() -> Any:
        try:
            return ask()
        except grpc.RpcError as error:
            assert isinstance(error, grpc.Call)
            assert error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
            return None

    return until(once)


def patient_command(*words: str) -> Printed:
    """A command line, typed again while shards are moving."""

    def once() -> Printed | None:
        printed = typed(*words)
        assert printed.code in (0, 69), printed
        return printed if printed.code == 0 else None

    found: Printed = until(once)
    return found


@contextlib.contextmanager
def looking(zookeeper: ZooKeeper) -> Iterator[KazooClient]:
    client = KazooClient(f"127.0.0.1:{zookeeper.port}")
    client.start(timeout=WAIT_S_MAX)
    try:
        yield client
    finally:
        client.stop()
        client.close()


def content(client: KazooClient, path: str) -> bytes:
    """Of a node; nodes come and go while we look."""
    try:
        return bytes(client.get(path)[0])
    except NoNodeError:
        return b""


def owners(zookeeper: ZooKeeper) -> list[bytes]:
    """Of every shard that has one."""
    with looking(zookeeper) as client:
        folder = "/peloton/test/owners"
        names = client.get_children(folder) if client.exists(folder) else []
        found = [content(client, f"{folder}/{name}") for name in names]
        return [owner for owner in found if owner]


def leaders(zookeeper: ZooKeeper) -> dict[str, str]:
    """What an existing client reads: where the leader of each role is."""
    found = {}
    with looking(zookeeper) as client:
        for role in ("jobmanager", "resourcemanager", "hostmanager"):
            told = content(client, f"/peloton/{role}/leader")
            if told:
                node = json.loads(told)
                found[role] = f"{node['ip']}:{node['grpc']}"
    return found


def levels_are_shown_of_this_cluster_only(cluster: Cluster) -> None:
    """A config that was copied from another cluster, with only the journal changed."""
    shown = typed("features", "show", "--config", str(cluster.folder / "two.yaml"))
    assert (shown.code, shown.err) == (0, "")
    known = Codec(kinds(ALONE_SHARDS)).known_level
    assert f"knows level {known}\nlevel   {known}, this version knows {known}\n" in shown.out
    dry = ("features", "raise", "--dry-run", "--config", str(cluster.folder / "two.yaml"))
    for printed in (typed(*dry), typed(*dry)):
        assert f"would change nothing: the level is {known} already\n" in printed.out
    copy = cluster.folder / "copy.yaml"
    copy.write_text(yaml.safe_dump(cluster.settings() | {"cluster": "other"}))
    for command in ("show", "raise"):
        refused = typed("features", command, "--config", str(copy))
        assert refused.code == 1 and "belongs to cluster 'test'" in refused.err


def what_is_of_another_cluster_is_checked(cluster: Cluster) -> None:
    """`--check` finds what a start refuses, and claims nothing that is free."""
    file = cluster.folder / "checked.yaml"

    def checked(**more: Any) -> Printed:
        file.write_text(yaml.safe_dump(cluster.settings() | more))
        return typed("daemon", "--config", str(file), "--check")

    good = checked()
    assert (good.code, good.err) == (0, "")
    once = connects.made_by_opening_cassandra(str(file))
    port = cassandra.shared().port
    assert once[port] and connects.made_by_check(str(file))[port] == once[port]
    other = checked(cluster="other")
    assert other.code == 69 and "journal.cassandra: the journal belongs to cluster 'test'" in (
        other.err
    )
    mark = mark_bytes(ClusterMark("ff", "north"))
    with looking(cluster.zookeeper) as client:
        client.create("/north/.cluster", mark, makepath=True)
    there = cluster.settings()["zookeeper"]
    (line,) = checked(zookeeper=there | {"root": "/north"}).err.splitlines()
    assert "zookeeper.root /north belongs to cluster 'north' (journal ff)" in line
    assert checked(zookeeper=there | {"root": "/free"}).code == 0
    with looking(cluster.zookeeper) as client:
        assert client.exists("/free") is None


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_work_outlives_the_daemon_that_began_it(cluster: Cluster) -> None:
    one, at_one = cluster.start("one")
    two, at_two = cluster.start("two")
    until(lambda: len(set(owners(cluster.zookeeper))) == 2)
    with (
        channel_to(at_one) as first,
        channel_to(at_two) as second,
    ):
        deployment = patiently(lambda: Deployment(None, first, http=None))  # type: ignore[arg-type]
        jobs, go = [], cluster.folder / "go"
        for _ in range(3):
            # Shards may still be moving, and a request that was refused for that did nothing.
            request = deployment.request(instances=2, defaultConfig=marking_until(go))
            jobs.append(patiently(lambda request=request: deployment.create(request)))
        stub = job_pb2_grpc.JobManagerStub(second)

        def states() -> set[int]:
            asked = [job_pb2.GetRequest(id=named(job)) for job in jobs]
            answers = [patiently(lambda each=each: stub.Get(each, timeout=3)) for each in asked]
            return {answer.jobInfo.runtime.state for answer in answers}

        until(lambda: states() == {job_pb2.RUNNING})
        until(lambda: len(leaders(cluster.zookeeper)) == 3)
        assert set(leaders(cluster.zookeeper).values()) <= {at_one, at_two}
        search = ("-z", cluster.zookeeper.address, "-t", f"{WAIT_S_MAX}s")
        assert patient_command(*search, "job", "status", jobs[0]).code == 0
        one.kill()
        # Whoever led is looked for until somebody leads again, and is asked until it knows.
        for where in (search, ("--api", f"{at_one},{at_two}", "-t", f"{WAIT_S_MAX}s")):
            for job in jobs:
                printed = patient_command(*where, "job", "status", job)
                assert "state:" in printed.out, printed
        go.touch()
        until(lambda: states() == {job_pb2.SUCCEEDED})
        until(lambda: [*leaders(cluster.zookeeper).values()] == [at_two] * 3)
        runs = [*(cluster.folder / "keeper" / "runs").glob("*/**/ran")]
        assert len(runs) == 6 and {run.read_text() for run in runs} == {"\n"}, "each ran once"
    levels_are_shown_of_this_cluster_only(cluster)
    what_is_of_another_cluster_is_checked(cluster)
    two.terminate()
    assert two.wait(WAIT_S_MAX) == 0, (cluster.folder / "two.errors").read_text()
