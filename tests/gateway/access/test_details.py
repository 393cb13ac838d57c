"""Statuses with the details of google.rpc, as any client of gRPC reads them."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2
from grpc_status import rpc_status

from peloton.gateway.cluster import cluster_client
from peloton.gateway.server.calls import CallContext
from peloton.ops.v1 import ops_pb2 as ops
from peloton.runtime.vocabulary import Unavailable
from tests.gateway.fleet_fixture import WAIT_S_MAX, Deployment


def test_a_wrong_field_is_named_in_the_details(deployment: Deployment) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        deployment.ops.Story(ops.StoryRequest(key="shoe/1"))
    status = rpc_status.from_call(caught.value)
    assert status is not None
    bad = error_details_pb2.BadRequest()
    (detail,) = status.details
    assert detail.Unpack(bad)
    (violation,) = bad.field_violations
    assert violation.field == "key"
    assert violation.description.startswith("'shoe/1' is not KIND/NAME")
    assert caught.value.details() == f"key: {violation.description}"


@pytest.mark.parametrize("letter", ["x", "é", "日", "\N{ROCKET}"])
@pytest.mark.parametrize("length", [900, 1000, 100_000])
def test_a_long_text_reaches_a_client(deployment: Deployment, letter: str, length: int) -> None:
    sent = ops.WatchRequest(pool="/" + letter * length)
    with pytest.raises(grpc.RpcError) as caught:
        next(deployment.ops.Watch(sent, timeout=WAIT_S_MAX))
    assert caught.value.code() == grpc.StatusCode.NOT_FOUND
    assert caught.value.details().startswith("no pool /" + letter * 100)
    with pytest.raises(grpc.RpcError) as caught:
        deployment.ops.Story(ops.StoryRequest(key=letter * length), timeout=WAIT_S_MAX)
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT


class Ended(Exception):
    """What ends a call."""


class Context(CallContext):
    """As much of a call's context as the desk uses."""

    def __init__(self) -> None:
        super().__init__()
        self.status: grpc.Status | None = None

    def time_remaining(self) -> float | None:
        return None

    def abort(self, code: grpc.StatusCode, text: str) -> None:
        raise Ended(code, text)

    def abort_with_status(self, status: grpc.Status) -> None:
        self.status = status
        raise Ended(status.code, status.details)


@pytest.mark.parametrize("safe", [True, False])
def test_only_what_is_safe_to_repeat_is_told_when_to(safe: bool) -> None:
    future: Future[Any] = Future()
    future.set_result(Unavailable("moving"))
    context = Context()
    with pytest.raises(Ended) as caught:
        cluster_client.ClusterClient(None).wait(future, context, safe=safe)  # type: ignore[arg-type]
    assert caught.value.args == (grpc.StatusCode.UNAVAILABLE, "moving")
    assert (context.status is not None) == safe
