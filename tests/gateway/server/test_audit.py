"""The audit log: a line for each change with who, what and the answer; no secret; nothing lost."""

from __future__ import annotations

import contextlib
import json
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
from peloton.gateway.access.access_table import (
    ACCESS_TABLE,
    COUNTERPARTS,
    HOST_MANAGER,
    HOSTS,
    HOSTS_V1,
    INTERNAL_HOSTS,
    JOBS_2,
    POOLS_2,
    POOLS_V1,
    SCHEDULES,
    SERVICES,
    UPDATES,
    AccessRow,
)
from peloton.gateway.access.authentication import Authentication
from peloton.gateway.access.basic_users import parse_users
from peloton.gateway.cluster.cluster_client import ClusterClient
from peloton.gateway.cluster.gates import Gates
from peloton.gateway.server import audit
from peloton.gateway.server.audit import AUDIT_LOG, AuditLog
from peloton.gateway.server.calls import CallContext, Later
from peloton.gateway.server.intake import Intake
from peloton.gateway.server.serving import Server
from peloton.ops.v1 import ops_pb2 as ops
from peloton.ops.v1 import ops_pb2_grpc
from tests.gateway.access_fixture import (
    JOBS,
    OPS,
    POOLS,
    ROLES,
    TASKS,
    Guarded,
    create_request,
    said_by,
    unknown_id,
)
from tests.gateway.fleet_fixture import WAIT_S_MAX, named, pool_config, until
from tests.gateway.server.audit_fixture import lines_in

CODE = grpc.StatusCode
SUE, VERA, ADMIN = ROLES["submitter"], ROLES["viewer"], ROLES["administrator"]
SECRET = "s3cr3t-canary"
CHANGES_MADE = {
    f"{TASKS}.DeletePodEvents",
    f"{JOBS}.Create", f"{JOBS}.Delete", f"{TASKS}.Stop", f"{TASKS}.Start", f"{TASKS}.Restart",
    f"{JOBS}.Update", f"{JOBS}.Restart", f"{JOBS}.Start", f"{JOBS}.Stop",
    f"{POOLS}.CreateResourcePool", f"{POOLS}.DeleteResourcePool", f"{POOLS}.UpdateResourcePool",
    f"{OPS}.Redrive", f"{OPS}.ForgetHost", "peloton.ops.v1.Actors.Tell",
    *(f"{SCHEDULES}.{verb}Schedule" for verb in ("Create", "Pause", "Resume", "Delete")),
    f"{JOBS_2}.CreateJob",
    *(f"{SERVICES}.{verb}Job"
      for verb in ("Create", "Start", "Stop", "Delete", "Restart", "Replace", "Patch")),
    *(f"peloton.api.v1alpha.pod.svc.PodService.{name}"
      for name in ("StartPod", "StopPod", "RestartPod", "DeletePodEvents")),
    *(f"peloton.api.v1alpha.admin.svc.AdminService.{name}"
      for name in ("Lockdown", "RemoveLockdown")),
    *(f"peloton.api.{version}.volume.svc.VolumeService.DeleteVolume"
      for version in ("v0", "v1alpha")),
    *(f"{SERVICES}.{verb}JobWorkflow" for verb in ("Pause", "Resume", "Abort")),
    *(f"{UPDATES}.{verb}Update" for verb in ("Create", "Pause", "Resume", "Abort", "Rollback")),
    *(f"{pools}.{verb}ResourcePool" for pools in (POOLS_2, POOLS_V1)
      for verb in ("Create", "Delete", "Update")),
    *(f"{hosts}.{verb}Maintenance" for hosts in (HOSTS, HOSTS_V1)
      for verb in ("Start", "Complete")),
    *(f"{hosts}.{verb}HostPool" for hosts in (HOSTS, HOSTS_V1)
      for verb in ("Create", "Delete", "Change")),
    "peloton.private.resmgr.ResourceManagerService.KillTasks",
    *(f"{INTERNAL_HOSTS}.{name}"
      for name in ("AcquireHostOffers", "ReleaseHostOffers", "LaunchTasks", "KillTasks",
                   "KillAndReserveTasks", "ReleaseHostsHeldForTasks", "ReserveHosts",
                   "GetCompletedReservations", "DisableKillTasks")),
    f"{HOSTS}.MoveHosts",
    *(f"{HOST_MANAGER}.{name}"
      for name in ("AcquireHosts", "TerminateLeases", "LaunchPods", "KillPods",
                   "KillAndHoldPods")),
}  # fmt: skip
CHANGES_MADE |= {second for second, first in COUNTERPARTS.items() if first in CHANGES_MADE}


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
    streams = ("Watch", "ServerReflectionInfo")
    called = [name for name in ACCESS_TABLE if not name.rpartition(".")[2].startswith(streams)]

    def call_each() -> None:
        for method in called:
            service, _, name = method.rpartition(".")
            call = fleet.channel.unary_stream(f"/{service}/{name}")
            with contextlib.suppress(grpc.RpcError):
                list(call(b"", metadata=said_by(ADMIN), timeout=WAIT_S_MAX))

    wanted = [method for method in called if method in CHANGES_MADE]
    lines = logged(fleet, call_each, count=len(wanted))
    assert [line["method"] for line in lines] == wanted


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
        assert server.stop(0).wait(WAIT_S_MAX)
        log.close()
    assert (line["answer"], line["objects"]) == ("CANCELLED", {"key": "job/x"})
    assert line["text"] == "the client left; a change may have happened"
    assert len(lines_in(tmp_path / AUDIT_LOG)) == 1


