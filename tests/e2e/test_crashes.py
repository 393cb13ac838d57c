"""`kill -9` of the daemon at random moments during a job: nothing lost, nothing twice.

Each run appends its id to a file. At the end the job has SUCCEEDED, every instance has exactly one
successful run, and no run id stands twice. `PELOTON_CRASH_SEED` chooses the moments.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from pathlib import Path

import pytest

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
