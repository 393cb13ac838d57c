"""`--dry-run` says what a command would do and sends no change; warnings are told."""

from __future__ import annotations

import getpass
import json
from pathlib import Path

import grpc
import pytest
import yaml

from peloton.api.v0.host import host_pb2 as host
from peloton.ops.v1 import ops_pb2 as ops
from peloton.ops.v1 import schedules_pb2 as schedules
from tests.cli.terminal import Printed, Terminal
from tests.sdk.fakes import JOB

READS = {
    "Get", "GetResourcePool", "Query", "LookupResourcePoolID", "ListHosts", "QueryHosts",
    "ListHostPools", "Why", "GetSchedule", "ListQuarantine", "CheckSchedule",
}  # fmt: skip


@pytest.fixture
def pool(tmp_path: Path) -> Path:
    file = tmp_path / "pool.yaml"
    kinds = "{kind: cpu, limit: 3, reservation: 1}, {kind: memory, limit: 8000, reservation: 1}"
    file.write_text(f"name: hello\nresources: [{kinds}]\n")
    return file


def dry(peloton: Terminal, *words: str) -> Printed:
    """What is printed; nothing but reads may have been called."""
    printed = peloton(*words, "--dry-run")
    assert {call.name for call in peloton.cluster.calls} <= READS, words
    return printed


def with_hosts(peloton: Terminal) -> None:
    peloton.cluster.hosts = [ops.Host(name="a", state="UP", runs=2), ops.Host(name="b", state="UP")]
    down, up = host.HOST_STATE_DOWN, host.HOST_STATE_UP
    peloton.cluster.host_infos = [
        host.HostInfo(hostname="a", state=up), host.HostInfo(hostname="b", state=down)
    ]  # fmt: skip


def test_respool(peloton: Terminal, pool: Path) -> None:
    taken = dry(peloton, "respool", "create", "/hello", str(pool))
    assert taken == Printed(73, "", "Already exists: resource pool /hello already exists\n")
    pool.write_text(pool.read_text().replace("hello", "new"))
    made = dry(peloton, "respool", "create", "/new", str(pool))
    assert made.out == "would create Resource Pool /new: cpu 1 to 3, memory 1 to 8000\n"
    assert dry(peloton, "respool", "delete", "/hello").out.startswith("would delete Resource Pool")
    assert dry(peloton, "respool", "delete", "/nowhere").code == 66


def test_respool_update(peloton: Terminal, pool: Path) -> None:
    changes = dry(peloton, "respool", "update", "/hello", str(pool)).out.splitlines()
    assert changes[0] == "Resource Pool /hello:"
    assert "would change cpu limit: 4 -> 3" in changes
    assert "would change disk limit: 100 -> (default)" in changes
    assert not [one for one in changes if "memory" in one], "the same as before"
    data = json.loads(dry(peloton, "respool", "update", "/hello", str(pool), "-j").out)
    assert data["dryRun"] is True and "cpu limit: 4 -> 3" in data["changes"]


def test_jobs(peloton: Terminal) -> None:
    peloton.cluster.add_job("RUNNING", "RUNNING", "PENDING", "RUNNING")
    stop = dry(peloton, "job", "stop", JOB)
    assert stop == Printed(0, f"would stop job {JOB}: 1 PENDING, 2 RUNNING\n", "")
    many = dry(peloton, "job", "stop", "--states", "RUNNING")
    assert many.out == f"would stop job {JOB} hello_world: 1 PENDING, 2 RUNNING\n"
    running = dry(peloton, "job", "delete", JOB)
    assert running == Printed(73, "", "Job is not in a terminal state: RUNNING\n")
    peloton.cluster.add_job("SUCCEEDED", "SUCCEEDED")
    ended = dry(peloton, "job", "delete", JOB)
    assert ended.out == f"would delete job {JOB}, which is SUCCEEDED\n"
    assert dry(peloton, "job", "delete", JOB, "--output", "name").out == f"{JOB}\n"
    assert dry(peloton, "job", "delete", "other").code == 66


@pytest.mark.parametrize("verb", ["start", "stop", "restart"])
def test_tasks(peloton: Terminal, verb: str) -> None:
    peloton.cluster.add_job("RUNNING", "RUNNING", "PENDING", "RUNNING")
    every = dry(peloton, "task", verb, JOB)
    assert f"all 3 instances of job {JOB} (1 PENDING, 2 RUNNING)" in every.out
    some = dry(peloton, "task", verb, JOB, "-r", "1:")
    assert f"2 of the 3 instances of job {JOB} (1:)" in some.out
    assert dry(peloton, "task", verb, JOB, "-r", "7:9").code == 66


def test_hosts(peloton: Terminal) -> None:
    with_hosts(peloton)
    start = dry(peloton, "host", "maintenance", "start", "a")
    text = "would take down host a, which is UP; its 2 runs would run again elsewhere\n"
    assert start == Printed(0, text, "")
    assert dry(peloton, "host", "maintenance", "complete", "a").code == 73
    assert dry(peloton, "host", "maintenance", "complete", "b").code == 0
    assert dry(peloton, "host", "maintenance", "start", "z") == Printed(66, "", "no such host: z\n")
    assert "--lose-runs" in dry(peloton, "host", "forget", "a").err
    lost = dry(peloton, "host", "forget", "a", "--lose-runs").out
    assert lost == "would remove host a, which is UP; its 2 runs would be LOST\n"


