"""What commands say of services where a reader could go wrong, on a cluster in this process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cli.test_services import CONFIG, Shell
from tests.gateway.fleet_fixture import running

VOLUME = "defaultConfig:\n  volume: {containerPath: /data, sizeMB: 5}\n"


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    folder = tmp_path_factory.mktemp("words")
    with running(folder) as deployment:
        yield Shell(deployment, folder)


def made(shell: Shell, name: str, count: int = 2, **changes: str) -> str:
    """The id of a job of v0 that runs; SPEC's of v1alpha are made by `shell.service`."""
    file = shell.file(CONFIG, name, count, **changes)
    found = shell.done("job", "create", "/work", file, "-o", "name").strip()
    shell.deployment.until(
        lambda: shell.deployment.job(found).runtime.taskStats["RUNNING"] == count
    )
    return found


# ---- volumes ----


def test_volumes_are_named_as_pods_are(shell: Shell) -> None:
    job = made(shell, "kept", 1, **{"defaultConfig:\n": VOLUME})
    for typed in ("kept", job[:8], job):
        assert shell.done("volume", "get", f"{typed}-0", "-o", "name") == f"{job}-0\n"
    for words in (("get", "nosuch-0"), ("delete", "nosuch-0"), ("list", "nosuch")):
        found = shell("volume", *words)
        assert found.code == 66 and "there is no job nosuch; the volumes of a del" in found.err
    shell.done("task", "stop", "kept")
    shell.deployment.ended(job)
    deleted = shell("job", "delete", "kept")
    assert deleted.code == 0 and f"volume list {job}" in deleted.err, deleted
    assert shell.done("volume", "list", job, "-o", "name") == f"{job}-0\n"
    assert shell("volume", "delete", f"{job}-0").out == f"Volume {job}-0 deleted\n"


def test_who_deletes_a_job_without_volumes_reads_nothing_of_them(shell: Shell) -> None:
    job = made(shell, "light", 1)
    shell.done("task", "stop", "light")
    shell.deployment.ended(job)
    assert shell("job", "delete", "light").err == ""
