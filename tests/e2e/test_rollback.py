"""A real cluster whose journal was cut, damaged, lost or replaced by an older copy.

That is refused by name, with an exit code of its own; nothing is changed by it; and with the right
files back the cluster goes on. `--accept-rollback` goes on without what is missing: what it
does not know is killed, and no run id is used a second time.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from peloton.processes.foreground import JOURNAL_BEHIND
from tests.e2e import cluster as c

NAME = "journal.sqlite"
JOBS = 6


def start_anyway(cluster: c.Cluster, *options: str) -> subprocess.CompletedProcess[str]:
    """Try a start; the process must end by itself."""
    command = [sys.executable, "-m", "peloton", "minicluster", "--no-classic-ports"]
    where = ["--data-dir", str(cluster.folder / "data"), "--grpc", "127.0.0.1:0"]
    return subprocess.run(
        [*command, *where, "--http", "127.0.0.1:0", *cluster.options, *options],
        capture_output=True,
        text=True,
        timeout=c.WAIT_MAX_S,
    )


def cut(data: Path) -> None:
    log = data / f"{NAME}-wal"
    with log.open("r+b") as file:
        file.truncate(log.stat().st_size // 2)


def put_older_back(data: Path) -> None:
    for name in (f"{NAME}-wal", f"{NAME}-shm"):
        (data / name).unlink()
    shutil.copy(data.parent / "older", data / NAME)


def journal_files(data: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(data.glob(f"{NAME}*"))}


def test_an_accident_is_refused_by_name_and_the_right_copy_goes_on(tmp_path: Path) -> None:
    """A log that was cut; the others are in `tests/contracts/test_sqlite_witness.py`."""
    data = tmp_path / "data"
    with c.running(tmp_path, "--backend", "simulated") as cluster:
        with cluster.client() as client:
            c.pool(client)
            spec = c.job(3, "true")
            jobs = [str(client.jobs.create("/tests", spec).jobId.value) for _ in range(JOBS)]
            for job in jobs:
                c.ended(client, job)
        cluster.kill()
        right = journal_files(data)
        cut(data)
        before = journal_files(data)
        done = start_anyway(cluster)
        assert done.returncode == JOURNAL_BEHIND, done.stderr
        checked = start_anyway(cluster, "--check")
        assert checked.returncode != 0 and "acknowledged frames" in checked.stderr
        (line,) = [text for text in done.stderr.splitlines() if "rolled back" in text]
        found = re.search(r"(\d+) acknowledged frames are missing \((\w+-\d) \d+", line)
        assert found is not None and int(found[1]) > 0, line
        assert "--accept-rollback" in line and "newest copy" in line
        assert "ready" not in done.stdout
        assert journal_files(data) == before, "nothing was changed"
        for path in data.glob(f"{NAME}*"):
            path.unlink()
        for file, content in right.items():
            (data / file).write_bytes(content)
        cluster.start()
        with cluster.client() as client:
            for job in jobs:
                assert c.ended(client, job) == ("SUCCEEDED", {"SUCCEEDED": 3})
        assert cluster.stop() == 0
        assert not (data / f"{NAME}-wal").exists(), "after SIGTERM the journal is one file"


@pytest.mark.timeout(240)
def test_an_accepted_rollback_kills_what_it_does_not_know_and_reuses_no_id(tmp_path: Path) -> None:
    data, log = tmp_path / "data", tmp_path / "runs.log"
    gate = tmp_path / "gate"
    say = f"echo $PELOTON_RUN_ID >> {log}"
    with c.running(tmp_path, "--host-cpus", "0.5") as cluster:
        with cluster.client() as client:
            c.pool(client, cpus=1.5)
            kept = c.job(2, f"{say}; {c.until_there(gate)}")
            known = str(client.jobs.create("/tests", kept).jobId.value)
            c.wait_for(lambda: c.counts(client, known)[1] == {"RUNNING": 2}, "two to run")
            # In the copy no host is large enough for these, and so their first runs are to come.
            spec = c.job(4, say)
            spec["defaultConfig"]["resource"]["cpuLimit"] = 1.0
            waiting = str(client.jobs.create("/tests", spec).jobId.value)
        assert cluster.stop() == 0
        shutil.copy(data / NAME, tmp_path / "older")
        cluster.options = ()
        cluster.start()
        with cluster.client() as client:
            c.ended(client, waiting)
            for _ in range(JOBS):
                c.ended(client, str(client.jobs.create("/tests", c.job(2, say)).jobId.value))
            orphans = c.job(3, f"{say}; echo $$ >> {tmp_path}/orphans; exec sleep 600")
            lost = str(client.jobs.create("/tests", orphans).jobId.value)
            c.wait_for(lambda: c.counts(client, lost)[1] == {"RUNNING": 3}, "three to run")
        cluster.kill()
        put_older_back(data)
        assert start_anyway(cluster).returncode == JOURNAL_BEHIND
        pids = (tmp_path / "orphans").read_text().split()
        assert all((Path("/proc") / pid).exists() for pid in pids), "a refusal kills nothing"
        cluster.options = ("--accept-rollback",)
        cluster.start()
        assert "acknowledged frames are missing" in cluster.errors()
        assert "Generation 1 of the cluster begins" in cluster.errors()
        c.wait_for(lambda: not alive(pids), "the unknown runs to be killed")
        with cluster.client() as client:
            gate.touch()
            assert c.ended(client, known) == ("SUCCEEDED", {"SUCCEEDED": 2})
            assert c.ended(client, waiting) == ("SUCCEEDED", {"SUCCEEDED": 4})
            job = str(client.jobs.create("/tests", c.job(3, f"{say}; echo seen")).jobId.value)
            assert c.ended(client, job) == ("SUCCEEDED", {"SUCCEEDED": 3})
        assert "seen" in cluster.cli("task", "logs", job, "0").stdout
        assert cluster.stop() == 0
        cluster.options = ()
        cluster.start()
        assert cluster.stop() == 0
    runs = Counter(log.read_text().split())
    assert max(runs.values()) == 1, f"ids used twice: {runs.most_common(3)}"
    # Each ran before and after; how often a host refused it first does not matter.
    for at in range(4):
        generations = {run.endswith(".g1") for run in runs if run.startswith(f"{waiting}-{at}-")}
        assert generations == {False, True}, at
    assert sum(run.startswith(known) for run in runs) == 2, "those that it knows went on"


def alive(pids: list[str]) -> list[str]:
    """Of these, those that run."""
    time.sleep(0.05)
    return [pid for pid in pids if (Path("/proc") / pid / "exe").exists()]
