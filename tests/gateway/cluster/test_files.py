"""Sandboxes and the HTTP server: what may be seen, and what may not, however it is named."""

from __future__ import annotations

import http.client
import json
import os
from pathlib import Path
from typing import Any

import pytest

from peloton.actors.host.inventory.messages import HostView
from peloton.actors.host.stages import HostStates
from peloton.actors.resources import Resources
from peloton.api.v0.job import job_pb2
from peloton.api.v0.task import task_pb2 as task
from peloton.gateway.access.file_links import FileLinks
from peloton.gateway.cluster.files_anywhere import FileRoots
from peloton.gateway.cluster.sandboxes import FOLDERS_DEEP_MAX, SandboxFiles
from peloton.gateway.http_server import OPEN, HttpServer
from peloton.gateway.ops.run_outputs import ANSWER_BYTES_MAX, DATA_BYTES_MAX, LEASE_S_MAX
from peloton.ops.v1 import outputs_pb2, outputs_pb2_grpc
from peloton.placement.messages import HostSummary
from peloton.runtime.core.ended.retention import RetainedEnded
from peloton.runtime.core.health import DaemonHealth, NotReadyReason
from peloton.runtime.core.reading.listing import Listed, ListViews
from peloton.runtime.far_files import NoFile
from peloton.runtime.ports import ShardId
from peloton.runtime.vocabulary import Key, Query, key
from peloton.settings.config import Address
from tests.descriptors import held_by
from tests.gateway.fleet_fixture import Deployment, default_config, refused


@pytest.fixture(scope="module")
def runs(folder: Path) -> Path:
    """One run with files, folders, a link, a pipe; secrets beside."""
    runs = folder / "runs"
    box = runs / "run-1"
    (box / "deep" / "er").mkdir(parents=True)
    (box / "stdout").write_text("hello\n")
    (box / "deep" / "er" / "file").write_bytes(bytes(range(256)) * 1000)
    (box / "empty").touch()
    (folder / "secret").write_text("secret")
    (box / "link").symlink_to(folder / "secret")
    (box / "up").symlink_to(folder)
    (runs / "run-2").symlink_to(runs / "run-1")
    os.mkfifo(box / "pipe")
    return runs


NOT_SEEN = [
    "/run-1/link",
    "/run-1/up/secret",
    "/run-1/up",
    "/run-1/../../secret",
    "/run-1/deep/../stdout",
    "/run-1/./stdout",
    "/../secret",
    "/run-2/stdout",
    "/run-1/pipe",
    "/run-1/deep",
    "/run-1",
    "/run-1/nothing",
    "/run-9/stdout",
    "",
    "/",
    "..",
    "/run-1/stdout\0.txt",
    "/run-1/" + "x/" * 100 + "y",
    "/run-1/" + "x" * 5000,
    "/etc/passwd",
]


@pytest.mark.parametrize("path", NOT_SEEN, ids=range(len(NOT_SEEN)))
def test_what_is_not_seen(runs: Path, path: str) -> None:
    boxes = SandboxFiles(runs, ("h", 1))
    with pytest.raises(NoFile), boxes.open(path):
        pass


def test_what_is_seen(runs: Path) -> None:
    boxes = SandboxFiles(runs, ("h", 1))
    assert boxes.names("run-1") == ["empty", "stdout"]
    listed = [entry.path for entry in boxes.listing("/run-1")]
    assert listed == [f"/run-1/{name}" for name in ("deep", "empty", "pipe", "stdout")]
    assert [entry.path for entry in boxes.listing("/run-1/deep/er")] == ["/run-1/deep/er/file"]
    with boxes.open("/run-1/stdout") as file:
        assert os.read(file, 100) == b"hello\n"
    for path in NOT_SEEN:
        with pytest.raises(NoFile), boxes.open(path):
            pass
    # Not their number: other threads of this process open and close descriptors all the time.
    assert not [target for target in held_by(os.getpid()) if target.startswith(f"{runs}")]


def test_a_name_that_is_not_utf8_hides_no_other_file(folder: Path) -> None:
    box = folder / "strange" / "run-1"
    box.mkdir(parents=True)
    (box / "stdout").write_text("x")
    (box / "café").write_text("x")
    with open(os.fsencode(box) + b"/caf\xe9", "w"):
        pass
    names = SandboxFiles(folder / "strange", ("h", 1)).names("run-1")
    assert task.BrowseSandboxResponse(paths=names).paths == ["café", "stdout"]


