"""What the original's commands print, to the letter, and the codes they end with.

No task of these tests is running.
"""

from __future__ import annotations

import http.server
import json
import socket
import threading
from pathlib import Path

import grpc
import pytest
import yaml

from peloton.api.v0.job.job_pb2 import JobInfo
from peloton.api.v0.peloton_pb2 import JobID
from peloton.api.v0.task.task_pb2 import INVALID, PodEvent
from peloton.cli.jobs import follow
from peloton.cli.shared.values import spans_text
from peloton.ops.v1 import ops_pb2 as ops
from peloton.sdk import ops as sdk_ops
from tests.cli.terminal import Printed, Terminal, answering, typed
from tests.sdk.fakes import JOB, POOL


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    file = tmp_path / "job.yaml"
    file.write_text("name: a\ninstancecount: 2\n")
    return file


@pytest.fixture
def pool(tmp_path: Path) -> Path:
    file = tmp_path / "pool.yaml"
    kinds = ", ".join(f"{{kind: {kind}, limit: 2}}" for kind in ("cpu", "memory", "disk"))
    file.write_text(f"name: new\nresources: [{kinds}]\n")
    return file


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.split("|")]


def test_respool_create(peloton: Terminal, pool: Path) -> None:
    printed = peloton("respool", "create", "/new", str(pool))
    assert printed == Printed(0, "Resource Pool new-pool created at /new\n", "")
    again = peloton("respool", "create", "/new", str(pool))
    assert again == Printed(73, "", "Already exists: resource pool exists\n")
    peloton.cluster.invalid_pool = "resource pool /new already exists"
    again = peloton("respool", "create", "/new", str(pool))
    assert again == Printed(73, "", "Already exists: resource pool /new already exists\n")
    peloton.cluster.invalid_pool = "resource cpu: reservation 2 exceeds limit 1"
    assert peloton("respool", "create", "/new", str(pool)).code == 65
    assert peloton("respool", "create", "/", str(pool)).code == 65
    assert peloton("respool", "create", "/other", str(pool)).code == 65
    assert peloton("respool", "create", "/new", "/no/such/file").code == 66
    assert peloton("respool", "create", "/a", str(pool), "--output", "name").code == 65


def test_respool_update(peloton: Terminal, pool: Path) -> None:
    pool.write_text(pool.read_text().replace("new", "hello"))
    done = peloton("respool", "update", "/hello", str(pool))
    assert done == Printed(0, "Resource Pool /hello updated\n", "")
    (call,) = peloton.cluster.called("UpdateResourcePool")
    assert (call.request.id.value, call.request.Force) == (POOL, False)
    assert (call.request.config.name, call.request.config.parent.value) == ("hello", "root")
    assert [one.share for one in call.request.config.resources] == [1.0] * 3
    peloton.cluster.invalid_pool = "resource cpu: limit 2 is below its children"
    refused = peloton("respool", "update", "/hello", str(pool))
    wrong = "Invalid resource pool config: resources[0]: cpu limit 2 is below its children\n"
    assert refused == Printed(65, "", f"{pool}, line 2: {wrong}")
    for answer, updates in (("", 2), ("n\n", 2), ("y\n", 3)):
        with answering(answer):
            forced = peloton("respool", "update", "/hello", str(pool), "--force")
        assert (forced.code, "not updated" in forced.err) == (0, updates == 2), answer
        assert len(peloton.cluster.called("UpdateResourcePool")) == updates
    assert peloton.cluster.called("UpdateResourcePool")[-1].request.Force
    peloton.cluster.invalid_pool = "config.resources[memory].limit: -1.0 is negative"
    refused = peloton("respool", "update", "/hello", str(pool))
    assert "line 2: " in refused.err and "resources[1].limit: -1.0 is negative" in refused.err
    pool.write_text(pool.read_text().replace("hello", "gone"))
    gone = peloton("respool", "update", "/gone", str(pool))
    assert gone == Printed(66, "", "Resource pool not found: resource pool not found: /gone\n")


def test_caches_and_host_pools(peloton: Terminal) -> None:
    peloton.cluster.add_job("RUNNING", "RUNNING")
    assert json.loads(peloton("job", "cache", JOB).out)["runtime"]["state"] == "RUNNING"
    assert json.loads(peloton("job", "active-list").out) == {"ids": [{"value": JOB}]}
    assert json.loads(peloton("task", "cache", JOB, "0").out)["runtime"]["state"] == "RUNNING"
    gone = f"Job {JOB}, instance 7: Task not found in cache\n"
    assert peloton("task", "cache", JOB, "7") == Printed(66, "", gone)
    peloton.cluster.hosts = [ops.Host(name="b"), ops.Host(name="a")]
    rows = [cells(line) for line in peloton.lines("hostmgr", "hostpool", "list")]
    assert rows == [["Pool name", "Number of hosts", ""], ["default", "2", ""]]
    assert peloton("hostmgr", "hostpool", "list-hosts", "default").out == "a\nb\n"
    assert peloton("hostmgr", "hostpool", "list-hosts", "other").code == 66


def test_respool_delete(peloton: Terminal) -> None:
    peloton.cluster.busy.add("/hello")
    assert peloton("respool", "delete", "/hello") == Printed(
        73, "", "ResPool is busy: pool has allocation\n"
    )
    peloton.cluster.busy.clear()
    assert peloton("respool", "delete", "/hello").out == "Resource Pool /hello is deleted \n"
    assert peloton("respool", "delete", "/hello") == Printed(66, "", "ResPool Not Found: /hello\n")


def test_respool_dump(peloton: Terminal) -> None:
    pools = yaml.safe_load(peloton("respool", "dump").out)
    assert [pool["path"]["value"] for pool in pools] == ["/", "/hello"]
    assert pools[1]["config"]["resources"][0]["type"] == "UNKNOWN_TYPE"
    assert json.loads(peloton("respool", "dump", "--format", "json").out) == pools
    assert yaml.safe_load(peloton("respool", "dump", "--format", "yml").out) == pools
    assert peloton("respool", "dump", "--output", "name").out == "/\n/hello\n"
    assert peloton.lines("respool", "dump", "--output", "table")[-1] == (
        f"  /hello|  {POOL}|   cpu|          6.0|   12.0|    1.0|         0.5|"
    )


