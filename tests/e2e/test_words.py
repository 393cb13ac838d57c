"""What the README and the examples tell people to type, typed for real."""

from __future__ import annotations

import itertools
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from peloton.settings.config import default_data_dir
from tests.e2e import cluster as c
from tests.house import readme

POOL = "/HelloWorldPool"
PREFIX = ".venv/bin/peloton "


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[c.Cluster]:
    example = c.EXAMPLES / "minicluster.yaml"
    with c.running(tmp_path_factory.mktemp("words"), "--cluster", str(example)) as running:
        running.cli("respool", "create", POOL, str(c.EXAMPLES / "hello_world_pool.yaml"))
        yield running


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[c.Cluster]:
    """As little as a machine has on which the README is tried."""
    folder = tmp_path_factory.mktemp("small")
    hosts = folder / "hosts.yaml"
    hosts.write_text("hosts: [{name: one, cpus: 1, memory_mb: 512, disk_mb: 2000}]\n")
    with c.running(folder, "--cluster", str(hosts)) as running:
        yield running


def typed() -> list[list[str]]:
    """The commands of the README that go to a cluster."""
    found = list(readme.commands((c.ROOT / "README.md").read_text()))
    ours = [line.removeprefix(PREFIX) for line in found if line.startswith(PREFIX)]
    return [shlex.split(line) for line in ours if not line.startswith("minicluster")]


def submit(cluster: c.Cluster, name: str, pool: str = POOL) -> str:
    done = cluster.cli("--output", "name", "job", "create", pool, str(c.EXAMPLES / name))
    return done.stdout.strip()


def test_the_readme(small: c.Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(c.ROOT)
    # A home where the folder of this cluster is the one that commands take by themselves.
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    default_data_dir().parent.mkdir(parents=True)
    default_data_dir().symlink_to(small.folder / "data")
    commands = typed()
    assert len(commands) >= 3
    for words in commands:
        small.cli(*map(os.path.expanduser, words))
    assert (tmp_path / "peloton-restored" / "journal.sqlite").is_file()


def test_the_python_of_the_readme(small: c.Cluster, tmp_path: Path) -> None:
    """Saved beside a clone, whose folder has the name of the package."""
    text = (c.ROOT / "README.md").read_text()
    (program,) = re.findall(r"^```python\n(.*?)^```", text, re.M | re.S)
    (tmp_path / "sample.py").write_text(program)
    (tmp_path / "peloton" / "docs").mkdir(parents=True)
    done = subprocess.run(
        [sys.executable, tmp_path / "sample.py"], capture_output=True, text=True, timeout=120,
        env=os.environ | {"PELOTON_API": small.address},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("0 ")


def test_hello_world(cluster: c.Cluster) -> None:
    job = submit(cluster, "hello_world_job.yaml")
    assert cluster.cli("job", "wait", job).returncode == 0
    assert cluster.cli("task", "logs", job, "3").stdout == "hello world\n"
    listed = json.loads(cluster.cli("--output", "json", "task", "list", job).stdout)
    assert len(listed["result"]["value"]) == 10
    cluster.cli("job", "delete", job)
    assert cluster.cli("job", "get", job, check=False).returncode == 66


def test_the_mixed_job_hands_on_the_code_of_what_failed(cluster: c.Cluster) -> None:
    job = submit(cluster, "mixed_job.yaml")
    assert cluster.cli("wait", job, check=False).returncode == 3
    client = cluster.client()
    assert c.counts(client, job) == ("FAILED", {"SUCCEEDED": 5, "FAILED": 1})
    assert len(client.tasks.get(job, 1).results) == 3


def test_the_rack_job_runs_on_the_host_with_the_label(cluster: c.Cluster) -> None:
    job = submit(cluster, "rack_job.yaml")
    cluster.cli("wait", job)
    hosts = {client.host for client in runtimes(cluster, job)}
    assert hosts == {"peloton-mesos-agent2"}


def runtimes(cluster: c.Cluster, job: str) -> list[object]:
    found = cluster.client().tasks.list(job).result.value
    return [found[instance].runtime for instance in sorted(found)]


def test_stopping_one_and_then_all(cluster: c.Cluster) -> None:
    job = submit(cluster, "stop_me.yaml")
    client = cluster.client()
    c.wait_for(lambda: c.counts(client, job)[1].get("RUNNING") == 3, "3 to run")
    cluster.cli("task", "stop", job, "-r", "0:1")
    c.wait_for(lambda: c.counts(client, job)[1] == {"RUNNING": 2, "KILLED": 1}, "1 to end")
    cluster.cli("job", "stop", job, "--force")
    assert c.ended(client, job) == ("KILLED", {"KILLED": 3})
    assert cluster.cli("wait", job, check=False).returncode == 125


def test_never_more_than_two_at_a_time(cluster: c.Cluster) -> None:
    job = submit(cluster, "two_at_a_time.yaml")
    cluster.cli("wait", job)
    steps: list[tuple[float, int]] = []
    for instance in range(10):
        began, ended = cluster.cli("task", "logs", job, str(instance)).stdout.split()
        steps += [(float(began), 1), (float(ended), -1)]
    running = [*itertools.accumulate(step for _, step in sorted(steps))]
    assert max(running) == 2, "their own clocks say so"


def test_too_big_says_why(cluster: c.Cluster) -> None:
    job = submit(cluster, "too_big.yaml", pool="/default")
    lacks = "3 of 3 hosts lack cpu (requested 8, the largest host has 4): it can never fit"
    c.wait_for(lambda: lacks in cluster.cli("why", job).stdout, "a look at all hosts")
    c.wait_for(lambda: lacks in cluster.cli("task", "get", job, "0").stdout, "the task to know")
    for verb in ("status", "get"):
        told = cluster.cli("job", verb, job).stderr
        assert lacks in told and "insufficient_offer_resources 3" in told
    cluster.cli("task", "stop", job)


@pytest.mark.parametrize(("name", "count"), [("daemon_job.yaml", 3), ("stateful_job.yaml", 2)])
def test_jobs_on_every_host_and_with_volumes(cluster: c.Cluster, name: str, count: int) -> None:
    made = cluster.cli("--output", "name", "job", "create", "/default", str(c.EXAMPLES / name))
    job, client = made.stdout.strip(), cluster.client()
    c.wait_for(lambda: c.counts(client, job)[1] == {"RUNNING": count}, "all of them to run")
    cluster.cli("task", "stop", job)
    c.wait_for(lambda: c.counts(client, job)[0] == "KILLED", "its end")


def test_every_example_is_run_here() -> None:
    source = (c.ROOT / "tests" / "e2e" / "test_words.py").read_text()
    names = {path.name for path in c.EXAMPLES.iterdir()} - {"hello_world_pool.yaml"}
    names -= {"daemon.yaml"}  # of a fleet: tests/adapters/test_daemon_config.py
    # Of a fleet on Mesos; and of docs/services.md: tests/sdk/test_specs.py reads them.
    names -= {"mesos.yaml", "service.yaml", "service_next.yaml"}
    names -= {"clients"}  # tests/e2e/test_clients.py
    names -= {"extensions"}  # tests/e2e/extensions, tests/worlds/test_kind_storms.py
    assert {name for name in names if name not in source} == set()
