"""Output that is kept while somebody reads it: a thread of a Client says so again and again."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import grpc
import pytest

from peloton.sdk import outputs as sdk_outputs
from peloton.sdk.aio import AsyncClient
from peloton.sdk.client import Client
from tests.sdk.fakes import JOB, Cluster, serving


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def client(cluster: Cluster) -> Iterator[Client]:
    with serving(cluster) as address, Client(address, timeout_s=60) as client:
        yield client


def holds(cluster: Cluster) -> list[float]:
    return [call.request.for_s for call in cluster.calls if call.name == "HoldOutputs"]


def test_output_is_held_again_and_again_while_somebody_reads(cluster, client, monkeypatch) -> None:
    """By one call a time, whatever number of instances; where nobody answers, the next one does."""
    monkeypatch.setattr(sdk_outputs, "RENEW_S", 0.01)
    cluster.holds_left = 4
    cluster.troubles["HoldOutputs"] = [(grpc.StatusCode.INTERNAL, "not now")]
    with client.outputs.held(JOB):
        assert cluster.held_last.wait(60)
    assert len(holds(cluster)) >= 5 and {*holds(cluster)} == {60.0}
    assert f"hold-{JOB}" not in [thread.name for thread in threading.enumerate()]


@pytest.mark.parametrize("code", ["UNIMPLEMENTED", "NOT_FOUND"])
def test_where_it_can_never_be_held_it_is_asked_once(cluster, client, monkeypatch, code) -> None:
    monkeypatch.setattr(sdk_outputs, "RENEW_S", 0.0)
    cluster.troubles["HoldOutputs"] = [(grpc.StatusCode[code], "no")]
    with client.outputs.held(JOB):
        assert f"hold-{JOB}" not in [thread.name for thread in threading.enumerate()]
    assert len(holds(cluster)) == 1


def test_a_client_that_awaits_has_no_thread_for_it() -> None:
    outputs = AsyncClient("127.0.0.1:1").outputs
    with pytest.raises(TypeError, match="call hold"), outputs.held(JOB):  # type: ignore[misc]
        pass