def test_respool_dump_wide(peloton: Terminal) -> None:
    header, *rows = peloton.lines("respool", "dump", "--output", "wide")[-3:]
    assert [[cell.strip() for cell in row.split("|")][7:-1] for row in rows] == [
        ["ELASTIC", "9.0", "2.5", "0.0"], ["ELASTIC", "9.0", "2.5", "0.0"],
    ]  # fmt: skip


def test_pool_list(peloton: Terminal) -> None:
    printed = peloton("pool", "list")
    assert [[cell.strip() for cell in row.split("|")][:-1] for row in printed.out.splitlines()][
        -2:
    ] == [
        ["/", "cpu", "6", "12", "1", "ELASTIC", "9", "2.5", "0.5", "0"],
        ["/hello", "cpu", "6", "12", "1", "ELASTIC", "9", "2.5", "0.5", "0"],
    ]
    assert peloton("pool", "list", "-o", "name").out == "/\n/hello\n"
    pools = json.loads(peloton("pool", "list", "-o", "json").out)["pools"]
    assert pools[1]["path"] == "/hello" and pools[1]["kinds"][0]["entitlement"] == 9.0
    assert yaml.safe_load(peloton("pool", "list", "-o", "yaml").out)["pools"] == pools


def test_job_create(peloton: Terminal, spec: Path) -> None:
    printed = peloton("job", "create", "/hello", str(spec), "-i", JOB)
    assert (printed.code, printed.out) == (0, f"Job {JOB} created\n")
    again = f"peloton --api {peloton.address}"
    assert printed.err == (
        f"next: {again} job wait {JOB}, {again} task list {JOB}, {again} why {JOB}\n"
    )
    other = peloton("job", "create", "/hello", str(spec), "--output", "name").out.strip()
    assert other in peloton.cluster.jobs and other != JOB
    third = json.loads(peloton("job", "create", "/hello", str(spec), "-j").out)["jobId"]["value"]
    assert third in peloton.cluster.jobs
    again = peloton("job", "create", "/hello", str(spec), "-i", JOB)
    assert again == Printed(73, "", f"Job {JOB} already exists\n")
    bad = peloton("job", "create", "/hello", str(spec), "--jobID", "x")
    assert bad == Printed(65, "", "Invalid job ID: x, message: JobID must be valid UUID\n")
    lost = peloton("job", "create", "/nowhere", str(spec))
    assert lost == Printed(66, "", "resource pool not found: /nowhere\n")


def test_job_create_says_what_is_wrong_with_the_file(peloton: Terminal, spec: Path) -> None:
    spec.write_text("name: x\ntype: 2\n")
    assert peloton("job", "create", "/hello", str(spec)) == Printed(
        65, "", "Invalid job config: invalid job type: DAEMON\n"
    )
    spec.write_text("defaultconfig:\n  comand: {value: x}\n")
    wrong = "defaultconfig.comand: no such key, did you mean command?"
    assert peloton("job", "create", "/hello", str(spec)) == Printed(
        65, "", f"{spec}, line 2: {wrong}\n"
    )
    spec.write_text("name: x\ndefaultconfig:\n\n  resource:\n    cpulimit: -1\n")
    text = "config.defaultConfig.resource.cpuLimit: -1.0 is negative"
    peloton.cluster.invalid_config = text
    wrong = "Invalid job config: defaultconfig.resource.cpulimit: -1.0 is negative"
    assert peloton("job", "create", "/hello", str(spec)) == Printed(
        65, "", f"{spec}, line 5: {wrong}\n"
    )
    spec.write_bytes(b"\xff\xfe")
    assert peloton("job", "create", "/hello", str(spec)).code == 65


def test_job_create_with_a_secret(peloton: Terminal, spec: Path) -> None:
    line = ["job", "create", "/hello", str(spec), "--secret-path", "/etc/key"]
    assert peloton(*line).code == 64
    assert peloton(*line, "--secret-data", "hush").code == 0
    (secret,) = peloton.cluster.called("Create")[0].request.secrets
    assert (secret.path, secret.value.data) == ("/etc/key", b"aHVzaA==")


def test_job_create_with_two_secrets(peloton: Terminal, spec: Path) -> None:
    line = ["job", "create", "/hello", str(spec), "--secret-path", "a", "--secret-path", "b"]
    printed = peloton(*line, "--secret-data", "hush")
    assert printed.code == 64
    assert "2 of --secret-path and 1 values: give one value for each path" in printed.err
    assert not peloton.cluster.called("Create")
    assert peloton(*line, "--secret-data", "hush", "--secret-data", "hi").code == 0
    sent = peloton.cluster.called("Create")[0].request.secrets
    assert [(one.path, one.value.data) for one in sent] == [("a", b"aHVzaA=="), ("b", b"aGk=")]


def test_job_get_and_status(peloton: Terminal) -> None:
    peloton.cluster.add_job("RUNNING", "RUNNING", "PENDING")
    whole = yaml.safe_load(peloton("job", "get", JOB).out)
    assert whole["jobInfo"]["config"]["instanceCount"] == 2
    assert whole["jobInfo"]["config"]["type"] == "BATCH"
    runtime = yaml.safe_load(peloton("job", "status", JOB).out)
    assert runtime == whole["jobInfo"]["runtime"]
    assert runtime["taskStats"] == {"RUNNING": 1, "PENDING": 1}
    assert json.loads(peloton("job", "get", JOB, "--json").out) == whole
    assert json.loads(peloton("job", "status", JOB, "--json").out) == whole
    assert json.loads(peloton("job", "status", JOB, "--output", "json").out) == runtime
    assert peloton("job", "get", "other") == Printed(66, "", "other: job not found\n")


