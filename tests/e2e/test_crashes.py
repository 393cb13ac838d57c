"""`kill -9` of the daemon at random moments during a job: nothing lost, nothing twice.

Each run appends its id to a file. At the end the job has SUCCEEDED, every instance has exactly one
successful run, and no run id stands twice. `PELOTON_CRASH_SEED` chooses the moments.

And of the keeper alone, whose supervisor knows how its tasks end.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from tests import processes
from tests.e2e import cluster as c

INSTANCES, MANY_INSTANCES = 100, 300
SEED = int(os.environ.get("PELOTON_CRASH_SEED", "1"))


def crash_and_count(folder: Path, kills: int, *, instances: int) -> None:
    chance = random.Random(SEED)
    log = folder / "runs.log"
    with c.running(folder) as cluster:
        with cluster.client() as client:
            c.pool(client)
        done = 0
        while done < kills:
            with cluster.client() as client:
                # Each job is acknowledged before the first kill: none may be lost.
                command = f"sleep $((RANDOM % 3)).$((RANDOM % 10)); echo $PELOTON_POD_ID >> {log}"
                config = {"command": {"shell": False, "value": "/bin/bash"}}
                config["command"]["arguments"] = ["bash", "-c", command]  # type: ignore[assignment]
                spec = c.job(instances, command, config=config)
                job = str(client.jobs.create("/tests", spec).jobId.value)
            for _ in range(min(5, kills - done)):
                time.sleep(chance.uniform(0.05, 1.5))
                cluster.kill()
                done += 1
                if chance.random() < 0.3:
                    time.sleep(chance.uniform(1.0, 2.0))  # until tasks have ended meanwhile
                cluster.start()
            with cluster.client() as client:
                assert c.ended(client, job) == ("SUCCEEDED", {"SUCCEEDED": instances})
                tasks = client.tasks.list(job).result.value
                final = {i: tasks[i].runtime.mesosTaskId.value for i in range(instances)}
            check(log, job, final)


def check(log: Path, job: str, final: dict[int, str]) -> None:
    runs = Counter(line for line in log.read_text().split() if line.startswith(job))
    twice = {run: count for run, count in runs.items() if count > 1}
    assert not twice, f"seed {SEED}: run twice: {twice}"
    by_instance = Counter(run.rpartition("-")[0] for run in runs)
    # One run each, unless a run was lost with its keeper, which nobody kills here.
    assert len(by_instance) == len(final)
    assert set(by_instance.values()) == {1}, f"seed {SEED}: {by_instance.most_common(3)}"
    assert set(final.values()) == set(runs)


def test_three_kills(tmp_path: Path) -> None:
    crash_and_count(tmp_path, 3, instances=INSTANCES)


@pytest.mark.nightly
def test_thirty_kills(tmp_path: Path) -> None:
    crash_and_count(tmp_path, 30, instances=MANY_INSTANCES)


# Its keeper is killed, or it is the keeper alone that is left.


def test_tasks_that_end_while_their_keeper_is_killed_are_not_run_again(tmp_path: Path) -> None:
    """Four tasks without retries, and four completions."""
    marks, go = tmp_path / "marks", tmp_path / "go"
    command = f"echo begun >> {marks}; until [ -e {go} ]; do sleep 0.02; done; echo done >> {marks}"
    with c.running(tmp_path) as cluster, cluster.client() as client:
        c.pool(client)
        job = str(client.jobs.create("/tests", c.job(4, command)).jobId.value)
        c.wait_for(lambda: c.counts(client, job)[1] == {"RUNNING": 4}, "all to run")
        c.wait_for(lambda: marks.read_text().count("begun") == 4, "all to have begun")
        keeper = int((tmp_path / "data" / "keeper" / "lock").read_text())
        os.kill(keeper, signal.SIGKILL)
        go.touch()
        assert c.ended(client, job) == ("SUCCEEDED", {"SUCCEEDED": 4})
    assert sorted(marks.read_text().split()) == ["begun"] * 4 + ["done"] * 4


def test_a_run_ends_at_its_limit_though_no_daemon_lives(tmp_path: Path) -> None:
    with c.running(tmp_path) as cluster:
        with cluster.client() as client:
            c.pool(client)
            spec = c.job(1, "echo > ready; exec sleep 600", sla={"maxRunningTime": 3})
            job = str(client.jobs.create("/tests", spec).jobId.value)
            c.wait_for(lambda: c.counts(client, job)[1] == {"RUNNING": 1}, "it to run")
        cluster.kill()
        mark = f"PELOTON_JOB_ID={job}".encode()
        c.wait_for(lambda: not any(mark in one.variables for one in processes.every()), "it to end")
        assert cluster.process is None or cluster.process.poll() is not None, "nobody has helped"
        cluster.start()
        with cluster.client() as client:
            assert c.ended(client, job) == ("KILLED", {"KILLED": 1})
            runtime = client.tasks.get(job, 0).result.runtime
            assert runtime.reason == "Deadline exceeded"
            assert runtime.message == "Deadline exceeded: ran longer than 3 s"
