"""Backups of a cluster that is busy, some killed in the middle, and what comes back from them."""

from __future__ import annotations

import contextlib
import random
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from peloton.sdk.client import Client
from peloton.sdk.errors import PelotonError
from tests.e2e import cluster as c

KILLS = 1
"""Of each kind; `tests/cli/test_backup.py` kills at more moments."""
JOBS_BEFORE = 4


@contextlib.contextmanager
def busy(cluster: c.Cluster) -> Iterator[list[str]]:
    """Jobs are created as fast as they are acknowledged; their ids, in that order."""
    made: list[str] = []
    enough = threading.Event()

    def create() -> None:
        with cluster.client() as client:
            while not enough.is_set():
                made.append(str(client.jobs.create("/tests", c.job(3, "true")).jobId.value))

    creating = threading.Thread(target=create)
    creating.start()
    try:
        yield made
    finally:
        enough.set()
        creating.join()


def peloton(*words: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "peloton", *map(str, words)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def done(*words: object) -> str:
    process = peloton(*words)
    out, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    return out


def ends_killed(seconds: float, *words: object) -> bool:
    """Kill the command after this time, unless it has ended; whether it was killed."""
    process = peloton(*words)
    try:
        process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return True
    return False


def chains(data: Path) -> dict[tuple[str, int, int], bytes]:
    """The chain of each frame: a digest of it and of all before it."""
    rows = sqlite3.connect(f"file:{data / 'journal.sqlite'}?mode=ro", uri=True)
    found = rows.execute("SELECT shard_group, shard_number, position, chain FROM journal")
    result = {(group, number, position): chain for group, number, position, chain in found}
    rows.close()
    return result


def exists(client: Client, job: str) -> bool:
    try:
        client.jobs.get(job)
    except PelotonError:
        return False
    return True


def test_a_backup_under_load_is_a_moment_of_the_cluster(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    data, backup = tmp_path / "data", tmp_path / "backup"
    restored = tmp_path / "other" / "data"
    chance = random.Random(11)
    with c.running(tmp_path) as cluster:
        with cluster.client() as client:
            c.pool(client)
            held = str(
                client.jobs.create("/tests", c.job(2, c.until_there(tmp_path / "go"))).jobId.value
            )
            c.wait_for(lambda: c.counts(client, held)[1].get("RUNNING") == 2, "2 to run")
        with busy(cluster) as made:
            for number in range(KILLS):
                target = tmp_path / f"killed-{number}"
                killed = ends_killed(chance.uniform(0.2, 1.5), "backup", target, "--data-dir", data)
                assert killed or (target / "manifest.json").exists()
            c.wait_for(lambda: len(made) >= JOBS_BEFORE, "some jobs")
            before = [*made]
            done("backup", backup, "--data-dir", data)
            count = len(made)
            c.wait_for(lambda: len(made) > count, "the cluster to go on")
        before_chains = chains(data)
        for _ in range(KILLS):
            if not ends_killed(chance.uniform(0.2, 1.2), "restore", backup, restored):
                break
        if not restored.exists():
            done("restore", backup, restored)
        done("journal", "check", "--data-dir", restored)
        common = {at: chain for at, chain in chains(restored).items() if at in before_chains}
        assert common and common == {at: before_chains[at] for at in common}
        with c.running(tmp_path / "other", "--adopt-copy") as other, other.client() as client:
            assert [job for job in before if not exists(client, job)] == [], "acknowledged"
            for job in before:
                assert c.ended(client, job) == ("SUCCEEDED", {"SUCCEEDED": 3})
            (tmp_path / "go").touch()
            assert c.ended(client, held)[0] == "SUCCEEDED"
        with cluster.client() as client:
            assert c.ended(client, held)[0] == "SUCCEEDED"


def test_a_lost_cluster_goes_on_from_its_backup(tmp_path: Path) -> None:
    backup, data = tmp_path / "backup", tmp_path / "data"
    with c.running(tmp_path) as cluster:
        with cluster.client() as client:
            c.pool(client)
            go = c.until_there(tmp_path / "go")
            job = str(client.jobs.create("/tests", c.job(2, go)).jobId.value)
            c.wait_for(lambda: c.counts(client, job)[1].get("RUNNING") == 2, "2 to run")
        done("backup", backup, "--data-dir", data)
        assert cluster.stop() == 0
        data.rename(tmp_path / "lost")
        done("restore", backup, data)
        cluster.start()
        assert "was restored from a backup" in cluster.errors()
        with cluster.client() as client:
            runs = [client.tasks.get(job, i).result.runtime.mesosTaskId.value for i in range(2)]
            (tmp_path / "go").touch()
            assert c.ended(client, job)[0] == "SUCCEEDED"
            last = [client.tasks.get(job, i).result.runtime.mesosTaskId.value for i in range(2)]
        assert runs and {run.rpartition("-")[2] for run in last} == {"2"}, "the first ones are LOST"