def test_job_query(peloton: Terminal) -> None:
    assert peloton("job", "query") == Printed(0, "No jobs found.\n", "")
    peloton.cluster.add_job("RUNNING", "RUNNING", "SUCCEEDED")
    header, row = peloton.lines("job", "query")
    assert header.split("|") == [
        f"{'ID':>38}", "         Name", "     Owner", "    State", "         Creation Time",
        "  Completion Time", "  Total", "  Running", "  Succeeded", "  Failed", "  Killed", "",
    ]  # fmt: skip
    assert row.split("|") == [
        f"  {JOB}", "  hello_world", "  examples", "  RUNNING", "  2026-11-21T05:00:00Z",
        "               --", "      2", "        1", "          1", "       0", "       0", "",
    ]  # fmt: skip
    assert peloton("job", "query", "--output", "name").out == f"{JOB}\n"


def test_job_query_passes_its_flags_on(peloton: Terminal) -> None:
    peloton(*"job query -l a=b,c=d -k x,y -s RUNNING -n 5 -q 7 -o 3 -p name,owner -a asc".split())
    spec = peloton.cluster.called("Query")[0].request.spec
    assert [(label.key, label.value) for label in spec.labels] == [("a", "b"), ("c", "d")]
    assert (list(spec.keywords), list(spec.jobStates)) == (["x", "y"], [3])
    page = spec.pagination
    assert (page.offset, page.limit, page.maxLimit) == (3, 5, 7)
    assert [(by.property.value, by.order) for by in page.orderBy] == [("name", 1), ("owner", 1)]
    assert not spec.HasField("creationTimeRange")
    assert peloton("job", "query", "-s", "BUSY").code == 65


def test_job_delete(peloton: Terminal) -> None:
    peloton.cluster.add_job("RUNNING", "RUNNING")
    printed = peloton("job", "delete", JOB)
    assert printed == Printed(73, "", "Job is not in a terminal state: RUNNING\n")
    peloton.cluster.add_job("SUCCEEDED", "SUCCEEDED")
    assert peloton("job", "delete", JOB) == Printed(0, f"Job {JOB} deleted\n", "")
    peloton.cluster.add_job("SUCCEEDED", "SUCCEEDED")
    assert peloton("job", "delete", JOB, "--output", "json").out == "{}\n", "as the original"
    assert peloton("job", "delete", "other") == Printed(66, "", "Job other was not found\n")


def test_job_stop_by_id(peloton: Terminal) -> None:
    job = peloton.cluster.add_job("RUNNING", "RUNNING", "RUNNING")
    job.config.labels.add(key="a", value="b")
    assert peloton("job", "stop", JOB, "--owner", "others").code == 73
    assert peloton("job", "stop", JOB, "-l", "a=c").code == 73
    assert peloton.cluster.called("Stop") == []
    printed = peloton("job", "stop", JOB, "--owner", "examples", "-l", "a=b", "--progress")
    assert printed == Printed(
        0,
        "Successfully signalled 2 tasks for stopping\n"
        f"Job {JOB} stopped, total_tasks:2 terminated_tasks:2\n",
        "",
    )
    assert peloton("job", "stop", JOB).out == "Job is in terminal state: KILLED\n"
    assert peloton("job", "stop").code == 64


def test_what_had_ended_already_is_not_counted_as_stopped(peloton: Terminal) -> None:
    peloton.cluster.add_job("RUNNING", "RUNNING", "SUCCEEDED", "FAILED")
    printed = peloton("task", "stop", JOB, "-r", "0:2", "-r", "1:2")
    assert printed.out == "Successfully signalled 1 tasks for stopping\n"
    assert printed.err == "1 of 2 had ended already\n"
    peloton.cluster.add_job("RUNNING", "RUNNING", "SUCCEEDED", "FAILED")
    printed = peloton("job", "stop", JOB)
    assert printed.out == "Successfully signalled 1 tasks for stopping\n"
    assert printed.err == "2 of 3 had ended already\n"


def test_several_jobs_are_stopped_by_their_ids(peloton: Terminal) -> None:
    info = peloton.cluster.add_job("RUNNING", "RUNNING")
    other = "5e3c7c3a-0f0a-4c39-9d5c-0c3d6b7d1e12"
    copy = type(info)()
    copy.CopyFrom(info)
    copy.id.value = other
    peloton.cluster.jobs[other] = copy
    peloton.cluster.tasks[other] = peloton.cluster.tasks[JOB]
    printed = peloton("kill", JOB, other)
    assert printed.out == "Successfully signalled 1 tasks for stopping\n" * 2
    stopped = [one.request.jobId.value for one in peloton.cluster.called("Stop")]
    assert stopped == [JOB, other]
    assert peloton("kill", JOB, "nobody").code == 66
    peloton.cluster.tasks.pop(JOB)
    peloton.cluster.jobs[JOB].runtime.state = peloton.cluster.jobs[other].runtime.state = 3
    before = len(peloton.cluster.called("Stop"))
    partly = peloton("kill", JOB, other, other)
    assert partly.code == 66 and partly.out.startswith("Successfully signalled")
    assert len(peloton.cluster.called("Stop")) == before + 2, "each once, also after an error"


def test_job_update(peloton: Terminal, tmp_path: Path) -> None:
    peloton.cluster.add_job("RUNNING", "RUNNING", "RUNNING")
    known = peloton.cluster.jobs[JOB].config.instanceCount
    spec = tmp_path / "more.yaml"
    spec.write_text(f"instancecount: {known + 2}\n")
    dry = peloton("job", "update", JOB, str(spec), "--dry-run")
    assert dry.out == f"Job {JOB} would get 2 more instances\n"
    assert not peloton.cluster.called("Update")
    assert peloton("job", "update", JOB, str(spec)).out == (
        f"Job {JOB} updated\nadded 2 instances\n"
    )
    gone = peloton("job", "update", "other", str(spec))
    assert gone.err.endswith("Job other not found: job not found\n"), gone
    spec.write_text("instancecount: 0\n")
    less = peloton("job", "update", JOB, str(spec))
    assert "Invalid job config: new instance count can't be less" in less.err
    assert peloton("job", "refresh", JOB).code == 0
    assert peloton("job", "refresh", "other").code != 0


