"""The data folder of a real cluster: for its user alone, and not to be taken for its copy."""

from __future__ import annotations

import contextlib
import os
import stat
import subprocess
from pathlib import Path

import pytest

from peloton.assembly.folders import COPIED
from peloton.sdk.client import Client
from tests.e2e import cluster as c


def run_ids(client: Client, job: str, count: int) -> list[str]:
    """The present run of each instance."""
    infos = [client.tasks.get(job, instance).result for instance in range(count)]
    return [info.runtime.mesosTaskId.value for info in infos]


def tasks_of(data: Path) -> set[int]:
    """The first process of each task that the keeper in this data folder started."""
    mark = f"PELOTON_KEEPER={data.resolve() / 'keeper'}".encode()
    found = set()
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and mark in (entry / "environ").read_bytes().split(b"\0"):
                found.add(os.getsid(int(entry.name)))
    return found


def test_nothing_in_a_data_folder_is_for_others(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with c.running(tmp_path) as cluster:
            with cluster.client() as client:
                c.pool(client)
                job = str(client.jobs.create("/tests", c.job(2, "true")).jobId.value)
                assert c.ended(client, job)[0] == "SUCCEEDED"
            data = tmp_path / "data"
            found = {path: stat.S_IMODE(path.lstat().st_mode) for path in [data, *data.rglob("*")]}
            names = {path.name for path in found}
            assert {"journal.sqlite", "journal.sqlite-wal", "lock", "socket", "stdout"} <= names
            assert {str(path): oct(mode) for path, mode in found.items() if mode & 0o077} == {}
            assert "could be opened" not in cluster.errors()
            cluster.kill()
            data.chmod(0o755)
            (data / "journal.sqlite").chmod(0o644)
            cluster.start()
            assert stat.S_IMODE(data.stat().st_mode) == 0o700
            assert stat.S_IMODE((data / "journal.sqlite").stat().st_mode) == 0o600
            assert "journal.sqlite could be opened by other users: its mode" in cluster.errors()
    finally:
        os.umask(before)


def test_a_copy_beside_the_living_cluster_runs_nothing_of_it(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    go = tmp_path / "go"
    with c.running(tmp_path) as cluster:
        with cluster.client() as client:
            c.pool(client)
            job = str(client.jobs.create("/tests", c.job(3, c.until_there(go))).jobId.value)
            c.wait_for(lambda: c.counts(client, job)[1].get("RUNNING") == 3, "3 to run")
            runs = run_ids(client, job, 3)
        copied = tmp_path / "other" / "data"
        subprocess.run(["cp", "-a", tmp_path / "data", copied], check=True)
        with pytest.raises(AssertionError) as refused:
            c.Cluster(tmp_path / "other").start()
        assert f"{copied} is a copy of {tmp_path / 'data'}, which is still there" in str(
            refused.value
        )
        # As if the keeper's records had been copied before the journal.
        records = copied / "keeper" / "journal"
        lines = records.read_text().splitlines(keepends=True)
        records.write_text("".join(line for line in lines if runs[0] not in line))
        living = tasks_of(tmp_path / "data")
        with c.running(tmp_path / "other", "--adopt-copy") as other:
            with other.client() as client:
                c.wait_for(lambda: c.counts(client, job)[1].get("RUNNING") == 3, "new attempts")
                assert not {*run_ids(client, job, 3)} & {*runs}
                for instance in range(3):
                    assert COPIED in str(client.tasks.events(job, instance))
                client.jobs.stop(job)
                c.wait_for(lambda: c.counts(client, job)[0] == "KILLED", "the copy's job to stop")
            assert tasks_of(tmp_path / "data") == living, "nothing of the original is killed"
            assert other.stop() == 0
            other.options = ()
            other.start()
        with cluster.client() as client:
            assert run_ids(client, job, 3) == runs
            go.touch()
            assert c.ended(client, job) == ("SUCCEEDED", {"SUCCEEDED": 3})
