"""Tasks with a container image in a real minicluster: run, logged, killed, and there after a crash.

The engine is podman where this machine can run one, and a program that speaks its words elsewhere.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e import cluster as c
from tests.fake_engine import install
from tests.real_engine import real_podman

IMAGE = "localhost/tiny:1"


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The first one in PATH."""
    with real_podman(IMAGE) as real:
        program = real.program if real is not None else install(tmp_path, "podman", IMAGE)
        monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
        yield program


def contained(command: str, image: str = IMAGE) -> dict[str, Any]:
    container = {"type": "DOCKER", "docker": {"image": image}}
    resource = {"cpuLimit": 0.1, "memLimitMb": 64.0, "diskLimitMb": 10.0}
    return c.job(1, command, config={"container": container, "resource": resource})


def names(engine: Path) -> list[str]:
    found = subprocess.run(
        [engine, "ps", "--all", "--format={{.Names}}"], capture_output=True, text=True, check=True
    )
    return found.stdout.split()


def test_images_are_run_and_their_tasks_survive_a_crash(tmp_path: Path, engine: Path) -> None:
    with c.running(tmp_path, backend={"process": {"images": "run"}}) as cluster:
        with cluster.client() as client:
            c.pool(client)
            good = str(client.jobs.create("/tests", contained("echo in $PWD")).jobId.value)
            assert c.ended(client, good)[0] == "SUCCEEDED", cluster.errors()
            assert "in " in cluster.cli("task", "logs", good, "0").stdout
            bad = str(client.jobs.create("/tests", contained("x", "localhost/none:1")).jobId.value)
            assert c.ended(client, bad)[0] == "FAILED"
            assert "container image unavailable" in cluster.cli("task", "list", bad).stdout + str(
                client.tasks.get(bad, 0)
            )
            wait = contained("while [ ! -e go ]; do sleep 0.05; done; echo on; exit 3")
            long = str(client.jobs.create("/tests", wait).jobId.value)
            c.wait_for(lambda: c.counts(client, long)[1].get("RUNNING") == 1, "it to run")
            c.wait_for(lambda: names(engine), "its container")
            # The first process of a container gets no signal that it does not handle.
            forever = contained("trap 'exit 9' TERM; while :; do sleep 0.05; done")
            killed = str(client.jobs.create("/tests", forever).jobId.value)
            c.wait_for(lambda: len(names(engine)) == 2, "another container")
        cluster.kill()
        cluster.start()
        (sandbox,) = (tmp_path / "data" / "keeper" / "runs").glob(f"{long}-*")
        (sandbox / "go").touch()
        with cluster.client() as client:
            assert c.ended(client, long)[0] == "FAILED"
            client.tasks.stop(killed)
            assert c.ended(client, killed)[0] == "KILLED"
        assert "on" in cluster.cli("task", "logs", long, "0").stdout
        c.wait_for(lambda: not names(engine), "all containers to be removed")