def test_job_stop_by_owner(peloton: Terminal) -> None:
    assert peloton("job", "stop", "--owner", "x").out == "No matching job found\n"
    peloton.cluster.add_job("RUNNING", "RUNNING")
    printed = peloton("job", "stop", "--owner", "x", "-f")
    assert printed.out.splitlines()[2:] == [
        "Successfully signalled 1 tasks for stopping",
        f"Stopping jobs: [{JOB}]",
    ]
    states = peloton.cluster.called("Query")[1].request.spec.jobStates
    assert list(states) == [1, 2, 3]
    peloton.cluster.jobs["other"] = JobInfo(id=JobID(value="other"))
    printed = peloton("job", "stop", "--owner", "x", "-f")
    assert (printed.code, f"Stopping jobs: [{JOB}]" in printed.out) == (66, True)
    assert "Error stopping jobs: [other]\n" in printed.err


def test_task_list_and_get(peloton: Terminal) -> None:
    peloton.cluster.add_job("RUNNING", "SUCCEEDED", "PENDING", "FAILED")
    done, waiting, failed = (peloton.cluster.tasks[JOB][number].runtime for number in range(3))
    done.startTime, done.completionTime = "2026-11-21T05:00:00.5Z", "2026-11-21T06:01:02.7Z"
    done.host = "agent0"
    done.terminationStatus.exit_code = 0
    done.terminationStatus.SetInParent()
    waiting.reason = "no host fits: 8 cpus wanted,\n4 free at most"
    failed.terminationStatus.reason = 2
    failed.terminationStatus.exit_code = 3
    failed.healthy = INVALID
    rows = [cells(line) for line in peloton.lines("task", "list", JOB)]
    assert rows[0] == [
        "Instance", "Name", "State", "Healthy", "Start Time", "Run Time", "Host", "Message",
        "Reason", "Termination Status", "",
    ]  # fmt: skip
    assert rows[1] == [
        "0", "hello", "SUCCEEDED", "DISABLED", "2026-11-21T05:00:00Z", "01:01:02", "agent0", "",
        "", "", "",
    ]  # fmt: skip
    assert rows[2][2:9] == [
        "PENDING", "DISABLED", "--", "", "", "", "no host fits: 8 cpus wanted,\\n4 free at most",
    ]  # fmt: skip
    assert (rows[3][3], rows[3][9]) == ("", "FAILED: exit code 3"), "a batch task has no health"
    assert len(peloton.lines("task", "list", JOB, "-r", "1:")) == 3
    assert peloton.lines("task", "list", JOB, "-r", ":2", "--output", "name") == [
        f"{JOB}-0",
        f"{JOB}-1",
    ]
    assert len(peloton.lines("task", "get", JOB, "2")) == 2


def test_task_errors(peloton: Terminal) -> None:
    peloton.cluster.add_job("RUNNING", "RUNNING", "RUNNING")
    unknown = Printed(66, "", "Job other was not found: job not found\n")
    assert peloton("task", "get", "other", "0") == unknown
    assert peloton("task", "list", "other") == unknown
    assert peloton("task", "stop", "other") == unknown
    words = f"Requested instances:[7] of job {JOB} is not in the valid range"
    printed = peloton("task", "get", JOB, "7")
    assert printed == Printed(66, "", f"{words}: the job has instances 0 to 1\n")
    printed = peloton("task", "stop", JOB, "-r", "50:60", "-r", "7")
    words = f"Requested instances:[50:60 7] of job {JOB} is not in the valid range"
    assert printed == Printed(66, "", f"{words}: the job has instances 0 to 1\n")
    assert peloton("task", "get", JOB, "-1").code == 64
    assert peloton("task", "get", JOB, "x").code == 64


def test_task_stop_start_restart(peloton: Terminal) -> None:
    peloton.cluster.add_job("RUNNING", "RUNNING", "RUNNING", "RUNNING")
    printed = peloton("task", "stop", JOB, "-r", "0:1", "-r", "2:")
    assert printed.out == "Successfully signalled 2 tasks for stopping\n"
    assert peloton("task", "stop", JOB).out == "Successfully signalled 3 tasks for stopping\n"
    assert len(peloton.cluster.called("Stop")[1].request.ranges) == 0
    assert peloton("task", "start", JOB).out == (
        "Tasks started successfully for instances: [0 1] and failed instances are: []\n"
    )
    assert peloton("task", "restart", JOB).out == "Job restarted\n"


def test_task_query(peloton: Terminal) -> None:
    peloton.cluster.add_job("RUNNING", "RUNNING", "PENDING")
    assert len(peloton.lines("task", "query", JOB, "-s", "PENDING")) == 2
    assert peloton("task", "query", JOB, "-s", "LOST").out == "No tasks found\n"


def test_events(peloton: Terminal) -> None:
    event = PodEvent(actualState="RUNNING", goalState="SUCCEEDED", hostname="agent0")
    event.taskId.value, event.timestamp = f"{JOB}-0-1", "2026-11-21T05:00:00.1Z"
    peloton.cluster.events.append(event)
    printed = peloton("task", "events", JOB, "0")
    assert "deprecated" in printed.err
    header, row = printed.out.splitlines()
    assert header.split("|")[0].strip() == "Mesos Task Id"
    assert cells(row) == [
        f"{JOB}-0-1", "", "RUNNING", "SUCCEEDED", "0", "0", "", "agent0", "", "",
        "2026-11-21T05:00:00.1Z", "",
    ]  # fmt: skip
    peloton("pod", "events", JOB, "0", "-r", f"{JOB}-0-1", "-l", "3")
    request = peloton.cluster.called("GetPodEvents")[1].request
    assert (request.runId, request.limit) == (f"{JOB}-0-1", 3)


def test_logs_of_a_sandbox_that_is_not_there(peloton: Terminal) -> None:
    peloton.cluster.sandbox.error.notRunning.message = "taskinfo does not have hostname"
    assert peloton("task", "logs", JOB, "0") == Printed(73, "", "taskinfo does not have hostname\n")
    peloton.cluster.sandbox.Clear()
    printed = peloton("task", "logs", JOB, "0", "-f", "stderr")
    assert printed.code == 66
    assert "stderr not found" in printed.err


