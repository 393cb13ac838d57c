"""What every store of secrets does: in a file, and on a real Cassandra."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from peloton.runtime.adapters.cassandra_secrets import CassandraSecrets
from peloton.runtime.adapters.sqlite_secrets import SqliteSecrets
from peloton.runtime.ports import SealedSecret, SecretStore, Unreachable
from tests.servers import keyspaces


def row(job: str, secret: str, made: int = 1, data: bytes = b"\x00sealed") -> SealedSecret:
    return SealedSecret(job, secret, made, "key-1", data)


@pytest.fixture(params=["sqlite", "cassandra"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SecretStore]:
    opened: SecretStore
    if request.param == "sqlite":
        opened = SqliteSecrets(tmp_path / "secrets.sqlite")
    else:
        opened = CassandraSecrets(keyspaces.empty())
    yield opened
    opened.close()


def by_id(rows: list[SealedSecret]) -> list[SealedSecret]:
    return sorted(rows, key=lambda one: (one.id, one.made))


def test_rows_are_found_by_job(store):
    store.put([row("a", "1"), row("a", "2")])
    store.put([row("b", "1", data=b"of b")])
    assert by_id(store.of_job("a")) == [row("a", "1"), row("a", "2")]
    assert store.of_job("b") == [row("b", "1", data=b"of b")]
    assert store.of_job("c") == []


def test_a_new_value_lies_beside_the_old_one(store):
    store.put([row("a", "1", 1)])
    store.put([row("a", "1", 2, b"newer")])
    assert by_id(store.of_job("a")) == [row("a", "1", 1), row("a", "1", 2, b"newer")]


def test_a_row_is_written_again_in_its_place(store):
    store.put([row("a", "1")])
    store.put([row("a", "1", data=b"sealed anew")])
    assert store.of_job("a") == [row("a", "1", data=b"sealed anew")]


def test_deleted_rows_are_gone_and_others_stay(store):
    store.put([row("a", "1", 1), row("a", "1", 2), row("a", "2")])
    store.delete([row("a", "1", 1), row("a", "3")])
    assert by_id(store.of_job("a")) == [row("a", "1", 2), row("a", "2")]


def test_a_job_is_forgotten_whole(store):
    store.put([row("a", "1"), row("a", "2")])
    store.put([row("b", "1")])
    store.forget("a")
    store.forget("a")
    assert store.of_job("a") == []
    assert store.of_job("b") == [row("b", "1")]


def test_jobs_are_listed_in_pages(store):
    for job in "abcde":
        store.put([row(job, "1"), row(job, "2")])
    found: list[str] = []
    while page := store.jobs(found[-1] if found else "", most=2):
        assert len(page) <= 2
        found += page
    assert sorted(found) == [*"abcde"]


def test_the_file_is_for_its_owner_alone(tmp_path):
    before = os.umask(0)
    try:
        store = SqliteSecrets(tmp_path / "secrets.sqlite")
        store.put([row("a", "1")])
    finally:
        os.umask(before)
    assert [stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()] == [0o600]
    store.close()


def test_a_file_survives_its_process(tmp_path):
    first = SqliteSecrets(tmp_path / "secrets.sqlite")
    first.put([row("a", "1")])
    first.close()
    second = SqliteSecrets(tmp_path / "secrets.sqlite")
    assert second.of_job("a") == [row("a", "1")]
    second.close()


def test_a_file_that_is_none_is_unreachable(tmp_path):
    (tmp_path / "secrets.sqlite").write_bytes(b"something else, of some length" * 100)
    with pytest.raises(Unreachable):
        SqliteSecrets(tmp_path / "secrets.sqlite")
