"""The vault over a store in memory: which value counts, what stays, and what is said."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from peloton.runtime.adapters.secret_sealing import AesSealing
from peloton.runtime.adapters.sqlite_secrets import SqliteSecrets
from peloton.runtime.shells.secret_vault import (
    ROWS_PER_JOB_MAX,
    SecretsUnavailable,
    SecretVault,
)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def vault(clock: Clock, tmp_path: Path) -> Iterator[SecretVault]:
    with closing(SqliteSecrets(tmp_path / "secrets")) as store:
        yield SecretVault(store, AesSealing([b"k" * 32]), clock=clock)


def test_a_later_value_counts_and_the_earlier_one_is_deleted(vault):
    vault.put("job", {"a": b"1", "b": b"2"})
    vault.put("job", {"a": b"3"})
    assert vault.read("job", ["a", "b", "c"]) == {"a": b"3", "b": b"2"}
    assert len(vault.store.of_job("job")) == 2


def test_a_clock_that_goes_back_changes_nothing_of_that(vault, clock):
    vault.put("job", {"a": b"1"})
    clock.now = 10.0
    vault.put("job", {"a": b"2"})
    assert vault.read("job", ["a"]) == {"a": b"2"}


def test_removed_and_forgotten_values_are_gone(vault):
    vault.put("job", {"a": b"1", "b": b"2"})
    vault.remove("job", ["a"])
    assert vault.read("job", ["a", "b"]) == {"b": b"2"}
    vault.forget("job")
    assert vault.read("job", ["b"]) == {}


def test_only_so_many_values_are_kept_and_named_ones_always(vault, clock):
    for number in range(ROWS_PER_JOB_MAX + 10):
        clock.now += 1
        vault.put("job", {f"s{number}": b"v"}, named=["s0"])
    rows = {row.id for row in vault.store.of_job("job")}
    assert len(rows) == ROWS_PER_JOB_MAX
    assert "s0" in rows and "s1" not in rows and f"s{ROWS_PER_JOB_MAX + 9}" in rows


def test_whoever_does_not_know_what_the_job_names_removes_nothing(vault, clock):
    """Whoever may make jobs may name the id of another one's."""
    for number in range(ROWS_PER_JOB_MAX):
        clock.now += 1
        vault.put("job", {f"s{number}": b"v"}, named=["s0"])
    with pytest.raises(SecretsUnavailable):
        vault.put("job", {"more": b"v"}, named=None)
    assert vault.read("job", ["s0", "s1", "more"]) == {"s0": b"v", "s1": b"v"}


def test_a_store_that_is_down_and_a_key_that_is_gone_are_unavailable(vault):
    vault.put("job", {"a": b"a value"})
    other = SecretVault(vault.store, AesSealing([b"x" * 32]))
    with pytest.raises(SecretsUnavailable) as caught:
        other.read("job", ["a"])
    assert "a value" not in str(caught.value)
    vault.store.close()
    for call in (
        lambda: vault.put("job", {"a": b"1"}),
        lambda: vault.read("job", ["a"]),
        lambda: vault.remove("job", ["a"]),
        lambda: vault.forget("job"),
    ):
        with pytest.raises(SecretsUnavailable, match="closed database"):
            call()