def test_why(peloton: Terminal) -> None:
    peloton.cluster.add_job("PENDING", "PENDING")
    assert peloton("why", JOB).out == "Nothing holds it up.\n"
    reason = ops.Reason(instance=0, state="PENDING", code="no-host-fits", text="8 cpus wanted")
    reason.counts.update({"memory": 1, "cpu": 2})
    peloton.cluster.reasons.append(reason)
    row = cells(peloton.lines("job", "why", JOB)[1])
    assert row == ["0", "PENDING", "no-host-fits", "8 cpus wanted", "cpu 2, memory 1", ""]
    found = json.loads(peloton("why", JOB, "0", "-o", "json").out)
    assert found["reasons"][0]["code"] == "no-host-fits"
    assert not peloton.cluster.called("Why")[0].request.HasField("instance")
    assert peloton.cluster.called("Why")[-1].request.instance == 0
    assert peloton("why", "other").code == 66


def test_why_names_all_that_is_in_the_way_below_the_main_reason(peloton: Terminal) -> None:
    peloton.cluster.add_job("PENDING", "PENDING")
    reason = ops.Reason(instance=0, state="PENDING", code="can-never-run", text="x", instances=2)
    low = reason.blockers.add(code="pool-limit", text="limit of pool /a: cpu 1", change="it grows")
    low.never, low.proof, low.limit = True, "2 cpu is more than 1", 1.0
    reason.blockers.add(code="queue", text="7 tasks are before it", change="these are admitted")
    reason.estimate.basis = "waiting alone does not help"
    peloton.cluster.reasons.append(reason)
    assert peloton.lines("why", JOB)[3:] == [
        "In the way of instance 0 and 1 more:",
        "  pool-limit: limit of pool /a: cpu 1; will never run: 2 cpu is more than 1",
        "    to do: it grows",
        "  queue: 7 tasks are before it",
        "    to do: these are admitted",
        "  no estimate: waiting alone does not help",
    ]
    found = json.loads(peloton("why", JOB, "-o", "json").out)["reasons"][0]["blockers"]
    assert [(each["code"], each.get("limit")) for each in found] == [
        ("pool-limit", 1.0), ("queue", None)
    ]  # fmt: skip
    reason.estimate.after_s, reason.estimate.until_s = 200.0, 8000.0
    peloton.cluster.reasons[0] = reason
    last = peloton.lines("why", JOB)[-1]
    assert last == "  estimate: in about 3 min to about 2 h (waiting alone does not help)"


def test_why_in_a_pipe_has_a_narrow_table_and_long_reasons_below(peloton: Terminal) -> None:
    peloton.cluster.add_job("PENDING", "PENDING")
    text = "limit of pool /a reached: " + "and so on, " * 20
    peloton.cluster.reasons.append(
        ops.Reason(instance=0, state="PENDING", code="limit", text=text.strip())
    )
    header, short, full = peloton.lines("why", JOB)
    assert full == f"0: {text.strip()}"
    assert len(header) == len(short) <= 100 and "limit of pool /a reached: and so on" in short


def test_why_names_the_failed_instances(peloton: Terminal) -> None:
    peloton.cluster.add_job("FAILED", *["FAILED"] * 5, "SUCCEEDED", "LOST", "FAILED")
    for number, code in ((0, 2), (1, 2), (2, 2), (3, 1), (4, 1), (7, 2)):
        ended = peloton.cluster.tasks[JOB][number].runtime.terminationStatus
        ended.reason, ended.exit_code = 2, code
    peloton.cluster.tasks[JOB][6].runtime.message = "host h7 is gone"
    peloton.cluster.reasons.append(ops.Reason(instance=0, state="FAILED", code="failed"))
    named = peloton("why", JOB).err.splitlines()
    assert named[:-1] == [
        "exit code 2: instances 0-2, 7",
        "exit code 1: instances 3-4",
        "host h7 is gone: instance 6",
    ]
    assert peloton("why", JOB, "3").err.splitlines()[:-1] == ["exit code 1: instance 3"]
    peloton.cluster.fail("Query", grpc.StatusCode.UNIMPLEMENTED)
    printed = peloton("why", JOB)
    assert printed.code == 0 and "is not known: planted" in printed.err


def test_instances_are_named_by_spans() -> None:
    assert spans_text([3, 1, 2, 9]) == "1-3, 9"
    assert spans_text(range(0, 100, 2), 3) == "0, 2, 4, and 47 more"
    assert spans_text([]) == ""


def test_why_of_a_failed_job_names_the_next_command(peloton: Terminal) -> None:
    peloton.cluster.add_job("FAILED", "FAILED")
    for instance, state in ((9, "FAILED"), (2, "KILLED"), (4, "FAILED")):
        reason = ops.Reason(instance=instance, state=state, code="x", text=f"exit {instance}")
        peloton.cluster.reasons.append(reason)
    printed = peloton("why", JOB).err
    assert printed == (
        f"failed: instance 0\nnext: peloton --api {peloton.address} task logs {JOB} 4 -f stderr\n"
    )
    assert "next" not in peloton("why", JOB, "--output", "json").err
    del peloton.cluster.reasons[2], peloton.cluster.reasons[0]
    assert "next" not in peloton("why", JOB).err


@pytest.mark.parametrize(
    ("state", "server", "code"),
    [
        ("SUCCEEDED", 0, 0),
        ("FAILED", 3, 3),
        ("FAILED", 0, 1),
        ("FAILED", 137, 63),
        ("FAILED", 125, 63),
        ("KILLED", 0, 125),
        ("DELETED", 0, 125),
    ],
)
def test_wait_ends_with_the_code_of_the_job(
    peloton: Terminal, state: str, server: int, code: int
) -> None:
    ended = ops.WaitJobResponse(state=state, done=True, counts={state: 2}, exit_code=server)
    peloton.cluster.waits = [ended]
    printed = peloton("wait", JOB)
    assert (printed.code, printed.out) == (code, f"Job {JOB} {state}: 2 {state}\n")
    told = json.loads(peloton("job", "wait", JOB, "-o", "json").out)["exit_code"]
    assert told == (server if state in ("SUCCEEDED", "FAILED") else None)


