"""The server as such: names, health, reflection, what comes later, what breaks."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import Any

import grpc
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from peloton.api.v0.job import job_pb2, job_pb2_grpc
from peloton.api.v0.respool import respool_pb2
from peloton.api.v0.task import task_pb2, task_pb2_grpc
from peloton.gateway.cluster import cluster_client
from peloton.gateway.grpc_server import build_server
from peloton.gateway.server.serving import THREADS_MAX
from peloton.gateway.translate.short_names import SHORT
from peloton.private.hostmgr.hostsvc import hostsvc_pb2, hostsvc_pb2_grpc
from peloton.runtime.core.health import DaemonHealth, NotReadyReason
from peloton.runtime.vocabulary import ShardDamaged, Unavailable
from peloton.settings.config import RECEIVE_MAX_BYTES
from tests.gateway.fleet_fixture import OPEN_TO_ALL, WAIT_S_MAX, Deployment, named


def code_of(call: Any, sent: Any) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.RpcError) as caught:
        call(sent)
    return caught.value.code(), caught.value.details()


def test_calls_of_older_and_newer_contracts(deployment: Deployment) -> None:
    hosts = hostsvc_pb2_grpc.InternalHostServiceStub(deployment.channel)
    code, text = code_of(hosts.CreateVolumes, hostsvc_pb2.CreateVolumesRequest())
    assert (code, text) == (
        grpc.StatusCode.UNIMPLEMENTED, "InternalHostService.CreateVolumes is not supported yet",
    )  # fmt: skip
    call = deployment.channel.unary_unary("/no.such.Service/Call")
    assert code_of(call, b"")[0] == grpc.StatusCode.UNIMPLEMENTED


def test_bytes_that_are_no_message(deployment: Deployment) -> None:
    call = deployment.channel.unary_unary("/peloton.api.job.JobManager/Create")
    code, text = code_of(call, b"\xff\xff\xff\xff")
    assert code == grpc.StatusCode.INVALID_ARGUMENT
    assert text == ("the bytes are no peloton.api.v0.job.CreateRequest: the message is truncated")


def test_health(deployment: Deployment) -> None:
    health = health_pb2_grpc.HealthStub(deployment.channel)
    for service in ("", "peloton.api.job.JobManager", "peloton.ops.v1.Ops"):
        answer = health.Check(health_pb2.HealthCheckRequest(service=service))
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
    code, _ = code_of(health.Check, health_pb2.HealthCheckRequest(service="nothing"))
    assert code == grpc.StatusCode.NOT_FOUND


def test_reflection_lists_both_names(deployment: Deployment) -> None:
    stub = reflection_pb2_grpc.ServerReflectionStub(deployment.channel)
    asked = reflection_pb2.ServerReflectionRequest(list_services="")
    (answer,) = stub.ServerReflectionInfo(iter([asked]))
    names = {service.name for service in answer.list_services_response.service}
    assert {"peloton.api.job.JobManager", "peloton.api.v0.job.JobManager"} <= names
    assert {"peloton.ops.v1.Ops", "grpc.health.v1.Health"} <= names


ORIGINAL = [
    ("peloton.api.v0.job.JobManager", "Get", job_pb2.GetRequest, "peloton-jobmgr"),
    ("peloton.api.v0.task.TaskManager", "Get", task_pb2.GetRequest, "peloton-jobmgr"),
    ("peloton.api.v0.respool.ResourceManager", "Query", respool_pb2.QueryRequest, "peloton-resmgr"),
]


@pytest.mark.parametrize(("service", "name", "kind", "daemon"), ORIGINAL)
@pytest.mark.parametrize("is_short", [False, True])
def test_what_clients_of_the_original_send_beside_a_request(
    deployment: Deployment, is_short: bool, service: str, name: str, kind: Any, daemon: str
) -> None:
    """Metadata is accepted under both names, and what it says changes no answer."""
    call = deployment.channel.unary_unary(f"/{SHORT[service] if is_short else service}/{name}")
    sent = kind().SerializeToString()
    plain = call(sent, timeout=WAIT_S_MAX)
    user = [("username", "ann"), ("password", "s3cret")]
    for service_said, encoding in ((daemon, "proto"), ("peloton-apiserver", "json")):
        said = [("rpc-caller", "tool"), ("rpc-service", service_said), ("rpc-encoding", encoding)]
        assert call(sent, metadata=said, timeout=WAIT_S_MAX) == plain
        assert call(sent, metadata=[*said, *user], timeout=WAIT_S_MAX) == plain


@pytest.mark.parametrize("is_short", [False, True])
@pytest.mark.parametrize("service", SHORT)
def test_a_message_over_the_limit_is_refused_under_both_names(
    deployment: Deployment, service: str, is_short: bool
) -> None:
    name = {"ResourceManager": "CreateResourcePool", "TaskManager": "Stop"}.get(
        service.rpartition(".")[2], "Create"
    )
    call = deployment.channel.unary_unary(f"/{SHORT[service] if is_short else service}/{name}")
    code, text = code_of(call, bytes(RECEIVE_MAX_BYTES + 1))
    assert code is grpc.StatusCode.RESOURCE_EXHAUSTED and "larger than max" in text


@pytest.mark.parametrize("short", SHORT.values())
def test_reflection_describes_the_short_names(deployment: Deployment, short: str) -> None:
    """As a client without the protos asks: the file of a name, and all that it depends on."""
    stub = reflection_pb2_grpc.ServerReflectionStub(deployment.channel)
    asked = reflection_pb2.ServerReflectionRequest(file_containing_symbol=short)
    (answer,) = stub.ServerReflectionInfo(iter([asked]))
    pool = descriptor_pool.DescriptorPool()
    files = [
        descriptor_pb2.FileDescriptorProto.FromString(data)
        for data in answer.file_descriptor_response.file_descriptor_proto
    ]
    _add(pool, stub, files[0])
    found = pool.FindServiceByName(short)
    (long,) = (name for name, one in SHORT.items() if one == short)
    described = descriptor_pool.Default().FindServiceByName(long)
    assert [*found.methods_by_name] == [*described.methods_by_name]
    for name, method in found.methods_by_name.items():
        assert method.input_type.full_name == described.methods_by_name[name].input_type.full_name


def _add(pool: Any, stub: Any, file: descriptor_pb2.FileDescriptorProto) -> None:
    """Put a file into a pool after those it depends on, as reflection describes them."""
    for name in file.dependency:
        try:
            pool.FindFileByName(name)
        except KeyError:
            asked = reflection_pb2.ServerReflectionRequest(file_by_filename=name)
            (answer,) = stub.ServerReflectionInfo(iter([asked]))
            data = answer.file_descriptor_response.file_descriptor_proto[0]
            _add(pool, stub, descriptor_pb2.FileDescriptorProto.FromString(data))
    pool.Add(file)


class Silent:
    """A cluster that never answers, or says that it cannot."""

    def __init__(self) -> None:
        self.answer: Any = None
        self.asked = threading.Semaphore(0)

    def ask(self, *_: Any, **__: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.asked.release()
        if self.answer is not None:
            future.set_result(self.answer)
        return future

    def read(self, *_: Any) -> None:
        return None

    def daemon_health(self) -> DaemonHealth:
        return DaemonHealth(True, False, (NotReadyReason("cluster", "silent"),))


def test_a_cluster_that_does_not_answer_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_client, "CALL_ASK_S_MAX", 0.05)
    cluster = Silent()
    server, ports = build_server(
        cluster,  # type: ignore[arg-type]
        ["127.0.0.1:0", "127.0.0.1:0"],
        **OPEN_TO_ALL,
    )
    assert len({*ports, 0}) == 3
    server.start()
    try:
        with grpc.insecure_channel(f"127.0.0.1:{ports[1]}") as channel:
            jobs = job_pb2_grpc.JobManagerStub(channel)
            sent = job_pb2.GetRequest(id=named("00000000-0000-4000-8000-000000000000"))
            code, text = code_of(jobs.Get, sent)
            assert code == grpc.StatusCode.UNAVAILABLE
            assert text.startswith("no answer in time from job/") and "change" not in text
            code, text = code_of(jobs.Delete, job_pb2.DeleteRequest(id=sent.id))
            assert code == grpc.StatusCode.UNAVAILABLE
            assert "no answer in time from job/" in text and "a change may have happened" in text
            cluster.answer = Unavailable("moving house")
            assert code_of(jobs.Get, sent) == (grpc.StatusCode.UNAVAILABLE, "moving house")
            cluster.answer = ShardDamaged("shard jobmgr/3 is damaged: chain break")
            code, text = code_of(jobs.Get, sent)
            assert code == grpc.StatusCode.DATA_LOSS, "no client repeats that"
            assert text == "shard jobmgr/3 is damaged: chain break"
            health = health_pb2_grpc.HealthStub(channel)
            Checked = health_pb2.HealthCheckResponse
            for service, status in {
                "": Checked.NOT_SERVING,
                "peloton.ops.v1.Ops": Checked.NOT_SERVING,
                "readiness": Checked.NOT_SERVING,
                "liveness": Checked.SERVING,
            }.items():
                answer = health.Check(health_pb2.HealthCheckRequest(service=service))
                assert answer.status == status, service
            assert task_pb2_grpc.TaskManagerStub(channel)
    finally:
        server.stop(0).wait(WAIT_S_MAX)


def test_a_health_check_does_not_wait_behind_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_client, "CALL_ASK_S_MAX", 600.0)
    cluster: Any = Silent()
    server, (port,) = build_server(cluster, ["127.0.0.1:0"], **OPEN_TO_ALL)
    server.start()
    try:
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            sent = job_pb2.GetRequest(id=named("00000000-0000-4000-8000-000000000000"))
            get = job_pb2_grpc.JobManagerStub(channel).Get
            calls = [get.future(sent) for _ in range(THREADS_MAX + 10)]
            for _ in range(THREADS_MAX):
                assert cluster.asked.acquire(timeout=WAIT_S_MAX)
            checked = health_pb2_grpc.HealthStub(channel).Check(
                health_pb2.HealthCheckRequest(service="liveness"), timeout=WAIT_S_MAX
            )
            assert checked.status == health_pb2.HealthCheckResponse.SERVING
            assert not any(call.done() for call in calls)
    finally:
        server.stop(0).wait(WAIT_S_MAX)


def test_a_taken_port_is_an_error() -> None:
    server, ports = build_server(Silent(), ["127.0.0.1:0"], **OPEN_TO_ALL)  # type: ignore[arg-type]
    server.start()
    try:
        with pytest.raises(RuntimeError):
            build_server(Silent(), [f"127.0.0.1:{ports[0]}"], **OPEN_TO_ALL)  # type: ignore[arg-type]
    finally:
        server.stop(0).wait(WAIT_S_MAX)