def get(deployment: Deployment, path: str, host: str = "localhost") -> tuple[int, bytes, str]:
    link = http.client.HTTPConnection(deployment.http.host, deployment.http.port, timeout=60)
    try:
        link.putrequest("GET", path, skip_host=True)
        link.putheader("Host", host)
        link.endheaders()
        answer = link.getresponse()
        return answer.status, answer.read(), answer.getheader("Content-Type") or ""
    finally:
        link.close()


def test_files_over_http(deployment: Deployment, runs: Path) -> None:
    for path in ("/files/download?path=/run-1/stdout", "/files/run-1/stdout"):
        assert get(deployment, path) == (200, b"hello\n", "application/octet-stream")
    status, body, _ = get(deployment, "/files/download?path=/run-1/deep/er/file")
    assert (status, body) == (200, bytes(range(256)) * 1000)
    assert get(deployment, "/files/run-1/empty")[:2] == (200, b"")
    status, body, kind = get(deployment, "/files/browse?path=/run-1/deep")
    assert (status, kind) == (200, "application/json")
    assert [entry["path"] for entry in json.loads(body)] == ["/run-1/deep/er"]
    for path in (
        "/files/download?path=/run-1/link",
        "/files/download?path=/run-1/..%2F..%2Fsecret",
        "/files/download?path=..%2fsecret",
        "/files/run-1/%2e%2e/%2e%2e/secret",
        "/files/run-1/%2e%2e%2fintent",
        "/files/browse?path=/run-1/up",
        "/files/browse?path=/run-1/stdout",
        "/files/download?path=/run-1/pipe",
    ):
        assert get(deployment, path)[0] == 404, path
    assert get(deployment, "/files/browse")[0] == 400


def test_head_is_get_without_the_body(deployment: Deployment, runs: Path) -> None:
    for path in ("/ready", "/files/run-1/stdout", "/files/browse?path=/run-1/deep", "/"):
        status, body, kind = get(deployment, path)
        link = http.client.HTTPConnection(deployment.http.host, deployment.http.port, timeout=60)
        link.request("HEAD", path)
        answer = link.getresponse()
        assert (answer.status, answer.getheader("Content-Type")) == (status, kind)
        assert (answer.getheader("Content-Length"), answer.read()) == (str(len(body)), b"")
        link.close()
    assert get(deployment, "/")[:2] == (404, b"nothing at /\n")


def test_a_web_page_that_points_its_own_name_here_sees_nothing(
    deployment: Deployment, runs: Path
) -> None:
    for host in ("evil.example", "evil.example:80", "127.0.0.1.evil.example", "", "[", "10.0.0.1"):
        assert get(deployment, "/files/run-1/stdout", host)[0] == 403, host
    for host in ("localhost:5297", "127.0.0.1", "[::1]:5297"):
        assert get(deployment, "/files/run-1/stdout", host)[0] == 200, host


def test_health_version_and_metrics(deployment: Deployment) -> None:
    assert get(deployment, "/health")[:2] == get(deployment, "/ready")[:2] == (200, b"OK\n")
    assert get(deployment, "/version")[0] == 200
    body = get(deployment, "/metrics")[1].decode()
    assert "peloton_healthy 1.0" in body
    assert get(deployment, "/nothing/")[:2] == (404, b"nothing at /nothing\n")
    assert get(deployment, "/")[:2] == (404, b"nothing at /\n")


class Ill:
    """A cluster in trouble."""

    def __init__(self, *, live: bool) -> None:
        self.live = live

    def shards_of(self, kind: str) -> list[Key]:
        return [key("shard", f"{kind}-0")]

    def read(self, shard: Key, query: Query) -> Any:
        """Its shards are elsewhere."""

    def ended_retained(self, kind: str) -> list[RetainedEnded]:
        return []

    def daemon_health(self) -> DaemonHealth:
        lost = (ShardId("jobmgr", 0), ShardId("jobmgr", 1))
        return DaemonHealth(
            self.live, False, (NotReadyReason("Cassandra", "unreachable since 3 s", lost),)
        )


NOTE = NotReadyReason("tasks", "run as root")