def test_a_refusal_of_any_length_is_no_success(fleet: Guarded) -> None:
    """An error repeats what the client sent, and so can be made longer than any limit."""
    long = "x" * 3000
    config = pool_config("n", long)
    for method, sent, error in (
        (f"{TASKS}.Stop", task.StopRequest(jobId=named(long)), "notFound"),
        (f"{JOBS}.Create", job.CreateRequest(id=named(long)), "invalidJobId"),
        (f"{POOLS}.DeleteResourcePool", respool.DeleteRequest(path={"value": long}), "notFound"),
        (
            f"{POOLS}.UpdateResourcePool",
            respool.UpdateRequest(id={"value": long}, config=config),
            "notFound",
        ),
        (
            f"{POOLS}.CreateResourcePool",
            respool.CreateRequest(config=config),
            "invalidResourcePoolConfig",
        ),
    ):
        (line,) = logged(fleet, lambda m=method, s=sent: fleet.call(m, s, ADMIN))
        assert (line["method"], line["answer"], line["error"]) == (method, "REFUSED", error)
        assert len(json.dumps(line)) < 2048


@contextlib.contextmanager
def with_passwords(log: AuditLog) -> Iterator[grpc.Channel]:
    """A channel to a server with a method that changes something, for one user who may not."""
    users = parse_users(
        {
            "users": [
                {"username": "ann", "password": SECRET, "role": "none"},
                {"username": "inside", "password": "in-" + SECRET, "role": "all"},
            ],
            "roles": [
                {"role": "none", "accept": ["*"], "reject": ["*"]},
                {"role": "all", "accept": ["*"]},
            ],
            "internal_user": "inside",
        }
    )
    described = ops.DESCRIPTOR.services_by_name["Ops"]
    cluster: Any = None
    gates = Gates(ClusterClient(cluster), ACCESS_TABLE, audit=log)

    class Refusing:
        def Redrive(self, sent: Any, context: CallContext) -> Any:
            raise AssertionError("nobody may call it")

    server = Server(
        [],
        Intake(message_bytes_max=4 << 20, bytes_max=16 << 20),
        gates=gates.of,
        authentication=Authentication.by_password(users),
    )
    server.add(described, Refusing(), names=[described.full_name])
    (port,) = server.listen(["127.0.0.1:0"])
    server.start()
    try:
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            yield channel
    finally:
        assert server.stop(0).wait(WAIT_S_MAX)
        log.close()


def test_callers_who_are_not_let_in_are_logged_and_bounded(tmp_path: Path) -> None:
    tries = [("ann", SECRET), ("ann", "wrong"), ("n" * 1000, "wrong"), ("", "")]
    left_out = 7
    tries += [("flood", "wrong")] * (audit.REFUSED_LINES_MAX - len(tries) + left_out)
    with with_passwords(AuditLog(tmp_path / AUDIT_LOG)) as channel:
        for name, password in tries:
            said = [("username", name), ("password", password), ("rpc-caller", "c" * 1000)]
            with pytest.raises(grpc.RpcError):
                ops_pb2_grpc.OpsStub(channel).Redrive(ops.RedriveRequest(), metadata=said)
    *lines, last = lines_in(tmp_path / AUDIT_LOG)
    assert len(lines) == audit.REFUSED_LINES_MAX
    assert [(line["who"], line["how"], line["answer"]) for line in lines[:4]] == [
        ("ann", "unverified", "PERMISSION_DENIED"),
        ("ann", "unverified", "UNAUTHENTICATED"),
        ("n" * 128, "unverified", "UNAUTHENTICATED"),
        ("", "none", "UNAUTHENTICATED"),
    ]
    assert {line["caller"] for line in lines} == {"c" * 128}
    assert {line["method"] for line in lines} == {f"{OPS}.Redrive"}
    assert (last["left_out"], "who" in last) == (left_out, False)
    assert SECRET not in (tmp_path / AUDIT_LOG).read_text()
