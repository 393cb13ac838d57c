"""The audit log: a line for each change with who, what and the answer; no secret; nothing lost."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import stat
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import grpc
import pytest

from peloton.api.v0.job import job_pb2 as job
from peloton.api.v0.respool import respool_pb2 as respool
from peloton.api.v0.task import task_pb2 as task
from peloton.gateway import audit
from peloton.gateway.access_table import ACCESS_TABLE, AccessRow
from peloton.gateway.audit import AUDIT_LOG, AuditEntry, AuditLog
from peloton.gateway.authentication import Authentication
from peloton.gateway.calls import CallContext, Later
from peloton.gateway.cluster_client import ClusterClient
from peloton.gateway.gates import Gates
from peloton.gateway.intake import Intake
from peloton.gateway.serving import Server
from peloton.ops.v1 import ops_pb2 as ops
from peloton.ops.v1 import ops_pb2_grpc
from peloton.runtime.core.principal import BASIC, Principal
from tests.gateway.access_fixture import (
    ROLES,
    Guarded,
    create_request,
    guarded,
    said_by,
    unknown_id,
)
from tests.gateway.fleet_fixture import WAIT_S_MAX, named, pool_config

CODE = grpc.StatusCode
JOBS, TASKS = "peloton.api.v0.job.JobManager", "peloton.api.v0.task.TaskManager"
POOLS, OPS = "peloton.api.v0.respool.ResourceManager", "peloton.ops.v1.Ops"
SUE, VERA, ADMIN = ROLES["submitter"], ROLES["viewer"], ROLES["administrator"]
SECRET = "s3cr3t-canary"
CHANGES_MADE = {
    f"{JOBS}.Create", f"{JOBS}.Delete", f"{TASKS}.Stop", f"{TASKS}.Start",
    f"{POOLS}.CreateResourcePool", f"{POOLS}.DeleteResourcePool", f"{POOLS}.UpdateResourcePool",
    f"{OPS}.Redrive", f"{OPS}.ForgetHost",
}  # fmt: skip


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    with guarded(tmp_path_factory.mktemp("guarded")) as found:
        yield found


def lines_in(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_bytes().splitlines()]


def until(wanted: Callable[[], Any]) -> Any:
    end_s, pause = time.monotonic() + WAIT_S_MAX, threading.Event()
    while time.monotonic() < end_s:
        found = wanted()
        if found:
            return found
        pause.wait(0.01)
    raise AssertionError("it never came to be")


def logged(fleet: Guarded, call: Callable[[], Any], count: int = 1) -> list[dict[str, Any]]:
    """The lines of what is called."""
    file = fleet.folder / AUDIT_LOG
    # A line of its own marks the place, as lines come in their order.
    mark = unknown_id()
    for at in ("before", "after"):
        if at == "after":
            call()
        fleet.call(f"{OPS}.ForgetHost", ops.ForgetHostRequest(name=f"{at}-{mark}"), ADMIN)

    def found() -> list[dict[str, Any]] | None:
        lines = lines_in(file)
        names = [line["objects"].get("host", "") for line in lines]
        if f"after-{mark}" not in names:
            return None
        return lines[names.index(f"before-{mark}") + 1 : names.index(f"after-{mark}")]

    lines: list[dict[str, Any]] = until(lambda: (one := found()) is not None and [one])[0]
    assert len(lines) == count, lines
    return lines


def test_a_change_is_logged_with_all_that_is_known(fleet: Guarded) -> None:
    pool = fleet.pools["/team/jobs"]
    began_s = time.time()
    (line,) = logged(
        fleet, lambda: fleet.call(f"{JOBS}.Create", create_request(pool, name="n"), SUE)
    )
    created = line["objects"].pop("job")
    assert uuid.UUID(created)
    at = line.pop("at")
    assert at.endswith("Z") and abs(_seconds(at) - began_s) < 60
    assert line == {
        "who": "sue",
        "how": "basic",
        "peer": "10.0.0.7",
        "method": f"{JOBS}.Create",
        "objects": {"pool": pool, "name": "n"},
        "answer": "OK",
    }
    stop = task.StopRequest(jobId=named(created), ranges=[{"from": 0, "to": 7}])
    (line,) = logged(fleet, lambda: fleet.call(f"{TASKS}.Stop", stop, SUE))
    assert line["objects"] == {"job": created, "ranges": [[0, 7]]}
    assert line["answer"] == "OK"


def _seconds(text: str) -> float:
    from datetime import datetime

    return datetime.fromisoformat(text).timestamp()


def test_denied_and_hidden_and_refused_calls_are_logged(fleet: Guarded) -> None:
    pools = fleet.pools
    (line,) = logged(
        fleet,
        lambda: fleet.call(f"{JOBS}.Create", create_request(pools["/team/jobs"]), VERA),
    )
    assert (line["who"], line["answer"]) == ("vera", "PERMISSION_DENIED")
    assert "no permission to submit in pool /team/jobs" in line["text"]
    assert "hidden" not in line
    job_id = fleet.job("/other/jobs")
    stop = task.StopRequest(jobId=named(job_id))
    (line,) = logged(fleet, lambda: fleet.call(f"{TASKS}.Stop", stop, VERA))
    assert (line["answer"], line["error"], line["hidden"]) == ("REFUSED", "notFound", True)
    assert line["objects"] == {"job": job_id}, "who reads the log learns what was tried"
    (line,) = logged(
        fleet, lambda: fleet.call(f"{JOBS}.Delete", job.DeleteRequest(id=named(job_id)), ADMIN)
    )
    assert line["answer"] == "INTERNAL" and line["role"] == "admin"
    taken = respool.CreateRequest(config=pool_config("team", "root"))
    (line,) = logged(fleet, lambda: fleet.call(f"{POOLS}.CreateResourcePool", taken, ADMIN))
    assert (line["answer"], line["error"]) == ("REFUSED", "invalidResourcePoolConfig")


def test_every_change_has_one_line_and_a_read_has_none(fleet: Guarded) -> None:
    assert {name for name, row in ACCESS_TABLE.items() if row.objects is not None} == CHANGES_MADE
    for method in ACCESS_TABLE:
        service, _, name = method.rpartition(".")

        def call(path: str = f"/{service}/{name}") -> None:
            stub = fleet.channel.unary_unary(path)
            with contextlib.suppress(grpc.RpcError):
                stub(b"", metadata=said_by(ADMIN), timeout=1)

        if not name.startswith(("Watch", "ServerReflectionInfo")):
            logged(fleet, call, count=int(method in CHANGES_MADE))


def test_what_is_no_message_is_logged_too(fleet: Guarded) -> None:
    def call() -> None:
        stub = fleet.channel.unary_unary("/peloton.api.job.JobManager/Create")
        with pytest.raises(grpc.RpcError):
            stub(b"\xff\xff\xff", metadata=said_by(SUE))

    (line,) = logged(fleet, call)
    assert (line["method"], line["answer"]) == (f"{JOBS}.Create", "INVALID_ARGUMENT")
    assert line["objects"] == {} and "text" not in line


def test_no_secret_is_in_any_line(fleet: Guarded) -> None:
    """Whatever is wrong with a request that holds one."""
    pool = fleet.pools["/team/jobs"]
    good = create_request(pool)
    config = good.config.defaultConfig
    config.command.value = f"run --password={SECRET}"
    config.command.environment.variables.add(name="PASSWORD", value=SECRET)
    config.labels.add(key="l", value=SECRET)
    requests = [good]
    for spoil in (
        lambda sent: sent.config.defaultConfig.ports.add(name=SECRET, value=99999),
        lambda sent: sent.config.defaultConfig.command.environment.variables.add(name=SECRET + "="),
        lambda sent: setattr(sent.config.defaultConfig.resource, "cpuLimit", -1),
        lambda sent: sent.config.labels.add(key="", value=SECRET),
        lambda sent: setattr(sent.config.defaultConfig.constraint, "type", 1),
        lambda sent: setattr(sent.config.respoolID, "value", unknown_id()),
        lambda sent: sent.secrets.add(value={"data": SECRET.encode()}),
    ):
        wrong = job.CreateRequest()
        wrong.CopyFrom(good)
        spoil(wrong)
        requests.append(wrong)

    def call() -> None:
        for sent in requests:
            for by in (SUE, VERA):
                key = (("password", SECRET), ("authorization", f"Bearer {SECRET}"))
                stub = fleet.channel.unary_unary("/peloton.api.v0.job.JobManager/Create")
                with contextlib.suppress(grpc.RpcError):
                    stub(sent.SerializeToString(), metadata=(*said_by(by), *key))

    lines = logged(fleet, call, count=2 * len(requests))
    assert {line["answer"] for line in lines} >= {"OK", "REFUSED", "PERMISSION_DENIED"}
    data = (fleet.folder / AUDIT_LOG).read_bytes()
    for form in (SECRET.encode(), SECRET.encode().hex().encode(), b"czNjcjN0LWNhbmFyeQ"):
        assert form not in data


def test_control_characters_and_long_names_are_one_short_line(fleet: Guarded) -> None:
    sent = create_request(fleet.pools["/team/jobs"], name="a\nb\x1b[31m" + "x" * 100_000)
    (line,) = logged(fleet, lambda: fleet.call(f"{JOBS}.Create", sent, SUE))
    assert line["objects"]["name"].startswith("a\nb\x1b[31m")
    assert len(line["objects"]["name"]) == audit.VALUE_LENGTH_MAX
    assert b"\x1b" not in (fleet.folder / AUDIT_LOG).read_bytes()


class Hanging:
    """A method whose answer never comes."""

    at_once = {"Story": "later"}

    def __init__(self) -> None:
        self.came = threading.Event()

    def Story(self, sent: ops.StoryRequest, context: CallContext) -> Any:
        raise AssertionError("it is answered at once")

    def later(self, sent: ops.StoryRequest, context: CallContext) -> Later:
        self.came.set()
        return Later(Future(), lambda answer: b"", lambda: context.abort(CODE.UNAVAILABLE, ""), 60)


def test_a_client_that_leaves_is_logged(tmp_path: Path) -> None:
    """The change may have happened: it was ordered."""
    described = ops.DESCRIPTOR.services_by_name["Ops"]
    log, hanging = AuditLog(tmp_path / AUDIT_LOG), Hanging()
    cluster: Any = None
    row = AccessRow(objects=lambda sent: {"key": sent.key})
    gates = Gates(ClusterClient(cluster), {f"{OPS}.Story": row}, audit=log)
    server = Server(
        [],
        Intake(message_bytes_max=4 << 20, bytes_max=16 << 20),
        gates=gates.of,
        authentication=Authentication.open(),
    )
    server.add(described, hanging, names=[described.full_name])
    (port,) = server.listen(["127.0.0.1:0"])
    server.start()
    try:
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            stub = ops_pb2_grpc.OpsStub(channel)
            asked = stub.Story.future(ops.StoryRequest(key="job/x"), timeout=WAIT_S_MAX)
            assert hanging.came.wait(WAIT_S_MAX)
            asked.cancel()
            (line,) = until(lambda: lines_in(tmp_path / AUDIT_LOG))
    finally:
        assert server.stop(0).wait(5)
        log.close()
    assert (line["answer"], line["objects"]) == ("CANCELLED", {"key": "job/x"})
    assert line["text"] == "the client left; a change may have happened"
    assert len(lines_in(tmp_path / AUDIT_LOG)) == 1


# ---- the file ----


def entry(text: str = "") -> AuditEntry:
    who = Principal("ann", BASIC)
    return AuditEntry(0.0, who, "a.B.C", {"job": text}, False, 0, "", None, None)


def test_the_file_is_for_its_owner_alone_whatever_the_mask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        (tmp_path / AUDIT_LOG).touch(0o666)
        log = AuditLog(tmp_path / AUDIT_LOG)
        log.close()
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / AUDIT_LOG).stat().st_mode) == 0o600


def test_no_link_is_followed_and_no_folder_written(tmp_path: Path) -> None:
    (tmp_path / "target").touch()
    (tmp_path / AUDIT_LOG).symlink_to(tmp_path / "target")
    with pytest.raises(OSError):
        AuditLog(tmp_path / AUDIT_LOG)
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError):
        AuditLog(tmp_path / "folder")


def test_all_that_was_handed_over_is_written_at_the_end(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / AUDIT_LOG)
    threads = [
        threading.Thread(target=lambda at=at: [log.add(entry(f"{at}/{n}")) for n in range(500)])
        for at in range(4)
    ]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    log.close()
    names = [line["objects"]["job"] for line in lines_in(tmp_path / AUDIT_LOG)]
    assert len(names) == 2000
    for at in range(4):
        assert [n for n in names if n.startswith(f"{at}/")] == [f"{at}/{n}" for n in range(500)]


def test_a_line_that_was_torn_does_not_spoil_the_next(tmp_path: Path) -> None:
    (tmp_path / AUDIT_LOG).write_bytes(b'{"who":"a"}\n{"who":"tor')
    log = AuditLog(tmp_path / AUDIT_LOG)
    log.add(entry("next"))
    log.close()
    first, torn, last = (tmp_path / AUDIT_LOG).read_bytes().splitlines()
    assert (first, torn) == (b'{"who":"a"}', b'{"who":"tor')
    assert json.loads(last)["objects"] == {"job": "next"}


def test_files_are_rotated_and_so_many_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "FILES_KEPT_MAX", 3)
    path = tmp_path / AUDIT_LOG
    log = AuditLog(path, file_bytes_max=1000)
    for number in range(40):
        log.add(entry(f"{number:04}"))
        until(lambda n=number: path.exists() and f"{n:04}" in path.read_text())
    log.close()
    kept = sorted(file.name for file in tmp_path.iterdir())
    assert kept == [AUDIT_LOG, *(f"{AUDIT_LOG}.{number}" for number in (1, 2, 3))]
    assert all(file.stat().st_size <= 1000 for file in tmp_path.iterdir())
    assert all(stat.S_IMODE(file.stat().st_mode) == 0o600 for file in tmp_path.iterdir())
    files = [path.with_name(name) for name in reversed(kept[1:])] + [path]
    names = [line["objects"]["job"] for file in files for line in lines_in(file)]
    assert names == [f"{number:04}" for number in range(40 - len(names), 40)], "none is left out"


def test_a_file_that_was_taken_away_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / AUDIT_LOG
    log = AuditLog(path)
    log.add(entry("first"))
    until(path.read_text)
    path.rename(tmp_path / "elsewhere")
    log.add(entry("second"))
    until(lambda: path.exists() and path.read_text())
    path.unlink()
    log.add(entry("third"))
    log.close()
    assert [line["objects"]["job"] for line in lines_in(tmp_path / "elsewhere")] == ["first"]
    assert [line["objects"]["job"] for line in lines_in(path)] == ["third"]


def test_a_full_disk_stops_nobody_and_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "RETRY_S", 0.01)
    path = tmp_path / AUDIT_LOG
    log = AuditLog(path, waiting_max=50)
    log.add(entry("before"))
    until(path.read_text)
    assert not log.notes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    # Room for half a line: what does not fit as a whole is not there at all.
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 40, limits[1]))
    try:
        for number in range(80):
            log.add(entry(f"{number}"))
        until(lambda: "File too large" in str(log.notes()))
        (note,) = log.notes()
        assert note.component == "audit" and "50 wait; 30 lines are lost" in note.text
        assert [line["objects"]["job"] for line in lines_in(path)] == ["before"]
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    until(lambda: len(lines_in(path)) == 52)
    until(lambda: "written" not in str(log.notes()))
    assert log.notes()[0].text == "30 lines are lost"
    log.add(entry("after"))
    log.close()
    *lines, lost, after = lines_in(path)
    assert [line["objects"]["job"] for line in lines[1:]] == [str(n) for n in range(50)]
    assert (lost["lost"], after["objects"]["job"]) == (30, "after")


def test_an_answer_that_cannot_be_read_costs_only_its_part(tmp_path: Path) -> None:
    def broken(data: bytes) -> Any:
        raise ValueError("a bug")

    log = AuditLog(tmp_path / AUDIT_LOG)
    reads = audit.ReadAnswer(broken, lambda answer: {})
    log.add(entry("short")._replace(answer=b"x", reads=reads))
    log.add(entry("next"))
    log.close()
    assert [line["objects"]["job"] for line in lines_in(tmp_path / AUDIT_LOG)] == ["short", "next"]
