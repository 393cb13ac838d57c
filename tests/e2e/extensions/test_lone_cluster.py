"""The lease lock in a cluster of processes: `kill -9`, removal and return of its package, the
commands that read the journal, with it and without."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from lease_lock.kind import Acquire, Lease, Lock, Release

from peloton.sdk.errors import NotFound, PelotonError
from tests.e2e.cluster import Cluster, ended, job, pool, running
from tests.e2e.extensions.distributions import lease_lock, remove_info, upgrade
from tests.e2e.health import _address

LONG_S = 36_000.0
ELSEWHERE = "serve their actors, this one does not: lock"
LOCKS = [f"lock-{number}" for number in range(4)]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "site"
    monkeypatch.setenv("PYTHONPATH", str(folder))
    return lease_lock(folder)


def health(cluster: Cluster) -> str:
    with urllib.request.urlopen(f"http://{_address(cluster)}/health", timeout=60) as answer:
        return str(answer.read().decode())


def peloton(*words: object, code: int = 0) -> tuple[list[str], str]:
    """Lines and errors of a command in a process of its own, which finds what is installed."""
    done = subprocess.run(
        [sys.executable, "-m", "peloton", *map(str, words)],
        env=os.environ, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout.splitlines(), done.stderr


def works(cluster: Cluster) -> None:
    """A job runs, whatever is installed."""
    with cluster.client() as client:
        created = client.jobs.create("/tests", job(2, "true"))
        assert ended(client, created.jobId.value) == ("SUCCEEDED", {"SUCCEEDED": 2})


def checked(data: Path) -> tuple[dict[str, str], str]:
    """What `journal check` says of each shard, and its notes."""
    lines, notes = peloton("journal", "check", "--data-dir", data)
    return {line.split()[1]: line.split()[0] for line in lines}, notes


@pytest.mark.slow  # processes
def test_a_lock_outlives_its_daemon_and_the_absence_of_its_package(
    tmp_path: Path, site: Path
) -> None:
    with running(tmp_path) as cluster:
        with cluster.client() as client:
            pool(client)
            locks = client.actors("lock")
            first = locks.tell("reports", Acquire("ann", LONG_S), into=Lease)
            locks.tell("other", Acquire("bob", LONG_S))
            assert first.token == 1
        cluster.kill()

        cluster.start()
        with cluster.client() as client:
            locks = client.actors("lock")
            assert locks.state("reports", into=Lock) == Lock("ann", 1, LONG_S)
            locks.tell("reports", Release(1))
            assert locks.tell("reports", Acquire("cy", LONG_S), into=Lease).token == 2
        assert ELSEWHERE not in health(cluster)
        cluster.kill()

        remove_info(site)
        cluster.start()
        assert ELSEWHERE in health(cluster)
        works(cluster)
        with cluster.client() as client:
            assert client.kinds() == []
            with pytest.raises(NotFound, match="no kind 'lock' of an extension in this cluster"):
                client.actors("lock").state("reports")
        assert cluster.stop() == 0

        lease_lock(site)
        cluster.start()
        assert ELSEWHERE not in health(cluster)
        with cluster.client() as client:
            found = dict(client.actors("lock").all(into=Lock))
            assert found == {"other": Lock("bob", 1, LONG_S), "reports": Lock("cy", 2, LONG_S)}
        works(cluster)


@pytest.mark.slow  # processes
def test_a_broken_package_stops_the_start_and_says_where(tmp_path: Path, site: Path) -> None:
    file = site / "lease_lock" / "kind.py"
    file.write_text(file.read_text().replace('holder: str = ""', "holder: str"))
    says = rf"kind 'lock' of peloton-lease-lock 1\.0 .* cannot work:\n{file}:\d+: kind lock: field"
    with pytest.raises(AssertionError, match=says), running(tmp_path):
        pass


@pytest.mark.slow  # processes
def test_a_journal_is_read_and_backed_up_with_the_package_and_without(
    tmp_path: Path, site: Path
) -> None:
    data, lock = tmp_path / "data", "lock/reports"
    with running(tmp_path) as cluster:
        with cluster.client() as client:
            pool(client)
            client.actors("lock").tell("reports", Acquire("ann", LONG_S))
        works(cluster)
        assert cluster.stop() == 0

        shards, notes = checked(data)
        assert {*LOCKS} < shards.keys() and {*shards.values()} == {"ok"} and not notes
        lines, _ = peloton("journal", "dump", "--data-dir", data, "--key", lock)
        assert '"fact": "Taken", "fields": {"holder": "ann"' in lines[0]
        states, _ = peloton("journal", "dump", "--states", "--data-dir", data, "--key", lock)
        assert '"state": {"holder": "ann", "token": 1' in states[0]
        peloton("backup", tmp_path / "with", "--data-dir", data)

        remove_info(site)
        unread = "groups lock: their extensions are not installed here"
        again, notes = checked(data)
        assert again == shards and unread in notes
        lines, notes = peloton("journal", "dump", "--data-dir", data, "--key", lock)
        assert '"fact": null' in lines[0] and '"holder": "ann"' in lines[0] and unread in notes
        states, notes = peloton("journal", "dump", "--states", "--data-dir", data)
        assert any('"key": "job/' in line for line in states) and unread in notes
        assert not any('"key": "lock/' in line for line in states)
        sizes, notes = peloton("journal", "stat", "--data-dir", data)
        assert any(line.startswith("lock-0 ") for line in sizes) and unread in notes
        _, notes = peloton("journal", "check", "--data-dir", data, "--shard", "jobmgr-0")
        assert not notes, "what was not asked for is not missed"
        peloton("backup", tmp_path / "without", "--data-dir", data)

        # What is damaged is found in a group that nobody can decode, too.
        _break(data)
        lines, _ = peloton("journal", "check", "--data-dir", data, code=1)
        assert any(line.startswith("wrong   lock-") for line in lines)

    for name in ("with", "without"):
        restored = tmp_path / f"restored-{name}"
        _, notes = peloton("restore", tmp_path / name, restored / "data")
        assert "damaged" not in notes
        lease_lock(site)
        with running(restored, "--adopt-copy") as cluster, cluster.client() as client:
            assert client.actors("lock").state("reports", into=Lock) == Lock("ann", 1, LONG_S)
        remove_info(site)


def _break(data: Path) -> None:
    database = sqlite3.connect(data / "journal.sqlite")
    with database:
        broken = "UPDATE journal SET body = CAST(body || x'00' AS BLOB) WHERE shard_group = 'lock'"
        assert database.execute(broken).rowcount > 0
    database.close()


@pytest.mark.slow  # processes
def test_an_upgrade_reads_what_was_and_the_earlier_version_says_what_it_cannot_read(
    tmp_path: Path, site: Path
) -> None:
    before: dict[str, Any] = {"holder": "ann", "token": 1, "ttl_s": LONG_S, "renewals": 0}
    with running(tmp_path) as cluster:
        with cluster.client() as client:
            pool(client)
            client.actors("lock").tell("reports", Acquire("ann", LONG_S))
        cluster.kill()

        upgrade(site)
        cluster.start()
        with cluster.client() as client:
            locks = client.actors("lock")
            assert locks.state("reports") == before | {"note": ""}
            assert "Annotate" in client.kinds()[0].messages
            locks.tell("reports", ("Annotate", {"note": "weekly"}))
        cluster.kill()

        # Its new fact is in the journal: version 1 leaves that shard alone, and runs jobs.
        lease_lock(site)
        cluster.start()
        works(cluster)
        assert "has no fact of number" in health(cluster)
        with cluster.client(timeout_s=5) as client, pytest.raises(PelotonError):
            client.actors("lock").state("reports")
        cluster.kill()

        upgrade(site)
        cluster.start()
        with cluster.client() as client:
            assert client.actors("lock").state("reports") == before | {"note": "weekly"}