def asked(
    cluster: Ill, path: str, boxes: Path, accept: str = "*/*", *, notes: Any = ()
) -> tuple[int, bytes]:
    """One request to a server of its own."""
    server = HttpServer(
        Address("127.0.0.1", 0),
        cluster,  # type: ignore[arg-type]
        sandboxes=FileRoots(boxes),
        access=OPEN,
        notes=lambda: notes,
    )
    try:
        link = http.client.HTTPConnection("127.0.0.1", server.address.port, timeout=60)
        link.request("GET", path, headers={"Accept": accept})
        answer = link.getresponse()
        found = answer.status, answer.read()
        link.close()
        return found
    finally:
        server.close()


def test_a_cluster_in_trouble_is_live_and_not_ready_and_says_why(tmp_path: Path) -> None:
    """A supervisor that restarted it would make all worse; a load balancer looks elsewhere."""
    line = b"Cassandra: unreachable since 3 s (jobmgr/0-1)\n"
    assert asked(Ill(live=True), "/health", tmp_path) == (200, b"OK\n" + line)
    assert asked(Ill(live=True), "/ready", tmp_path) == (503, b"not ready\n" + line)
    assert asked(Ill(live=False), "/health", tmp_path) == (503, b"stopping\n" + line)
    assert asked(Ill(live=False), "/ready", tmp_path)[0] == 503


@pytest.mark.parametrize(
    ("path", "accept"), [("/ready?format=json", "*/*"), ("/ready", "application/json")]
)
def test_a_program_reads_the_reasons_as_json(tmp_path: Path, path: str, accept: str) -> None:
    status, body = asked(Ill(live=True), path, tmp_path, accept)
    assert status == 503
    assert json.loads(body) == {
        "live": True,
        "ready": False,
        "reasons": [
            {
                "component": "Cassandra",
                "text": "unreachable since 3 s",
                "shards": ["jobmgr/0", "jobmgr/1"],
                "damaged": False,
            }
        ],
    }


class Waiting(Ill):
    """A cluster that is well, but for a host."""

    def read(self, shard: Key, query: Query) -> Any:
        if not isinstance(query, ListViews):
            return None
        summary = HostSummary(key("host", "a"), 1, Resources(), Resources(), ())
        view = HostView(summary, HostStates.RECONCILING, 3, "another keeper answers")
        return Listed(query.kind, (view,), matched=1)

    def daemon_health(self) -> DaemonHealth:
        return DaemonHealth(True, True)


def test_a_host_that_waits_for_a_person_is_no_reason_against_being_ready(tmp_path: Path) -> None:
    text = "1 wait for a person: a: another keeper answers"
    for path in ("/ready", "/health"):
        assert asked(Waiting(live=True), path, tmp_path) == (200, f"OK\nhosts: {text}\n".encode())
    status, body = asked(Waiting(live=True), "/ready?format=json", tmp_path)
    found = json.loads(body)
    assert (status, found["ready"]) == (200, True)
    assert [(one["component"], one["text"]) for one in found["reasons"]] == [("hosts", text)]


def test_a_note_is_told_and_is_no_reason_against_being_ready(tmp_path: Path) -> None:
    lines = b"hosts: 1 wait for a person: a: another keeper answers\ntasks: run as root\n"
    for path in ("/ready", "/health"):
        found = asked(Waiting(live=True), path, tmp_path, notes=(NOTE,))
        assert found == (200, b"OK\n" + lines)


def test_other_addresses_than_loopback_are_refused(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="not a loopback"):
        HttpServer(
            Address("0.0.0.0", 0), Ill(live=True), sandboxes=FileRoots(tmp_path), access=OPEN
        )  # type: ignore[arg-type]


def test_a_file_is_had_from_a_byte_on(deployment: Deployment, runs: Path) -> None:
    """Who follows a file asks for what it has not had."""

    def asked(span: str) -> tuple[int, str | None, bytes]:
        connection = http.client.HTTPConnection(
            deployment.http.host, deployment.http.port, timeout=60
        )
        path = "/files/download?path=/run-1/stdout"
        connection.request("GET", path, headers={"Range": span} if span else {})
        answer = connection.getresponse()
        found = answer.status, answer.getheader("Content-Range"), answer.read()
        connection.close()
        return found

    assert asked("bytes=2-") == (206, "bytes 2-5/6", b"llo\n")
    assert asked("bytes=0-") == (206, "bytes 0-5/6", b"hello\n")
    for beyond in ("6", "7", "9" * 18):
        assert asked(f"bytes={beyond}-") == (416, "bytes */6", b"")
    for other in ("", "bytes=1-2", "bytes=-2", "lines=1-", "bytes=" + "9" * 30 + "-", "bytes=x-"):
        assert asked(other) == (200, None, b"hello\n"), other


