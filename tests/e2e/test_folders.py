"""The data folder of a real cluster: for its user alone, and not to be taken for its copy."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from tests.e2e import cluster as c


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
