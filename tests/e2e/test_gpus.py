"""Gpus of a live cluster: declared ones, as what a task sees of them is the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from peloton.sdk.client import Client
from peloton.sdk.errors import NotFound, PelotonError
from tests.e2e import cluster as c

TELL = "echo run $CUDA_VISIBLE_DEVICES. > {folder}/$PELOTON_TASK_ID"


def spec(instances: int, command: str, gpus: float) -> dict[str, Any]:
    """A job of tasks that need so many gpus."""
    resource = {"cpuLimit": 0.01, "memLimitMb": 1.0, "diskLimitMb": 1.0, "gpuLimit": gpus}
    return c.job(instances, command, config={"resource": resource})


def pool(client: Client, *, gpus: float) -> None:
    """The pool /tests, of one host with so many gpus."""
    limits = {"cpu": 4.0, "memory": 2000.0, "disk": 9000.0, "gpu": gpus}
    resources = [
        {"kind": kind, "reservation": 0.0, "limit": limit, "share": 1.0}
        for kind, limit in limits.items()
    ]
    client.pools.create("/tests", {"name": "tests", "resources": resources})


def told(folder: Path) -> list[str]:
    return sorted(file.read_text().strip() for file in folder.iterdir())


def test_each_task_sees_its_own_gpus_over_the_death_of_the_daemon(tmp_path: Path) -> None:
    out, go = tmp_path / "out", tmp_path / "go"
    out.mkdir()
    command = f"{TELL.format(folder=out)}; {c.until_there(go)}"
    with c.running(tmp_path, hosts=[{"name": "one", "gpus": 2}]) as cluster:
        with cluster.client() as client:
            pool(client, gpus=2.0)
            with pytest.raises(PelotonError, match=r"gpuLimit: 0.5 is not a whole number"):
                client.jobs.create("/tests", spec(1, "true", 0.5))
            job = str(client.jobs.create("/tests", spec(2, command, 1)).jobId.value)
            c.wait_for(lambda: c.counts(client, job)[1].get("RUNNING") == 2, "2 to run")
            c.wait_for(lambda: told(out) == ["run 0.", "run 1."], "both to tell")
            (host,) = client.ops.hosts().hosts
            assert (host.free.gpu, host.capacity.gpu) == (0.0, 2.0)
            shown = client.ops.host(host.name)
            assert shown.host == host and [[*run.gpus] for run in shown.runs] == [[0], [1]]
            assert [run.phase for run in shown.runs] == ["STARTED"] * 2
            assert {run.pod.rpartition("-")[0] for run in shown.runs} == {f"{job}-0", f"{job}-1"}
            table = cluster.cli("host", "show", host.name).stdout
            assert "GPU Free: 0 of 2" in table and f"{job}-1-1" in table
            assert client.ops.host(host.name, limit=1).more == 1
            with pytest.raises(NotFound, match="no such host: nobody"):
                client.ops.host("nobody")
        cluster.kill()
        cluster.start()
        with cluster.client() as client:
            c.wait_for(lambda: c.counts(client, job)[1].get("RUNNING") == 2, "both to be found")
            plain = str(client.jobs.create("/tests", spec(1, command, 0)).jobId.value)
            c.wait_for(lambda: told(out) == ["run .", "run 0.", "run 1."], "one without to tell")
            go.touch()
            assert c.ended(client, job) == ("SUCCEEDED", {"SUCCEEDED": 2})
            assert c.ended(client, plain) == ("SUCCEEDED", {"SUCCEEDED": 1})


def test_hosts_with_gpus_are_kept_for_those_who_ask(tmp_path: Path) -> None:
    settings = {
        "hosts": [{"name": "plain", "cpus": 0.01}, {"name": "rich", "gpus": 1}],
        "limits": {"scarce_resource_types": ["GPU"]},
    }
    go = tmp_path / "go"
    with c.running(tmp_path, **settings) as cluster, cluster.client() as client:
        pool(client, gpus=1.0)
        job = str(client.jobs.create("/tests", spec(2, c.until_there(go), 0)).jobId.value)
        c.wait_for(lambda: c.counts(client, job)[1].get("RUNNING") == 1, "1 to run")
        c.wait_for(
            lambda: (
                "1 of 2 hosts is kept for tasks with gpus" in cluster.cli("why", job).stdout
                or any(
                    "kept for tasks with gpus" in cluster.cli("why", job, str(one)).stdout
                    for one in range(2)
                )
            ),
            "the reason",
        )
        go.touch()
        assert c.ended(client, job) == ("SUCCEEDED", {"SUCCEEDED": 2})