def test_a_path_has_a_limited_depth(tmp_path: Path) -> None:
    """Each folder of it is a descriptor and a call of the system."""
    deep = tmp_path / "run" / Path(*["x"] * FOLDERS_DEEP_MAX)
    deep.mkdir(parents=True)
    for folder in (deep, deep.parents[1]):
        (folder / "file").write_text("here")
    boxes = SandboxFiles(tmp_path, ("127.0.0.1", 0))
    near = "/" + str(deep.parents[1].relative_to(tmp_path) / "file")
    with boxes.open(near) as file:
        assert os.read(file, 10) == b"here"
    with pytest.raises(NoFile), boxes.open("/" + str(deep.relative_to(tmp_path) / "file")):
        pass


# ---- links ----


def test_a_link_is_good_for_the_files_of_its_run_for_ten_minutes() -> None:
    now = [1_000_000.0]
    links = FileLinks(lambda: now[0])
    proof = links.proof("job-0-1")
    opened = links.opened(f"/{proof}/job-0-1/folder/file")
    assert opened == (f"/{proof}", "/job-0-1/folder/file")
    now[0] += 599.0
    assert links.opened(f"/{proof}/job-0-1") is not None
    until, _, signature = proof[1:].partition(".")
    for forged in (
        f"/{proof}/job-0-2/stdout",
        f"/{proof}/job-0-1x/stdout",
        f"/{proof}/../job-0-1/stdout",
        f"/~{int(until) + 1}.{signature}/job-0-1/stdout",
        f"/~{until}.{signature[:-1]}{'A' if signature[-1] != 'A' else 'B'}/job-0-1/stdout",
        f"/~{until}.{'é' * 22}/job-0-1/stdout",
        f"/~{until}./job-0-1/stdout",
        "/job-0-1/stdout",
    ):
        assert links.opened(forged) is None, forged
    assert FileLinks(lambda: now[0]).opened(f"/{proof}/job-0-1/stdout") is None, "of another key"
    now[0] += 2.0
    assert links.opened(f"/{proof}/job-0-1/stdout") is None


def test_paths_are_signed_where_the_server_asks_for_it(tmp_path: Path) -> None:
    (tmp_path / "run-1").mkdir()
    (tmp_path / "run-1" / "stdout").write_text("x")
    links = FileLinks()
    (path,) = SandboxFiles(tmp_path, ("h", 1), links=links).paths("run-1")
    opened = links.opened(path)
    assert opened is not None and opened.path == "/run-1/stdout"
    assert SandboxFiles(tmp_path, ("h", 1)).paths("run-1") == ["/run-1/stdout"]


# ---- the output of many instances ----


def read(deployment: Deployment, job: str, **more: Any) -> outputs_pb2.ReadOutputsResponse:
    stub = outputs_pb2_grpc.OutputsStub(deployment.channel)
    found: outputs_pb2.ReadOutputsResponse = stub.ReadOutputs(
        outputs_pb2.ReadOutputsRequest(job_id=job, **more)
    )
    return found


def test_the_output_of_many_instances_is_one_answer(deployment: Deployment, folder: Path) -> None:
    job = deployment.create(deployment.request(6, defaultConfig=default_config(code=3)))
    deployment.ended(job)
    for number in range(6):
        box = folder / "runs" / f"{job}-{number}-1"
        box.mkdir(parents=True)
        (box / "stdout").write_text(f"out {number}")
    (folder / "runs" / f"{job}-1-1" / "stderr").write_bytes(b"x" * (DATA_BYTES_MAX + 1))
    (folder / "runs" / f"{job}-2-1" / "stdout").unlink()
    (folder / "runs" / f"{job}-3-1" / "stdout").unlink()
    (folder / "runs" / f"{job}-3-1").rmdir()
    (folder / "removed").write_text(f"{job}-3-1\tcount\t7\t0\n")

    first = outputs_pb2.Instances(first=0, last=0)
    found = read(deployment, job, first=0, last=999, had=[first]).outputs
    assert [one.instance for one in found] == [1, 2, 3, 4, 5]
    assert {one.state for one in found} == {"FAILED"} and {one.exit_code for one in found} == {3}
    assert found[0].run == f"{job}-1-1"
    files = [(one.name, one.data, one.longer) for one in found[0].files]
    assert files == [("stdout", b"out 1", False), ("stderr", b"", True)]
    assert not found[1].files and not found[1].missing, "it is there, and empty"
    assert "of ended runs those of 7 are kept" in found[2].missing
    (other,) = read(deployment, job, first=4, last=4, names=["result"]).outputs
    assert not other.files and not other.missing