def test_wait_hands_on_the_real_code_where_that_is_wanted(peloton: Terminal) -> None:
    for state, server, code in (("FAILED", 70, 70), ("FAILED", 3, 3), ("KILLED", 1, 125)):
        peloton.cluster.waits = [ops.WaitJobResponse(state=state, done=True, exit_code=server)]
        assert peloton("wait", JOB, "--raw-exit").code == code
    for code in ("0 ", "63 ", "124 ", "125 ", "130 "):
        assert f"\n    {code}" in peloton("wait", "--help").out, "the help lists the codes"


def test_why_of_many(peloton: Terminal) -> None:
    peloton.cluster.add_job("RUNNING", "RUNNING")
    many = ops.Reason(
        instance=3, state="PENDING", code="pool-limit", text="10 instances: full", instances=10
    )
    many.position = 1
    peloton.cluster.reasons.append(many)
    peloton.cluster.counts = {"PENDING": 10, "RUNNING": 7}
    printed = peloton("why", JOB)
    header, row = (cells(line) for line in printed.out.splitlines())
    assert header == ["Instance", "State", "Reason", "Position", "Why", ""], "no empty columns"
    assert row == ["10 instances", "PENDING", "pool-limit", "1", "full", ""]
    assert printed.err == "of all instances: 10 PENDING, 7 RUNNING\n"


def test_task_get_names_its_runs(peloton: Terminal) -> None:
    peloton.cluster.add_job("RUNNING", "RUNNING")
    header, row = (cells(line) for line in peloton.lines("task", "get", JOB, "0"))
    assert (header[0], row[0], row[1]) == ("Run", f"{JOB}-0-1", "0")
    assert peloton("task", "get", JOB, "0", "--output", "name").out == f"{JOB}-0-1\n"


def test_logs_of_a_run_that_never_was(peloton: Terminal) -> None:
    peloton.cluster.sandbox.error.outOfRange.instanceCount = 2
    printed = peloton("task", "logs", JOB, "0", "nonsense")
    assert printed.code == 66
    assert "instance 0 of job" in printed.err and "has no run 'nonsense'" in printed.err
    assert "instances 0 to 1" in peloton("task", "logs", JOB, "7", "nonsense").err
    assert peloton("task", "logs", JOB, "0", "stderr").err.endswith(
        "has no run 'stderr'; `task get` lists its runs; a file of that name: `-f stderr`\n"
    )
    assert "-f" not in peloton("task", "logs", JOB, "0", f"{JOB}-0-9").err


@pytest.mark.parametrize("words", [("job", "query"), ("task", "query", JOB)])
def test_an_offset_and_a_form_are_told_apart_by_their_value(
    peloton: Terminal, words: tuple[str, ...]
) -> None:
    peloton.cluster.add_job("RUNNING", "RUNNING")
    assert isinstance(json.loads(peloton(*words, "-o", "json").out), dict)
    peloton(*words, "-o", "2", "-o", "yaml")
    assert peloton.cluster.called("Query")[-1].request.spec.pagination.offset == 2
    printed = peloton(*words, "-o", "jsonn")
    assert printed.code == 64 and "jsonn" in printed.err


def test_logs_of_the_run_before(peloton: Terminal) -> None:
    peloton.cluster.add_job("RUNNING", "RUNNING")
    newest = peloton.cluster.tasks[JOB][0].runtime.mesosTaskId
    newest.value = f"{JOB}-0-12"
    peloton("task", "logs", JOB, "0", "-1", "-f", "stderr")
    peloton("task", "logs", "-2", JOB, "0")
    asked = [call.request.taskId for call in peloton.cluster.called("BrowseSandbox")]
    assert asked == [f"{JOB}-0-11", f"{JOB}-0-10"]
    newest.value = f"{JOB}-0-1"
    printed = peloton("task", "logs", JOB, "0", "-1")
    assert printed.code == 66 and "has had one run: there is no 1 before" in printed.err


def test_who_wants_data_gets_no_hints(peloton: Terminal, spec: Path) -> None:
    assert peloton("job", "create", "/hello", str(spec), "--output", "name").err == ""


def test_stopping_many_without_a_terminal_names_force(peloton: Terminal) -> None:
    peloton.cluster.add_job("RUNNING", "RUNNING")
    printed = peloton("job", "stop", "--owner", "x")
    assert printed.code == 64 and "--force" in printed.err
    assert peloton.cluster.called("Stop") == []


def test_a_key_given_twice_names_the_file(peloton: Terminal, spec: Path) -> None:
    spec.write_text("name: a\nname: b\n")
    printed = peloton("job", "create", "/hello", str(spec))
    assert (printed.code, printed.err) == (
        65, f"{spec}: name: given twice, the second time in line 2\n"
    )  # fmt: skip


def test_wait_names_an_exit_code_that_cannot_be_its_own(peloton: Terminal) -> None:
    failed = ops.WaitJobResponse(state="FAILED", done=True, counts={"FAILED": 1}, exit_code=200)
    peloton.cluster.waits = [failed]
    printed = peloton("wait", JOB)
    assert printed.code == 63
    assert printed.err.splitlines()[0] == "its lowest failed instance ended with exit code 200"


def test_wait_says_why_an_instance_without_an_exit_code_failed(peloton: Terminal) -> None:
    problem = "user root: not permitted"
    failed = ops.WaitJobResponse(state="FAILED", done=True, exit_code=1, problem=problem)
    peloton.cluster.waits = [failed]
    printed = peloton("wait", JOB)
    assert printed.code == 125
    assert printed.err.splitlines()[0] == f"its lowest failed instance: {problem}"
    found = json.loads(peloton("wait", JOB, "-o", "json").out)
    assert (found["exit_code"], found["problem"]) == (None, problem)


@pytest.mark.parametrize("option", ["--within", "--timeout", "-t"])
def test_wait_stops_after_the_time_that_is_given(peloton: Terminal, option: str) -> None:
    peloton.cluster.waits = [ops.WaitJobResponse(state="RUNNING")]
    assert peloton("wait", JOB, option, "0s").code == 124
    refused = peloton("wait", JOB, option, "soon")
    assert refused.code == 64 and option in refused.err


