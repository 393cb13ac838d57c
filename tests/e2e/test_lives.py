"""A cluster's lives: stopped, killed, started again, with fewer hosts.

Folders that it refuses are in `tests/cli/test_one_line.py`.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.e2e import cluster as c


def test_tasks_outlive_a_stop_and_what_ends_while_nobody_looks_is_known(tmp_path: Path) -> None:
    go, over = tmp_path / "go", tmp_path / "over"
    with c.running(tmp_path) as cluster:
        with cluster.client() as client:
            c.pool(client)
            spec = c.job(5, c.until_there(go))
            job = str(client.jobs.create("/tests", spec).jobId.value)
            c.wait_for(lambda: c.counts(client, job)[1].get("RUNNING") == 5, "5 to run")
        assert cluster.stop() == 0, "though they run on"
        cluster.start()
        go.touch()
        with cluster.client() as client:
            assert c.ended(client, job) == ("SUCCEEDED", {"SUCCEEDED": 5})
            runs = {client.tasks.get(job, i).result.runtime.mesosTaskId.value for i in range(5)}
            assert {run.rpartition("-")[2] for run in runs} == {"1"}
            go.unlink()
            command = f"{c.until_there(go)}; echo >> {over}; exit 3"
            job = str(client.jobs.create("/tests", c.job(2, command)).jobId.value)
            c.wait_for(lambda: c.counts(client, job)[1].get("RUNNING") == 2, "2 to run")
        assert cluster.process is not None
        with pytest.raises(AssertionError, match=f"pid {cluster.process.pid}"):
            c.Cluster(tmp_path).start()
        cluster.kill()
        go.touch()
        c.wait_for(lambda: over.exists() and over.read_text() == "\n\n", "both to end")
        cluster.start()
        with cluster.client() as client:
            assert c.ended(client, job) == ("FAILED", {"FAILED": 2})
            status = client.tasks.get(job, 0).result.runtime.terminationStatus
            assert status.exit_code == 3


def test_tasks_end_with_the_cluster_when_asked(tmp_path: Path) -> None:
    with c.running(tmp_path, "--stop-tasks-on-exit") as cluster:
        mark = tmp_path / "alive"
        with cluster.client() as client:
            c.pool(client)
            command = f"while true; do date +%s%N > {mark}; sleep 0.1; done"
            job = str(client.jobs.create("/tests", c.job(1, command)).jobId.value)
            c.wait_for(lambda: c.counts(client, job)[1].get("RUNNING") == 1, "1 to run")
            c.wait_for(mark.exists, "its first words")
        assert cluster.stop() == 0
        before = mark.read_text()
        time.sleep(0.5)
        assert mark.read_text() == before
        cluster.options = ()
        cluster.start()
        with cluster.client() as client:
            assert c.ended(client, job)[0] == "KILLED"
            (reason,) = client.ops.why(job).reasons
            assert "killed with its cluster (--stop-tasks-on-exit)" in reason.text


def test_hosts_that_are_not_there_after_a_restart_are_lost_with_what_they_ran(
    tmp_path: Path,
) -> None:
    with c.running(tmp_path, "--hosts", "3") as cluster:
        mark = tmp_path / "alive"
        with cluster.client() as client:
            c.pool(client)
            config = {"resource": {"cpuLimit": 4.0, "memLimitMb": 1.0}}
            command = f"while true; do touch {mark}-$PELOTON_POD_ID; sleep 0.1; done"
            job = str(client.jobs.create("/tests", c.job(3, command, config=config)).jobId.value)
            c.wait_for(lambda: c.counts(client, job)[1].get("RUNNING") == 3, "3 to run")
        cluster.kill()
        cluster.options = ("--hosts", "2")
        cluster.start()
        with cluster.client() as client:
            c.wait_for(
                lambda: c.counts(client, job)[1] == {"RUNNING": 2, "PENDING": 1},
                "one to wait for room",
            )

        def written() -> set[Path]:
            for path in tmp_path.glob("alive-*"):
                path.unlink(missing_ok=True)
            time.sleep(0.5)
            return set(tmp_path.glob("alive-*"))

        c.wait_for(lambda: len(written()) == 2, "two processes to be left")