def test_of_what_has_not_ended_output_is_read_where_that_is_wanted(
    deployment: Deployment, folder: Path
) -> None:
    request = deployment.request(3)
    request.config.instanceConfig[1].CopyFrom(default_config(seconds=600))
    job = deployment.create(request)
    deployment.until(
        lambda: (
            len(read(deployment, job, last=2).outputs) == 2
            and deployment.task(job, 1).result.runtime.state == task.RUNNING
        )
    )
    for number in range(3):
        box = folder / "runs" / f"{job}-{number}-1"
        box.mkdir(parents=True)
        (box / "stdout").write_text("x")

    def numbers(**more: Any) -> list[int]:
        return [one.instance for one in read(deployment, job, last=2, **more).outputs]

    assert numbers() == [0, 2]
    assert numbers(running=True) == [0, 1, 2]
    assert numbers(in_order=True) == [0]
    assert numbers(in_order=True, had=[outputs_pb2.Instances(first=0, last=0)]) == []


def test_what_is_between_two_attempts_has_not_ended(deployment: Deployment) -> None:
    """Else the output of the first attempt would be taken for that of the instance."""
    request = deployment.request(1, defaultConfig=default_config(code=1))
    request.config.type = job_pb2.SERVICE
    job = deployment.create(request)
    deployment.until(lambda: deployment.task(job).result.runtime.state == task.FAILED)
    assert not read(deployment, job).outputs
    assert read(deployment, job, running=True).outputs
    deployment.tasks.Stop(task.StopRequest(jobId={"value": job}))


def test_an_answer_that_is_long_enough_says_where_to_go_on(
    deployment: Deployment, folder: Path
) -> None:
    count = ANSWER_BYTES_MAX // DATA_BYTES_MAX + 10
    job = deployment.create(deployment.request(count, defaultConfig=default_config()))
    deployment.ended(job)
    for number in range(count):
        box = folder / "runs" / f"{job}-{number}-1"
        box.mkdir(parents=True)
        (box / "stdout").write_bytes(b"x" * DATA_BYTES_MAX)
    answer = read(deployment, job, last=count - 1)
    assert answer.HasField("next") and answer.next == len(answer.outputs) < count
    rest = read(deployment, job, first=answer.next, last=count - 1)
    assert not rest.HasField("next") and len(rest.outputs) == count - answer.next


def test_what_is_asked_of_outputs_has_limits(deployment: Deployment) -> None:
    stub = outputs_pb2_grpc.OutputsStub(deployment.channel)
    job = deployment.create(deployment.request(1))
    for first, last in ((0, 1000), (5, 4)):
        sent = outputs_pb2.ReadOutputsRequest(job_id=job, first=first, last=last)
        code, text = refused(stub.ReadOutputs, sent)
        assert code.name == "INVALID_ARGUMENT" and text.startswith("last: must be ≥ first")
    whole = outputs_pb2.Instances(first=0, last=999)
    for field, sent in (
        ("had", outputs_pb2.ReadOutputsRequest(job_id=job, had=[whole] * 1001)),
        ("names", outputs_pb2.ReadOutputsRequest(job_id=job, names=["stdout"] * 101)),
    ):
        code, text = refused(stub.ReadOutputs, sent)
        assert code.name == "INVALID_ARGUMENT" and text.startswith(f"{field}: at most 10")
    for for_s in (0.0, -1.0, LEASE_S_MAX + 1, float("nan")):
        code, text = refused(
            stub.HoldOutputs, outputs_pb2.HoldOutputsRequest(job_id=job, for_s=for_s)
        )
        assert code.name == "INVALID_ARGUMENT" and text.startswith("for_s: must be > 0 and ≤ 300")
    for call, kind in (
        (stub.ReadOutputs, outputs_pb2.ReadOutputsRequest),
        (stub.HoldOutputs, lambda **sent: outputs_pb2.HoldOutputsRequest(for_s=1.0, **sent)),
    ):
        assert refused(call, kind(job_id="none"))[0].name == "NOT_FOUND"
    held = stub.HoldOutputs(outputs_pb2.HoldOutputsRequest(job_id=job, for_s=LEASE_S_MAX))
    assert held.for_s == 0.0, "simulated runs leave nothing"