def test_wait_names_the_signal(peloton: Terminal) -> None:
    ended = ops.WaitJobResponse(state="FAILED", done=True, exit_code=139, signal="SIGSEGV")
    peloton.cluster.waits = [ended]
    printed = peloton("wait", JOB)
    assert printed.code == 63
    assert "ended by SIGSEGV" in printed.err
    assert peloton("wait", JOB, "--raw-exit").code == 139
    found = json.loads(peloton("wait", JOB, "-o", "json").out)
    assert (found["exit_code"], found["signal"]) == (None, "SIGSEGV")


def test_wait_where_nobody_answers_says_so_and_ends_in_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sdk_ops, "SILENCE_REPORTED_S", 0.0)
    monkeypatch.setattr(sdk_ops, "SILENCE_MAX_S", 3600.0)  # as long it would wait without `within`
    with socket.socket() as held:  # bound and not listening: nobody else can have the port
        held.bind(("127.0.0.1", 0))
        api = f"127.0.0.1:{held.getsockname()[1]}"
        printed = typed("--api", api, "-t", "1h", "wait", JOB, "--within", "1s")
    assert printed.code == 124
    assert f"{api} does not answer" in printed.err and "retrying for" in printed.err
    assert printed.err.endswith("the time is over; no server answered\n")
    assert printed.out == f"Job {JOB} in an unknown state\n"


def test_a_server_of_another_kind_is_not_started_again() -> None:
    server = http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        api = f"127.0.0.1:{server.server_address[1]}"
        printed = typed("--api", api, "-t", "60s", "job", "query")
    finally:
        server.shutdown()
        server.server_close()
    assert printed.code == 69
    text = f"{api} is there and speaks no gRPC: is that the address of its --http?\n"
    assert printed.err.endswith(text), "and nobody is told to start another"


def test_hosts(peloton: Terminal) -> None:
    assert peloton("host", "list").out == "No hosts.\n"
    one = ops.Host(name="a", state="UP", runs=2)
    one.capacity.MergeFrom(ops.Amounts(cpu=4, memory_mb=2048, disk_mb=100))
    one.free.MergeFrom(ops.Amounts(cpu=2.5, memory_mb=2000, disk_mb=100))
    peloton.cluster.hosts = [one, ops.Host(name="b", state="LOST", text="not heard of")]
    rows = [cells(line) for line in peloton.lines("host", "list")]
    assert rows[1][:5] == ["a", "UP", "2", "2.5 of 4", "2000 of 2048"]
    assert "not heard of" in rows[2]
    assert peloton("host", "list", "-o", "name").out == "a\nb\n"


def test_a_host_is_forgotten_by_name_and_not_by_chance(peloton: Terminal) -> None:
    peloton.cluster.hosts = [ops.Host(name="a"), ops.Host(name="b", runs=2)]
    printed = peloton("host", "forget", "a")
    assert printed == Printed(
        0,
        "removed host a\n",
        "a daemon that starts with it in its config restores it\n",
    )
    printed = peloton("host", "forget", "a")
    assert printed == Printed(66, "", "no such host: a\n")
    printed = peloton("host", "forget", "b")
    again = f"peloton --api {peloton.address} host forget b --lose-runs"
    assert printed == Printed(73, "", f"it holds runs: `{again}` gives them up\n")
    printed = peloton("host", "forget", "b", "--lose-runs")
    assert printed.out == "removed host b; its 2 runs are LOST\n"


def test_wait_within_a_time(peloton: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sdk_ops, "WAIT_GRACE_S", 60.0)  # a busy machine answers later than never
    peloton.cluster.waits = [ops.WaitJobResponse(state="RUNNING")]
    printed = peloton("wait", JOB, "--within", "50ms")
    assert (printed.code, printed.err) == (124, "the time is over; the job goes on\n")


@pytest.mark.parametrize(
    ("content", "missing"),
    [
        ("name: a\nresources: [{kind: gpu, limit: 1}]", "cpu, memory, disk"),
        ("name: a\nresources: [{kind: cpu, limit: 1}, {Kind: disk, limit: 1}]", "memory"),
        ("name: a\nResources: [{kind: cpu}, {kind: memory}, {kind: disk}]", ""),
    ],
)
def test_a_pool_in_which_nothing_can_run_is_pointed_out(
    peloton: Terminal, content: str, missing: str, tmp_path: Path
) -> None:
    (tmp_path / "pool.yaml").write_text(content)
    printed = peloton("respool", "create", "/a", str(tmp_path / "pool.yaml"))
    text = f"its limit of {missing} is 0: jobs that request it can never run there\n"
    assert (printed.code, printed.err) == (0, text if missing else "")


def test_help_names_what_there_is() -> None:
    lines = {line.split()[0]: line for line in typed("--help").out.splitlines() if line.split()}
    for noun in ("job", "task", "pod", "respool"):
        text = lines[noun].rpartition(": ")[2]
        there = typed(noun, "--help").out
        for verb in text.strip(" .").split(", "):
            assert f"\n  {verb} " in there, (noun, verb)
    assert "not supported" not in typed("task", "--help").out


def test_story(peloton: Terminal) -> None:
    row = cells(peloton.lines("story", "task/x/7")[1])
    assert row == ["1970-01-01T00:00:00.500Z", "Started", "first run", "TaskRunning", ""]
    assert peloton("story", "task/x/8").out == "No transitions are kept.\n"
    assert peloton("story", "job/nobody") == Printed(66, "", "no such actor: job/nobody\n")


def followed(peloton: Terminal, *words: str) -> Printed:
    event = ops.Event(
        key=f"task/{JOB}", instances=[{"first": 0, "last": 2}], shard="jobmgr/1", position=7,
        at=0.5, cause="Started", because="launched", facts=["TaskRunning"],
    )  # fmt: skip
    last = ops.Event(
        key=f"job/{JOB}", shard="jobmgr/0", position=9, k=1, at=1.5, cause="StopJob",
        facts=["StopOrdered"], who="unverified:ann@10.0.0.7/tool",
    )  # fmt: skip
    gap = ops.Gap(shard="jobmgr/0", after=3, until=5)
    peloton.cluster.streams = [
        [
            ops.WatchResponse(resume="t0"),
            ops.WatchResponse(resume="t1", events=[event]),
            ops.WatchResponse(resume="t2", gaps=[gap], events=[last]),
        ]
    ]
    going = ops.WaitJobResponse(state="RUNNING", counts={"RUNNING": 1, "PENDING": 2})
    peloton.cluster.waits = [going, ops.WaitJobResponse(state="KILLED", done=True)]
    return peloton("follow", JOB, *words)


