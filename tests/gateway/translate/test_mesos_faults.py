"""The fields that a message must have and lacks, and texts that are none, wherever they are."""

from __future__ import annotations

from typing import Any

import grpc
import pytest

from peloton.api.v0.job import job_pb2 as job
from peloton.gateway.translate.mesos_faults import missing_fields, unreadable_texts
from peloton.private.hostmgr.hostsvc import hostsvc_pb2 as hostsvc
from peloton.private.hostmgr.hostsvc import hostsvc_pb2_grpc
from tests.gateway.fleet_fixture import Deployment


def behind_a_map() -> hostsvc.LaunchTasksRequest:
    """Maps come before what is missing: the library's own list then names what is not there."""
    found = hostsvc.LaunchTasksRequest(agentId={})
    one = found.tasks.add(taskId={}, ports={"http": 1, "ops": 2})
    one.config.command.environment.variables.add()
    return found


def in_a_map() -> job.CreateRequest:
    found = job.CreateRequest()
    found.config.instanceConfig[7].command.environment.variables.add()
    return found


@pytest.mark.parametrize(
    ("message", "paths"),
    [
        (hostsvc.LaunchTasksRequest(tasks=[{"ports": {"http": 1}}]), []),
        (
            behind_a_map(),
            [
                "agentId.value",
                "tasks[0].config.command.environment.variables[0].name",
                "tasks[0].taskId.value",
            ],
        ),
        (in_a_map(), ["config.instanceConfig[7].command.environment.variables[0].name"]),
    ],
)
def test_each_is_named_by_its_path(message: Any, paths: list[str]) -> None:
    assert sorted(missing_fields(message)) == paths


def test_a_request_that_lacks_some_is_refused(deployment: Deployment) -> None:
    stub = hostsvc_pb2_grpc.InternalHostServiceStub(deployment.channel)
    call = deployment.channel.unary_unary(
        "/peloton.private.hostmgr.hostsvc.InternalHostService/LaunchTasks"
    )
    with pytest.raises(grpc.RpcError) as caught:
        call(behind_a_map().SerializePartialToString())
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "required fields are missing: agentId.value, " in (caught.value.details() or "")
    assert stub.ClusterCapacity(hostsvc.ClusterCapacityRequest()).physicalResources


def with_broken(sent: Any, text: str = "broken") -> bytes:
    """The bytes of a message in which this text is not UTF-8."""
    return bytes(sent.SerializePartialToString().replace(text.encode(), b"\xff" * len(text)))


def broken_command() -> job.CreateRequest:
    found = job.CreateRequest()
    found.config.defaultConfig.command.value = "broken"
    found.config.defaultConfig.command.arguments.extend(["well", "broken"])
    found.config.instanceConfig[7].command.environment.variables.add(name="broken", value="well")
    return found


def test_texts_that_are_not_utf8_are_named_by_their_paths() -> None:
    found = job.CreateRequest.FromString(with_broken(broken_command()))
    assert sorted(unreadable_texts(found)) == [
        "config.defaultConfig.command.arguments[1]",
        "config.defaultConfig.command.value",
        "config.instanceConfig[7].command.environment.variables[0].name",
    ]
    assert [*unreadable_texts(broken_command())] == []


def test_a_request_with_such_a_text_is_refused(deployment: Deployment) -> None:
    call = deployment.channel.unary_unary("/peloton.api.v0.job.JobManager/Create")
    with pytest.raises(grpc.RpcError) as caught:
        call(with_broken(broken_command()))
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    first = "not UTF-8: config.defaultConfig.command.arguments[1], "
    assert first in (caught.value.details() or "")
