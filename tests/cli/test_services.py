"""`peloton job stateless`, `pod`, `update`, `diff`, `job history` on a cluster in this process."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from peloton.cli.services import workflow_wait
from tests.cli.terminal import Printed, typed
from tests.gateway.fleet_fixture import Deployment, running, until

SPEC = """\
name: NAME
owner: owner
owning_team: team
instance_count: COUNT
default_spec:
  labels: [{key: tier, value: web}]
  containers:
  - name: main
    resource: {cpu_limit: 0.1, mem_limit_mb: 1}
    entrypoint: {value: "true"}
    environment:
    - {name: PELOTON_SIMULATED_DURATION_S, value: "600"}
"""
CONFIG = """\
name: NAME
type: SERVICE
owningTeam: team
instanceCount: COUNT
defaultConfig:
  name: main
  resource: {cpuLimit: 0.1, memLimitMb: 1}
  command:
    shell: true
    value: "true"
    environment:
      variables:
      - {name: PELOTON_SIMULATED_DURATION_S, value: "600"}
"""


class Shell:
    """Commands to one cluster, and the files that they name."""

    def __init__(self, deployment: Deployment, folder: Path) -> None:
        self.deployment, self.folder = deployment, folder

    def __call__(self, *words: str) -> Printed:
        return typed("--api", self.deployment.api, "-t", "60s", *words)

    def done(self, *words: str, code: int = 0) -> str:
        """What a command prints that ends with this code."""
        found = self(*words)
        assert found.code == code, found
        return found.out

    def data(self, *words: str, code: int = 0) -> Any:
        """The same as data."""
        return json.loads(self.done(*words, "--output", "json", code=code))

    def file(self, text: str, name: str, count: int = 2, **changes: str) -> str:
        """A file for a service of this name, with these texts changed."""
        text = text.replace("NAME", name).replace("COUNT", str(count))
        for old, new in changes.items():
            text = text.replace(old, new)
        path = self.folder / f"{name}-{abs(hash(text))}.yaml"
        path.write_text(text)
        return str(path)

    def service(self, name: str, count: int = 2) -> str:
        """The id of a service that runs."""
        words = ("create", "/work", self.file(SPEC, name, count), "0", "--wait")
        return self.done("job", "stateless", *words, "-o", "name").strip()

    def version(self, name: str) -> str:
        found = self.data("job", "stateless", "get", name, "--summaryonly")
        return str(found["summary"]["status"]["version"]["value"])


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    folder = tmp_path_factory.mktemp("services")
    with running(folder) as deployment:
        yield Shell(deployment, folder)


def rows(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("|")[:-1]] for line in text.splitlines()]


# ---- services ----


def test_a_service_is_created_seen_and_deleted(shell: Shell) -> None:
    file = shell.file(SPEC, "seen")
    wanted = "5b9c6d2e-0000-4000-8000-000000000001"
    made = shell("job", "stateless", "create", "/work", file, "1", "--jobID", wanted)
    assert made.out == f"Job {wanted} created. Entity Version: 1-1-1\n"
    assert "next: " in made.err and f"job stateless list-pods {wanted}" in made.err
    again = shell("job", "stateless", "create", "/work", file, "1", "-i", wanted)
    assert again.code == 73 and f"Job {wanted} already exists" in again.err

    waited = shell("job", "stateless", "workflow", "status", "seen", "--follow")
    assert waited.code == 0
    assert waited.out.splitlines()[-1] == "UPDATE to version 1 SUCCEEDED: 2 of 2 pods done"
    whole = yaml.safe_load(shell.done("job", "stateless", "get", "seen"))
    assert whole["job_info"]["spec"]["instance_count"] == 2
    assert whole["workflow_info"]["status"]["state"] == "WORKFLOW_STATE_SUCCEEDED"
    spec = yaml.safe_load(shell.done("job", "stateless", "get", "seen", "--jobversion", "1-1-1"))
    assert "status" not in spec["job_info"]
    cached = yaml.safe_load(shell.done("job", "stateless", "cache", "seen"))
    assert cached["status"]["state"] == "JOB_STATE_RUNNING"
    assert shell.done("job", "stateless", "refresh", "seen") == "{}\n"

    running = shell("job", "stateless", "delete", "seen")
    assert (running.code, running.err.strip()) == (
        73,
        "job is not stopped: stop it first, or use --force",
    )
    assert shell.done("job", "stateless", "stop", "seen", "1-1-1") == (
        "Job stopped. New EntityVersion: 1-2-1\n"
    )
    stale = shell("job", "stateless", "start", "seen", "1-1-1")
    assert (stale.code, stale.err.strip()) == (73, "unexpected entity version")
    assert shell.done("job", "stateless", "start", "seen") == (
        "Job started. New EntityVersion: 1-3-1\n"
    )
    would = shell.done("job", "stateless", "delete", "seen", "--force", "--dry-run")
    assert would.startswith(f"would delete job {wanted}, which is ") and "1-3-1" in would
    assert shell.done("job", "stateless", "delete", "seen", "--force") == "Job deleted\n"
    gone = shell("job", "stateless", "get", wanted)
    assert (gone.code, gone.err.strip()) == (66, f"Job {wanted} was not found: job not found")


def test_services_are_listed_and_queried(shell: Shell) -> None:
    made = shell.service("listed-a"), shell.service("listed-b", 1)
    listed = rows(shell.done("job", "stateless", "list"))
    assert listed[0][:4] == ["ID", "Name", "Owner", "State"]
    assert listed[0][-4:] == ["Workflow Status", "Completed", "Failed", "Current"]
    assert {*made} <= {row[0] for row in listed}
    found = rows(shell.done("job", "stateless", "query", "--name", "listed-", "-s", "running"))
    assert [row[1] for row in found[1:]] == ["listed-b", "listed-a"]
    assert found[2][3] == "JOB_STATE_RUNNING"
    assert found[2][5:] == ["2", "2", "0", "0", "0", "WORKFLOW_STATE_SUCCEEDED", "2", "0", "0"]
    query = ("job", "stateless", "query", "--name", "listed-", "-r", "/work")
    assert shell.done(*query, "-p", "name", "-a", "ASC", "-n", "1", "--output", "name") == (
        f"{made[0]}\n"
    )
    assert "go on with --offset 1" in shell(*query, "-n", "1").err
    assert rows(shell.done(*query, "--output", "wide"))[1][-3] == "1-1-1"
    assert shell.done("job", "stateless", "query", "--name", "no-such") == "No results found\n"
    assert len(shell.data(*query)["records"]) == 2
    wrong = shell("job", "stateless", "query", "-s", "nonsense")
    assert wrong.code == 65 and "no such job state" in wrong.err


def test_another_spec_is_rolled_out_and_back(shell: Shell) -> None:
    job = shell.service("rolled")
    other = shell.file(SPEC, "rolled", web="db")
    diff = shell.data("job", "stateless", "replace-diff", "rolled", other, "/work")
    assert diff["instances_updated"] == [{"from": 0, "to": 1}]
    words = ("job", "stateless", "replace", "rolled", other, "1", "/work")
    stale = shell(*words, "7-7-7")
    assert (stale.code, stale.err.strip()) == (73, "unexpected entity version")
    done = shell(*words, "--opaque-data", "two", "--maxInstanceRetries", "3", "--wait")
    assert (done.code, done.out) == (0, "New EntityVersion: 2-1-2\n")
    assert done.err.splitlines()[-1] == "UPDATE to version 2 SUCCEEDED: 2 of 2 pods done"
    assert shell.version("rolled") == "2-1-2"

    words = ("job", "stateless", "restart", "rolled", "2-1-2", "-r", "0:1", "--batch-size", "1")
    assert "would restart 1 of the 2 instances" in shell.done(*words, "--dry-run")
    done = shell(*words, "--wait")
    assert done.out == "Job restarted. New EntityVersion: 3-1-3\n"
    assert done.err.splitlines()[-1] == "RESTART to version 3 SUCCEEDED: 1 of 1 pods done"
    back = shell("job", "stateless", "rollback", "rolled", "0", "3-1-3")
    assert back.code == 73 and "has this spec already, at version 3-1-3: nothing" in back.err
    first = shell.data("job", "stateless", "get", "rolled", "--jobversion", "1-1-1")["job_info"]
    assert first["spec"]["default_spec"]["labels"] == [{"key": "tier", "value": "web"}]
    assert "status" not in first
    back = shell("job", "stateless", "rollback", "rolled", "0", "1-1-1", "--wait")
    assert back.code == 0 and back.out.startswith("New EntityVersion: 4-1-")
    now = shell.data("job", "stateless", "get", "rolled")["job_info"]["spec"]
    assert now["default_spec"] == first["spec"]["default_spec"]
    never = shell("job", "stateless", "rollback", "rolled", "0", "9-1-1")
    assert (never.code, never.err.strip()) == (
        66,
        "rolled: there is no version 9; the newest is 4",
    )

    back = shell("rollback", "rolled", "--wait")
    assert back.code == 0 and back.out.startswith("New EntityVersion: 5-1-"), back
    now = shell.data("job", "stateless", "get", "rolled")["job_info"]["spec"]
    assert now["default_spec"] != first["spec"]["default_spec"], "that of before the rollback"
    told = shell("job", "history", "rolled").err
    assert f"rollback {job} (the spec before the last update)" in told and "--to 4" in told
    back = shell("rollback", "rolled", "--to", "1", "--wait")
    assert back.code == 0 and back.out.startswith("New EntityVersion: 6-1-"), back
    now = shell.data("job", "stateless", "get", "rolled")["job_info"]["spec"]
    assert now["default_spec"] == first["spec"]["default_spec"]
    assert shell("rollback", "rolled", "--to", "one").code == 64

    listed = rows(shell.done("job", "stateless", "list-workflows", "rolled"))
    assert [row[0] for row in listed[1:]][-3:] == ["RESTART", "UPDATE", "UPDATE"]
    assert listed[-2][2:4] == ["1", "2"] and listed[-2][-1] == "two"
    whole = shell.done("job", "stateless", "list-updates", "rolled", "--limit", "1")
    assert whole.startswith("Index 0:\n") and "Timestamp|" in whole and "Index 1" not in whole
    data = shell.data("job", "stateless", "list-updates", "rolled")
    assert len(data["workflow_infos"]) >= 3
    assert shell.done("job", "stateless", "list-workflows", "rolled", "-o", "name")
    assert shell.done("job", "stateless", "delete", job, "--force") == "Job deleted\n"


def test_a_workflow_is_paused_resumed_and_aborted(shell: Shell) -> None:
    shell.service("paused")
    # No host has so much, so it is not over before it is told what to do.
    other = shell.file(SPEC, "paused", **{"cpu_limit: 0.1": "cpu_limit: 100"})
    shell.done("job", "stateless", "replace", "paused", other, "1", "/work", "--start-paused")
    status = ("job", "stateless", "workflow", "status", "paused")
    assert shell.done(*status) == "UPDATE to version 2 PAUSED: 0 of 2 pods done\n"
    late = shell(*status, "--follow", "--within", "0")
    assert late.code == 124 and "it goes on" in late.err
    control = ("job", "stateless", "workflow")
    known = shell.version("paused")
    assert shell.done(*control, "resume", "paused", known) == (
        "Workflow resumed. New EntityVersion: 2-1-3\n"
    )
    shell.done(*control, "pause", "paused", "--opaque-data", "wait")
    assert shell.done(*control, "abort", "paused").startswith("Workflow aborted. New EntityVer")
    assert shell(*status, "--follow").code == 1
    assert shell.data(*status)["status"]["state"] == "WORKFLOW_STATE_ABORTED"
    nobody = shell(*control, "pause", "paused", "9-9-9")
    assert (nobody.code, nobody.err.strip()) == (73, "unexpected entity version")
    events = shell(*control, "events", "paused", "0")
    assert events.code in (0, 70), "served, or refused as not supported"


def test_who_controls_a_workflow_that_is_over_is_told(shell: Shell) -> None:
    shell.service("done")
    for order in ("pause", "resume", "abort"):
        found = shell("job", "stateless", "workflow", order, "done")
        assert found.code == 0, "as in the original"
        assert "it was over, and stays so: UPDATE to version 1 SUCCEEDED" in found.err
    shell.done("job", "stateless", "replace", "done", shell.file(SPEC, "done", 3), "1", "/work",
               "--start-paused")  # fmt: skip
    assert shell("job", "stateless", "workflow", "abort", "done").err == ""


def test_why_tells_of_a_paused_workflow_and_of_the_failure_before_a_pause(shell: Shell) -> None:
    shell.service("held")
    more = shell.file(SPEC, "held", 3)
    shell.done("job", "stateless", "replace", "held", more, "1", "/work", "--start-paused")
    text = "its update to version 2 is paused, 1 of 1 to go: `peloton job stateless work"
    until(lambda: text in shell.done("why", "held"))
    codes = [one["code"] for one in shell.data("why", "held")["reasons"]]
    assert codes == ["running", "workflow"], "what is to be added does not exist"
    shell.service("rests")
    other = shell.file(SPEC, "rests", 2, **{"cpu_limit: 0.1": "cpu_limit: 0.2"})
    shell.done("job", "stateless", "replace", "rests", other, "1", "/work", "--start-paused")
    until(lambda: "paused, 2 of 2 to go" in shell.done("why", "rests"))
    codes = [one["code"] for one in shell.data("why", "rests")["reasons"]]
    assert codes == ["running", "workflow"]
    code = '- {name: PELOTON_SIMULATED_EXIT_CODE, value: "3"}\n'
    fails = shell.file(SPEC, "fails", 1, **{'value: "600"}\n': f'value: "0.1"}}\n    {code}'})
    shell.done("job", "stateless", "create", "/work", fails, "0")
    until(
        lambda: (
            "retry: waits after failure 1: Command exited with status 3"
            in shell.done("why", "fails")
        )
    )


def test_a_spec_of_another_name_is_warned_of(shell: Shell) -> None:
    shell.service("before")
    other = shell.file(SPEC, "after")
    found = shell("job", "stateless", "replace", "before", other, "0", "/work")
    assert "the service before is renamed to after" in found.err
    again = shell("job", "stateless", "replace", "after", other, "0", "/work")
    assert (again.code, again.err) == (0, "")
    gone = shell("job", "stateless", "replace", "before", other, "0", "/work", "1-1-1")
    assert (gone.code, gone.err.strip()) == (66, "Job before was not found: job not found")


def test_what_to_do_next_is_said(shell: Shell) -> None:
    shell.service("kept")
    refused = shell("job", "stateless", "delete", "kept")
    assert refused.code == 73 and "stop it first, or use --force" in refused.err
    older = shell("job", "stateless", "rollback", "kept", "0", "7-1-1")
    assert older.code == 66 and "was not found" not in older.err
    made = shell("job", "create", "/work", shell.file(CONFIG, "endless"))
    assert "task list" in made.err and "job wait" not in made.err


def test_a_file_of_the_other_kind_is_known(shell: Shell) -> None:
    new = shell("job", "create", "/work", shell.file(SPEC, "new"))
    assert new.code == 65 and "a spec of v1alpha, for `peloton job stateless create`" in new.err
    old = shell("job", "stateless", "create", "/work", shell.file(CONFIG, "old"), "0")
    assert old.code == 65 and "a config of v0, for `peloton job create`" in old.err


def test_a_bad_spec_is_shown_with_its_line(shell: Shell) -> None:
    file = shell.file(SPEC, "bad", **{"cpu_limit: 0.1": "cpu_limit: -1"})
    found = shell("job", "stateless", "create", "/work", file, "0")
    assert found.code == 65
    assert f"{file}, line 9: Invalid job spec: " in found.err, found.err
    file = shell.file(SPEC, "bad", entrypoint="entrypont")
    found = shell("job", "stateless", "create", "/work", file, "0")
    assert found.code == 65 and "entrypont" in found.err and "line 10" in found.err
    found = shell("job", "stateless", "create", "/nowhere", shell.file(SPEC, "bad"), "0")
    assert found.code == 66


def test_a_secret_goes_with_the_creation(shell: Shell, tmp_path: Path) -> None:
    """As `peloton job create` sends one; this cluster has no keys for it."""
    line = ("job", "stateless", "create", "/work", shell.file(SPEC, "hushed"), "0")
    found = shell(*line, "--secret-path", "x")
    assert found.code == 64 and "both secret-path and secret-data" in found.err
    (tmp_path / "hush").write_bytes(b"hush")
    for secret in (("--secret-data", "hush"), ("--secret-file", str(tmp_path / "hush"))):
        found = shell(*line, "--secret-path", "x", *secret)
        assert found.code == 65 and "secrets not enabled in cluster" in found.err, found


# ---- pods ----


def test_pods_are_listed_and_queried(shell: Shell) -> None:
    job = shell.service("podded", 3)
    listed = rows(shell.done("job", "stateless", "list-pods", "podded"))
    assert listed[0] == [
        "Name", "Pod ID", "State", "Healthy", "Start Time", "Host", "Message", "Reason",
    ]  # fmt: skip
    assert sorted(row[0] for row in listed[1:]) == [f"{job}-{at}" for at in range(3)]
    assert {row[3] for row in listed[1:]} == {"HEALTH_STATE_DISABLED"}
    one = shell.done("job", "stateless", "list-pods", "podded", "-r", "1", "-o", "name")
    assert one == f"{job}-1\n"
    assert len(shell.data("job", "stateless", "list-pods", "podded")["pods"]) == 3
    for command in (("pod", "query"), ("job", "stateless", "query-pods")):
        found = rows(
            shell.done(*command, "podded", "-s", "RUNNING", "-p", "instance_id", "-n", "2")
        )
        assert found[0][3:5] == ["Container Name", "Container State"]
        assert [row[1] for row in found[1:]] == [f"{job}-0", f"{job}-1"]
        assert found[1][3:6] == ["main", "CONTAINER_STATE_RUNNING", "HEALTH_STATE_DISABLED"]
    assert "go on with --offset 1" in shell("pod", "query", "podded", "-n", "1").err
    assert shell.done("pod", "query", "podded", "--names", "x") == "No pods found\n"
    nobody = shell("pod", "query", "5b9c6d2e-0000-4000-8000-000000000009")
    assert nobody.code == 66 and "was not found: job not found" in nobody.err


def test_a_pod_is_seen_stopped_started_and_restarted(shell: Shell) -> None:
    job = shell.service("single", 1)
    name = f"{job}-0"

    def status() -> dict[str, Any]:
        found: dict[str, Any] = shell.data("pod", "get", "single-0", "--statusonly", "--limit", "1")
        return dict(found["current"]["status"])

    assert status()["state"] == "POD_STATE_RUNNING"
    assert "spec" in shell.data("pod", "get", "single-0")["current"]
    assert shell.data("pod", "cache", name)["labels"] == [{"key": "tier", "value": "web"}]
    assert shell.done("pod", "stop", "single-0", "--dry-run") == (
        f"would stop pod {name}, which is RUNNING\n"
    )
    assert shell.done("pod", "stop", "single-0") == f"Pod {name}: stop ordered\n"
    until(lambda: status()["state"] == "POD_STATE_KILLED")
    assert shell.done("pod", "start", "single-0") == f"Pod {name}: start ordered\n"
    until(lambda: status()["pod_id"]["value"] == f"{name}-2")
    until(lambda: status()["state"] == "POD_STATE_RUNNING")
    assert shell.done("pod", "restart", "single-0") == f"Pod {name}: restart ordered\n"
    until(lambda: status()["pod_id"]["value"] == f"{name}-3")
    assert shell.done("pod", "refresh", "single-0") == f"Pod {name}: refreshed\n"
    ids = shell.done("pod", "get", "single-0", "-o", "name").split()
    assert ids == [f"{name}-{run}" for run in (3, 2, 1)]
    nobody = shell("pod", "get", f"{job}-7")
    assert (nobody.code, nobody.err.strip()) == (66, f"Pod {job}-7 was not found: pod not found")
    unknown = shell("pod", "restart", "nowhere-0")
    assert (unknown.code, unknown.err.strip()) == (
        66,
        "Pod nowhere-0 was not found: there is no job nowhere",
    )
    wrong = shell("pod", "get", "x")
    assert (wrong.code, wrong.err.strip()) == (65, "invalid pelotonTaskID x")


def test_what_happened_to_a_pod(shell: Shell) -> None:
    job = shell.service("told", 1)
    name = f"{job}-0"
    shell.done("pod", "restart", "told-0")
    until(lambda: "POD_STATE_RUNNING" in shell.done("pod", "events-v1alpha", "told-0"))
    first = rows(shell.done("pod", "events-v1alpha", "told-0", "-p", "1"))
    assert first[0][:4] == ["Pod Id", "Desired Pod Id", "Actual State", "Desired State"]
    assert {row[0] for row in first[1:]} == {f"{name}-1"}
    assert [row[2] for row in first[1:]][-1] == "POD_STATE_INITIALIZED"
    count = len(first) - 1
    assert shell.done("pod", "delete-events", "told-0", "1", "--dry-run") == (
        f"would delete {count} events of run {name}-1\n"
    )
    deleted = shell.done("pod", "delete-events", "told-0", f"{name}-1")
    assert deleted == f"Events of run {name}-1 deleted\n"
    assert len(rows(shell.done("pod", "events-v1alpha", "told-0", "-p", "1"))) == 1
    assert len(rows(shell.done("pod", "events", "told", "0"))) > 1, "the command of v0"


def test_the_files_of_a_pod(shell: Shell) -> None:
    name = f"{shell.service('written', 1)}-0"
    sandbox = shell.folder / "runs" / f"{name}-1"
    sandbox.mkdir(parents=True)
    (sandbox / "stdout").write_text("hello\n")
    assert shell.done("pod", "logs", "written-0") == "hello\n"
    assert shell.done("pod", "logs", name, "-p", "1") == "hello\n"
    missing = shell("pod", "logs", name, "-f", "nothing")
    assert missing.code == 66 and "nothing not found in sandbox files" in missing.err


# ---- updates of v0 ----


def v0_service(shell: Shell, name: str) -> str:
    file = shell.file(CONFIG, name)
    job = shell.done("job", "create", "/work", file, "-o", "name").strip()
    until(lambda: shell.deployment.job(job).runtime.taskStats["RUNNING"] == 2)
    return job


def test_an_update_of_v0_is_seen_and_controlled(shell: Shell) -> None:
    job = v0_service(shell, "updated")
    other = shell.file(CONFIG, "updated", **{"memLimitMb: 1": "memLimitMb: 2"})
    create = ("update", "create", "updated", other, "1", "/work")
    # So long that it is not over between one command and the next.
    slow = ("--start-paused", "--min-healthy-seconds", "3600", "--opaque-data", "two")
    made = shell(*create, *slow)
    assert made.code == 0 and made.out.startswith("Job update ")
    update = made.out.split()[2]
    header, row = rows(shell.done("update", "get", update))
    assert header == [
        "Update-ID", "State", "NumberTasksCompleted", "NumberTasksFailed", "NumberTasksRemaining",
    ]  # fmt: skip
    assert row == [update, "PAUSED", "0", "0", "2"]
    second = shell(*create)
    assert second.code == 73 and "is PAUSED; --override aborts it" in second.err
    for verb in ("resume", "pause"):
        assert shell.done("update", verb, update) == ""
    assert shell.done("update", "abort", update, "--opaque-data", "no more") == ""
    assert rows(shell.done("update", "list", "updated"))[1][1] == "ABORTED"
    stale = shell(*create, "-c", "1")
    assert stale.code == 73 and "invalid job configuration version" in stale.err
    done = shell(*create, "--wait")
    assert done.code == 0 and "UPDATE to version 3 SUCCEEDED: " in done.err
    wide = rows(shell.done("update", "list", "updated", "--output", "wide"))
    assert wide[2][-1] == "no more"
    nobody = shell("update", "get", f"{job}-77")
    assert (nobody.code, nobody.err.strip()) == (66, "update not found")
    assert json.loads(shell.done("update", "cache", update))["state"] == "ABORTED"
    late = shell("update", "rollback", update)
    assert (late.code, late.err.strip()) == (66, "no workflow found"), "it is not the newest one"


def test_a_service_of_v0_is_rolled_through(shell: Shell) -> None:
    job = v0_service(shell, "through")
    for verb in ("rolling-stop", "rolling-restart", "rolling-start"):
        outside = shell("job", verb, "through", "0", "-r", "50:60")
        assert outside.code == 66 and "the job has instances 0 to 1" in outside.err
    outside = shell("job", "stateless", "restart", "through", "-r", "50:60")
    assert outside.code == 66 and "the job has instances 0 to 1" in outside.err
    assert shell.deployment.job(job).config.changeLog.version == 1, "nothing was begun"
    would = shell.done("job", "rolling-stop", "through", "1", "-r", "1", "--dry-run")
    assert "would stop " in would
    done = shell("job", "rolling-stop", "through", "1", "-r", "1", "--wait")
    assert json.loads(done.out)["resourceVersion"] == "2"
    assert shell.deployment.job(job).runtime.taskStats["KILLED"] == 1
    stale = shell("job", "rolling-start", "through", "0", "--resourceVersion", "1")
    assert stale.code == 73 and "invalid job configuration version" in stale.err
    for number, verb in ((3, "start"), (4, "restart")):
        name = shell.done("job", f"rolling-{verb}", "through", "0", "--wait", "-o", "name")
        assert name.startswith(job)
        assert shell.deployment.job(job).config.changeLog.version == number
    assert shell.deployment.job(job).runtime.taskStats["RUNNING"] == 2


# ---- differences and history ----


def test_what_a_spec_would_change(shell: Shell) -> None:
    job = shell.service("compared", 3)
    same = shell.file(SPEC, "compared", 3)
    assert shell.done("diff", "compared", same) == f"Job {job}: no difference\n"
    other = shell.file(SPEC, "compared", 4, **{"cpu_limit: 0.1": "cpu_limit: 0.2"})
    assert shell.done("diff", "compared", other, code=83).splitlines() == [
        f"Job {job}: 3 of 3 instances would get a new run",
        "  updated: 0-2",
        "  added: 3",
        "default_spec.containers[0].resource.cpu_limit: 0.1 -> 0.2",
        "instance_count: 3 -> 4",
    ]
    found = shell.data("diff", "compared", other, code=83)
    assert found["instances"]["added"] == [{"from": 3, "to": 3}]
    assert found["fields"][1] == {"field": "instance_count", "old": "3", "new": "4"}
    priority = shell.file(SPEC + "sla: {priority: 5}\n", "compared", 3)
    assert shell.done("diff", "compared", priority, code=83).splitlines() == [
        f"Job {job}: 0 of 3 instances would get a new run",
        "  unchanged: 0-2",
        "sla.priority: (not given) -> 5",
    ]


def test_what_a_config_of_v0_would_change(shell: Shell) -> None:
    job = v0_service(shell, "compared-v0")
    assert shell.done("diff", job, shell.file(CONFIG, "compared-v0")) == (
        f"Job {job}: no difference\n"
    )
    own = 'instanceConfig: {1: {command: {shell: true, value: "sleep 1"}}}\n'
    other = shell.file(CONFIG + own, "compared-v0", 3)
    lines = shell.done("diff", job, other, code=83).splitlines()
    assert lines[:4] == [
        f"Job {job}: 1 of 2 instances would get a new run",
        "  updated: 1",
        "  added: 2",
        "  unchanged: 0",
    ]
    assert "instanceConfig.1.command.value: (not given) -> sleep 1" in lines


def test_the_history_of_a_service(shell: Shell) -> None:
    shell.service("remembered")
    other = shell.file(SPEC, "remembered", web="db")
    shell.done(
        *("job", "stateless", "replace", "remembered", other, "0", "/work"),
        *("--opaque-data", "second", "--wait"),
    )
    shell.done("job", "stateless", "stop", "remembered")
    shell.done("job", "stateless", "start", "remembered")
    found = shell.data("job", "history", "remembered")["history"]
    whats = [row["what"] for row in found]
    assert whats == ["started", "stopped", "update", "update"], found
    shell.done("pod", "restart", "remembered-0")
    newest = shell.data("job", "history", "remembered")["history"][0]
    assert newest["what"] == "instances restarted", newest
    assert [row["version"] for row in found] == ["", "", "1 -> 2", "0 -> 1"]
    assert found[2]["data"] == "second" and found[2]["state"] == "SUCCEEDED"
    assert all(row["who"] for row in found), found
    table = rows(shell.done("job", "history", "remembered"))
    assert table[0][:4] == ["Time", "What", "Version", "State"] and len(table) == 6


def test_the_lines_of_a_workflow_come_when_something_changes() -> None:
    lines: list[str] = []
    states = iter([(2, 0), (2, 0), (2, 1), (4, 2)])

    class Calls:
        """What is asked of a workflow, answered one state after another."""

        def workflows(self, job: str, limit: int = 0) -> Any:
            from peloton.api.v1alpha.job.stateless.svc import stateless_svc_pb2 as svc

            state, done = next(states)
            status = {
                "type": 1, "state": state, "num_instances_completed": done,
                "num_instances_remaining": 2 - done, "version": {"value": "2-1-2"},
                "creation_time": "then",
            }  # fmt: skip
            return svc.ListJobWorkflowsResponse(workflow_infos=[{"status": status}])

    class Client:
        stateless = Calls()

    code = workflow_wait.follow(Client(), "job", say=lines.append, pause=lambda _: None)  # type: ignore[arg-type]
    assert code == 0
    assert lines == [
        "UPDATE to version 2 ROLLING_FORWARD: 0 of 2 pods done",
        "UPDATE to version 2 ROLLING_FORWARD: 1 of 2 pods done",
        "UPDATE to version 2 SUCCEEDED: 2 of 2 pods done",
    ]
