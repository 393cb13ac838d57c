"""The sweeps of secrets and of files, over a cluster that answers by a table."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from peloton.actors.host.run_spec import SecretRef
from peloton.actors.job.messages import JobSummary, JobView
from peloton.actors.job.slice.task_config import TaskConfig
from peloton.actors.job.spec import JobSpec
from peloton.actors.job.stages import EntityVersion, JobGoals, JobStates
from peloton.assembly import secret_sweep
from peloton.assembly.job_file_sweep import KEPT_S, JobFileSweep
from peloton.assembly.secret_sweep import SecretSweep
from peloton.assembly.sweep import YOUNG_S
from peloton.backends.job_files import JobFileFolder
from peloton.runtime.adapters.secret_sealing import AesSealing
from peloton.runtime.adapters.sqlite_secrets import SqliteSecrets
from peloton.runtime.shells.secret_vault import SecretVault
from peloton.runtime.vocabulary import Absent, Key, Unavailable

OLD, NEW = b"o" * 32, b"n" * 32
NOW = 1_000_000.0


def view(*secrets: str, ended: float = 0.0) -> JobView:
    refs = tuple(SecretRef(one, one) for one in secrets)
    spec = JobSpec("j", "me", Key("respool/p"), 1, TaskConfig(secrets=refs))
    job, pool = Key("job/a"), Key("respool/p")
    times = (1.0, 0.0, ended, 1.0)
    summary = JobSummary(job, "j", "me", JobStates.RUNNING, 1, pool, "/p", *times, (), "BATCH", ())
    return JobView(summary, spec, JobGoals.SUCCEEDED, 1, 1, "", version=EntityVersion(1, 1, 1))


class Cluster:
    """What it answers about jobs, by their keys."""

    def __init__(self, **answers: Any) -> None:
        self.answers = {f"job/{name}": answer for name, answer in answers.items()}

    def ask(self, key: Key, message: Any) -> Future[Any]:
        found: Future[Any] = Future()
        found.set_result(self.answers[key])
        return found


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteSecrets]:
    with closing(SqliteSecrets(tmp_path / "secrets")) as opened:
        yield opened


def vault(store: SqliteSecrets, *keys: bytes, at: float = NOW - YOUNG_S - 1) -> SecretVault:
    return SecretVault(store, AesSealing(keys or (OLD,)), clock=lambda: at)


def swept(store: SqliteSecrets, cluster: Cluster, *keys: bytes) -> list[str]:
    said: list[str] = []
    sweep = SecretSweep(
        vault(store, *keys),
        cluster,
        report=said.append,
        clock=lambda: NOW,  # type: ignore[arg-type]
    )
    sweep.sweep()
    return said


def test_what_no_job_has_is_deleted_and_the_rest_stays(store, monkeypatch):
    monkeypatch.setattr(secret_sweep, "PAGE_JOBS", 2)
    for job in ("gone", "kept", "plain", "silent"):
        vault(store).put(job, {"s": b"v"})
    cluster = Cluster(
        gone=Absent(Key("job/gone")), kept=view("s"), plain=view(), silent=Unavailable("moving")
    )
    assert swept(store, cluster) == []
    assert store.jobs("", most=9) == ["kept", "silent"]


def test_what_is_young_may_be_of_a_create_that_is_under_way(store):
    vault(store, at=NOW - 1).put("new", {"s": b"v"})
    swept(store, Cluster(new=Absent(Key("job/new"))))
    assert store.jobs("", most=9) == ["new"]


def test_what_older_keys_sealed_is_sealed_anew(store):
    vault(store, OLD).put("kept", {"s": b"v", "t": b"w"})
    cluster = Cluster(kept=view("s", "t"))
    assert swept(store, cluster, NEW, OLD) == ["2 secrets are encrypted with the newest key now"]
    assert swept(store, cluster, NEW, OLD) == []
    assert vault(store, NEW).read("kept", ["s", "t"]) == {"s": b"v", "t": b"w"}


def test_a_key_that_is_gone_is_said_once_a_sweep_and_its_rows_stay(store):
    vault(store, OLD).put("kept", {"s": b"v"})
    (said,) = swept(store, Cluster(kept=view("s")), NEW)
    assert "not in the key file" in said
    assert vault(store, OLD).read("kept", ["s"]) == {"s": b"v"}


def test_files_stay_as_long_as_a_run_may_need_them(tmp_path: Path) -> None:
    files = JobFileFolder(tmp_path)
    old = NOW - YOUNG_S - 1
    answers = {
        "gone": Absent(Key("job/gone")), "runs": view(), "silent": Unavailable("moving"),
        "ended": view(ended=NOW - KEPT_S), "just": view(ended=NOW - KEPT_S + 1),
        "new": Absent(Key("job/new")),
    }  # fmt: skip
    for job in answers:
        files.put(job, {"script": b"x"})
        os.utime(tmp_path / "files" / job, (0.0, NOW if job == "new" else old))
    cluster: Any = Cluster(**answers)
    JobFileSweep(files, cluster, report=print, clock=lambda: NOW).sweep()
    assert sorted(files.made()) == ["just", "new", "runs", "silent"]
