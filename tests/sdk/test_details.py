"""What the client makes of the details of a status: the field that is wrong, when to ask again."""

from __future__ import annotations

import time
from collections.abc import Iterator

import grpc
import pytest

from peloton.gateway.access import details
from peloton.sdk import errors
from peloton.sdk.client import Client
from tests.sdk.fakes import JOB, Cluster, serving

BAD, GONE = grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.UNAVAILABLE


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def client(cluster: Cluster) -> Iterator[Client]:
    with serving(cluster) as address, Client(address, timeout_s=60.0) as client:
        yield client


def refused(client: Client, cluster: Cluster, status: grpc.Status | None) -> errors.BadSpec:
    assert status is not None
    cluster.troubles["Get"] = [status]
    with pytest.raises(errors.BadSpec) as caught:
        client.jobs.get(JOB)
    return caught.value


def test_the_field_is_known_apart_from_the_text(client: Client, cluster: Cluster) -> None:
    error = refused(client, cluster, details.status(BAD, "'x' names no run: or", field="runId"))
    assert (error.field, error.reason) == ("runId", "'x' names no run: or")
    assert str(error) == "runId: 'x' names no run: or"


def test_a_field_of_a_config_is_named_from_there(client: Client, cluster: Cluster) -> None:
    status = details.status(BAD, "is negative", field="config.defaultConfig.resource.cpuLimit")
    assert refused(client, cluster, status).field == "defaultConfig.resource.cpuLimit"


def test_a_long_text_travels_without_details(client: Client, cluster: Cluster) -> None:
    assert details.status(BAD, "x" * 100_000, field="key") is None


def test_details_that_cannot_be_read_are_left_out(client: Client, cluster: Cluster) -> None:
    told = details.status(BAD, "wrong", field="key")
    assert told is not None
    trailer = (("grpc-status-details-bin", b"\xff\xff"),)
    error = refused(client, cluster, told._replace(trailing_metadata=trailer))
    assert (error.field, str(error)) == ("", "key: wrong")


def test_a_server_says_when_to_ask_again(client: Client, cluster: Cluster) -> None:
    cluster.add_job("RUNNING", "RUNNING")
    told = details.status(GONE, "moving", retry_s=0.8)
    assert told is not None
    cluster.troubles["Get"] = [told]
    began = time.monotonic()
    client.jobs.get(JOB)
    assert len(cluster.called("Get")) == 2
    assert time.monotonic() - began >= 0.8
    cluster.troubles["Redrive"] = [told]
    with pytest.raises(errors.ServiceUnavailable) as caught:
        client.ops.redrive("job/a")
    assert caught.value.retry_s == 0.8