def test_schedules(peloton: Terminal, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(
        "name: a\ninstancecount: 1\n"
        "defaultconfig: {command: {value: ls}, resource: {cpulimit: 0.5}}\n"
    )
    words = ("cron", "create", "nightly", "30 2 * * *", "/hello", str(file))
    made = yaml.safe_load(dry(peloton, *words, "--zone", "Europe/Berlin").out)
    assert (made["name"], made["cron"], made["zone"]) == ("nightly", "30 2 * * *", "Europe/Berlin")
    assert made["pool"] == "/hello" and made["job"]["instanceCount"] == 1
    assert made["next"] == ["1970-01-01T02:30:00Z", "1970-01-02T02:30:00Z"]
    sent = peloton.cluster.called("CheckSchedule")[0].request.schedule
    assert (sent.name, sent.cron, sent.time_zone) == ("nightly", "30 2 * * *", "Europe/Berlin")
    peloton.cluster.fail("CheckSchedule", grpc.StatusCode.INVALID_ARGUMENT)
    assert dry(peloton, *words).code == 65, "what the creation would refuse"
    assert dry(peloton, "cron", "pause", "nightly").code == 66
    one = schedules.ScheduleInfo(schedule=schedules.Schedule(name="nightly"), next_at=9000.0)
    peloton.cluster.schedules["nightly"] = one
    assert dry(peloton, *words) == Printed(73, "", "schedule nightly exists already\n")
    text = "schedule nightly would be {}; its next job: 1970-01-01T02:30:00Z\n"
    for verb, done in (("pause", "paused"), ("resume", "resumed"), ("delete", "deleted")):
        assert dry(peloton, "cron", verb, "nightly") == Printed(0, text.format(done), "")


def test_dead_letters(peloton: Terminal) -> None:
    words = ("admin", "quarantine", "redrive", "job/x")
    assert dry(peloton, *words) == Printed(66, "", "no dead letter of job/x\n")
    letter = ops.Quarantined(key="job/x", message="ended/1", error="KeyError", attempts=3)
    peloton.cluster.set_aside.append(letter)
    assert dry(peloton, *words).out == "would deliver again to job/x: ended/1\n"
    assert dry(peloton, *words, "other/1").code == 66


def test_an_update_that_would_be_refused(peloton: Terminal, tmp_path: Path) -> None:
    peloton.cluster.add_job("RUNNING", "RUNNING", "RUNNING")
    file = tmp_path / "job.yaml"
    file.write_text("name: a\ninstancecount: 3\n")
    more = dry(peloton, "job", "update", JOB, str(file))
    assert more == Printed(0, f"Job {JOB} would get 1 more instances\n", "")
    file.write_text("name: a\ninstancecount: 1\n")
    fewer = dry(peloton, "job", "update", JOB, str(file))
    assert fewer.code == 65 and "line 2: instancecount: 1 is less than 2" in fewer.err
    peloton.cluster.add_job("SUCCEEDED", "SUCCEEDED")
    file.write_text("name: a\ninstancecount: 3\n")
    assert dry(peloton, "job", "update", JOB, str(file)).code == 73


def test_a_warning_of_the_cluster_is_told(peloton: Terminal, tmp_path: Path) -> None:
    peloton.cluster.warning = "cpuLimit: requested 9, the limit of pool /hello is 4 – never"
    spec = tmp_path / "job.yaml"
    spec.write_text("name: a\ninstancecount: 2\n")
    told = f"warning: {peloton.cluster.warning}\n"
    made = peloton("job", "create", "/hello", str(spec), "-i", JOB)
    assert (made.code, told in made.err, "warning" in made.out) == (0, True, False)
    assert told in peloton("job", "update", JOB, str(spec)).err
    assert told in peloton("run", "--pool", "/hello", "--detach", "--", "true").err
    assert told in peloton("map", "--pool", "/hello", "--detach", "echo {}", ":::", "1").err
    peloton.cluster.warning = ""
    assert "warning" not in peloton("job", "create", "/hello", str(spec)).err


@pytest.mark.parametrize("words", [("run", "true"), ("map", "echo {}", ":::", "1")])
def test_commands_record_who_gave_them(peloton: Terminal, words: tuple[str, ...]) -> None:
    assert peloton(words[0], "--pool", "/hello", "--detach", *words[1:]).code == 0
    sent = peloton.cluster.called("Create")[-1].request.config
    assert sent.owner == getpass.getuser()


def test_only_an_end_of_line_ends_a_command_of_a_file(peloton: Terminal, tmp_path: Path) -> None:
    file = tmp_path / "commands"
    file.write_bytes("echo a\x85b\r\n\necho c\fd\u2028e\n".encode())
    assert peloton("map", "--pool", "/hello", "--detach", str(file)).code == 0
    sent = peloton.cluster.called("Create")[-1].request.config
    commands = [one.command.value for _, one in sorted(sent.instanceConfig.items())]
    made = [command.partition("; ")[2] for command in commands]
    assert made == ["echo a\x85b", "echo c\fd\u2028e"]
