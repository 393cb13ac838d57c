"""What commands say of services where a reader could go wrong, on a cluster in this process."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest

from peloton.actors.job.messages import GetJob, job_key
from peloton.api.v0.job import job_pb2
from peloton.gateway.cluster.rollouts import remaining
from tests.cli.test_services import CONFIG, SPEC, Shell, rows
from tests.gateway.fleet_fixture import HOSTS, running

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
        assert found.code == 66 and "there is no job nosuch; of a deleted job give" in found.err
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


# ---- workflows ----


def daemon_job(shell: Shell, name: str, **changes: str) -> str:
    """The id of a daemon job that runs on all hosts."""
    changes = {"SERVICE": "DAEMON", "instanceCount: 2\n": "", **changes}
    found = shell.done(
        "job", "create", "/work", shell.file(CONFIG, name, **changes), "-o", "name"
    ).strip()
    until_all_run(shell, found)
    return found


def until_all_run(shell: Shell, job: str) -> None:
    stats = shell.deployment.job
    shell.deployment.until(lambda: stats(job).runtime.taskStats["RUNNING"] == len(HOSTS))


def test_a_daemon_job_is_updated_and_goes_back(shell: Shell) -> None:
    job = daemon_job(shell, "agent")
    no_count = {"SERVICE": "DAEMON", "instanceCount: 2\n": ""}
    other = shell.file(CONFIG, "agent", **no_count, **{"memLimitMb: 1": "memLimitMb: 2"})
    done = shell("update", "create", "agent", other, "1", "/work", "--wait")
    assert done.code == 0, done
    counts = {line.partition(" pods done")[0].split()[-1] for line in done.err.splitlines()[1:]}
    assert counts <= {str(len(HOSTS)), "0"}, done.err
    back = shell("job", "stateless", "rollback", "agent", "0", "1-1-1", "--wait")
    assert back.code == 0, back
    config = shell.deployment.job(job).config
    assert config.type == job_pb2.DAEMON and config.defaultConfig.resource.memLimitMb == 1


def test_a_file_without_resource_leaves_the_job_the_one_it_was_given(shell: Shell) -> None:
    silent = {"  resource: {cpuLimit: 0.1, memLimitMb: 1}\n": ""}
    job = made(shell, "silent", 1, **silent)
    given = shell.deployment.job(job).config.defaultConfig.resource
    assert given.cpuLimit and given.memLimitMb
    assert "no difference" in shell.done(
        "diff", "silent", shell.file(CONFIG, "silent", 1, **silent)
    )
    other = shell.file(CONFIG, "silent", 1, **silent, **{'"true"': '"false"'})
    shell.done("update", "create", "silent", other, "0", "/work", "--wait")
    config = shell.deployment.job(job).config.defaultConfig
    assert (config.command.value, config.resource) == ("false", given)
    made(shell, "more", 1, SERVICE="BATCH", **silent)
    file = shell.file(CONFIG, "more", 2, SERVICE="BATCH", **silent)
    assert "added 1 instances" in shell.done("job", "update", "more", file)


def test_a_batch_job_has_nowhere_to_go_back_to(shell: Shell) -> None:
    made(shell, "batch", 1, SERVICE="BATCH")
    found = shell("job", "stateless", "rollback", "batch", "0", "1-1-1")
    assert found.code == 73 and "is a batch job: only services go back" in found.err


def test_rolling_stops_and_starts_have_names(shell: Shell) -> None:
    made(shell, "through")
    done = shell("job", "rolling-stop", "through", "1", "--wait")
    assert "ROLLING-STOP to version 2 SUCCEEDED" in done.err
    shell.done("job", "rolling-start", "through", "1", "--wait")
    whats = [row[1] for row in rows(shell.done("job", "history", "through"))]
    assert whats[1:3] == ["rolling-start", "rolling-stop"]


def test_a_range_without_instances_is_not_restarted(shell: Shell) -> None:
    made(shell, "short")
    found = shell("task", "restart", "short", "-r", "50:60")
    assert found.code == 66 and "the job has instances 0 to 1" in found.err and not found.out


def test_a_new_name_is_told_once_it_is_one(shell: Shell) -> None:
    shell.service("first")
    wrong = shell.file(CONFIG, "second")
    found = shell("job", "stateless", "replace", "first", wrong, "0", "/work")
    assert found.code == 65 and "from now on" not in found.err


def test_an_update_of_a_daemon_job_counts_hosts_and_not_numbers(shell: Shell) -> None:
    job = daemon_job(shell, "counted")
    shell.done("job", "stateless", "restart", "counted", "--wait")
    view = shell.deployment.region.ask(job_key(job), GetJob()).result(60)
    begun = msgspec.structs.replace(view.workflows[0], total=57_001, done=1, failed=0)
    assert remaining(view, begun) == len(HOSTS) - 1


def test_an_update_is_named_by_its_job(shell: Shell) -> None:
    job = made(shell, "updated")
    other = shell.file(CONFIG, "updated", **{"memLimitMb: 1": "memLimitMb: 2"})
    shell.done("update", "create", "updated", other, "0", "/work", "--wait")
    (name,) = shell.done("update", "list", "updated", "-o", "name").split()[:1]
    for typed in ("updated", job[:8], job, name, name.replace(job, "updated")):
        assert shell.done("update", "get", typed, "-o", "name").strip() == name
    for typed in ("nosuch", f"{job}-77"):
        assert shell("update", "get", typed).code == 66
    made(shell, "calm", 1, SERVICE="BATCH")
    never = shell("update", "rollback", "calm")
    assert never.code == 66 and "has had no update" in never.err


# ---- watches ----


@pytest.mark.parametrize("job", ["nosuch", "5b9c6d2e-0000-4000-8000-00000000dead"])
@pytest.mark.parametrize("what", ["job", "pod"])
def test_a_watch_of_no_job_ends(shell: Shell, job: str, what: str) -> None:
    found = shell("watch", what, job)
    assert found.code == 66 and f"job not found: {job}" in found.err


# ---- hosts ----


def test_a_host_that_is_up_is_no_unknown_one(shell: Shell) -> None:
    refused = shell("host", "maintenance", "complete", HOSTS[0])
    assert refused.code == 73 and "Host is not DOWN" in refused.err
    for verb in ("start", "complete"):
        assert shell("host", "maintenance", verb, "nobody").code == 66


# ---- secrets ----


def test_a_secret_goes_with_a_replacement(shell: Shell) -> None:
    """This cluster has no keys for it."""
    shell.service("hushed")
    words = ("job", "stateless", "replace", "hushed", shell.file(SPEC, "hushed"), "0", "/work")
    found = shell(*words, "--secret-path", "token", "--secret-data", "hush")
    assert found.code == 65 and "secrets not enabled in cluster" in found.err
    assert shell(*words, "--secret-path", "token").code == 64


def test_instances_of_a_daemon_job_are_restarted_by_their_numbers(shell: Shell) -> None:
    daemon_job(shell, "numbered")
    number = max(int(row[0]) for row in rows(shell.done("task", "list", "numbered"))[1:])
    assert number > len(HOSTS)
    assert shell.done("task", "restart", "numbered", "-r", f"{number}") == "Job restarted\n"
    assert shell("task", "stop", "numbered", "-r", f"{number}").code == 0
