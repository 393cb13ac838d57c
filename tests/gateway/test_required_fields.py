"""The fields that a message must have and lacks, wherever they are in it."""

from __future__ import annotations

from typing import Any

import grpc
import pytest

from peloton.api.v0.job import job_pb2 as job
from peloton.gateway.required_fields import missing_fields
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