def test_follow_prints_what_happens_until_the_job_has_ended(peloton: Terminal) -> None:
    printed = followed(peloton)
    assert printed == Printed(
        0,
        f"-- job/{JOB} is RUNNING: 2 PENDING, 1 RUNNING\n"
        f"1970-01-01T00:00:00.500Z task/{JOB} [0-2] TaskRunning (Started): launched\n"
        "-- changes of jobmgr/0 up to 5 are no longer kept: read the state anew\n"
        f"1970-01-01T00:00:01.500Z job/{JOB} StopOrdered "
        "(StopJob by unverified:ann@10.0.0.7/tool)\n",
        f"job {JOB} has ended: KILLED\n",
    )


def test_follow_prints_lines_of_json(peloton: Terminal) -> None:
    told = [json.loads(line) for line in followed(peloton, "--output", "json").out.splitlines()]
    assert [[*line] for line in told] == [
        ["resume"], ["state"], ["event"], ["resume"], ["gap"], ["event"], ["resume"],
    ]  # fmt: skip
    counts = {"PENDING": 2, "RUNNING": 1}
    assert told[1] == {"state": {"key": f"job/{JOB}", "state": "RUNNING", "counts": counts}}
    assert told[2]["event"]["instances"] == [{"first": 0, "last": 2}]
    assert told[4]["gap"] == {"shard": "jobmgr/0", "after": "3", "until": "5"}
    assert told[6] == {"resume": "t2"}


def test_follow_ends_however_the_id_is_spelled(peloton: Terminal) -> None:
    event = ops.Event(key=f"job/{JOB}", shard="jobmgr/0", at=1.5, cause="X", facts=["JobEnded"])
    peloton.cluster.streams = [
        [ops.WatchResponse(resume="t0"), ops.WatchResponse(resume="t1", events=[event]), None]
    ]
    going = ops.WaitJobResponse(state="RUNNING")
    peloton.cluster.waits = [going, ops.WaitJobResponse(state="SUCCEEDED", done=True)]
    printed = peloton("follow", JOB.upper())
    assert (printed.code, printed.err) == (0, f"job {JOB.upper()} has ended: SUCCEEDED\n")


@pytest.mark.parametrize("left", [0, 1])
def test_follow_ends_where_nothing_is_left_to_resume(
    peloton: Terminal, left: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not left:  # what is on its way has its time
        monkeypatch.setattr(follow, "QUIET_S", 0.05)
    event = ops.Event(key=f"task/{JOB}", shard="jobmgr/0", at=1.5, cause="X", facts=["TaskEnded"])
    delivered = [ops.WatchResponse(resume="t2", events=[event])] * left
    peloton.cluster.streams = [[ops.WatchResponse(resume="t1"), *delivered, None]]
    peloton.cluster.waits = [ops.WaitJobResponse(state="SUCCEEDED", done=True)]
    printed = peloton("follow", JOB, "--resume", "t1")
    assert (printed.code, printed.err) == (0, f"job {JOB} has ended: SUCCEEDED\n")
    assert len(printed.out.splitlines()) == left


def test_follow_does_not_call_a_pool_a_job(peloton: Terminal) -> None:
    peloton.cluster.fail("Watch", grpc.StatusCode.NOT_FOUND, text="no pool /Nope")
    printed = peloton("follow", "--pool", "/Nope")
    assert printed == Printed(66, "", "no pool /Nope\n")


@pytest.mark.parametrize("words", [(), (JOB, "--kind", "job"), ("--kind", "job", "--pool", "/x")])
def test_follow_wants_one_question(peloton: Terminal, words: tuple[str, ...]) -> None:
    printed = peloton("follow", *words)
    assert printed.code == 64 and "name one of JOB, --kind and --pool" in printed.err


def test_quarantine(peloton: Terminal) -> None:
    assert peloton("admin", "quarantine", "list").out == "No dead letters.\n"
    peloton.cluster.set_aside.append(
        ops.Quarantined(key="task/x/7", message="ended/1", error="KeyError", attempts=3, at=1.0)
    )
    row = cells(peloton.lines("admin", "quarantine", "list")[1])
    assert row == ["task/x/7", "ended/1", "3", "1970-01-01T00:00:01Z", "KeyError", ""]
    printed = peloton("admin", "quarantine", "redrive", "task/x/7", "ended/1")
    assert printed.out.startswith("redriving all dead letters of task/x/7, in their order; ")
    assert peloton("admin", "quarantine", "redrive", "task/x/7").out == printed.out
    assert peloton("admin", "quarantine", "redrive", "task/x/8", "ended/1").code == 66


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (grpc.StatusCode.INVALID_ARGUMENT, 65),
        (grpc.StatusCode.NOT_FOUND, 66),
        (grpc.StatusCode.UNAVAILABLE, 69),
        (grpc.StatusCode.UNIMPLEMENTED, 70),
        (grpc.StatusCode.INTERNAL, 70),
        (grpc.StatusCode.ABORTED, 73),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, 75),
        (grpc.StatusCode.PERMISSION_DENIED, 77),
    ],
)
def test_exit_codes(peloton: Terminal, status: grpc.StatusCode, code: int) -> None:
    peloton.cluster.fail("Redrive", status, text="because")
    printed = peloton("admin", "quarantine", "redrive", "a", "b")
    assert (printed.code, printed.out) == (code, "")
    assert "because" in printed.err


def test_a_usage_error_is_64_and_says_where_help_is() -> None:
    printed = typed("task", "list")
    assert printed.code == 64
    assert "peloton task list --help" in printed.err
