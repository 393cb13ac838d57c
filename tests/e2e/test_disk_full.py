"""A real cluster on a disk of its own that somebody fills, and empties again."""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from peloton.sdk.errors import PelotonError
from tests.e2e import cluster as c
from tests.e2e.health import figures, ready

NEEDS_ROOT = pytest.mark.needs_root("to mount a file system")
SIZE = "40m"
FULL_S = 22.0
"""Longer than shards wait for an unclear commit: they have given up by then."""


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """The data folder, on a file system of its own."""
    data = folder / "data"
    data.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(data)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("cannot mount a file system here")
    try:
        yield data
    finally:
        subprocess.run(["umount", "-l", str(data)], check=True)


def fill(file: Path) -> None:
    """Until not a byte is left."""
    with file.open("ab", buffering=0) as filler, contextlib.suppress(OSError):
        while True:
            filler.write(bytes(4096))


@pytest.mark.slow
@NEEDS_ROOT
@pytest.mark.timeout(240)
def test_a_disk_that_was_full_is_used_again_by_itself(tmp_path: Path) -> None:
    with small_disk(tmp_path) as data, c.running(tmp_path, "--backend", "simulated") as cluster:
        made: list[str] = []
        stop = threading.Event()

        def load() -> None:
            with cluster.client(timeout_s=5) as client:
                while not stop.is_set():
                    with contextlib.suppress(PelotonError):
                        answer = client.jobs.create("/tests", c.job(20, "true"))
                        made.append(str(answer.jobId.value))

        with cluster.client(timeout_s=5) as client:
            c.pool(client)
            threads = [threading.Thread(target=load) for _ in range(2)]
            for thread in threads:
                thread.start()
            c.wait_for(lambda: len(made) > 5, "some jobs")
            until, filler = time.monotonic() + FULL_S, data / "lost+found"
            while time.monotonic() < until:
                fill(filler)
                stop.wait(0.2)
            stop.set()
            for thread in threads:
                thread.join()
            with pytest.raises(PelotonError):
                client.jobs.create("/tests", c.job(1, "true"))
            code, text = ready(cluster)
            assert code == 503 and "the disk: full under the journal: 0.0 MB of 4" in text
            assert figures(cluster)['peloton_disk_free_bytes{of="journal"}'] == 0.0
            filler.unlink()
            last = c.wait_for(
                lambda: client.jobs.create("/tests", c.job(1, "true")), "room for a job"
            )
            c.wait_for(lambda: ready(cluster)[0] == 200, "that it is ready again")
            for job in [*made, str(last.jobId.value)]:
                assert c.ended(client, job)[0] == "SUCCEEDED"
        assert "the disk answers again" in cluster.errors()
        assert cluster.stop() == 0


RESERVE_BYTES = 2 * 1024 * 1024
"""5 % of the disk."""


@NEEDS_ROOT
def test_the_reserve_of_the_disk_takes_even_what_is_held(tmp_path: Path) -> None:
    with small_disk(tmp_path) as data, c.running(tmp_path) as cluster, cluster.client() as client:
        words = ("map", "--cpus", "0.1", "--detach", "echo", ":::", "1", "2")
        job = cluster.cli(*words).stdout.strip()
        assert c.ended(client, job)[0] == "SUCCEEDED"
        assert client.outputs.hold(job, 300.0) == 300.0
        shown = cluster.cli("job", "logs", job)
        assert sorted(shown.stdout.split()) == ["0", "1", "1", "2"]
        with (data / "filler").open("ab", buffering=0) as filler:
            while os.statvfs(data).f_bavail * os.statvfs(data).f_frsize > RESERVE_BYTES // 2:
                filler.write(bytes(4096))
        c.wait_for(lambda: not [*(data / "keeper" / "runs").iterdir()], "both to be removed")
        gone = cluster.cli("job", "logs", job, check=False)
        assert gone.returncode == 74 and gone.stdout == ""
        assert "the output of 2 instances is gone" in gone.stderr
        assert "256 MB of the disk, or 5 % of it, stay free (keep_sandboxes_free_mb)" in gone.stderr
