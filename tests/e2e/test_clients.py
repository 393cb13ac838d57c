"""The clients of examples/clients: made from the protos alone, run against a real minicluster."""

from __future__ import annotations

import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from peloton.settings import access_files
from tests.e2e import cluster as c
from tests.e2e.built_clients import BUILD_TIMEOUT_S, COMMANDS, built, environment

RUN_TIMEOUT_S = 120
pytestmark = pytest.mark.timeout(BUILD_TIMEOUT_S + RUN_TIMEOUT_S)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[c.Cluster]:
    with c.running(tmp_path_factory.mktemp("clients")) as running:
        yield running


@pytest.fixture(scope="module")
def open_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[c.Cluster]:
    """It believes whatever name is given."""
    with c.running(tmp_path_factory.mktemp("open"), "--open-loopback") as running:
        yield running


def run(
    language: str, address: str, command: str, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run the client of a language; the pool has the language's name."""
    with built(language) as folder:
        line = [*COMMANDS[language], address, f"/{language}", command]
        return subprocess.run(
            line, capture_output=True, text=True, timeout=RUN_TIMEOUT_S,
            cwd=folder, env={**environment(), **variables},
        )  # fmt: skip


def proven(address: str) -> dict[str, str]:
    """The variable that names the token of a cluster."""
    entry = access_files.entry_of(address)
    assert entry is not None and entry.token_file
    return {"PELOTON_TOKEN_FILE": str(entry.token_file)}


def text_of(address: str) -> str:
    with urllib.request.urlopen(address, timeout=60) as answer:
        text: str = answer.read().decode()
        return text


@pytest.mark.parametrize("language", COMMANDS)
def test_a_client_creates_waits_reads_and_tells_of_failures(
    cluster: c.Cluster, language: str
) -> None:
    done = run(language, cluster.address, f"echo made by {language}", **proven(cluster.address))
    assert done.returncode == 0, done.stderr
    first, *rest = done.stdout.splitlines()
    assert first.startswith("job ") and first.endswith(" SUCCEEDED")
    assert [line.rpartition(" ")[0] for line in rest] == [
        f"task {number} SUCCEEDED exit 0" for number in range(3)
    ]
    for line in rest:
        assert text_of(line.rpartition(" ")[2]) == f"made by {language}\n"
    with cluster.client() as client:
        job_id = first.split()[1]
        assert c.counts(client, job_id) == ("SUCCEEDED", {"SUCCEEDED": 3})
        made = client.jobs.get(job_id).jobInfo.config
        assert made.name == f"example-{language}"
        assert made.respoolID.value == client.pools.lookup(f"/{language}")
    # The pool is there now.
    command = "exit $((PELOTON_INSTANCE_ID * 3))"
    done = run(language, cluster.address, command, **proven(cluster.address))
    assert done.returncode == 1, done.stderr
    first, *rest = done.stdout.splitlines()
    assert first.endswith(" FAILED")
    assert [line.rpartition(" ")[0] for line in rest] == [
        "task 0 SUCCEEDED exit 0", "task 1 FAILED exit 3", "task 2 FAILED exit 6",
    ]  # fmt: skip


@pytest.mark.parametrize("language", COMMANDS)
def test_a_client_that_proves_nothing_is_refused(cluster: c.Cluster, language: str) -> None:
    done = run(language, cluster.address, "true")
    assert done.returncode != 0 and done.stdout == ""
    assert "UNAUTHENTICATED" in done.stderr.upper()


@pytest.mark.parametrize("language", COMMANDS)
def test_a_client_gives_its_name_and_password(
    open_cluster: c.Cluster, language: str, tmp_path: Path
) -> None:
    password = tmp_path / "password"
    password.write_text("s3cret\n")
    said = {"PELOTON_USERNAME": "ann", "PELOTON_PASSWORD_FILE": str(password)}
    done = run(language, open_cluster.address, "true", **said)
    assert done.returncode == 0, done.stderr
    shown = open_cluster.cli("job", "get", done.stdout.split()[1]).stdout
    assert f"unverified:ann@127.0.0.1/example-{language}" in shown
