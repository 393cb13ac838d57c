"""Bytes that are no request, and requests that make no sense: refused, never a failure of ours."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from random import Random
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2
from structlog.testing import capture_logs

from peloton.api.v0.job import job_pb2
from peloton.api.v0.respool import respool_pb2
from peloton.api.v0.task import task_pb2
from peloton.gateway.server import wire_faults
from peloton.gateway.server.wire_faults import first_fault
from peloton.ops.v1 import ops_pb2
from tests.gateway.fleet_fixture import WAIT_S_MAX, Deployment
from tests.gateway.server.message_bytes import faulty, length, tag, valid

CODE = grpc.StatusCode
SEEDS = range(3)
SERVICES = (
    job_pb2.DESCRIPTOR.services_by_name["JobManager"],
    task_pb2.DESCRIPTOR.services_by_name["TaskManager"],
    respool_pb2.DESCRIPTOR.services_by_name["ResourceManager"],
    ops_pb2.DESCRIPTOR.services_by_name["Ops"],
    health_pb2.DESCRIPTOR.services_by_name["Health"],
    reflection_pb2.DESCRIPTOR.services_by_name["ServerReflection"],
)
METHODS = [method for service in SERVICES for method in service.methods]
FAILURES = {CODE.INTERNAL, CODE.UNKNOWN, CODE.DATA_LOSS, CODE.CANCELLED}


def answered(deployment: Deployment, method: MethodDescriptor, data: bytes) -> Any:
    """Code and text of a call with these bytes; of a stream, after its first message."""
    path = f"/{method.containing_service.full_name}/{method.name}"
    if method.client_streaming:
        stream = deployment.channel.stream_stream(path)(iter((data,)), timeout=WAIT_S_MAX)
    else:
        key = [("peloton-request-key", hashlib.sha256(data).hexdigest())]
        stream = deployment.channel.unary_stream(path)(data, timeout=WAIT_S_MAX, metadata=key)
    try:
        next(stream, None)
    except grpc.RpcError as error:
        return error.code(), error.details()
    stream.cancel()
    return CODE.OK, ""


@pytest.fixture
def well(deployment: Deployment) -> Iterator[Deployment]:
    """The deployment, which has to be healthy afterwards and to have logged no failure."""
    with capture_logs() as logged:
        yield deployment
    assert [entry for entry in logged if entry["log_level"] == "error"] == []
    sent = health_pb2.HealthCheckRequest()
    answer = health_pb2_grpc.HealthStub(deployment.channel).Check(sent, timeout=WAIT_S_MAX)
    assert answer.status == health_pb2.HealthCheckResponse.SERVING


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.full_name)
def test_bytes_that_are_no_request_are_an_invalid_argument(
    well: Deployment, method: MethodDescriptor
) -> None:
    kind, refused = GetMessageClass(method.input_type), 0
    for seed in SEEDS:
        for data in faulty(method.input_type, Random(seed)):
            try:
                kind.FromString(data)
            except DecodeError:
                pass
            else:
                continue
            code, text = answered(well, method, data)
            if code == CODE.UNIMPLEMENTED:
                assert "is not supported yet" in text or text == "Method not found!", text
                return
            assert code == CODE.INVALID_ARGUMENT, (data, code, text)
            assert method.input_type.full_name in text and "refused them" not in text, (data, text)
            refused += 1
    assert refused > 10


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.full_name)
def test_a_call_without_a_request_is_an_invalid_argument(
    well: Deployment, method: MethodDescriptor
) -> None:
    path = f"/{method.containing_service.full_name}/{method.name}"
    call = well.channel.stream_stream(path)(iter(()), timeout=WAIT_S_MAX)
    if method.client_streaming:
        assert list(call) == []
        return
    with pytest.raises(grpc.RpcError) as caught:
        list(call)
    assert caught.value.code() in (CODE.INVALID_ARGUMENT, CODE.UNIMPLEMENTED)


def test_extreme_values_for_reflection_are_refused_or_answered(well: Deployment) -> None:
    """Of all other services `test_hostile_messages.py` shows it."""
    (method,) = reflection_pb2.DESCRIPTOR.services_by_name["ServerReflection"].methods
    for seed in range(30):
        sent = valid(method.input_type, Random(f"{method.full_name} {seed}"))
        code, text = answered(well, method, sent.SerializePartialToString())
        assert code not in FAILURES, (sent, code, text)


def create_with(config: bytes) -> bytes:
    return tag(2, 2) + length(config) + config


JOB = job_pb2.CreateRequest.DESCRIPTOR
FIELD = JOB.fields_by_number[2].name


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"\x80", "the message is truncated"),
        (create_with(b"")[:1], f"{FIELD} is truncated"),
        (tag(2, 2) + b"\x05abc", f"{FIELD} is truncated"),
        (create_with(tag(2, 2) + b"\x01\xff"), f"{FIELD}.name is not UTF-8"),
        (tag(1, 2) + b"\x00" + create_with(tag(0, 2) + b"\x00"), f"{FIELD} cannot be read"),
        (create_with(tag(2, 7)), f"{FIELD}.name cannot be read"),
        (create_with(tag(2, 4)), f"{FIELD}.name cannot be read"),
        (tag(77, 3), "field 77 cannot be read"),
        (tag(77, 5) + b"abc", "field 77 is truncated"),
        (tag(77, 0) + b"\xff" * 10, "field 77 is truncated"),
    ],
)
def test_the_text_says_what_is_wrong(data: bytes, text: str) -> None:
    with pytest.raises(DecodeError):
        job_pb2.CreateRequest.FromString(data)
    assert first_fault(JOB, data) == text


def test_the_text_costs_little_however_large_the_bytes_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(wire_faults, "LOOKED_AT_BYTES_MAX", 100)
    data = (tag(99, 0) + b"\x01") * 100 + b"\x80"
    assert first_fault(JOB, data) == "in more than 100 bytes the fault is not searched for"


def test_a_missing_field_that_must_be_there_is_named(well: Deployment) -> None:
    """The parser lets it pass, and raises only where the request is written again."""
    sent = job_pb2.CreateRequest()
    sent.config.defaultConfig.command.uris.add(executable=True)
    create = job_pb2.DESCRIPTOR.services_by_name["JobManager"].methods_by_name["Create"]
    code, text = answered(well, create, sent.SerializePartialToString())
    assert code == CODE.INVALID_ARGUMENT
    missing = "required fields are missing: config.defaultConfig.command.uris[0].value"
    assert text == f"the bytes are no peloton.api.v0.job.CreateRequest: {missing}"


def test_the_text_names_what_is_nested_too_deep() -> None:
    data = b""
    for _ in range(60):
        data = tag(3, 2) + length(data) + data
        data = tag(1, 2) + length(data) + data
    described = task_pb2.AndConstraint.DESCRIPTOR
    with pytest.raises(DecodeError):
        task_pb2.AndConstraint.FromString(data)
    text = "constraints.andConstraint.constraints … is nested too deep"
    assert first_fault(described, data) == text
