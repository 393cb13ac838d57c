"""A minicluster is a daemon that is alone: each starts on what the other, or its past, has left."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import yaml

from peloton.backends import keeper_folder
from peloton.backends.keeper_folder import KeeperOwner
from peloton.runtime.adapters.sqlite_store import SqliteJournal
from peloton.sdk.client import Client
from peloton.settings.daemon import ALONE_SHARDS
from peloton.testing.serving_process import STOP_S_MAX
from tests.e2e import cluster as c

HOSTS = [{"name": f"peloton-mesos-agent{number}"} for number in range(3)]
"""Those of a minicluster without options."""


@contextlib.contextmanager
def daemon(folder: Path) -> Iterator[Client]:
    """`peloton daemon` with the config that a minicluster of this folder is equal to."""
    raw = {
        "cluster": "minicluster",
        "journal": {"sqlite": {"folder": "data"}},
        "listen": {"grpc": "127.0.0.1:0", "http": "127.0.0.1:0"},
        "backend": {"process": {"folder": "data/keeper", "hosts": HOSTS}},
    }
    file = folder / "daemon.yaml"
    file.write_text(yaml.safe_dump(raw))
    line = [sys.executable, "-m", "peloton", "daemon", "--config", str(file)]
    with (
        (folder / "stderr").open("a") as errors,
        subprocess.Popen(line, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
    ):
        assert process.stdout is not None
        ready = process.stdout.readline()
        assert ready.startswith("ready: grpc "), (folder / "stderr").read_text()
        try:
            with Client(ready.split()[-1], timeout_s=60.0) as client:
                yield client
        finally:
            process.terminate()
            assert process.wait(STOP_S_MAX) == 0


def running(client: Client, job: str) -> bool:
    return c.counts(client, job)[1] == {"RUNNING": 2}


def test_a_daemon_goes_on_with_a_miniclusters_folder_and_back(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    with c.running(tmp_path) as cluster:
        with cluster.client() as client:
            c.pool(client)
            job = str(client.jobs.create("/tests", c.job(2, c.until_there(first))).jobId.value)
            c.wait_for(lambda: running(client, job), "2 to run")
        assert cluster.stop() == 0
        with daemon(tmp_path) as client:
            assert running(client, job), "nothing was lost between them"
            first.touch()
            assert c.ended(client, job) == ("SUCCEEDED", {"SUCCEEDED": 2})
            other = str(client.jobs.create("/tests", c.job(2, c.until_there(second))).jobId.value)
            c.wait_for(lambda: running(client, other), "2 to run")
        cluster.start()
        with cluster.client() as client:
            assert running(client, other)
            second.touch()
            assert c.ended(client, other) == ("SUCCEEDED", {"SUCCEEDED": 2})
            assert c.counts(client, job) == ("SUCCEEDED", {"SUCCEEDED": 2})
        # As root, as whom tasks run is said at every start.
        warnings = [line for line in cluster.errors().splitlines() if line.startswith("warning")]
        assert [one for one in warnings if "tasks run as root" not in one] == []


def test_a_folder_from_before_clusters_had_names_gets_one(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    journal = SqliteJournal(data / "journal.sqlite")
    owner = KeeperOwner(journal.bootstrap(ALONE_SHARDS).cluster_id.hex(), "")
    journal.close()
    keeper_folder.claim(data / "keeper", owner)
    (data / "backend").write_text("process\n")
    with c.running(tmp_path) as cluster:
        with cluster.client() as client:
            c.pool(client)
            job = str(client.jobs.create("/tests", c.job(1, "true")).jobId.value)
            assert c.ended(client, job)[0] == "SUCCEEDED"
        assert cluster.stop() == 0
        journal = SqliteJournal(data / "journal.sqlite")
        found = journal.bootstrap(ALONE_SHARDS)
        journal.close()
        assert (found.cluster_id.hex(), found.name) == (owner.cluster_id, "minicluster")
        cluster.start()
